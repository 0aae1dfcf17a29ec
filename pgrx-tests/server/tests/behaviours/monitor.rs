//! What whoever watches the server sees, and that what is wrong shows at once.

use std::time::{Duration, Instant};

use ragent_server_tests::database::{Database, create_server, current, quote};
use ragent_server_tests::provider::FakeProvider;
use ragent_server_tests::provider::control::FaultKind;
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::PATIENCE;

/// What docs/operations.md says to alert on.
const ALERT: &str = "SELECT collection, state FROM rag.status WHERE state <> 'ok' OR lag > interval '10 minutes'";
/// How soon something is tried again that has been mended.
const SOON: Duration = Duration::from_secs(4);

/// A session of a role that may do nothing but watch.
async fn watcher(db: &Database<'_>, admin: &Session) -> Session {
    let role = db.create_role("watcher").await;
    admin.run(&format!("GRANT pg_monitor TO {}", quote(&role))).await;
    db.connect_as(&role).await
}

/// Lines of the log that warn of something by its name.
fn warnings(db: &Database<'_>, name: &str) -> Vec<String> {
    let log = db.cluster.log();
    log.lines().filter(|l| l.contains(" WARNING:") && l.contains(name)).map(str::to_owned).collect()
}

async fn make_notes(session: &Session) {
    session
        .run(
            "CREATE TABLE notes (id int PRIMARY KEY, body text, author text);
             INSERT INTO notes SELECT i, 'note ' || i, 'somebody' FROM generate_series(1, 5) i;
             SELECT rag.create_collection('notes', 'notes', '{body}', metadata => '{author}', embedding_model => 'fake/embed-64')",
        )
        .await;
    current(session).await;
}

#[tokio::test]
async fn who_watches_the_server_sees_every_collection_and_no_texts() {
    let (db, admin) = Database::open().await;
    let owner = db.create_role("owner").await;
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {}", quote(&owner))).await;
    let session = db.connect_as(&owner).await;
    // Counting by policies would run the owner's code, and so would the index's expression.
    session
        .run(
            "CREATE FUNCTION spy(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
                 IF current_user ~ 'watcher' OR session_user ~ 'watcher' THEN RAISE EXCEPTION 'code of the owner ran'; END IF;
                 RETURN $1; END $$;
             CREATE FUNCTION shown(text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN PERFORM spy($1); RETURN true; END $$",
        )
        .await;
    session
        .run(
            "CREATE TABLE secrets (id int PRIMARY KEY, body text);
             CREATE INDEX ON secrets (spy('constant')) WHERE spy('constant') = 'constant';
             ALTER TABLE secrets ENABLE ROW LEVEL SECURITY; ALTER TABLE secrets FORCE ROW LEVEL SECURITY;
             CREATE POLICY shown ON secrets USING (shown(body));
             INSERT INTO secrets SELECT i, 'secret ' || i FROM generate_series(1, 7) i;
             SELECT rag.create_collection('secrets', 'secrets', '{body}', embedding_model => 'fake/embed-8')",
        )
        .await;
    current(&session).await;
    admin.run("ANALYZE secrets; ANALYZE secrets_chunks").await;
    let watcher = watcher(&db, &admin).await;
    let status = "SELECT concat_ws(' ', collection, state, rows, chunks, pending, failed, worker) FROM rag.status";
    assert_eq!(watcher.value(status).await, "secrets ok 7 7 0 0 running");
    assert_eq!(watcher.rows(ALERT).await.len(), 0);
    // It may read nothing else of it.
    assert_eq!(watcher.number("SELECT count(*) FROM rag.collections").await, 0);
    db.provider.break_down(FaultKind::RejectTextContaining { text: "poison".into() });
    session.run("INSERT INTO secrets VALUES (8, 'poison, planted-text')").await;
    admin.wait_until("the parked row", PATIENCE, "SELECT count(*) = 1 FROM rag.failures").await;
    assert_eq!(watcher.rows(ALERT).await, [[Some("secrets".to_owned()), Some("failures".to_owned())]]);
    let seen = watcher.rows("SELECT * FROM rag.status").await.remove(0);
    assert!(seen.iter().flatten().all(|value| !value.contains("planted") && !value.contains("poison")), "{seen:?}");
    let kind = "SELECT concat_ws(' ', last_error, last_error_hint, last_error_sqlstate) FROM rag.status";
    assert_eq!(watcher.value(kind).await, "22023");
    assert_ne!(session.value(kind).await, "22023");
    assert_eq!(watcher.number("SELECT count(*) FROM rag.failures").await, 0);
    // Who may neither read nor watch sees nothing.
    let nobody = db.create_role("nobody").await;
    assert_eq!(db.connect_as(&nobody).await.number("SELECT count(*) FROM rag.status").await, 0);
}

#[tokio::test]
async fn an_owner_who_locks_a_table_hides_nothing_else_from_who_watches() {
    let (db, admin) = Database::open().await;
    let owner = db.create_role("owner").await;
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {}", quote(&owner))).await;
    make_notes(&admin).await;
    let session = db.connect_as(&owner).await;
    session
        .run(
            "CREATE TABLE parted (id int PRIMARY KEY, body text) PARTITION BY LIST (id);
             CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1); INSERT INTO parted VALUES (1, 'one');
             SELECT rag.create_collection('parted', 'parted', '{body}', embedding_model => 'fake/embed-64')",
        )
        .await;
    current(&session).await;
    let watcher = watcher(&db, &admin).await;
    watcher.run("SET statement_timeout = '5s'").await;
    let seen = "SELECT concat_ws(' ', collection, state, rows) FROM rag.status ORDER BY 1";
    // Of tables that were never analyzed the statistics tell, which come a moment later.
    watcher
        .wait_until("the statistics", PATIENCE, "SELECT coalesce(pg_catalog.sum(rows), 0) = 6 FROM rag.status")
        .await;
    for table in ["parted", "ONLY parted_1", "parted_chunks"] {
        session.run(&format!("BEGIN; LOCK TABLE {table}")).await;
        assert_eq!(watcher.column(seen).await, ["notes ok 5", "parted ok"], "{table}");
        session.run("ROLLBACK").await;
    }
    assert_eq!(watcher.column(seen).await, ["notes ok 5", "parted ok 1"]);
}

#[tokio::test]
async fn a_collection_that_cannot_be_used_alerts_at_once_and_says_what_to_do() {
    let (db, admin) = Database::open().await;
    make_notes(&admin).await;
    let watcher = watcher(&db, &admin).await;
    let heir = db.create_role("heir").await;
    for (broken, mended) in [
        ("ALTER TABLE notes DROP COLUMN author", "ALTER TABLE notes ADD COLUMN author text".to_owned()),
        ("ALTER TABLE notes DROP CONSTRAINT notes_pkey", "ALTER TABLE notes ADD PRIMARY KEY (id)".to_owned()),
        (
            "ALTER TABLE notes_chunks RENAME COLUMN content TO text",
            "ALTER TABLE notes_chunks RENAME COLUMN text TO content".to_owned(),
        ),
        (
            "ALTER TABLE notes OWNER TO heir",
            "ALTER TABLE notes OWNER TO postgres; SELECT rag.refresh('notes')".to_owned(),
        ),
    ] {
        let broken = broken.replace("heir", &quote(&heir));
        admin.run(&broken).await;
        assert_eq!(watcher.rows(ALERT).await, [[Some("notes".to_owned()), Some("unusable".to_owned())]], "{broken}");
        let hint = "SELECT hint FROM rag.status";
        let (seen, told) = (watcher.value(hint).await, admin.value(hint).await);
        assert!(seen == told && seen.len() > 20, "{broken}: {seen} / {told}");
        let error = admin.value("SELECT last_error FROM rag.status").await;
        assert!(error.contains("cannot be used"), "{error}");
        assert_eq!(watcher.maybe("SELECT last_error FROM rag.status").await, None);
        // Waiting says so, too, rather than wait.
        let started = Instant::now();
        admin.refusal("SELECT rag.wait_until_current('notes')", "55000").await;
        assert_eq!(admin.value("SELECT rag.wait_until_current()").await, "t");
        assert!(admin.notices().last().is_some_and(|n| n.message().contains("cannot be used")));
        assert!(started.elapsed() < SOON);
        admin.run(&mended).await;
        current(&admin).await;
        assert_eq!(watcher.rows(ALERT).await.len(), 0, "{mended}");
    }
}

#[tokio::test]
async fn waiting_for_a_collection_ends_when_it_becomes_unusable() {
    let (db, admin) = Database::open().await;
    make_notes(&admin).await;
    db.provider.break_down(FaultKind::HangBeforeHeaders);
    admin.run("INSERT INTO notes VALUES (6, 'six')").await;
    let waiter = db.connect().await;
    let wait = waiter.refusal("SELECT rag.wait_until_current('notes')", "55000");
    let breaks = async {
        let waits = format!(
            "SELECT query ~ 'until_current' AND state = 'active' FROM pg_stat_activity WHERE pid = {}",
            waiter.pid
        );
        admin.wait_until("the wait", PATIENCE, &waits).await;
        admin.run("ALTER TABLE notes DROP COLUMN author").await;
    };
    let (error, ()) = tokio::join!(wait, breaks);
    assert!(error.message().contains("author"), "{}", error.message());
}

#[tokio::test]
async fn a_chunk_table_that_lost_its_rows_alerts_until_it_is_refreshed() {
    let (db, admin) = Database::open().await;
    make_notes(&admin).await;
    admin
        .run(
            "CREATE TABLE blank (id int PRIMARY KEY, body text); INSERT INTO blank VALUES (1, NULL), (2, ' ');
             SELECT rag.create_collection('blank', 'blank', '{body}', embedding_model => 'fake/embed-8')",
        )
        .await;
    current(&admin).await;
    let watcher = watcher(&db, &admin).await;
    // Rows that were written since do not hide it.
    let some_left =
        "TRUNCATE notes_chunks; UPDATE notes SET body = 'Written since, ' || clock_timestamp() WHERE id = 2";
    for emptied in ["TRUNCATE notes_chunks", "DELETE FROM notes_chunks; VACUUM notes_chunks", some_left] {
        for statement in emptied.split("; ") {
            admin.run(statement).await;
        }
        current(&admin).await;
        for session in [&watcher, &admin] {
            assert_eq!(session.rows(ALERT).await, [[Some("notes".to_owned()), Some("empty".to_owned())]], "{emptied}");
            let hint = session.value("SELECT hint FROM rag.status WHERE collection = 'notes'").await;
            assert!(hint.contains("rag.refresh('notes')"), "{hint}");
        }
        admin.run("SELECT rag.refresh('notes')").await;
        current(&admin).await;
        assert_eq!(admin.number("SELECT count(*) FROM notes_chunks").await, 5);
        assert_eq!(watcher.rows(ALERT).await.len(), 0);
    }
    // Rows that have nothing but a title have chunks, too.
    admin
        .run(
            "CREATE TABLE titled (id int PRIMARY KEY, title text, body text); INSERT INTO titled VALUES (1, 'Opening hours', NULL);
             SELECT rag.create_collection('titled', 'titled', '{body}', title => 'title', embedding_model => 'fake/embed-8')",
        )
        .await;
    current(&admin).await;
    admin.run("TRUNCATE titled_chunks").await;
    for session in [&watcher, &admin] {
        assert_eq!(session.rows(ALERT).await, [[Some("titled".to_owned()), Some("empty".to_owned())]]);
    }
}

/// Waits until a collection waits for some seconds more.
async fn long_pause(session: &Session, state: &str) {
    let waits = format!(
        "SELECT coalesce(state = '{state}' AND next_attempt > clock_timestamp() + interval '4 s', false)
         FROM rag.status WHERE collection = 'notes'"
    );
    session.wait_until("a long pause", PATIENCE, &waits).await;
}

/// Waits until there are so many chunks at least, which must be soon.
async fn soon(session: &Session, chunks: usize) {
    let there = format!("SELECT count(*) >= {chunks} FROM notes_chunks");
    session.wait_until("what waited to be embedded soon", SOON, &there).await;
}

#[tokio::test]
async fn an_outage_is_told_when_it_begins_and_when_it_ends() {
    let (db, admin) = Database::open().await;
    let server = format!("outage_of_{}", db.name);
    admin.run(&create_server(&server, &db.provider.base_url())).await;
    admin.run(&format!("ALTER SERVER {server} OPTIONS (max_batch_items '10')")).await;
    admin
        .run(&format!(
            "CREATE TABLE notes (id int PRIMARY KEY, body text);
             SELECT rag.create_collection('notes', 'notes', '{{body}}', embedding_model => '{server}/embed-64')"
        ))
        .await;
    current(&admin).await;
    db.provider.break_down(FaultKind::Status500);
    admin.run("INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, 400) i").await;
    long_pause(&admin, "provider").await;
    let seen = format!(
        "SELECT concat_ws(' ', state, last_error ~ 'status 500', last_error_at > now() - interval '1 minute', hint ~ '{server}', pending)
           FROM rag.status"
    );
    assert_eq!(admin.value(&seen).await, "provider t t t 400");
    let watcher = watcher(&db, &admin).await;
    assert_eq!(watcher.value(&seen).await, "provider t t 400");
    let kind = "SELECT last_error_sqlstate FROM rag.status";
    assert_eq!(watcher.value(kind).await, admin.value(kind).await);
    // It was asked again and again, and nobody was told of that.
    let told = warnings(&db, &server);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("500") && told[0].contains("asked again in"), "{told:?}");
    // Nobody waits for the end of the pause once the server was altered.
    let good = FakeProvider::start();
    admin.run(&format!("ALTER SERVER {server} OPTIONS (SET base_url '{}')", good.base_url())).await;
    soon(&admin, 1).await;
    let told = warnings(&db, &server);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].contains("answers again"), "{told:?}");
    current(&admin).await;
    assert_eq!(admin.rows(ALERT).await.len(), 0);
    assert_eq!(admin.maybe("SELECT next_attempt FROM rag.status").await, None);
    assert_eq!(admin.number("SELECT count(*) FROM rag_internal.waiting").await, 0);
    assert_eq!(admin.number("SELECT count(*) FROM rag.failures").await, 0);
}

#[tokio::test]
async fn a_new_key_a_grant_and_retry_failures_end_a_wait() {
    let (db, admin) = Database::open().await;
    make_notes(&admin).await;
    let mut chunks = 5;
    for (fault, state, mends) in [
        (
            FaultKind::Status401,
            "blocked",
            "ALTER USER MAPPING FOR PUBLIC SERVER fake OPTIONS (SET api_key 'sk-planted-5ecret-4711')",
        ),
        (FaultKind::Status401, "blocked", "GRANT USAGE ON FOREIGN SERVER fake TO PUBLIC"),
        (FaultKind::Status429 { retry_after: Some("120".into()) }, "provider", "SELECT rag.retry_failures('notes')"),
        (FaultKind::Status500, "provider", "SELECT rag.retry_failures()"),
        (FaultKind::Status404, "blocked", "SELECT rag.refresh('notes')"),
    ] {
        db.provider.break_down(fault.clone());
        chunks += 1;
        admin.run(&format!("INSERT INTO notes VALUES ({chunks}, 'note {chunks}')")).await;
        long_pause(&admin, state).await;
        db.provider.heal();
        admin.run(mends).await;
        soon(&admin, chunks).await;
        current(&admin).await;
        assert_eq!(admin.rows(ALERT).await.len(), 0, "{fault:?}, {mends}");
    }
}

#[tokio::test]
async fn a_blocked_collection_is_looked_at_again_when_its_table_is_altered() {
    let (db, admin) = Database::open().await;
    make_notes(&admin).await;
    admin.run("ALTER TABLE notes DROP COLUMN author; INSERT INTO notes VALUES (6, 'six')").await;
    long_pause(&admin, "unusable").await;
    admin.run("CREATE TABLE another (id int)").await;
    admin.run("ALTER TABLE another ADD COLUMN x int").await;
    assert_eq!(admin.number("SELECT count(*) FROM rag_internal.waiting").await, 1, "not its table");
    // What may mend it is noticed in whichever transaction it is: none waits for another's.
    let other = db.connect().await;
    admin
        .run("CREATE INDEX another_x ON another (x); CREATE TABLE third (id int); CREATE INDEX third_id ON third (id)")
        .await;
    other.run("BEGIN; DROP INDEX another_x").await;
    admin.run("SET statement_timeout = '10s'; DROP INDEX third_id; RESET statement_timeout").await;
    other.run("ROLLBACK").await;
    admin.run("ALTER TABLE notes ADD COLUMN author text").await;
    soon(&admin, 6).await;
}
