//! Who sees what a run left behind where several people share one role, and how much of it is kept.

use ragent_server_tests::cluster::Cluster;
use ragent_server_tests::database::{Database, current, quote};
use ragent_server_tests::session::Session;

/// Two tenants' rows, told apart by `app.tenant`, and one role that serves both.
async fn open(settings: &str) -> (Database<'static>, Session, String) {
    let (db, admin) = Database::open().await;
    let app = db.create_role("app").await;
    let name = quote(&app);
    admin
        .run(&format!(
            "CREATE TABLE notes (id int PRIMARY KEY, tenant text, body text);
             INSERT INTO notes VALUES (1, 'a', 'The alpha office closes at six.'), (2, 'b', 'The beta office closes at nine.');
             ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
             CREATE POLICY tenants ON notes USING (tenant = current_setting('app.tenant', true));
             GRANT SELECT ON notes TO {name};
             SELECT rag.create_collection('notes', 'notes', '{{body}}', embedding_model => 'fake/embed-384');"
        ))
        .await;
    current(&admin).await;
    scope(&db, &admin, settings).await;
    (db, admin, app)
}

async fn scope(db: &Database<'_>, admin: &Session, settings: &str) {
    admin.run(&format!("ALTER DATABASE {} SET rag.scope_settings = '{settings}'", db.name)).await;
}

async fn as_tenant(db: &Database<'_>, role: &str, tenant: &str) -> Session {
    let session = db.connect_as(role).await;
    session.run(&format!("SET app.tenant = '{tenant}'")).await;
    session
}

const ASK: &str = "SELECT run_id FROM rag.answer('When does the office close?', chat_model => 'fake/chat')";
/// Runs and steps that are seen, and whose they are.
const SEEN: &str = "SELECT concat_ws(' ', (SELECT count(*) FROM rag.runs), (SELECT count(*) FROM rag.steps),
    (SELECT string_agg(scope::text, ',' ORDER BY started_at) FROM rag.runs))";

#[tokio::test]
async fn tenants_that_share_a_role_see_and_delete_their_own_runs_only() {
    let (db, admin, app) = open("app.tenant").await;
    let (a, b) = (as_tenant(&db, &app, "a").await, as_tenant(&db, &app, "b").await);
    let run_of_a = a.value(ASK).await;
    let run_of_b = b.value(ASK).await;
    assert_eq!(a.value(SEEN).await, r#"1 4 {"app.tenant": "a"}"#);
    assert_eq!(b.value(SEEN).await, r#"1 4 {"app.tenant": "b"}"#);
    assert!(a.value(&format!("SELECT rag.trace('{run_of_a}')")).await.contains("alpha"));
    a.refusal(&format!("SELECT rag.trace('{run_of_b}')"), "42704").await;
    // By no other way, either.
    for sql in [
        format!("SELECT count(*) FROM rag.runs WHERE id = '{run_of_b}'"),
        format!("SELECT count(*) FROM rag.steps WHERE run_id = '{run_of_b}'"),
        "SELECT count(*) FROM rag.steps WHERE detail::text LIKE '%beta%'".to_owned(),
    ] {
        assert_eq!(a.number(&sql).await, 0, "{sql}");
    }
    a.run(&format!("DELETE FROM rag.runs WHERE id = '{run_of_b}'; DELETE FROM rag.runs")).await;
    assert_eq!(a.value(SEEN).await, "0 0");
    assert_eq!(b.value(SEEN).await, r#"1 4 {"app.tenant": "b"}"#, "b's run and its steps are still there");
    assert_eq!(admin.number("SELECT count(*) FROM rag.steps").await, 4, "the steps went with a's run");
    // Another role is not let in by the same value.
    let other = db.create_role("other").await;
    assert_eq!(as_tenant(&db, &other, "b").await.value(SEEN).await, "0 0");
}

#[tokio::test]
async fn a_setting_that_is_unset_or_empty_shows_nothing_and_records_for_nobody() {
    let (db, admin, app) = open("app.tenant").await;
    as_tenant(&db, &app, "a").await.run(ASK).await;
    let session = db.connect_as(&app).await;
    assert_eq!(session.value(SEEN).await, "0 0", "unset");
    session.run("SET app.tenant = ''").await;
    assert_eq!(session.value(SEEN).await, "0 0", "empty");
    // It is answered all the same, and seen by nobody but those who see all.
    session.run(ASK).await;
    assert_eq!(session.value(SEEN).await, "0 0");
    assert_eq!(as_tenant(&db, &app, "a").await.value(SEEN).await, r#"1 4 {"app.tenant": "a"}"#);
    let all = admin.column("SELECT scope FROM rag.runs ORDER BY started_at").await;
    assert_eq!(all, [r#"{"app.tenant": "a"}"#, "{}"]);
    session.run("DELETE FROM rag.runs").await;
    assert_eq!(admin.number("SELECT count(*) FROM rag.runs").await, 2);
}

#[tokio::test]
async fn the_present_list_of_settings_decides_about_runs_of_before() {
    let (db, admin, app) = open("").await;
    let seen = async |tenant: &str, user: &str| {
        let session = as_tenant(&db, &app, tenant).await;
        session.run(&format!("SET app.user_id = '{user}'")).await;
        session.number("SELECT count(*) FROM rag.runs").await
    };
    as_tenant(&db, &app, "a").await.run(ASK).await;
    assert_eq!(admin.maybe("SELECT scope FROM rag.runs").await, None);
    assert_eq!(seen("b", "").await, 1, "no setting is named: the role alone decides");
    scope(&db, &admin, "app.tenant").await;
    assert_eq!(seen("a", "").await, 0, "recorded before there was a scope");
    as_tenant(&db, &app, "a").await.run(ASK).await;
    assert_eq!((seen("a", "").await, seen("b", "").await), (1, 0));
    // Names of settings are the same in capitals; one more is named.
    scope(&db, &admin, " App.User_Id, APP.tenant").await;
    assert_eq!(seen("a", "u").await, 0, "recorded without app.user_id");
    let session = as_tenant(&db, &app, "a").await;
    session.run("SET app.user_id = 'u'").await;
    session.run(ASK).await;
    assert_eq!((seen("a", "u").await, seen("a", "v").await, seen("b", "u").await, seen("a", "").await), (1, 0, 0, 0));
    scope(&db, &admin, "app.tenant").await;
    assert_eq!((seen("a", "").await, seen("b", "u").await), (2, 0), "what is no longer named does not count");
    // A list that is gone, in a restored database say, and one with a slip show nothing that has a scope.
    admin.run(&format!("ALTER DATABASE {} RESET rag.scope_settings", db.name)).await;
    assert_eq!(seen("a", "u").await, 1, "only the run that has no scope");
    for slip in ["app.tenant,", "app,tenant", "no.such.setting", "app.tenant app.user_id"] {
        scope(&db, &admin, slip).await;
        assert_eq!(seen("a", "u").await, 0, "{slip}");
    }
}

#[tokio::test]
async fn nobody_but_a_superuser_says_what_the_scope_is_and_what_is_recorded() {
    let (db, _admin, app) = open("app.tenant").await;
    let a = as_tenant(&db, &app, "a").await;
    a.run(ASK).await;
    for sql in [
        "SET rag.scope_settings = ''",
        "SET LOCAL rag.scope_settings = 'app.nothing'",
        "SELECT set_config('rag.scope_settings', '', false)",
        "SET rag.record = 'off'",
        "SET rag.record = 'metadata'",
        "ALTER ROLE CURRENT_USER SET rag.scope_settings = ''",
        "CREATE FUNCTION pg_temp.f() RETURNS bigint LANGUAGE sql SET rag.scope_settings = '' AS 'SELECT count(*) FROM rag.runs'",
        "UPDATE rag.runs SET scope = NULL",
        "INSERT INTO rag.runs (id, role, role_oid, cluster, question, model, status, started_at)
         SELECT gen_random_uuid(), current_user, current_user::regrole, 1, 'x', 'x', 'running', now()",
        "UPDATE rag.steps SET scope = NULL",
    ] {
        a.error(sql, "42501").await;
    }
    assert_eq!(a.value(SEEN).await, r#"1 4 {"app.tenant": "a"}"#);
    // A setting that not everybody may read is none.
    assert_eq!(a.value("SELECT rag_internal.current_scope()").await, r#"{"app.tenant": "a"}"#);
}

#[tokio::test]
async fn a_session_that_names_the_setting_before_the_library_is_there_changes_nothing() {
    let cluster = Cluster::builder().preload(false).start().await;
    let db = Database::in_cluster(&cluster).await;
    let admin = db.connect().await;
    let app = db.create_role("app").await;
    admin.run(&format!("ALTER DATABASE {} SET rag.scope_settings = 'app.tenant'", db.name)).await;
    as_tenant(&db, &app, "b").await.run("SELECT rag.ask('Hello!', chat_model => 'local/extractive')").await;
    for trick in ["SET rag.scope_settings = ''", "SELECT set_config('rag.scope_settings', '', false)"] {
        let session = as_tenant(&db, &app, "a").await;
        // Until the library is loaded, PostgreSQL takes it for anybody's.
        let _ = session.try_rows(trick).await;
        assert_eq!(session.value(SEEN).await, "0 0", "{trick}");
        let _ = session.try_rows(trick).await;
        assert_eq!(session.value(SEEN).await, "0 0", "{trick}, afterwards");
    }
    let session = db.connect_as(&app).await;
    session.run("BEGIN; SET LOCAL app.tenant = 'b'").await;
    assert_eq!(session.value(SEEN).await, r#"1 2 {"app.tenant": "b"}"#);
}

#[tokio::test]
async fn a_policy_that_changes_the_setting_does_not_hand_the_run_to_somebody_else() {
    let (db, admin, app) = open("app.tenant").await;
    admin
        .run(
            "CREATE FUNCTION thief() RETURNS boolean LANGUAGE plpgsql AS $$
             BEGIN PERFORM set_config('app.tenant', 'thief', false); RETURN true; END $$;
             CREATE POLICY thief ON notes AS RESTRICTIVE USING (thief())",
        )
        .await;
    let a = as_tenant(&db, &app, "a").await;
    a.run(ASK).await;
    assert_eq!(admin.column("SELECT DISTINCT scope FROM rag.runs").await, [r#"{"app.tenant": "a"}"#]);
    assert_eq!(admin.column("SELECT DISTINCT scope FROM rag.steps").await, [r#"{"app.tenant": "a"}"#]);
    assert_eq!(as_tenant(&db, &app, "thief").await.value(SEEN).await, "0 0");
}

#[tokio::test]
async fn members_of_rag_run_reader_see_all_runs_and_delete_no_more_than_others() {
    let (db, admin, app) = open("app.tenant").await;
    let reader = db.create_role("reader").await;
    let run = as_tenant(&db, &app, "a").await.value(ASK).await;
    as_tenant(&db, &app, "").await.run(ASK).await;
    admin.run(ASK).await;
    let session = db.connect_as(&reader).await;
    assert_eq!(session.value(SEEN).await, "0 0");
    admin.run(&format!("GRANT rag_run_reader TO {}", quote(&reader))).await;
    assert_eq!(session.number("SELECT count(*) FROM rag.runs").await, 3);
    assert_eq!(session.number("SELECT count(DISTINCT run_id) FROM rag.steps").await, 3);
    let trace = session.value(&format!("SELECT rag.trace('{run}')")).await;
    assert!(trace.contains("alpha office"), "{trace}");
    session.run(&format!("DELETE FROM rag.runs WHERE id = '{run}'; DELETE FROM rag.runs")).await;
    session.error("DELETE FROM rag.steps", "42501").await;
    assert_eq!(admin.number("SELECT count(*) FROM rag.runs").await, 3);
    // Its own rows of the source are not more than before.
    session.refusal("SELECT * FROM rag.search('office', 'notes')", "42501").await;
    // A role that does not inherit sets the role.
    admin.run(&format!("ALTER ROLE {} NOINHERIT", quote(&reader))).await;
    let privileges = "SELECT pg_has_role(current_user, 'rag_run_reader', 'USAGE')";
    let session = db.connect_as(&reader).await;
    let inherits = session.value(privileges).await == "t";
    assert_eq!(session.number("SELECT count(*) FROM rag.runs").await, if inherits { 3 } else { 0 });
    session.run("SET ROLE rag_run_reader").await;
    assert_eq!(session.number("SELECT count(*) FROM rag.runs").await, 3);
    admin.run(&format!("REVOKE rag_run_reader FROM {}", quote(&reader))).await;
    assert_eq!(db.connect_as(&reader).await.value(SEEN).await, "0 0");
}

#[tokio::test]
async fn a_role_finds_its_runs_by_the_index() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("app").await;
    admin
        .run(
            "INSERT INTO rag.runs (id, role, role_oid, cluster, question, model, status, started_at)
             SELECT gen_random_uuid(), 'x', 100000 + i % 1000, (pg_control_system()).system_identifier, 'q', 'm', 'running', now()
             FROM generate_series(1, 20000) i; ANALYZE rag.runs",
        )
        .await;
    let session = db.connect_as(&role).await;
    let plan = session.column("EXPLAIN SELECT * FROM rag.runs ORDER BY started_at DESC LIMIT 3").await.join("\n");
    assert!(plan.contains("Index Cond: ((role_oid >= ") && !plan.contains("Seq Scan"), "{plan}");
}

#[tokio::test]
async fn the_role_of_readers_is_a_plain_role_that_can_be_dropped_and_made_by_hand() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let admin = db.connect().await;
    let state = "SELECT rolcanlogin::text || shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = 'rag_run_reader'";
    assert!(admin.value(state).await.starts_with("falsepg_ragent: "));
    // In the way of nobody: neither of DROP ROLE, nor of runs without it.
    let app = db.create_role("app").await;
    let ask = "SELECT rag.ask('Hello!', chat_model => 'local/extractive')";
    admin.run(ask).await;
    admin.run("DROP ROLE rag_run_reader").await;
    let session = db.connect_as(&app).await;
    session.run(ask).await;
    assert_eq!(session.number("SELECT count(*) FROM rag.runs").await, 1);
    // Made by somebody else, with members: they are named when a database comes under their eyes.
    admin.run(&format!("CREATE ROLE rag_run_reader LOGIN; GRANT rag_run_reader TO {}", quote(&app))).await;
    assert_eq!(session.number("SELECT count(*) FROM rag.runs").await, 2);
    admin.run("CREATE DATABASE second TEMPLATE template0").await;
    let second = cluster.connect("second", "postgres").await;
    second.run("CREATE EXTENSION pg_ragent CASCADE").await;
    let warnings = second.notices();
    let warning = warnings.iter().find(|n| n.severity() == "WARNING").expect("a warning");
    assert!(warning.message().contains(&app) && warning.message().contains("rag_run_reader,"), "{warning:?}");
    assert!(warning.hint().is_some_and(|hint| hint.contains("REVOKE")), "{warning:?}");
    // DROP EXTENSION leaves the role to other databases.
    second.run("DROP EXTENSION pg_ragent").await;
    assert_eq!(second.number("SELECT count(*) FROM pg_roles WHERE rolname = 'rag_run_reader'").await, 1);
    drop(second);
}

#[tokio::test]
async fn metadata_records_no_text_and_off_records_nothing() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("app").await;
    admin
        .run(&format!(
            "CREATE TABLE notes (id int PRIMARY KEY, body text, heading text, address text);
             INSERT INTO notes VALUES (1, 'The office closes at plantedbody.', 'plantedtitle', 'http://plantedlink');
             SELECT rag.create_collection('notes', 'notes', '{{body}}', title => 'heading', link => 'address',
                                          embedding_model => 'fake/embed-384');
             GRANT SELECT ON notes TO {}",
            quote(&role)
        ))
        .await;
    current(&admin).await;
    let question = "When does the plantedquestion office close?";
    let ask = |model: &str| {
        format!(
            "SELECT concat_ws(' ', coalesce(run_id::text, 'none'), answer ~ 'planted', searches, citations->0->>'quote' ~ 'planted')
             FROM rag.answer('{question}', chat_model => '{model}')"
        )
    };
    let kept = "SELECT coalesce((SELECT string_agg(r::text, ' ') FROM rag.runs r), '')
        || coalesce((SELECT string_agg(s::text, ' ') FROM rag.steps s), '')";
    for model in
        ["fake/chat", "fake/chat-unknown-tool", "fake/chat-broken-json", "fake/chat-never-stops", "local/extractive"]
    {
        admin.run(&format!("ALTER DATABASE {} SET rag.record = 'metadata'; DELETE FROM rag.runs", db.name)).await;
        let session = db.connect_as(&role).await;
        let said = session.value(&ask(model)).await;
        let run = said.split(' ').next().expect("an identifier").to_owned();
        let recorded = admin.value(kept).await;
        assert!(!recorded.contains("planted"), "{model}: {recorded}");
        let numbers = session
            .value(
                "SELECT concat_ws(' ', record, question IS NULL, answer IS NULL, status = outcome, latency_ms > 0, model,
                    (SELECT count(*) > 1 FROM rag.steps), input_tokens > 0 OR model ~ 'local') FROM rag.runs",
            )
            .await;
        assert_eq!(numbers, format!("metadata t t t t {model} t t"));
        let trace = session.value(&format!("SELECT rag.trace('{run}')")).await;
        assert!(trace.contains("recorded  no texts") && !trace.contains("planted"), "{trace}");
        if model == "fake/chat" {
            assert_eq!(said.split_once(' ').map(|(_, rest)| rest), Some("t 1 t"), "the answer itself has its texts");
            let cited = "SELECT citations->0->>'key' || (citations->0->>'quote') || coalesce(citations->0->>'title', '-') FROM rag.runs";
            assert_eq!(session.value(cited).await, r#"{"id": 1}-"#);
        }
        admin.run(&format!("ALTER DATABASE {} SET rag.record = 'off'; DELETE FROM rag.runs", db.name)).await;
        let said = db.connect_as(&role).await.value(&ask(model)).await;
        assert!(said.starts_with("none "), "{said}");
        assert_eq!(admin.value(kept).await, "");
    }
    // What is recorded says of itself what it is.
    for (record, question) in [("'on'", "NULL"), ("'metadata'", "'q'"), ("'off'", "NULL")] {
        let sql = format!(
            "INSERT INTO rag.runs (id, role, role_oid, cluster, record, question, model, status, started_at)
             VALUES (gen_random_uuid(), 'x', 1, 1, {record}, {question}, 'm', 'running', now())"
        );
        admin.error(&sql, "23514").await;
    }
    admin.refusal("SET rag.record = 'some'", "22023").await;
}
