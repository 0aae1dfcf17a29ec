//! The worker: when it runs, what it holds, and that nothing stops it for good.

use std::cell::Cell;
use std::time::{Duration, Instant};

use ragent_server_tests::cluster::{Cluster, SUPERUSER, Stop, exists, kill};
use ragent_server_tests::database::{Database, create_server, current};
use ragent_server_tests::provider::control::FaultKind;
use ragent_server_tests::random::Random;
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::{PATIENCE, wait_for};
use rustix::process::Signal;

const WORKERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_ragent worker'
                          AND datname = current_database()";
const WORKER_PID: &str = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_ragent worker'
                             AND datname = current_database()";
const NOTES: &str = "CREATE TABLE notes (id int PRIMARY KEY, body text);
    SELECT rag.create_collection('notes', 'notes', '{body}', embedding_model => 'fake/embed-64')";

async fn worker_pid(session: &Session) -> i32 {
    // The one that has the place; another that finds it taken leaves again.
    session.wait_until("a worker", PATIENCE, "SELECT cardinality(rag_internal.worker_pids()) = 1").await;
    session.number("SELECT (rag_internal.worker_pids())[1]").await as i32
}

async fn expect_no_worker(session: &Session, database: &str) {
    let none = format!(
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'pg_ragent worker' AND datname = '{database}'"
    );
    session.wait_until("the worker to end", PATIENCE, &none).await;
}

/// A collection `notes` whose worker is in the middle of a request that never ends.
async fn stall(db: &Database<'_>, session: &Session) -> i32 {
    session.run(NOTES).await;
    db.provider.break_down(FaultKind::HangBeforeHeaders);
    session.run("INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, 10) i").await;
    db.provider.wait_until("the worker's request", PATIENCE, |c| c.stalled >= 1).await;
    worker_pid(session).await
}

/// Rows and chunks agree: nothing lost, doubled, stale or orphaned.
async fn expect_exact(session: &Session) {
    current(session).await;
    let wrong = "SELECT count(*) FROM notes n FULL JOIN notes_chunks c USING (id)
                  WHERE n.body IS DISTINCT FROM c.content OR c.chunk <> 1";
    assert_eq!(session.number(wrong).await, 0, "rows and chunks differ");
    assert_eq!(session.number("SELECT count(*) FROM rag_internal.queue").await, 0);
}

#[tokio::test]
async fn it_starts_with_the_extension_and_ends_with_it() {
    let (db, session) = Database::open().await;
    let first = worker_pid(&session).await;
    let status = "SELECT worker, worker_pid, hint FROM rag.status";
    session.run(NOTES).await;
    let row = &session.rows(status).await[0];
    assert_eq!((row[0].as_deref(), row[1].as_deref()), (Some("running"), Some(first.to_string().as_str())));
    session.run("DROP EXTENSION pg_ragent CASCADE").await;
    expect_no_worker(&session, &db.name).await;
    wait_for("the worker to be gone", PATIENCE, || async { (!exists(first)).then_some(()) }).await;
    session.run("DROP TABLE notes, notes_chunks; CREATE EXTENSION pg_ragent CASCADE").await;
    session.run(&create_server("fake", &db.provider.base_url())).await;
    let second = worker_pid(&session).await;
    assert_ne!(first, second);
    session.run(NOTES).await;
    session.run("INSERT INTO notes VALUES (1, 'works again')").await;
    expect_exact(&session).await;
}

#[tokio::test]
async fn none_is_left_when_create_extension_is_rolled_back() {
    let (db, session) = Database::open().await;
    session.run("DROP EXTENSION pg_ragent CASCADE").await;
    expect_no_worker(&session, &db.name).await;
    session.run("BEGIN; CREATE EXTENSION pg_ragent CASCADE; ROLLBACK").await;
    expect_no_worker(&session, &db.name).await;
    // The drop of an extension that is rolled back leaves the worker at work.
    session.run("CREATE EXTENSION pg_ragent CASCADE").await;
    session.run(&create_server("fake", &db.provider.base_url())).await;
    session.run("BEGIN; DROP EXTENSION pg_ragent CASCADE; ROLLBACK").await;
    session.run(NOTES).await;
    session.run("INSERT INTO notes VALUES (1, 'still there')").await;
    expect_exact(&session).await;
}

#[tokio::test]
async fn drop_extension_and_drop_database_do_not_wait_for_a_provider() {
    let (db, session) = Database::open().await;
    stall(&db, &session).await;
    let started = Instant::now();
    session.run("DROP EXTENSION pg_ragent CASCADE").await;
    assert!(started.elapsed() < Duration::from_secs(5), "DROP EXTENSION took {:?}", started.elapsed());
    expect_no_worker(&session, &db.name).await;

    let (db, session) = Database::open().await;
    let pid = stall(&db, &session).await;
    drop(session);
    let postgres = db.cluster.connect("postgres", SUPERUSER).await;
    let started = Instant::now();
    postgres.run(&format!("DROP DATABASE {} WITH (FORCE)", db.name)).await;
    assert!(started.elapsed() < Duration::from_secs(5), "DROP DATABASE took {:?}", started.elapsed());
    wait_for("the worker to be gone", PATIENCE, || async { (!exists(pid)).then_some(()) }).await;
    // And it does not come back to a database that is gone, nor fill the log trying.
    let count = || db.cluster.log().matches(&format!("database \"{}\" does not exist", db.name)).count();
    assert_eq!(count(), 0);
}

#[tokio::test]
async fn a_preloaded_server_has_workers_wherever_the_extension_is() {
    let cluster = Cluster::builder().start().await;
    let one = Database::in_cluster(&cluster).await;
    let two = Database::in_cluster(&cluster).await;
    let postgres = cluster.connect("postgres", SUPERUSER).await;
    postgres.run("CREATE DATABASE without").await;
    drop(postgres);
    for how in [Stop::Fast, Stop::Immediate] {
        cluster.restart(how).await;
        for db in [&one, &two] {
            worker_pid(&db.connect().await).await;
        }
        let without = cluster.connect("without", SUPERUSER).await;
        // Whoever looks there whether the extension is there leaves again.
        expect_no_worker(&without, "without").await;
    }
}

#[tokio::test]
async fn without_preload_it_starts_with_the_extension_and_status_says_how_to_start_it_again() {
    let cluster = Cluster::builder().preload(false).start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    worker_pid(&session).await;
    session.run(NOTES).await;
    drop(session);
    cluster.restart(Stop::Fast).await;
    let session = db.connect().await;
    assert_eq!(session.number(WORKERS).await, 0);
    let row = session.rows("SELECT worker, worker_pid, hint FROM rag.status").await.remove(0);
    assert_eq!((row[0].as_deref(), row[1].as_deref()), (Some("not running"), None));
    let hint = row[2].clone().expect("a hint");
    assert!(hint.contains("shared_preload_libraries") || hint.contains("rag.start_worker"), "{hint}");
    let role = db.create_role("app").await;
    db.connect_as(&role).await.error("SELECT rag.start_worker()", "42501").await;
    assert_eq!(session.value("SELECT rag.start_worker()").await, "t");
    session.wait_until("it to have its place", PATIENCE, "SELECT worker = 'running' FROM rag.status").await;
    assert_eq!(session.value("SELECT rag.start_worker()").await, "f", "one runs already");
    session.run("INSERT INTO notes VALUES (1, 'note')").await;
    expect_exact(&session).await;
}

#[tokio::test]
async fn shutdown_and_restart_do_not_wait_for_a_provider_and_lose_nothing() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    for how in [Stop::Fast, Stop::Immediate] {
        let session = db.connect().await;
        session.run("SELECT rag.drop_collection('notes', if_exists => true); DROP TABLE IF EXISTS notes").await;
        stall(&db, &session).await;
        drop(session);
        let started = Instant::now();
        cluster.stop(how, Duration::from_secs(5)).await;
        println!("{how:?} shutdown with a stalled worker took {:?}", started.elapsed());
        // First, since the worker starts with the server.
        db.provider.heal();
        cluster.start().await;
        expect_exact(&db.connect().await).await;
    }
}

/// Kills a worker; a session of the server once it has recovered and has another one.
async fn kill_and_recover(cluster: &Cluster, database: &str, pid: i32) -> Session {
    kill(pid, Signal::KILL);
    wait_for("the worker to be gone", PATIENCE, || async { (!exists(pid)).then_some(()) }).await;
    // The postmaster restarts everything after a crash.
    wait_for("the server to recover", PATIENCE, || async {
        let session = Session::open(&cluster.connection(database, SUPERUSER)).await.ok()?;
        // A connection made while the postmaster is still ending everybody ends, too.
        let again = format!("SELECT 1 FROM pg_stat_activity WHERE backend_type = 'pg_ragent worker' AND pid <> {pid}");
        session.try_rows(&again).await.ok().filter(|rows| !rows.is_empty()).map(|_| session)
    })
    .await
}

#[tokio::test]
async fn kill_9_during_ingest_loses_doubles_and_orphans_nothing() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let mut session = db.connect().await;
    session.run(NOTES).await;
    db.provider.set_latency(Duration::from_millis(30));
    for round in 0..4 {
        session
            .run(&format!(
                "INSERT INTO notes SELECT i, 'note ' || i || ' of round {round}'
                   FROM generate_series({round} * 400 + 1, {round} * 400 + 400) i;
                 UPDATE notes SET body = body || ', changed in {round}' WHERE id % 7 = {round};
                 DELETE FROM notes WHERE id % 11 = {round}"
            ))
            .await;
        let before = db.provider.counters().embedding_requests();
        // A different moment each round: the first request, later ones, between request and write.
        db.provider
            .wait_until("requests", PATIENCE, |c| c.embedding_requests() > before + round && c.in_flight > 0)
            .await;
        session = kill_and_recover(&cluster, &db.name, worker_pid(&session).await).await;
    }
    expect_exact(&session).await;
    assert!(session.number("SELECT count(*) FROM notes_chunks").await > 1000);
    // What was embedded before a crash and written is not embedded again after it.
    let texts = db.provider.counters().texts;
    let most = texts.values().max().copied().unwrap_or(0);
    assert!(most <= 5, "a text was embedded {most} times in 4 crashes");
}

#[tokio::test]
async fn terminated_it_comes_back() {
    let (_db, session) = Database::open().await;
    session.run(NOTES).await;
    let pid = worker_pid(&session).await;
    session.run(&format!("SELECT pg_terminate_backend({pid})")).await;
    wait_for("the worker to be gone", PATIENCE, || async { (!exists(pid)).then_some(()) }).await;
    session.run("INSERT INTO notes VALUES (1, 'note')").await;
    expect_exact(&session).await;
}

#[tokio::test]
async fn a_poisoned_row_is_parked_and_holds_nothing_back() {
    let (db, session) = Database::open().await;
    session.run(NOTES).await;
    db.provider.break_down(FaultKind::RejectTextContaining { text: "poison".into() });
    session
        .run(
            "INSERT INTO notes SELECT i, CASE WHEN i IN (13, 31) THEN 'poison ' ELSE 'wholesome ' END || i
               FROM generate_series(1, 40) i",
        )
        .await;
    session.wait_until("the parked rows", PATIENCE, "SELECT count(*) = 2 FROM rag.failures").await;
    current(&session).await;
    assert_eq!(session.number("SELECT count(*) FROM notes_chunks WHERE content ~ 'wholesome'").await, 38);
    assert_eq!(session.column("SELECT key->>'id' FROM rag.failures ORDER BY 1").await, ["13", "31"]);
    let error = session.value("SELECT error FROM rag.failures LIMIT 1").await;
    assert!(error.contains("does not embed"), "the provider's own words are missing: {error}");
    let status = &session.rows("SELECT failed, pending, last_error, last_error_hint FROM rag.status").await[0];
    assert_eq!((status[0].as_deref(), status[1].as_deref()), (Some("2"), Some("0")));
    assert!(status[2].is_some());
    let failure = session.rows("SELECT hint, sqlstate FROM rag.failures LIMIT 1").await.remove(0);
    assert!(failure[0].as_ref().is_some_and(|hint| hint.contains("refuses")), "{failure:?}");
    assert_eq!(failure[1].as_deref(), Some("22023"));
    assert_eq!(status[3], failure[0], "the status shows another hint than the failure");
    assert!(session.number("SELECT min(attempts) FROM rag.failures").await >= 1);
    db.provider.heal();
    assert_eq!(session.number("SELECT rag.retry_failures('notes')").await, 2);
    expect_exact(&session).await;
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 0);
}

#[tokio::test]
async fn a_parked_row_that_is_corrected_is_embedded() {
    let (db, session) = Database::open().await;
    session.run(NOTES).await;
    db.provider.break_down(FaultKind::RejectTextContaining { text: "poison".into() });
    session.run("INSERT INTO notes VALUES (1, 'poison'), (2, 'poison too')").await;
    session.wait_until("the parked rows", PATIENCE, "SELECT count(*) = 2 FROM rag.failures").await;
    session.run("UPDATE notes SET body = 'medicine' WHERE id = 1; DELETE FROM notes WHERE id = 2").await;
    expect_exact(&session).await;
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 0);
}

#[tokio::test]
async fn an_outage_delays_and_loses_nothing() {
    for fault in [FaultKind::Status500, FaultKind::CloseBeforeHeaders, FaultKind::Html] {
        let (db, session) = Database::open().await;
        session.run(NOTES).await;
        db.provider.break_down(fault.clone());
        session.run("INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, 5) i").await;
        session.wait_until("the error", PATIENCE, "SELECT last_error IS NOT NULL FROM rag.status").await;
        let waiting = session.number("SELECT pending + failed FROM rag.status").await;
        assert_eq!(waiting, 5, "{fault:?}");
        db.provider.heal();
        session.run("SELECT rag.retry_failures()").await;
        expect_exact(&session).await;
    }
}

#[tokio::test]
async fn one_providers_outage_does_not_hold_back_anothers_rows() {
    let (db, session) = Database::open().await;
    let other = ragent_server_tests::provider::FakeProvider::start();
    session.run(&create_server("other", &other.base_url())).await;
    stall(&db, &session).await;
    session
        .run(
            "CREATE TABLE quick (id int PRIMARY KEY, body text);
             SELECT rag.create_collection('quick', 'quick', '{body}', embedding_model => 'other/embed-8');
             INSERT INTO quick VALUES (1, 'quick note')",
        )
        .await;
    let done = session.value("SELECT rag.wait_until_current('quick', '10 s')").await;
    assert_eq!(done, "t", "a stalled provider holds back the rows of another");
}

#[tokio::test]
async fn wait_until_current_gives_up_after_its_timeout() {
    let (db, session) = Database::open().await;
    stall(&db, &session).await;
    let started = Instant::now();
    assert_eq!(session.value("SELECT rag.wait_until_current('notes', '300 ms')").await, "f");
    assert!(started.elapsed() >= Duration::from_millis(300) && started.elapsed() < Duration::from_secs(3));
    let waiting = async { session.error("SELECT rag.wait_until_current('notes')", "57014").await };
    let witness = db.connect().await;
    let cancel = async {
        let waits = format!(
            "SELECT query ~ 'wait_until_current' AND state = 'active' FROM pg_stat_activity WHERE pid = {}",
            session.pid
        );
        witness.wait_until("the wait", PATIENCE, &waits).await;
        witness.run(&format!("SELECT pg_cancel_backend({})", session.pid)).await;
    };
    tokio::join!(waiting, cancel);
    db.provider.heal();
    assert_eq!(session.value("SELECT rag.wait_until_current('notes', '30 s')").await, "t");
}

#[tokio::test]
async fn it_holds_no_transaction_snapshot_or_lock_while_it_waits_for_a_provider() {
    let (db, session) = Database::open().await;
    let pid = stall(&db, &session).await;
    let held = format!(
        "SELECT (SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}
                    AND (backend_xmin IS NOT NULL OR xact_start IS NOT NULL OR backend_xid IS NOT NULL))
              + (SELECT count(*) FROM pg_locks WHERE pid = {pid} AND locktype IN ('relation', 'tuple', 'transactionid'))"
    );
    // It may still be reading what else there is to do.
    session.wait_until("the worker to wait", PATIENCE, &format!("SELECT ({held}) = 0")).await;
    // Other duties have a moment's work meanwhile, such as looking for grants.
    let mut moments = 0;
    for _ in 0..100 {
        if session.number(&held).await != 0 {
            moments += 1;
            session.wait_until("a moment's work to end", Duration::from_secs(1), &format!("SELECT ({held}) = 0")).await;
        }
        assert!(db.provider.counters().stalled >= 1);
    }
    assert!(moments <= 3, "held something {moments} times");
    // Nor the locks of rows that the list of locks does not show: whoever asks for them has them at once.
    assert!(session.number("SELECT count(*) FROM rag_internal.queue WHERE claimed_by IS NOT NULL").await > 0);
    session.run("BEGIN; SELECT FROM rag_internal.queue FOR UPDATE NOWAIT; ROLLBACK").await;
    // So nobody else has to wait either.
    session.run("SET lock_timeout = '2s'; ALTER TABLE notes ADD extra int; TRUNCATE notes").await;
    session.run("VACUUM notes_chunks").await;
    session.run("INSERT INTO notes VALUES (77, 'after the stall')").await;
    db.provider.heal();
    expect_exact(&session).await;
}

#[tokio::test]
async fn it_wakes_at_commit() {
    let (_db, session) = Database::open().await;
    session.run(NOTES).await;
    current(&session).await;
    let mut slowest = Duration::ZERO;
    for i in 0..20 {
        let started = Instant::now();
        session.run(&format!("INSERT INTO notes VALUES ({i}, 'note {i}')")).await;
        let there = format!("SELECT count(*) = 1 FROM notes_chunks WHERE id = {i}");
        session.wait_until("the chunk", PATIENCE, &there).await;
        slowest = slowest.max(started.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "the slowest of 20 rows took {slowest:?}: does the worker poll?");
}

#[tokio::test]
async fn a_prepared_transaction_is_embedded_when_it_commits() {
    let cluster = Cluster::builder().setting("max_prepared_transactions", "5").start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    session.run(NOTES).await;
    session.run("BEGIN; INSERT INTO notes VALUES (1, 'prepared'); PREPARE TRANSACTION 'p'").await;
    drop(session);
    let session = db.connect().await;
    session.run("COMMIT PREPARED 'p'").await;
    expect_exact(&session).await;
}

#[tokio::test]
async fn idle_it_runs_nothing() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    session.run(NOTES).await;
    session.run("INSERT INTO notes VALUES (1, 'note')").await;
    expect_exact(&session).await;
    drop(session);
    let postgres = cluster.connect("postgres", SUPERUSER).await;
    let counted = format!("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{}'", db.name);
    let used = "SELECT string_agg(backend_type || state_change || query_start || xact_start, ';') FROM pg_stat_activity
                 WHERE backend_type ~ 'pg_ragent'";
    // Backends report their statistics up to a second late: begin when the number stands still.
    let mut before = (-1, None);
    wait_for("statistics to settle", PATIENCE, || async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let first = postgres.number(&counted).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        (postgres.number(&counted).await == first).then_some(())
    })
    .await;
    before.0 = postgres.number(&counted).await;
    before.1 = postgres.maybe(used).await;
    let requests = db.provider.counters().embedding_requests();
    // What is measured here is time itself: nothing may happen in it.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let after = (postgres.number(&counted).await, postgres.maybe(used).await);
    assert_eq!(before, after, "transactions in the idle database");
    assert_eq!(db.provider.counters().embedding_requests(), requests);
}

#[tokio::test]
async fn several_requests_are_in_flight_up_to_the_servers_limit() {
    let (db, session) = Database::open().await;
    session.run("ALTER SERVER fake OPTIONS (max_in_flight '3', max_batch_items '10')").await;
    session.run(NOTES).await;
    db.provider.forget();
    db.provider.set_latency(Duration::from_millis(100));
    session.run("INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, 300) i").await;
    expect_exact(&session).await;
    let counters = db.provider.counters();
    assert!((2..=3).contains(&counters.max_in_flight), "{} in flight", counters.max_in_flight);
    assert!(counters.items.iter().all(|n| *n <= 10), "{:?}", counters.items);
    let mean = counters.items.iter().sum::<usize>() as f64 / counters.items.len() as f64;
    assert!(mean > 8.0, "batches of {mean} on average");
    assert_eq!(counters.texts_embedded(), 300);
}

#[tokio::test]
async fn a_rate_limit_slows_and_loses_nothing() {
    let (db, session) = Database::open().await;
    session.run(NOTES).await;
    db.provider.fail(FaultKind::Status429 { retry_after: Some("1".into()) }, 3);
    session.run("INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, 100) i").await;
    expect_exact(&session).await;
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 0);
}

#[tokio::test]
async fn the_setting_ends_workers_and_starts_them_again() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    session.run(NOTES).await;
    let pid = worker_pid(&session).await;
    session.run("ALTER SYSTEM SET rag.worker = off; ").await;
    session.run("SELECT pg_reload_conf()").await;
    session.wait_until("the reload", PATIENCE, "SELECT current_setting('rag.worker') = 'off'").await;
    wait_for("the process to end", PATIENCE, || async { (!exists(pid)).then_some(()) }).await;
    session.run("INSERT INTO notes VALUES (1, 'note')").await;
    // Nothing is embedded, and whoever wonders why is told.
    let error = session.refusal("SELECT rag.wait_until_current(timeout => '1 s')", "55000").await;
    assert!(error.hint().is_some_and(|hint| hint.contains("rag.worker")), "{error:?}");
    assert_eq!(session.value("SELECT rag.start_worker()").await, "f");
    assert_eq!(session.number("SELECT count(*) FROM notes_chunks").await, 0);
    let status = &session.rows("SELECT state, hint FROM rag.status").await[0];
    assert_eq!(status[0].as_deref(), Some("no worker"));
    assert!(status[1].as_ref().is_some_and(|h| h.contains("rag.worker")), "{status:?}");
    session.run("ALTER SYSTEM RESET rag.worker").await;
    session.run("SELECT pg_reload_conf()").await;
    // Nobody writes anything; a worker starts all the same.
    session.wait_until("the row", PATIENCE, "SELECT count(*) = 1 FROM notes_chunks").await;
    expect_exact(&session).await;
    assert_eq!(fatal(&cluster), Vec::<String>::new());
}

/// What the server calls fatal, but for clients that come too early.
fn fatal(cluster: &Cluster) -> Vec<String> {
    let log = cluster.log();
    let lines = log.lines().filter(|l| l.contains("FATAL:") && !l.contains("starting up"));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn what_needs_a_database_unused_makes_no_noise_and_workers_come_back() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    session.run(&format!("{NOTES}; INSERT INTO notes VALUES (1, 'one')")).await;
    expect_exact(&session).await;
    drop(session);
    let postgres = cluster.connect("postgres", SUPERUSER).await;
    // The copy has its worker without anybody writing there, and the original has its own back.
    postgres.run(&format!("CREATE DATABASE copy TEMPLATE {}", db.name)).await;
    for name in ["copy", &db.name] {
        let there = format!(
            "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pg_ragent worker' AND datname = '{name}'"
        );
        postgres.wait_until("its worker", PATIENCE, &there).await;
    }
    postgres.run("ALTER DATABASE copy RENAME TO renamed").await;
    let renamed = cluster.connect("renamed", SUPERUSER).await;
    worker_pid(&renamed).await;
    renamed.run("INSERT INTO notes VALUES (2, 'two')").await;
    expect_exact(&renamed).await;
    renamed.run("DROP EXTENSION pg_ragent CASCADE").await;
    expect_no_worker(&renamed, "renamed").await;
    renamed.run("CREATE EXTENSION pg_ragent CASCADE").await;
    worker_pid(&renamed).await;
    drop(renamed);
    postgres.run("DROP DATABASE renamed").await;
    // Terminated, it is back without a write.
    let session = db.connect().await;
    let pid = worker_pid(&session).await;
    session.run(&format!("SELECT pg_terminate_backend({pid})")).await;
    wait_for("the worker to be gone", PATIENCE, || async { (!exists(pid)).then_some(()) }).await;
    assert_ne!(worker_pid(&session).await, pid);
    // By then, whoever was to be started where there is nothing any more has been.
    assert_eq!(fatal(&cluster), Vec::<String>::new());
    let started = cluster.log().matches("pg_ragent worker: ").count();
    assert!(started < 12, "{started} workers ended");
}

#[tokio::test]
async fn without_a_free_slot_it_says_so_and_starts_when_there_is_one() {
    // One slot for the launcher, one for PostgreSQL's own launcher of subscriptions, and one more.
    for preload in [true, false] {
        let slots = if preload { "3" } else { "2" };
        let cluster = Cluster::builder().preload(preload).setting("max_worker_processes", slots).start().await;
        let one = Database::in_cluster(&cluster).await;
        let session = one.connect().await;
        worker_pid(&session).await;
        let two = Database::in_cluster(&cluster).await;
        let second = two.connect().await;
        second.run(NOTES).await;
        let hint = "no pg_ragent worker could be started";
        assert!(cluster.log().contains(hint));
        let told = second.notices().len();
        assert_eq!(second.value("SELECT rag.start_worker()").await, "f");
        let notices = second.notices();
        let told_again = notices[told..].iter().find(|n| n.message().contains(hint));
        assert!(told_again.is_none_or(|n| n.hint().is_some_and(|hint| hint.contains("max_worker_processes"))));
        assert!(notices.iter().any(|n| n.message().contains(hint)), "{notices:?}");
        second.run("INSERT INTO notes VALUES (1, 'one')").await;
        second.refusal("SELECT rag.wait_until_current()", "55000").await;
        // A slot is free.
        session.run("DROP EXTENSION pg_ragent CASCADE").await;
        if !preload {
            // Nobody is there to notice but who writes.
            wait_for("a write that starts it", PATIENCE, || async {
                second.run("INSERT INTO notes SELECT 1 + count(*), 'more' FROM notes").await;
                (second.number(WORKERS).await == 1).then_some(())
            })
            .await;
        }
        worker_pid(&second).await;
        expect_exact(&second).await;
    }
}

#[tokio::test]
async fn a_missing_second_worker_starts_when_a_slot_is_free() {
    let cluster = Cluster::builder().setting("max_worker_processes", "4").setting("rag.workers", "2").start().await;
    let one = Database::in_cluster(&cluster).await;
    let session = one.connect().await;
    session.wait_until("two workers", PATIENCE, &WORKERS.replace("count(*)", "count(*) = 2")).await;
    let two = Database::in_cluster(&cluster).await;
    let second = two.connect().await;
    session.run("DROP EXTENSION pg_ragent CASCADE").await;
    second.wait_until("two workers", PATIENCE, &WORKERS.replace("count(*)", "count(*) = 2")).await;
}

#[tokio::test]
async fn a_promoted_standby_has_workers() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    session.run(NOTES).await;
    expect_exact(&session).await;
    session.run("INSERT INTO notes VALUES (1, 'before')").await;
    expect_exact(&session).await;
    drop(session);
    // The same cluster, as one that follows another.
    cluster.stop(Stop::Fast, PATIENCE).await;
    cluster.become_standby();
    cluster.start().await;
    let session = db.connect().await;
    assert_eq!(session.value("SELECT pg_is_in_recovery()").await, "t");
    assert_eq!(session.number(WORKERS).await, 0);
    let hint = "SELECT hint FROM rag.status";
    assert!(session.value(hint).await.contains("standby"));
    assert_eq!(session.value("SELECT pg_promote()").await, "t");
    worker_pid(&session).await;
    session.run("INSERT INTO notes VALUES (2, 'after')").await;
    expect_exact(&session).await;
}

/// A cluster whose databases have two workers, and a database in it with the collection `notes`.
async fn with_two_workers(cluster: &Cluster) -> (Database<'_>, Session) {
    let db = Database::in_cluster(cluster).await;
    let session = db.connect().await;
    session.run("ALTER SERVER fake OPTIONS (max_in_flight '2', max_batch_items '10')").await;
    session.run(NOTES).await;
    session.wait_until("two workers", PATIENCE, &WORKERS.replace("count(*)", "count(*) = 2")).await;
    (db, session)
}

#[tokio::test]
async fn several_workers_share_the_queue_and_a_killed_one_loses_nothing() {
    let cluster = Cluster::builder().setting("rag.workers", "2").start().await;
    let (db, session) = with_two_workers(&cluster).await;
    db.provider.forget();
    db.provider.set_latency(Duration::from_millis(150));
    session.run("INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, 400) i").await;
    let both = "SELECT count(DISTINCT claimed_by) = 2 FROM rag_internal.queue";
    session.wait_until("both at work", PATIENCE, both).await;
    expect_exact(&session).await;
    let texts = db.provider.counters().texts;
    assert_eq!((texts.len(), texts.values().max()), (400, Some(&1)), "texts embedded, and how often at most");
    // And changes of the same rows, over and over: each ends as it was last.
    for round in 0..5 {
        session.run(&format!("UPDATE notes SET body = 'note ' || id || ' of {round}' WHERE id <= 100")).await;
    }
    session.run("DELETE FROM notes WHERE id % 3 = 0").await;
    session.wait_until("both at work", PATIENCE, both).await;
    let before = session.column(WORKER_PID).await;
    kill(before[1].parse().expect("a process number"), Signal::KILL);
    let session = wait_for("the server to recover", PATIENCE, || async {
        let session = Session::open(&cluster.connection(&db.name, SUPERUSER)).await.ok()?;
        // The other one lives on until the server notices.
        let again = format!(
            "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'pg_ragent worker' AND pid NOT IN ({})",
            before.join(", ")
        );
        session.try_rows(&again).await.ok().filter(|rows| !rows.is_empty()).map(|_| session)
    })
    .await;
    expect_exact(&session).await;
}

#[tokio::test]
async fn the_number_of_workers_follows_the_setting() {
    let cluster = Cluster::builder().setting("rag.workers", "2").start().await;
    let (db, session) = with_two_workers(&cluster).await;
    db.provider.break_down(FaultKind::HangBeforeHeaders);
    session.run("INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, 100) i").await;
    session.wait_until("both at work", PATIENCE, "SELECT count(DISTINCT claimed_by) = 2 FROM rag_internal.queue").await;
    for (workers, count) in [("1", 1), ("3", 3)] {
        session.run(&format!("ALTER SYSTEM SET rag.workers = {workers}")).await;
        session.run("SELECT pg_reload_conf()").await;
        session
            .wait_until("as many workers", PATIENCE, &WORKERS.replace("count(*)", &format!("count(*) = {count}")))
            .await;
    }
    // What the one that ended had claimed is given to others; what is stalled is not.
    let lost = "SELECT count(*) FROM rag_internal.queue WHERE claimed_by <> ALL (rag_internal.worker_pids())";
    assert_eq!(session.number(lost).await, 0);
    db.provider.heal();
    expect_exact(&session).await;
}

#[tokio::test]
async fn what_a_terminated_worker_had_claimed_is_taken_over_at_once() {
    let (db, session) = Database::open().await;
    let pid = stall(&db, &session).await;
    let claimed = format!("SELECT count(*) FROM rag_internal.queue WHERE claimed_by = {pid}");
    assert_eq!(session.number(&claimed).await, 10);
    db.provider.heal();
    session.run(&format!("SELECT pg_terminate_backend({pid})")).await;
    // Claims hold for two minutes; nobody waits for that.
    let started = Instant::now();
    expect_exact(&session).await;
    assert!(started.elapsed() < Duration::from_secs(30), "taken over after {:?}", started.elapsed());
    // A claim of a process that is none of the workers is nobody's.
    session
        .run(
            "INSERT INTO notes VALUES (50, 'fifty');
             UPDATE rag_internal.queue SET claimed_by = pg_backend_pid(), claimed_until = now() + interval '1 hour'",
        )
        .await;
    expect_exact(&session).await;
}

#[tokio::test]
async fn a_comparison_waits_for_what_is_under_way_and_what_comes_later_for_the_comparison() {
    let (db, session) = Database::open().await;
    stall(&db, &session).await;
    session.run("TRUNCATE notes").await;
    session.run("INSERT INTO notes VALUES (1, 'after')").await;
    let early = "SELECT count(*) FROM rag_internal.queue q WHERE claimed_by IS NOT NULL
                    AND id >= (SELECT id FROM rag_internal.queue WHERE key IS NULL AND keys IS NULL)";
    for _ in 0..20 {
        assert_eq!(session.number(early).await, 0, "claimed before its time");
        session.run("SELECT rag.wait_until_current(timeout => '20 ms')").await;
    }
    db.provider.heal();
    expect_exact(&session).await;
    assert_eq!(session.column("SELECT content FROM notes_chunks").await, ["after"]);
}

#[tokio::test]
async fn a_small_change_is_not_held_up_by_a_bulk_load() {
    let (db, session) = Database::open().await;
    session.run("ALTER SERVER fake OPTIONS (max_in_flight '1', max_batch_items '50')").await;
    session.run(NOTES).await;
    db.provider.set_latency(Duration::from_millis(50));
    session.run("INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, 5000) i").await;
    session.run("INSERT INTO notes VALUES (0, 'small')").await;
    session.wait_until("the small change", PATIENCE, "SELECT count(*) = 1 FROM notes_chunks WHERE id = 0").await;
    let pending = session.number("SELECT pending FROM rag.status").await;
    assert!(pending > 2000, "only {pending} of 5000 rows were left when it came");
    expect_exact(&session).await;
}

/// How often the worker is killed; `make test-long` says more.
fn kills() -> usize {
    std::env::var("RAGENT_KILLS").map_or(20, |n| n.parse().expect("RAGENT_KILLS is a number"))
}

/// What is wrong with the chunks of `notes`, by brute force: rows that are lost, stale or doubled, and chunks without a row.
async fn wrong(session: &Session) -> Vec<String> {
    let sql = "SELECT CASE WHEN c.id IS NULL THEN 'lost ' WHEN n.id IS NULL THEN 'orphaned ' ELSE 'stale ' END || id
                 FROM notes n FULL JOIN notes_chunks c USING (id) WHERE n.body IS DISTINCT FROM c.content OR c.chunk <> 1
               UNION ALL SELECT 'doubled ' || id FROM notes_chunks GROUP BY id HAVING count(*) > 1";
    session.column(sql).await
}

/// Writes to `notes` whatever comes to mind until it is told to stop; a connection that breaks is made anew.
async fn scribble(cluster: &Cluster, database: &str, random: &mut Random, stop: &Cell<bool>) {
    let connection = cluster.connection(database, SUPERUSER);
    let mut session = None;
    while !stop.get() {
        let Some(open) = &session else {
            session = Session::open(&connection).await.ok();
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let (from, n) = (random.below(300), 1 + random.below(40));
        let to = from + n;
        let some = format!("generate_series({from}, {to}) i");
        let write = format!(
            "INSERT INTO notes SELECT i, 'note ' || i || ' of ' || clock_timestamp() FROM {some}
             ON CONFLICT (id) DO UPDATE SET body = excluded.body"
        );
        let remove = format!("DELETE FROM notes WHERE id BETWEEN {from} AND {to}");
        let statement = match random.below(20) {
            0 => "TRUNCATE notes".to_owned(),
            1..=3 => remove,
            4 => format!("BEGIN; {remove}; {write}; COMMIT"),
            5 => format!("BEGIN; {write}; ROLLBACK"),
            6..=9 => format!("UPDATE notes SET body = body || '.' WHERE id = {from}"),
            _ => write,
        };
        if open.try_rows(&statement).await.is_err() {
            session = None;
        }
        tokio::time::sleep(Duration::from_millis(random.below(20) as u64)).await;
    }
}

#[tokio::test]
async fn killed_over_and_over_under_writes_it_loses_and_orphans_nothing() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let mut session = db.connect().await;
    session.run("ALTER SERVER fake OPTIONS (max_batch_items '20')").await;
    session.run(NOTES).await;
    db.provider.set_latency(Duration::from_millis(5));
    let seed = std::env::var("RAGENT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (mut writes, mut moments) = (Random::new(seed), Random::new(seed + 1));
    for round in 0..kills() {
        let pid = worker_pid(&session).await;
        let stop = Cell::new(false);
        let killing = async {
            let before = db.provider.counters().embedding_requests();
            let some = moments.below(12) as u64;
            let so_many = async |n| {
                db.provider.wait_until("requests", PATIENCE, |c| c.embedding_requests() >= before as u64 + n).await
            };
            so_many(some).await;
            tokio::time::sleep(Duration::from_micros(moments.below(8000) as u64)).await;
            // The writer goes on meanwhile.
            session = kill_and_recover(&cluster, &db.name, pid).await;
            stop.set(true);
        };
        tokio::join!(scribble(&cluster, &db.name, &mut writes, &stop), killing);
        // A row that the worker was at work on twice when it was killed is given up, and told.
        session.run("SELECT rag.retry_failures()").await;
        current(&session).await;
        assert_eq!(wrong(&session).await, Vec::<String>::new(), "after kill {round}, RAGENT_SEED={seed}");
        assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 0, "after kill {round}");
    }
    assert!(session.number("SELECT count(*) FROM notes").await > 0);
}
