//! A backend that waits for a provider can always be stopped, in every phase of a request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ragent_server_tests::cluster::{Cluster, exists};
use ragent_server_tests::database::{Database, create_server};
use ragent_server_tests::provider::FakeProvider;
use ragent_server_tests::provider::blackhole::Blackhole;
use ragent_server_tests::provider::control::{Endpoint, FaultKind};
use ragent_server_tests::session::{Session, TextRow, check_error};
use ragent_server_tests::wait::{PATIENCE, wait_for};
use tokio::task::JoinHandle;

/// How long stopping a wait may take on a busy machine; the figure itself is measured by `how_fast_a_cancel_is`.
const PROMPTLY: Duration = Duration::from_secs(1);

const EMBED: &str = "SELECT vector_dims(rag.embed('some text', 'fake/embed-64'))";

/// Where in a request the backend waits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Connect,
    BeforeHeaders,
    MidBody,
    SlowDrip,
}

const PHASES: [Phase; 4] = [Phase::Connect, Phase::BeforeHeaders, Phase::MidBody, Phase::SlowDrip];

type Answer = Result<Vec<TextRow>, tokio_postgres::Error>;

/// A backend in the middle of a request.
struct Waiting {
    session: Arc<Session>,
    answer: JoinHandle<Answer>,
    hole: Option<Blackhole>,
}

impl Waiting {
    /// Lets a backend run into the phase and waits until it is there.
    async fn start(db: &Database<'_>, witness: &Session, phase: Phase, sql: &str, setting: &str) -> Waiting {
        let session = Arc::new(db.connect().await);
        session.run(setting).await;
        let mut hole = None;
        let mut sql = sql.to_owned();
        match phase {
            Phase::Connect => {
                let opened = Blackhole::open().await;
                let server = format!("hole{}", session.pid);
                witness.run(&create_server(&server, &opened.base_url())).await;
                sql = sql.replace("fake/", &format!("{server}/"));
                hole = Some(opened);
            }
            Phase::BeforeHeaders => db.provider.fail(FaultKind::HangBeforeHeaders, 1),
            Phase::MidBody => db.provider.fail(FaultKind::HangMidBody, 1),
            Phase::SlowDrip => db.provider.fail(FaultKind::SlowDrip { interval_ms: 50 }, 1),
        }
        let before = db.provider.counters().stalls;
        let running = Arc::clone(&session);
        let answer = tokio::spawn(async move { running.try_rows(&sql).await });
        if phase == Phase::Connect {
            let waits = format!(
                "SELECT coalesce(state = 'active' AND wait_event_type = 'Extension' AND query ~ '/embed|/chat', false)
                   FROM pg_stat_activity WHERE pid = {}",
                session.pid
            );
            witness.wait_until("the backend to wait for a connection", PATIENCE, &waits).await;
        } else {
            db.provider.wait_until("the backend's request to stall", PATIENCE, |c| c.stalls > before).await;
        }
        Waiting { session, answer, hole }
    }

    /// Does something to the backend and checks that its statement fails with this SQLSTATE at once.
    async fn stopped_by(self, witness: &Session, what: &str, sqlstate: &str) -> (Arc<Session>, Duration) {
        let started = Instant::now();
        witness.run(&format!("SELECT {what}({})", self.session.pid)).await;
        let answer = self.answer.await.expect("no panic");
        let took = started.elapsed();
        let error = answer.expect_err("the statement was stopped");
        check_error(&error, what, sqlstate);
        assert!(took < PROMPTLY, "{what} took {took:?}");
        (self.session, took)
    }
}

async fn expect_abortion(db: &Database<'_>, phase: Phase) {
    if phase != Phase::Connect {
        db.provider.wait_until("the connection to be given up", PROMPTLY, |c| c.aborted == 1 && c.in_flight == 0).await;
    }
}

async fn expect_usable(db: &Database<'_>, session: &Session) {
    db.provider.heal();
    assert_eq!(session.value(EMBED).await, "64");
}

async fn cancel_ends_the_wait(phase: Phase) {
    let (db, witness) = Database::open().await;
    let waiting = Waiting::start(&db, &witness, phase, EMBED, "").await;
    let (session, _) = waiting.stopped_by(&witness, "pg_cancel_backend", "57014").await;
    expect_abortion(&db, phase).await;
    expect_usable(&db, &session).await;
}

async fn terminate_ends_the_wait(phase: Phase) {
    let (db, witness) = Database::open().await;
    let waiting = Waiting::start(&db, &witness, phase, EMBED, "").await;
    let started = Instant::now();
    let (session, _) = waiting.stopped_by(&witness, "pg_terminate_backend", "57P01").await;
    let gone = || async { (!exists(session.pid)).then_some(()) };
    wait_for("the backend to be gone", PROMPTLY.saturating_sub(started.elapsed()), gone).await;
    expect_abortion(&db, phase).await;
}

async fn statement_timeout_ends_the_wait(phase: Phase) {
    let (db, witness) = Database::open().await;
    // Long enough to reach the phase before it strikes.
    let timeout = Duration::from_millis(1500);
    let setting = format!("SET statement_timeout = {}", timeout.as_millis());
    let started = Instant::now();
    let waiting = Waiting::start(&db, &witness, phase, EMBED, &setting).await;
    let error = waiting.answer.await.expect("no panic").expect_err("the statement was stopped");
    let took = started.elapsed();
    check_error(&error, "statement_timeout", "57014");
    assert!(took >= timeout && took < timeout + 2 * PROMPTLY, "a timeout of {timeout:?} took {took:?}");
    expect_abortion(&db, phase).await;
    waiting.session.run("RESET statement_timeout").await;
    expect_usable(&db, &waiting.session).await;
}

async fn reload_does_not_disturb_the_wait(phase: Phase) {
    let (db, witness) = Database::open().await;
    let mut waiting = Waiting::start(&db, &witness, phase, EMBED, "").await;
    for _ in 0..3 {
        witness.run("SELECT pg_reload_conf()").await;
        let early = tokio::time::timeout(Duration::from_millis(100), &mut waiting.answer).await;
        assert!(early.is_err(), "a reload ended the wait: {early:?}");
    }
    let late_provider: Option<FakeProvider> = waiting.hole.map(Blackhole::become_provider);
    db.provider.release();
    let rows = waiting.answer.await.expect("no panic").expect("the request succeeds after a reload");
    assert_eq!(rows, [[Some("64".to_owned())]]);
    let counters = late_provider.as_ref().unwrap_or(&db.provider).counters();
    assert_eq!((counters.embedding_requests(), counters.aborted), (1, 0), "the request was not left alone");
}

macro_rules! in_every_phase {
    ($($behaviour:ident),*) => { $(
        mod $behaviour {
            use super::Phase;
            #[tokio::test]
            async fn while_connecting() { super::$behaviour(Phase::Connect).await }
            #[tokio::test]
            async fn before_the_headers() { super::$behaviour(Phase::BeforeHeaders).await }
            #[tokio::test]
            async fn in_mid_body() { super::$behaviour(Phase::MidBody).await }
            #[tokio::test]
            async fn while_the_body_drips() { super::$behaviour(Phase::SlowDrip).await }
        }
    )* };
}

in_every_phase!(
    cancel_ends_the_wait,
    terminate_ends_the_wait,
    statement_timeout_ends_the_wait,
    reload_does_not_disturb_the_wait
);

#[tokio::test]
async fn backends_and_worker_end_when_the_postmaster_is_killed_in_any_phase() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let witness = db.connect().await;
    let mut waiting = Vec::new();
    for phase in PHASES {
        waiting.push(Waiting::start(&db, &witness, phase, EMBED, "").await);
    }
    witness.run("CREATE TABLE notes (id int PRIMARY KEY, body text)").await;
    witness.run("SELECT rag.create_collection('notes', 'notes', '{body}', embedding_model => 'fake/embed-8')").await;
    db.provider.fail(FaultKind::HangBeforeHeaders, u64::MAX);
    witness.run("INSERT INTO notes VALUES (1, 'a note')").await;
    db.provider.wait_until("the worker's request to stall", PATIENCE, |c| c.stalled == 4).await;
    let processes = "SELECT pid, backend_type || ', ' || coalesce(wait_event, 'running') || ', ' || query
                       FROM pg_stat_activity WHERE backend_type ~ 'client|pg_ragent'";
    let processes = witness.rows(processes).await;
    assert!(processes.len() >= PHASES.len() + 2, "the worker is not among {processes:?}");
    cluster.kill_postmaster().await;
    for process in processes {
        let pid = process[0].as_deref().and_then(|pid| pid.parse().ok()).expect("a process id");
        let what = format!("this process to notice that the postmaster is gone: {process:?}");
        wait_for(&what, PROMPTLY, || async { (!exists(pid)).then_some(()) }).await;
    }
}

#[tokio::test]
async fn cancel_ends_the_wait_of_an_answer_in_each_of_its_requests() {
    let (db, witness) = Database::open().await;
    db.create_collection(&witness, "articles", &["The office closes at six."]).await;
    let ask = "SELECT rag.ask('When does the office close?', chat_model => 'fake/chat')";
    for endpoint in [Endpoint::Chat, Endpoint::Embeddings] {
        let session = Arc::new(db.connect().await);
        db.provider.fail_at(endpoint, FaultKind::HangBeforeHeaders, 1);
        let running = Arc::clone(&session);
        let answer = tokio::spawn(async move { running.try_rows(ask).await });
        db.provider.wait_until("a stalled request", PATIENCE, |c| c.stalled == 1).await;
        let waiting = Waiting { session, answer, hole: None };
        let (session, _) = waiting.stopped_by(&witness, "pg_cancel_backend", "57014").await;
        assert!(session.value(ask).await.contains("six"), "the session does not answer after a cancel");
    }
}

#[tokio::test]
async fn cancel_ends_the_pause_before_a_retry() {
    let (db, witness) = Database::open().await;
    db.provider.fail(FaultKind::Status429 { retry_after: Some("15".into()) }, 1);
    let session = Arc::new(db.connect().await);
    let running = Arc::clone(&session);
    let answer = tokio::spawn(async move { running.try_rows(EMBED).await });
    db.provider.wait_until("the first attempt", PATIENCE, |c| c.embedding_requests() == 1 && c.in_flight == 0).await;
    let waits = format!(
        "SELECT coalesce(wait_event_type = 'Extension', false) FROM pg_stat_activity WHERE pid = {}",
        session.pid
    );
    witness.wait_until("the backend to pause", PATIENCE, &waits).await;
    let waiting = Waiting { session, answer, hole: None };
    let (session, _) = waiting.stopped_by(&witness, "pg_cancel_backend", "57014").await;
    expect_usable(&db, &session).await;
}

#[tokio::test]
async fn cancel_ends_local_embedding_between_texts() {
    let (db, witness) = Database::open().await;
    let session = Arc::new(db.connect().await);
    // Minutes of work if nobody stopped it.
    let long = "SELECT count(*) FROM unnest(rag.embed((SELECT array_agg(repeat('word ' || i || ' ', 100))
                  FROM generate_series(1, 20000) i), 'local/all-MiniLM-L6-v2'))";
    let running = Arc::clone(&session);
    let answer = tokio::spawn(async move { running.try_rows(long).await });
    let busy = format!("SELECT state = 'active' AND query ~ '20000' FROM pg_stat_activity WHERE pid = {}", session.pid);
    witness.wait_until("the backend to be busy", PATIENCE, &busy).await;
    let waiting = Waiting { session, answer, hole: None };
    let (session, _) = waiting.stopped_by(&witness, "pg_cancel_backend", "57014").await;
    expect_usable(&db, &session).await;
}

#[tokio::test]
async fn other_sessions_and_statements_go_on_while_one_waits() {
    let (db, witness) = Database::open().await;
    let waiting = Waiting::start(&db, &witness, Phase::BeforeHeaders, EMBED, "").await;
    assert_eq!(witness.value(EMBED).await, "64");
    db.provider.release();
    waiting.answer.await.expect("no panic").expect("the first one succeeds as well");
}

/// A measurement, not a check: `cargo test -p ragent-server-tests how_fast -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "measures for a minute"]
async fn how_fast_a_cancel_is() {
    const REPEATS: usize = 60;
    let (db, witness) = Database::open().await;
    let mut all = Vec::new();
    for phase in PHASES {
        for (what, sqlstate) in [("pg_cancel_backend", "57014"), ("pg_terminate_backend", "57P01")] {
            let mut took = Vec::new();
            for _ in 0..REPEATS {
                let waiting = Waiting::start(&db, &witness, phase, EMBED, "").await;
                took.push(waiting.stopped_by(&witness, what, sqlstate).await.1);
            }
            println!("{phase:?} {what}: {}", percentiles(&mut took));
            all.append(&mut took);
        }
    }
    println!("all phases: {}", percentiles(&mut all));
}

fn percentiles(took: &mut [Duration]) -> String {
    took.sort();
    let at = |percent: usize| took[(took.len() * percent).div_ceil(100) - 1];
    format!("p50 {:.1?}, p99 {:.1?}, max {:.1?}, n {}", at(50), at(99), at(100), took.len())
}
