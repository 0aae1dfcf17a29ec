//! What stopped the worker, or made it do too much.

use std::time::Duration;

use ragent_server_tests::cluster::exists;
use ragent_server_tests::database::{Database, current, quote};
use ragent_server_tests::provider::control::FaultKind;
use ragent_server_tests::wait::{PATIENCE, wait_for};

use super::{collect, collect_with, make};

/// How long a row may take that nothing should hold up.
const SOON: &str = "20 s";

#[tokio::test]
async fn a_key_that_fits_no_chunk_is_parked_without_filling_the_log() {
    let (db, session) = Database::open().await;
    make(&session, "others").await;
    session.run("CREATE TABLE notes (id text PRIMARY KEY, body text)").await;
    collect(&session, "notes").await;
    current(&session).await;
    let before = db.cluster.log().len();
    // The longest that the source's own index takes, as it does not shrink; with the chunk's number it is too long.
    session
        .run(
            "INSERT INTO notes SELECT string_agg(chr(33 + get_byte(decode(md5(i::text), 'hex'), 0) % 90), '' ORDER BY i), 'a long key'
               FROM generate_series(1, 2691) i;
             INSERT INTO notes VALUES ('short', 'a short key'); INSERT INTO others VALUES (3, 'others three')",
        )
        .await;
    assert_eq!(session.value(&format!("SELECT rag.wait_until_current('others', '{SOON}')")).await, "t");
    session.wait_until("the parked row", PATIENCE, "SELECT count(*) = 1 FROM rag.failures").await;
    current(&session).await;
    assert_eq!(session.column("SELECT content FROM notes_chunks").await, ["a short key"]);
    let log = db.cluster.log();
    let lines: Vec<&str> = log[before..].lines().filter(|l| l.contains(&format!(" {} ", db.name))).collect();
    assert!(lines.len() < 40, "{} lines in the log", lines.len());
    let longest = lines.iter().map(|l| l.len()).max().unwrap_or(0);
    assert!(longest < 1500, "a line of {longest} bytes in the log");
}

#[tokio::test]
async fn rows_that_a_provider_refuses_do_not_hold_up_others() {
    let (db, session) = Database::open().await;
    make(&session, "good").await;
    session.run("CREATE TABLE bad (id int PRIMARY KEY, body text)").await;
    collect(&session, "bad").await;
    current(&session).await;
    db.provider.break_down(FaultKind::RejectTextContaining { text: "poison".into() });
    session.run("INSERT INTO bad SELECT i, 'poison ' || i FROM generate_series(1, 20) i").await;
    session.wait_until("refusals", PATIENCE, "SELECT count(*) > 5 FROM rag_internal.queue WHERE attempts > 0").await;
    session.run("INSERT INTO good VALUES (3, 'good three'); INSERT INTO bad VALUES (21, 'wholesome')").await;
    assert_eq!(session.value("SELECT rag.wait_until_current('good', '10 s')").await, "t");
    let there = "SELECT count(*) = 1 FROM bad_chunks WHERE id = 21";
    session.wait_until("the good row among the bad", Duration::from_secs(10), there).await;
}

#[tokio::test]
async fn text_without_spaces_is_cut() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE blobs (id int PRIMARY KEY, body text);
             INSERT INTO blobs VALUES (1, repeat('x', 60000)), (2, repeat('🐘', 20000)), (3, repeat('ab+/', 10000) || '=')",
        )
        .await;
    for (name, model) in [("remote", "fake/embed-8"), ("here", "local/all-MiniLM-L6-v2")] {
        session
            .run(&format!("SELECT rag.create_collection('{name}', 'blobs', '{{body}}', embedding_model => '{model}')"))
            .await;
        current(&session).await;
        assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 0);
        for id in 1..=3 {
            let longest =
                session.number(&format!("SELECT max(length(content)) FROM {name}_chunks WHERE id = {id}")).await;
            assert!(longest <= 10_000, "{name}: a chunk of {longest} characters of text {id}");
        }
    }
}

#[tokio::test]
async fn replicated_rows_are_embedded_without_anybody_asking() {
    let (db, session) = Database::open().await;
    make(&session, "notes").await;
    current(&session).await;
    let subscriber = db.connect().await;
    subscriber
        .run("SET session_replication_role = replica; INSERT INTO notes VALUES (3, 'three'); UPDATE notes SET body = 'ONE' WHERE id = 1")
        .await;
    subscriber.run("DELETE FROM notes WHERE id = 2").await;
    let exact = "SELECT array_agg(content ORDER BY id) = '{ONE,three}' FROM notes_chunks";
    session.wait_until("the replicated rows", Duration::from_secs(10), exact).await;
}

#[tokio::test]
async fn a_locked_table_stops_only_its_own_collection() {
    let (db, session) = Database::open().await;
    make(&session, "locked").await;
    make(&session, "others").await;
    current(&session).await;
    let locker = db.connect().await;
    locker.run("BEGIN; LOCK TABLE locked_chunks").await;
    session.run("INSERT INTO locked VALUES (3, 'locked three')").await;
    locker.run("LOCK TABLE locked").await;
    for id in 3..5 {
        session.run(&format!("INSERT INTO others VALUES ({id}, 'more')")).await;
        assert_eq!(session.value(&format!("SELECT rag.wait_until_current('others', '{SOON}')")).await, "t");
    }
    let blocked = "SELECT last_error IS NOT NULL FROM rag_internal.collection WHERE name = 'locked'";
    session.wait_until("the locked collection to say so", PATIENCE, blocked).await;
    locker.run("ROLLBACK").await;
    current(&session).await;
    assert_eq!(session.number("SELECT count(*) FROM locked_chunks").await, 3);
    assert_eq!(session.maybe("SELECT last_error FROM rag_internal.collection WHERE name = 'locked'").await, None);
}

#[tokio::test]
async fn no_advisory_lock_keeps_the_worker_away() {
    let (db, session) = Database::open().await;
    make(&session, "notes").await;
    current(&session).await;
    let eve = db.create_role("eve").await;
    let eve = db.connect_as(&eve).await;
    // Every lock that the worker holds and a role may ask for by its numbers.
    let locks = session
        .rows("SELECT classid, objid FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
        .await;
    assert!(!locks.is_empty(), "the worker holds no advisory lock: this test looks at the wrong thing");
    let mut grab = String::new();
    for lock in &locks {
        let (Some(class), Some(object)) = (&lock[0], &lock[1]) else { panic!("an advisory lock has numbers") };
        grab += &format!(
            "SELECT pg_advisory_lock({class}::bigint::bit(32)::int, {object}::bigint::bit(32)::int);
             SELECT pg_advisory_lock(({class}::bigint << 32) + {object});"
        );
    }
    // Should she have to wait for one, she has it when the worker ends.
    let grab = eve.run(&grab);
    let restart = async {
        let pid = session.number("SELECT worker_pid FROM rag.status").await as i32;
        session.run(&format!("SELECT pg_terminate_backend({pid})")).await;
        wait_for("the worker to be gone", PATIENCE, || async { (!exists(pid)).then_some(()) }).await;
        session.run("INSERT INTO notes VALUES (3, 'three')").await;
        assert_eq!(session.value(&format!("SELECT rag.wait_until_current('notes', '{SOON}')")).await, "t");
    };
    tokio::join!(grab, restart);
    assert_eq!(session.number("SELECT count(*) FROM rag.status WHERE worker = 'running'").await, 1);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_parked_and_the_others_are_embedded() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TYPE pair AS (n int, m int);
             CREATE FUNCTION quotient(pair) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT (($1).n / ($1).m)::text $$;
             CREATE CAST (pair AS text) WITH FUNCTION quotient(pair);
             CREATE TABLE notes (id int PRIMARY KEY, body text, title pair)",
        )
        .await;
    session
        .run(
            "SELECT rag.create_collection('notes', 'notes', '{body}', title => 'title', embedding_model => 'fake/embed-64');
             INSERT INTO notes SELECT i, 'note ' || i, ROW(4, CASE WHEN i = 2 THEN 0 ELSE 1 END)::pair FROM generate_series(1, 6) i",
        )
        .await;
    current(&session).await;
    // Whether such a title is read by its cast or not: no row waits.
    let done = "SELECT (SELECT count(*) FROM notes_chunks) + (SELECT count(*) FROM rag.failures)";
    assert_eq!(session.number(done).await, 6);
    assert!(session.number("SELECT count(*) FROM notes_chunks WHERE id <> 2").await == 5);
}

#[tokio::test]
async fn a_source_that_forces_policies_on_its_owner_is_embedded() {
    let (db, admin) = Database::open().await;
    let (owner, reader) = (db.create_role("owner").await, db.create_role("reader").await);
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {}", quote(&owner))).await;
    let owner = db.connect_as(&owner).await;
    owner
        .run(&format!(
            "CREATE TABLE notes (id int PRIMARY KEY, tenant text, body text);
             INSERT INTO notes VALUES (1, 'a', 'one'), (2, 'b', 'two'), (3, 'a', 'three');
             ALTER TABLE notes ENABLE ROW LEVEL SECURITY; ALTER TABLE notes FORCE ROW LEVEL SECURITY;
             CREATE POLICY tenants ON notes USING (tenant = current_setting('app.tenant', true)); GRANT SELECT ON notes TO {}",
            quote(&reader)
        ))
        .await;
    collect(&owner, "notes").await;
    current(&owner).await;
    owner.run("SET app.tenant = 'b'; INSERT INTO notes VALUES (4, 'b', 'four'); UPDATE notes SET body = 'TWO' WHERE id = 2").await;
    current(&owner).await;
    let all = "SELECT string_agg(content, ' ' ORDER BY id) FROM notes_chunks";
    assert_eq!(admin.value(all).await, "one TWO three four");
    let reader = db.connect_as(&reader).await;
    reader.run("SET app.tenant = 'a'").await;
    let found = "SELECT content FROM rag.search('one TWO three four', 'notes') ORDER BY 1";
    assert_eq!(reader.column(found).await, ["one", "three"]);
    assert_eq!(owner.column(found).await, ["TWO", "four"]);
    owner.run("DELETE FROM notes").await;
    current(&owner).await;
    assert_eq!(admin.value(all).await, "one three");
}

#[tokio::test]
async fn a_model_that_is_gone_does_not_stop_another_of_its_server() {
    let (db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE retired (id int PRIMARY KEY, body text); CREATE TABLE good (id int PRIMARY KEY, body text);
             SELECT rag.create_collection('retired', 'retired', '{body}', embedding_model => 'fake/embed-8')",
        )
        .await;
    collect_with(&session, "good", "fake/embed-64").await;
    db.provider.break_down(FaultKind::UnknownModel { model: "embed-8".into() });
    session.run("INSERT INTO retired SELECT i, 'text ' || i FROM generate_series(1, 2000) i").await;
    let told = "SELECT last_error IS NOT NULL FROM rag.status WHERE collection = 'retired'";
    session.wait_until("the error", PATIENCE, told).await;
    for id in 1..4 {
        session.run(&format!("INSERT INTO good VALUES ({id}, 'good')")).await;
        assert_eq!(session.value("SELECT rag.wait_until_current('good', '10 s')").await, "t");
    }
    assert_eq!(session.number("SELECT pending + failed FROM rag.status WHERE collection = 'retired'").await, 2000);
    let requests = db.provider.counters().embedding_requests();
    assert!(requests < 60, "{requests} requests for a model that is not there");
}

#[tokio::test]
async fn a_row_of_many_chunks_keeps_to_the_limit_of_requests() {
    let (db, session) = Database::open().await;
    session.run("ALTER SERVER fake OPTIONS (max_in_flight '2', max_batch_items '5')").await;
    session.run("CREATE TABLE notes (id int PRIMARY KEY, body text)").await;
    session
        .run(
            "SELECT rag.create_collection('notes', 'notes', '{body}', embedding_model => 'fake/embed-8',
                                          chunk_tokens => 20, chunk_overlap => 0)",
        )
        .await;
    current(&session).await;
    db.provider.forget();
    db.provider.set_latency(Duration::from_millis(20));
    session
        .run("INSERT INTO notes SELECT 1, string_agg('Sentence number ' || i || ' of a long text.', E'\\n\\n') FROM generate_series(1, 300) i")
        .await;
    current(&session).await;
    let chunks = session.number("SELECT count(*) FROM notes_chunks").await;
    assert!(chunks > 50, "{chunks} chunks");
    let counters = db.provider.counters();
    assert_eq!(counters.max_in_flight, 2);
    assert_eq!(counters.texts_embedded() as i64, chunks);
    assert!(counters.items.iter().all(|n| *n <= 5), "{:?}", counters.items);
}
