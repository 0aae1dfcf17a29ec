//! Keys are seen by nobody who may not see them, and only those who may can spend or configure.

use ragent_server_tests::cluster::Cluster;
use ragent_server_tests::database::{API_KEY, Database, literal, quote};
use ragent_server_tests::installation::stdout_of;
use ragent_server_tests::provider::control::FaultKind;
use ragent_server_tests::provider::counters::fingerprint;
use ragent_server_tests::session::Session;

fn bearer(key: &str) -> Option<String> {
    Some(fingerprint(&format!("Bearer {key}")))
}

#[tokio::test]
async fn only_a_role_with_usage_may_spend() {
    let (db, admin) = Database::open().await;
    admin.run("REVOKE USAGE ON FOREIGN SERVER fake FROM PUBLIC").await;
    let role = db.create_role("app").await;
    let app = db.connect_as(&role).await;
    let error = app.refusal("SELECT rag.embed('x', 'fake/embed-8')", "42501").await;
    assert!(format!("{error:?}").contains("fake"), "{error:?}");
    app.refusal("SELECT rag.ask('Who?', chat_model => 'fake/chat')", "42501").await;
    assert_eq!(db.provider.counters().embedding_requests() + db.provider.counters().chat_requests(), 0);
    admin.run(&format!("GRANT USAGE ON FOREIGN SERVER fake TO {}", quote(&role))).await;
    assert_eq!(app.value("SELECT vector_dims(rag.embed('x', 'fake/embed-8'))").await, "8");
}

#[tokio::test]
async fn a_role_with_usage_maps_a_key_of_its_own() {
    let (db, _admin) = Database::open().await;
    let role = db.create_role("app").await;
    let app = db.connect_as(&role).await;
    app.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    assert_eq!(db.provider.counters().last_authorization, bearer(API_KEY));
    app.run("CREATE USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS (api_key 'sk-own')").await;
    app.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    assert_eq!(db.provider.counters().last_authorization, bearer("sk-own"));
    app.run("ALTER USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS (SET api_key 'sk-newer')").await;
    app.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    assert_eq!(db.provider.counters().last_authorization, bearer("sk-newer"));
}

#[tokio::test]
async fn a_server_without_a_key_sends_none() {
    let (db, admin) = Database::open().await;
    admin.run("DROP USER MAPPING FOR PUBLIC SERVER fake").await;
    assert_eq!(admin.value("SELECT vector_dims(rag.embed('x', 'fake/embed-8'))").await, "8");
    assert_eq!(db.provider.counters().last_authorization, None);
}

#[tokio::test]
async fn a_key_comes_from_the_environment_or_from_a_file_if_a_superuser_says_so() {
    let cluster = Cluster::builder().environment("TEST_KEY", "sk-from-environment").start().await;
    let db = Database::in_cluster(&cluster).await;
    let admin = db.connect().await;
    admin.run("DROP USER MAPPING FOR PUBLIC SERVER fake").await;
    admin.run("ALTER SERVER fake OPTIONS (api_key_env 'TEST_KEY')").await;
    admin.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    assert_eq!(db.provider.counters().last_authorization, bearer("sk-from-environment"));
    admin.run("ALTER SERVER fake OPTIONS (SET api_key_env 'NO_SUCH_VARIABLE')").await;
    let error = admin.refusal("SELECT rag.embed('x', 'fake/embed-8')", "28000|22023|42704").await;
    assert!(error.message().contains("NO_SUCH_VARIABLE"), "{error:?}");

    let file = cluster.socket_folder().join("key");
    std::fs::write(&file, "sk-from-file\n").expect("the key file can be written");
    let path = literal(file.to_str().expect("a plain name"));
    admin.run(&format!("ALTER SERVER fake OPTIONS (DROP api_key_env, ADD api_key_file {path})")).await;
    admin.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    assert_eq!(db.provider.counters().last_authorization, bearer("sk-from-file"));
    admin.run("ALTER SERVER fake OPTIONS (SET api_key_file '/no/such/file')").await;
    admin.refusal("SELECT rag.embed('x', 'fake/embed-8')", "28000|58P01|22023").await;
}

#[tokio::test]
async fn the_validator_refuses_what_is_not_an_option() {
    let (_db, admin) = Database::open().await;
    for options in [
        "bas_url 'http://x'",
        "api 'openai', base_url 'not a url'",
        "api 'openai', base_url 'ftp://x/v1'",
        "api 'openai', base_url 'file:///etc/passwd'",
        "api 'openai', base_url ''",
        "api 'openai', base_url 'http://user:secret@x/v1'",
        "api 'no-such-api', base_url 'http://x/v1'",
        "api 'openai', base_url 'http://x/v1', api_key 'sk-visible-to-all'",
        "api 'openai', base_url 'http://x/v1', timeout '0'",
        "api 'openai', base_url 'http://x/v1', timeout '-1'",
        "api 'openai', base_url 'http://x/v1', timeout 'soon'",
        "api 'openai', base_url 'http://x/v1', connect_timeout 'x'",
        "api 'openai', base_url 'http://x/v1', max_retries '-1'",
        "api 'openai', base_url 'http://x/v1', max_batch_items '0'",
        "api 'openai', base_url 'http://x/v1', max_batch_tokens '0'",
        "api 'openai', base_url 'http://x/v1', max_in_flight '0'",
        "api 'openai', base_url 'http://x/v1', max_response_bytes '0'",
        "api 'openai', base_url 'http://x/v1', send_dimensions 'perhaps'",
    ] {
        let sql = format!("CREATE SERVER bad FOREIGN DATA WRAPPER rag_provider OPTIONS ({options})");
        admin.refusal(&sql, "22023|HV00D|HV00C|HV024").await;
    }
    for options in ["password 'x'", "base_url 'http://x'", "api_key ''"] {
        let sql = format!("CREATE USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS ({options})");
        admin.refusal(&sql, "22023|HV00D|HV00C|HV024").await;
    }
    admin.refusal("ALTER FOREIGN DATA WRAPPER rag_provider OPTIONS (ADD api 'openai')", "22023|HV00D").await;
}

#[tokio::test]
async fn only_a_superuser_sets_where_requests_go_and_where_keys_come_from() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("owner").await;
    let owner = db.connect_as(&role).await;
    admin.run(&format!("GRANT USAGE ON FOREIGN DATA WRAPPER rag_provider TO {}", quote(&role))).await;
    for options in [
        "api 'openai', base_url 'http://169.254.169.254/v1'",
        "api 'openai', api_key_env 'HOME'",
        "api 'openai', api_key_file '/etc/shadow'",
    ] {
        let sql = format!("CREATE SERVER mine FOREIGN DATA WRAPPER rag_provider OPTIONS ({options})");
        owner.refusal(&sql, "42501").await;
    }
    admin.run(&format!("ALTER SERVER fake OWNER TO {}", quote(&role))).await;
    owner.refusal("ALTER SERVER fake OPTIONS (SET base_url 'http://127.0.0.1:1/v1')", "42501").await;
    for option in ["api_key_file '/etc/passwd'", "api_key_env 'HOME'"] {
        let sql = format!("CREATE USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS ({option})");
        owner.refusal(&sql, "42501").await;
    }
}

#[tokio::test]
async fn a_message_never_carries_the_key_that_the_provider_repeats() {
    let (db, _admin) = Database::open().await;
    let role = db.create_role("app").await;
    let app = db.connect_as(&role).await;
    db.provider.break_down(FaultKind::Status401);
    for sql in ["SELECT rag.embed('x', 'fake/embed-8')", "SELECT rag.ask('Who?', chat_model => 'fake/chat')"] {
        let error = app.refusal(sql, "28000").await;
        assert!(error.message().contains("Incorrect API key") || format!("{error:?}").contains("Incorrect API key"));
        assert!(!format!("{error:?}").contains("sk-planted"), "{error:?}");
    }
}

/// A role that may make servers of our wrapper and of one that takes any option.
async fn make_owner(db: &Database<'_>, admin: &Session) -> (String, Session) {
    let role = db.create_role("owner").await;
    admin
        .run(&format!(
            "CREATE FOREIGN DATA WRAPPER plain; GRANT USAGE ON FOREIGN DATA WRAPPER plain, rag_provider TO {}",
            quote(&role)
        ))
        .await;
    let session = db.connect_as(&role).await;
    (role, session)
}

#[tokio::test]
async fn options_of_other_objects_vouch_for_nothing() {
    let (db, admin) = Database::open().await;
    let (role, owner) = make_owner(&db, &admin).await;
    let name = quote(&role);
    let url = db.provider.base_url();
    let other = "http://169.254.169.254/latest";
    owner
        .run(&format!(
            "CREATE SERVER dummy FOREIGN DATA WRAPPER plain OPTIONS (base_url '{other}', api_key_file '/etc/passwd', api_key_env 'HOME');
             CREATE USER MAPPING FOR CURRENT_USER SERVER dummy OPTIONS (base_url '{other}', api_key_file '/etc/passwd', api_key_env 'HOME')"
        ))
        .await;
    // Two servers of the wrapper that superusers made and gave away, and a mapping.
    admin
        .run(&format!(
            "CREATE SERVER one FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{url}', api_key_file '/etc/hostname');
             CREATE SERVER two FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{other}');
             ALTER SERVER one OWNER TO {name}; ALTER SERVER two OWNER TO {name};
             CREATE USER MAPPING FOR {name} SERVER fake OPTIONS (api_key_env 'HOME')"
        ))
        .await;
    for sql in [
        format!("CREATE SERVER x FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{other}', api_key_file '/etc/passwd')"),
        format!("CREATE SERVER x FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{other}')"),
        format!("CREATE SERVER x FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{url}', api_key_file '/etc/hostname')"),
        format!("ALTER SERVER one OPTIONS (SET base_url '{other}')"),
        format!("ALTER SERVER two OPTIONS (SET base_url '{url}')"),
        "ALTER SERVER two OPTIONS (ADD api_key_file '/etc/hostname')".to_owned(),
        "ALTER SERVER two OPTIONS (ADD api_key_env 'HOME')".to_owned(),
        "CREATE USER MAPPING FOR CURRENT_USER SERVER one OPTIONS (api_key_env 'HOME')".to_owned(),
        "CREATE USER MAPPING FOR PUBLIC SERVER two OPTIONS (api_key_env 'HOME')".to_owned(),
        "CREATE USER MAPPING FOR CURRENT_USER SERVER two OPTIONS (api_key_file '/etc/passwd')".to_owned(),
        "ALTER USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS (SET api_key_env 'PATH')".to_owned(),
        "DROP USER MAPPING FOR CURRENT_USER SERVER fake; CREATE USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS (api_key_env 'HOME')".to_owned(),
    ] {
        owner.refusal(&sql, "42501").await;
    }
    // What a superuser set stays where the owner changes something else.
    owner
        .run(
            "ALTER SERVER one OPTIONS (ADD timeout '7'); ALTER SERVER one RENAME TO uno; ALTER SERVER two OPTIONS (ADD max_retries '0');
             CREATE USER MAPPING FOR CURRENT_USER SERVER two OPTIONS (api_key 'sk-own')",
        )
        .await;
    owner.run("SELECT rag.embed('x', 'uno/embed-8'); SELECT rag.embed('x', 'fake/embed-8')").await;
    // What the owner takes away, it does not get back.
    owner.run("ALTER SERVER uno OPTIONS (DROP api_key_file)").await;
    owner.refusal("ALTER SERVER uno OPTIONS (ADD api_key_file '/etc/hostname')", "42501").await;
    owner.run("SELECT rag.embed('x', 'uno/embed-8'); DROP SERVER uno").await;
    let again = format!("CREATE SERVER uno FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{url}')");
    owner.refusal(&again, "42501").await;
    assert_eq!(admin.number("SELECT count(*) FROM rag_internal.vouched WHERE server IN ('one', 'uno')").await, 0);
    // Nor by saying so itself.
    owner.error("SELECT * FROM rag_internal.vouched", "42501").await;
    owner.error("INSERT INTO rag_internal.vouched VALUES (1, false, 1, 'two', NULL, '{}')", "42501").await;
    owner.run("SELECT rag_internal.check_options(false, oid) FROM pg_foreign_server").await;
    assert_eq!(
        admin.value("SELECT options FROM rag_internal.vouched WHERE server = 'two'").await,
        format!("{{base_url={other}}}")
    );
}

#[tokio::test]
async fn an_option_that_no_superuser_is_known_to_have_set_is_not_used() {
    let (db, admin) = Database::open().await;
    let (role, owner) = make_owner(&db, &admin).await;
    let name = quote(&role);
    let url = db.provider.base_url();
    let other = ragent_server_tests::provider::FakeProvider::start();
    admin
        .run(&format!(
            "CREATE SERVER one FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{url}', api_key_file '/etc/hostname');
             CREATE SERVER two FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{other}');
             ALTER SERVER one OWNER TO {name}; ALTER SERVER two OWNER TO {name};
             CREATE USER MAPPING FOR {name} SERVER fake OPTIONS (api_key_env 'HOME')",
            other = other.base_url()
        ))
        .await;
    admin.run("ALTER EVENT TRIGGER rag_check_options DISABLE").await;
    owner.run(&format!("ALTER SERVER one OPTIONS (SET base_url '{}')", other.base_url())).await;
    owner.run("DROP USER MAPPING FOR CURRENT_USER SERVER fake; CREATE USER MAPPING FOR CURRENT_USER SERVER fake").await;
    admin.run(&format!("ALTER USER MAPPING FOR {name} SERVER fake OPTIONS (ADD api_key_env 'PATH')")).await;
    admin.run("ALTER EVENT TRIGGER rag_check_options ENABLE ALWAYS").await;
    let error = owner.refusal("SELECT rag.embed('x', 'one/embed-8')", "42501").await;
    assert!(
        error.message().contains("\"base_url\"") && error.hint().is_some_and(|h| h.contains("ALTER SERVER one")),
        "{error:?}"
    );
    let error = owner.refusal("SELECT rag.embed('x', 'fake/embed-8')", "42501").await;
    assert!(
        error.message().contains("\"api_key_env\"") && error.hint().is_some_and(|h| h.contains("ALTER USER MAPPING")),
        "{error:?}"
    );
    admin.refusal("SELECT rag.embed('x', 'one/embed-8')", "42501").await;
    assert_eq!(other.counters().embedding_requests(), 0);
    // Others of the same server are not concerned by the mapping.
    admin.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    // A superuser settles it, also with triggers turned off for the session.
    admin
        .run(&format!("SET session_replication_role = replica; ALTER SERVER one OPTIONS (SET base_url '{url}')"))
        .await;
    admin.run(&format!("ALTER USER MAPPING FOR {name} SERVER fake OPTIONS (SET api_key_env 'HOME')")).await;
    owner.run("SELECT rag.embed('x', 'one/embed-8'); SELECT rag.embed('x', 'fake/embed-8')").await;
}

#[tokio::test]
async fn what_superusers_set_comes_through_dump_restore_and_upgrade() {
    let (db, admin) = Database::open().await;
    let (role, owner) = make_owner(&db, &admin).await;
    let name = quote(&role);
    let url = db.provider.base_url();
    admin
        .run(&format!(
            "CREATE SERVER given FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{url}', api_key_file '/etc/hostname');
             CREATE USER MAPPING FOR {name} SERVER given OPTIONS (api_key_env 'HOME'); ALTER SERVER given OWNER TO {name}"
        ))
        .await;
    let use_it = "SELECT rag.embed('x', 'given/embed-8')";
    // As pg_upgrade leaves it: another cluster's identifier, objects by their names.
    let upgraded = "UPDATE rag_internal.vouched SET cluster = 1, object = 4000000000 - row_number
        FROM (SELECT object AS old, row_number() OVER () FROM rag_internal.vouched) n WHERE old = object";
    admin.run(upgraded).await;
    owner.run(use_it).await;
    admin.run(use_it).await;
    owner.run("ALTER SERVER given RENAME TO donated").await;
    owner.run("SELECT rag.embed('x', 'donated/embed-8'); ALTER SERVER donated OPTIONS (ADD timeout '9')").await;
    owner.run("ALTER SERVER donated RENAME TO given").await;
    owner.run(use_it).await;
    admin.run(upgraded).await;
    let other = format!("ALTER SERVER given OPTIONS (SET base_url '{url}x')");
    owner.refusal(&other, "42501").await;
    let dropped = "DROP SERVER given CASCADE";
    owner.run(&format!("BEGIN; {dropped}")).await;
    let same =
        format!("CREATE SERVER given FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{url}')");
    owner.refusal(&same, "42501").await;
    owner.run("ROLLBACK").await;

    let mut dump = db.cluster.installation.program("pg_dump");
    dump.args(["-U", "postgres", "-h"]).arg(db.cluster.socket_folder()).arg(&db.name);
    let dump = stdout_of("pg_dump", dump.output().expect("pg_dump can be started"));
    let restored = format!("{}_restored", db.name);
    admin.run(&format!("CREATE DATABASE {restored} TEMPLATE template0")).await;
    let file = db.cluster.socket_folder().join(format!("{restored}.sql"));
    std::fs::write(&file, dump).expect("the dump can be written");
    let output = db.cluster.psql_command(&restored).arg("-f").arg(&file).output().expect("psql can be started");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let session = db.cluster.connect(&restored, &role).await;
    let result = session.try_rows(use_it).await;
    let refused = session.try_rows(&other).await;
    drop(session);
    admin.run(&format!("DROP DATABASE {restored} WITH (FORCE)")).await;
    assert!(output.status.success(), "{errors}");
    assert!(result.is_ok() && refused.is_err(), "{result:?} {refused:?}");
}
