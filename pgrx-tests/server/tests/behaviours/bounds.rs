//! What no text, row or owner can do to the server and to others: every cost has its bound.

use std::time::{Duration, Instant};

use ragent_server_tests::cluster::{Cluster, SUPERUSER, exists};
use ragent_server_tests::database::{Database, current, quote};
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::{PATIENCE, wait_for};

const LOCAL: &str = "local/all-MiniLM-L6-v2";
/// How long a row may take that nothing should hold up, on a machine that is busy.
const SOON: &str = "30 s";

async fn make(session: &Session, name: &str, model: &str) {
    session
        .run(&format!(
            "CREATE TABLE {name} (id int PRIMARY KEY, body text);
             SELECT rag.create_collection('{name}', '{name}', '{{body}}', embedding_model => '{model}')"
        ))
        .await;
    is_soon_current(session, name).await;
}

async fn is_soon_current(session: &Session, name: &str) {
    let current = session.value(&format!("SELECT rag.wait_until_current('{name}', '{SOON}')")).await;
    assert_eq!(current, "t", "{name} is not current: {:?}", session.rows("SELECT * FROM rag.status").await);
}

/// A session after the server restarted everything.
async fn recovered(cluster: &Cluster, database: &str) -> Session {
    wait_for("the server to recover", PATIENCE, || async {
        let session = Session::open(&cluster.connection(database, SUPERUSER)).await.ok()?;
        session.try_rows("SELECT 1").await.ok().map(|_| session)
    })
    .await
}

/// The most memory a process had at a time, in megabytes.
fn most_memory(pid: i64) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("Linux tells it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}

#[tokio::test]
async fn texts_that_are_too_long_are_refused_before_anything_is_spent() {
    let (db, session) = Database::open().await;
    make(&session, "notes", "fake/embed-8").await;
    let before = db.provider.counters().embedding_requests();
    let big = "repeat('a.', 4000000)";
    for statement in [
        format!("SELECT rag.embed({big})"),
        format!("SELECT rag.embed({big}, 'fake/embed-8')"),
        format!("SELECT rag.embed(ARRAY['x', {big}], 'fake/embed-8')"),
        "SELECT rag.embed(array_fill(repeat('a.', 400000), ARRAY[30]), 'fake/embed-8')".to_owned(),
        "SELECT rag.embed(array_fill('x'::text, ARRAY[100000]), 'fake/embed-8')".to_owned(),
        format!("SELECT * FROM rag.search({big})"),
        format!("SELECT * FROM rag.search({big}, 'notes')"),
        format!("SELECT rag.ask({big})"),
        "SELECT rag.ask(repeat('a.', 60000))".to_owned(),
        format!("SELECT * FROM rag.answer({big}, 'notes')"),
    ] {
        let error = session.refusal(&statement, "54000").await;
        assert!(error.message().contains("more than"), "{statement}: {}", error.message());
    }
    assert_eq!(db.provider.counters().embedding_requests(), before, "the provider was asked");
    // Only a superuser raises the limit.
    let role = db.create_role("app").await;
    let app = db.connect_as(&role).await;
    app.error("SET rag.max_input_bytes = '1GB'", "42501").await;
    session.run("SET rag.max_input_bytes = '2kB'").await;
    session.refusal("SELECT rag.embed(repeat('a ', 1500))", "54000").await;
    session.run("SELECT rag.embed(repeat('a ', 1000))").await;
}

#[tokio::test]
async fn a_text_of_any_kind_is_embedded_in_little_time_and_memory() {
    let (_db, session) = Database::open().await;
    session.run("SET statement_timeout = '20 s'").await;
    session.run("SELECT rag.embed('x')").await;
    let before = most_memory(session.pid.into());
    for text in [
        "repeat('a.', 500000)",
        "repeat('x', 1000000)",
        "repeat(' ', 999999) || 'x'",
        "repeat('🐘', 200000)",
        "repeat('語', 300000)",
    ] {
        session.run(&format!("SELECT rag.embed({text})")).await;
    }
    let grown = most_memory(session.pid.into()) - before;
    assert!(grown < 100, "{grown} MB for texts of 1 MB");
}

#[tokio::test]
async fn a_row_beyond_the_limit_is_parked_and_others_go_on() {
    let cluster = Cluster::builder().setting("rag.max_row_bytes", "64kB").start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    make(&session, "notes", "fake/embed-8").await;
    session
        .run(
            "INSERT INTO notes SELECT i, CASE i WHEN 3 THEN repeat('a long one ', 10000) ELSE 'note ' || i END
               FROM generate_series(1, 9) i",
        )
        .await;
    is_soon_current(&session, "notes").await;
    assert_eq!(
        session.column("SELECT id FROM notes_chunks ORDER BY 1").await,
        ["1", "2", "4", "5", "6", "7", "8", "9"]
    );
    let failure = session.rows("SELECT key->>'id', sqlstate, error, hint FROM rag.failures").await.remove(0);
    assert_eq!((failure[0].as_deref(), failure[1].as_deref()), (Some("3"), Some("54000")));
    assert_eq!(failure[2].as_deref(), Some("the row has 110000 bytes of text, more than 65536"));
    assert!(failure[3].as_ref().is_some_and(|hint| hint.contains("rag.max_row_bytes")));
    // A row that grows beyond it: what was embedded of it is not found any more.
    session.run("UPDATE notes SET body = repeat('a long one ', 10000) WHERE id = 5").await;
    is_soon_current(&session, "notes").await;
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 2);
    let found = session.column("SELECT key->>'id' FROM rag.search('a long one', 'notes', k => 20)").await;
    assert!(!found.contains(&"5".to_owned()), "{found:?}");
    session.run("ALTER SYSTEM SET rag.max_row_bytes = '1MB'").await;
    session.run("SELECT pg_reload_conf()").await;
    // The worker learns of the new limit a moment later than this session.
    wait_for("the rows within the new limit", PATIENCE, || async {
        session.run("SELECT rag.retry_failures('notes')").await;
        is_soon_current(&session, "notes").await;
        (session.number("SELECT count(*) FROM rag.failures").await == 0).then_some(())
    })
    .await;
    assert_eq!(session.number("SELECT count(DISTINCT id) FROM notes_chunks").await, 9);
}

#[tokio::test]
async fn a_huge_row_leaves_others_served_and_the_worker_small_and_quick_to_end() {
    let (_db, session) = Database::open().await;
    make(&session, "big", LOCAL).await;
    make(&session, "small", LOCAL).await;
    for text in [
        "repeat('a.', 4000000)",
        "(SELECT string_agg('The quick brown fox number ' || i || ' jumps over the lazy dog. ', '') FROM generate_series(1, 100000) i)",
    ] {
        session.run(&format!("INSERT INTO big SELECT 1, {text}")).await;
        let under_way = "SELECT count(*) > 0 FROM big_chunks WHERE id = 1";
        session.wait_until("the first part of the huge row", PATIENCE, under_way).await;
        session
            .run("INSERT INTO small VALUES (1, 'a small row'); INSERT INTO big VALUES (2, 'a small one beside it')")
            .await;
        is_soon_current(&session, "small").await;
        let beside = "SELECT count(*) = 1 FROM big_chunks WHERE id = 2";
        session.wait_until("the small row of the same table", PATIENCE, beside).await;
        assert_eq!(session.number("SELECT pending FROM rag.status WHERE collection = 'big'").await, 1);
        let pid = session.number("SELECT (rag_internal.worker_pids())[1]").await;
        let most = most_memory(pid);
        assert!(most < 500, "the worker took {most} MB");
        let begin = Instant::now();
        session.run(&format!("SELECT pg_terminate_backend({pid})")).await;
        wait_for("the worker to end", PATIENCE, || async { (!exists(pid as i32)).then_some(()) }).await;
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(3), "the worker took {took:?} to end");
        session.run("DELETE FROM big; DELETE FROM small").await;
        is_soon_current(&session, "big").await;
        assert_eq!(session.number("SELECT count(*) FROM big_chunks").await, 0);
    }
}

#[tokio::test]
async fn a_long_row_is_stored_whole_and_only_what_changed_is_embedded_again() {
    let (db, session) = Database::open().await;
    make(&session, "books", "fake/embed-64").await;
    let sentence = "'Sentence number ' || i || ' of a long book, which tells of this and that and of nothing else.'";
    let book = |condition: &str, last: u32| {
        format!(
            "SELECT string_agg(CASE WHEN {condition} THEN 'Another one.' ELSE {sentence} END, ' ' ORDER BY i) FROM generate_series(1, {last}) i"
        )
    };
    session.run(&format!("INSERT INTO books VALUES (1, ({}))", book("false", 30_000))).await;
    is_soon_current(&session, "books").await;
    // Without overlap chunks put together are the text; with it, each sentence stands in one at least.
    let missing = format!(
        "SELECT count(*) FROM generate_series(1, 30000, 37) i
          WHERE NOT EXISTS (SELECT FROM books_chunks c WHERE c.content LIKE '%' || {sentence} || '%')"
    );
    assert_eq!(session.number(&missing).await, 0);
    let chunks = session.number("SELECT count(*) FROM books_chunks").await;
    assert_eq!(session.number("SELECT max(chunk) FROM books_chunks").await, chunks);
    assert!(chunks > 1000, "{chunks} chunks");
    let before = db.provider.counters().texts_embedded();
    session.run(&format!("UPDATE books SET body = ({})", book("i = 15000", 30_000))).await;
    is_soon_current(&session, "books").await;
    let again = db.provider.counters().texts_embedded() - before;
    assert!((1..30).contains(&again), "{again} texts were embedded again");
    let stale = "SELECT count(DISTINCT source_hash) FROM books_chunks";
    assert_eq!(session.number(stale).await, 1, "some chunks are of another version");
    session.run(&format!("UPDATE books SET body = ({})", book("false", 10))).await;
    is_soon_current(&session, "books").await;
    assert!(session.number("SELECT count(*) FROM books_chunks").await < 5);
    assert_eq!(session.number("SELECT count(*) FROM rag_internal.queue").await, 0);
}

#[tokio::test]
async fn a_row_that_kills_the_worker_is_parked_and_those_beside_it_are_embedded() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    for name in ["alone", "among"] {
        make(&session, name, "fake/embed-8").await;
        session
            .run(&format!(
                "CREATE FUNCTION {name}_dies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     IF NEW.content ~ 'deadly' THEN COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'; END IF;
                     RETURN NEW;
                 END $$;
                 CREATE TRIGGER dies BEFORE INSERT ON {name}_chunks FOR EACH ROW EXECUTE FUNCTION {name}_dies()"
            ))
            .await;
    }
    let _ = session.try_rows("INSERT INTO alone VALUES (1, 'deadly'); INSERT INTO among SELECT i, CASE i WHEN 7 THEN 'deadly' ELSE 'note ' || i END FROM generate_series(1, 12) i").await;
    wait_for("the deadly rows to be parked", PATIENCE * 3, || async {
        let session = Session::open(&cluster.connection(&db.name, SUPERUSER)).await.ok()?;
        let rows = session.try_rows("SELECT count(*) FROM rag.failures").await.ok()?;
        (rows[0][0].as_deref() == Some("2")).then_some(())
    })
    .await;
    let session = recovered(&cluster, &db.name).await;
    is_soon_current(&session, "among").await;
    assert_eq!(session.number("SELECT count(*) FROM among_chunks").await, 11);
    for failure in session.rows("SELECT collection, key->>'id', sqlstate, hint FROM rag.failures").await {
        assert_eq!(failure[2].as_deref(), Some("57P02"), "{failure:?}");
        assert!(failure[3].as_ref().is_some_and(|hint| hint.contains("rag.retry_failures")), "{failure:?}");
    }
    let crashes = cluster.log().matches("was terminated by signal 9").count();
    // Alone twice; among others once, and then alone twice.
    assert!((3..=7).contains(&crashes), "{crashes} crashes");
    // Once the reason is mended, the rows can be tried again.
    session.run("DROP TRIGGER dies ON alone_chunks; DROP TRIGGER dies ON among_chunks").await;
    assert_eq!(session.number("SELECT rag.retry_failures()").await, 2);
    is_soon_current(&session, "among").await;
    is_soon_current(&session, "alone").await;
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 0);
}

/// A statement of many rows is one entry until a worker takes it apart, which a crash right after must not undo.
#[tokio::test]
async fn the_first_of_many_rows_of_one_statement_kills_the_worker_no_more_than_others_do() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    make(&session, "many", "fake/embed-8").await;
    session
        .run(
            "CREATE FUNCTION dies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF NEW.content ~ 'deadly' THEN COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'; END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER dies BEFORE INSERT ON many_chunks FOR EACH ROW EXECUTE FUNCTION dies()",
        )
        .await;
    let _ = session.try_rows("INSERT INTO many SELECT i, CASE i WHEN 1 THEN 'deadly' ELSE 'note ' || i END FROM generate_series(1, 60) i").await;
    wait_for("the deadly row to be parked", PATIENCE * 3, || async {
        let session = Session::open(&cluster.connection(&db.name, SUPERUSER)).await.ok()?;
        let rows = session.try_rows("SELECT count(*) FROM rag.failures").await.ok()?;
        (rows[0][0].as_deref() == Some("1")).then_some(())
    })
    .await;
    let session = recovered(&cluster, &db.name).await;
    is_soon_current(&session, "many").await;
    assert_eq!(session.number("SELECT count(*) FROM many_chunks").await, 59);
    // Among others once, and then alone twice.
    let crashes = cluster.log().matches("was terminated by signal 9").count();
    assert_eq!(crashes, 3);
}

#[tokio::test]
async fn a_worker_that_is_asked_to_end_blames_no_row() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    make(&session, "notes", LOCAL).await;
    session.run("INSERT INTO notes SELECT 1, string_agg('A sentence of some words, number ' || i || '. ', '') FROM generate_series(1, 6000) i").await;
    for _ in 0..4 {
        let busy = "SELECT count(*) = 1 FROM rag_internal.queue WHERE claimed_by = ANY (rag_internal.worker_pids())";
        session.wait_until("the worker at work on it", PATIENCE, busy).await;
        let pid = session.number("SELECT (rag_internal.worker_pids())[1]").await;
        session.run(&format!("SELECT pg_terminate_backend({pid})")).await;
        wait_for("the worker to end", PATIENCE, || async { (!exists(pid as i32)).then_some(()) }).await;
    }
    assert_eq!(session.number("SELECT max(deaths) FROM rag_internal.queue").await, 0);
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 0);
}

#[tokio::test]
async fn code_of_one_owner_holds_nobody_up_for_long() {
    let cluster = Cluster::builder().setting("rag.worker_statement_timeout", "1s").start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    make(&session, "good", "fake/embed-8").await;
    let role = db.create_role("attacker").await;
    session.run(&format!("CREATE SCHEMA m AUTHORIZATION {}", quote(&role))).await;
    let attacker = db.connect_as(&role).await;
    attacker.run("SET search_path = m, public").await;
    let sleeps = "PERFORM pg_sleep(3600);";
    let survives = "LOOP BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP;";
    let spins = "LOOP BEGIN LOOP NULL; END LOOP; EXCEPTION WHEN OTHERS OR query_canceled THEN NULL; END; END LOOP;";
    for (n, (table, body)) in
        [("bait_chunks", sleeps), ("bait_chunks", survives), ("bait_chunks", spins)].into_iter().enumerate()
    {
        attacker
            .run(
                "CREATE TABLE bait (id int PRIMARY KEY, body text);
                 SELECT rag.create_collection('bait', 'm.bait', '{body}', embedding_model => 'fake/embed-8')",
            )
            .await;
        current(&session).await;
        attacker
            .run(&format!(
                "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$;
                 CREATE TRIGGER hold BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION hold();
                 INSERT INTO bait VALUES (1, 'x')"
            ))
            .await;
        session.run(&format!("INSERT INTO good VALUES ({n}, 'somebody else''s row')")).await;
        is_soon_current(&session, "good").await;
        let paused = "SELECT count(*) = 1 FROM rag_internal.pause WHERE until > clock_timestamp()";
        session.wait_until("the pause", PATIENCE, paused).await;
        // Others are served at once from now on.
        session.run(&format!("INSERT INTO good VALUES ({n} + 10, 'and another')")).await;
        is_soon_current(&session, "good").await;
        let status =
            attacker.rows("SELECT last_error, last_error_hint FROM rag.status WHERE collection = 'bait'").await;
        assert!(status[0][0].as_ref().is_some_and(|e| e.contains("held the worker")), "{body}: {status:?}");
        assert!(status[0][1].as_ref().is_some_and(|e| e.contains("rag.retry_failures")), "{body}: {status:?}");
        // The owner mends it and goes on.
        attacker.run("DROP TRIGGER hold ON bait_chunks; SELECT rag.retry_failures('bait')").await;
        is_soon_current(&session, "bait").await;
        let status = attacker.maybe("SELECT last_error FROM rag.status WHERE collection = 'bait'").await;
        assert_eq!(status, None);
        attacker.run("SELECT rag.drop_collection('bait'); DROP TABLE bait; DROP FUNCTION hold CASCADE").await;
    }
    let crashes = cluster.log().matches("terminating any other active server processes").count();
    assert_eq!(crashes, 0, "the server restarted");
}

/// The target is 50 ms between two checks for interrupts. Processor time is measured, which other processes hardly change; the
/// bound that fails the test is far above it, since machines differ.
#[tokio::test]
async fn computing_looks_for_interrupts_every_few_milliseconds() {
    const BOUND_US: u64 = 400_000;
    let cluster = Cluster::builder().environment("RAGENT_WATCH_INTERRUPTS", "1").start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    for text in ["repeat('a.', 500000)", "repeat('some words ', 90000)", "repeat('x', 1000000)", "repeat('語', 300000)"]
    {
        session.run(&format!("SELECT rag.embed({text})")).await;
    }
    for (name, model) in [("here", LOCAL), ("remote", "fake/embed-384")] {
        make(&session, name, model).await;
        session
            .run(&format!(
                "INSERT INTO {name} VALUES
                     (1, repeat('a.', 100000)), (2, repeat('some words ', 20000)), (3, repeat('x', 2000000)),
                     (4, repeat('A sentence. ', 20000)), (5, repeat(' ', 3000000) || 'x'), (6, repeat('語', 100000)),
                     (7, repeat('VACUUM removes dead rows so that their space can be used again. ', 40))"
            ))
            .await;
        let done = format!("SELECT count(*) > 0 FROM {name}_chunks WHERE id = 7");
        session.wait_until("the short row", PATIENCE, &done).await;
        session.run(&format!("SELECT rag.ask('How are dead rows removed, and why?', '{name}')")).await;
        session
            .run(&format!("SELECT rag.ask('How are dead rows removed? ' || repeat('and why ', 10000), '{name}')"))
            .await;
    }
    let log = cluster.log();
    let mut longest: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for line in log.lines() {
        let Some((_, told)) = line.split_once("watched: ") else { continue };
        let Some((phase, rest)) = told.split_once(" took ") else { continue };
        let Some(time) = rest.split(' ').next().and_then(|us| us.parse().ok()) else { continue };
        let known = longest.entry(phase).or_default();
        *known = (*known).max(time);
    }
    println!("longest between two checks, in microseconds of processor time: {longest:?}");
    assert_eq!(longest.keys().copied().collect::<Vec<_>>(), ["embed", "extractive", "plan", "reply", "run"]);
    assert!(longest.values().all(|us| *us < BOUND_US), "{longest:?}");
}

/// PostgreSQL takes such values, and a process that copies them as a whole has an end to its memory.
#[tokio::test]
async fn rows_with_huge_values_beside_their_text_cost_a_search_little_memory() {
    let (db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE heavy (id int PRIMARY KEY, body text, title text, link text, note text, doc json, more text);
             SELECT rag.create_collection('heavy', 'heavy', '{body}', link => 'link', metadata => '{note,doc,more}',
                                          embedding_model => 'fake/embed-8')",
        )
        .await;
    session
        .run(
            "INSERT INTO heavy (id, body, note, more) SELECT i, 'note ' || i, 'short', 'x' FROM generate_series(1, 10) i;
             UPDATE heavy SET link = 'https://' || repeat(md5(id::text), 1600000), more = repeat(md5(id::text), 1600000),
                              doc = to_json(repeat(md5(id::text), 1600000)) WHERE id < 10",
        )
        .await;
    is_soon_current(&session, "heavy").await;
    let app = db.create_role("app").await;
    let owner = db.create_role("owner").await;
    session.run(&format!("GRANT SELECT ON heavy TO {}", quote(&app))).await;
    let searches = [
        "SELECT count(*) FROM rag.search('note', 'heavy', k => 1000)",
        "SELECT count(*) FROM rag.search('note')",
        "SELECT rag.ask('What is in a note?', 'heavy', chat_model => 'fake/chat')",
        "SELECT count(*) FROM rag.status",
    ];
    for policies in ["", "ALTER TABLE heavy ENABLE ROW LEVEL SECURITY; CREATE POLICY all_of_it ON heavy USING (true)"] {
        session.run(&format!("SELECT 1; {policies}")).await;
        let asker = db.connect_as(&app).await;
        asker.run("SELECT count(*) FROM rag.search('note', 'heavy', k => 1)").await;
        for search in searches {
            asker.run(search).await;
        }
        let most = most_memory(asker.pid.into());
        assert!(most < 300, "{most} MB, policies: {policies:?}");
        let shown = "SELECT concat_ws(' ', length(link), metadata->>'note', metadata ? 'more', metadata->>'more' IS NULL,
                                      metadata ? 'doc', metadata->>'doc' IS NULL, length(content) < 10)
                       FROM rag.search('note', 'heavy', k => 10) WHERE key->>'id' IN ('3', '10') ORDER BY key->>'id' DESC";
        assert_eq!(asker.column(shown).await, ["1024 short t t t t t", "short t f t t t"]);
    }
    // The owner of a chunk table may write into it what it likes.
    session
        .run(&format!("ALTER TABLE heavy OWNER TO {o}; GRANT CREATE ON SCHEMA public TO {o}", o = quote(&owner)))
        .await;
    let owner = db.connect_as(&owner).await;
    owner.run("SELECT rag.refresh('heavy')").await;
    is_soon_current(&owner, "heavy").await;
    owner.run("UPDATE heavy_chunks SET content = repeat(md5(id::text), 3200000)").await;
    let asker = db.connect_as(&app).await;
    let lengths = "SELECT max(length(content)) FROM rag.search('note', 'heavy', k => 1000)";
    assert_eq!(asker.number(lengths).await, 16384);
    session.run("ALTER TABLE heavy DISABLE ROW LEVEL SECURITY").await;
    assert_eq!(asker.number(lengths).await, 16384);
    let most = most_memory(asker.pid.into());
    assert!(most < 300, "{most} MB");
}

/// Numbers of little room and long text, many values that are too long together only, values that compress well.
#[tokio::test]
async fn metadata_is_bounded_by_what_it_is_as_text() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE odd (id int PRIMARY KEY, body text, n numeric, a text, b text, c jsonb);
             SELECT rag.create_collection('odd', 'odd', '{body}', title => 'c', metadata => '{n,a,b,c}', embedding_model => 'fake/embed-8');
             INSERT INTO odd VALUES (1, 'note', 1, 'x', 'y', '{}'), (2, 'note', '1e130000', 'x', 'y', '{}'),
                 (3, 'note', 1, repeat('x', 40000), repeat('y', 40000), '{}'), (4, 'note', 1, repeat('x', 10000000), 'y', '{}'),
                 (5, 'note', 1, 'x', 'y', to_jsonb(repeat('z', 1000000))), (6, 'note', NULL, NULL, NULL, NULL),
                 (7, 'note', 1, repeat('x', 60000), 'y', '{}')",
        )
        .await;
    is_soon_current(&session, "odd").await;
    let found = session
        .column(
            "SELECT concat_ws(' ', key->>'id', length(metadata->>'n'), length(metadata->>'a'), length(metadata->>'b'), length(metadata->>'c'),
                              (SELECT count(*) FROM jsonb_object_keys(metadata)), length(title))
               FROM rag.search('note', 'odd') ORDER BY key->>'id'",
        )
        .await;
    assert_eq!(found, ["1 1 1 1 2 4 2", "2 4 2", "3 4 2", "4 1 1 2 4 2", "5 4 1024", "6 4", "7 1 60000 1 2 4 2"]);
}

#[tokio::test]
async fn a_description_is_short() {
    let (db, session) = Database::open().await;
    session.run("CREATE TABLE notes (id int PRIMARY KEY, body text)").await;
    let create = |length: u32| {
        format!(
            "SELECT rag.create_collection('notes', 'notes', '{{body}}', description => repeat('é', {length}), embedding_model => 'fake/embed-8')"
        )
    };
    for length in [4001, 50_000_000] {
        let error = session.refusal(&create(length), "54000").await;
        assert!(error.message().contains("more than 4000"), "{}", error.message());
    }
    session.run(&create(4000)).await;
    // One that came with a restore is kept by no session.
    session.run("UPDATE rag_internal.collection SET description = repeat(md5('x'), 3000000)").await;
    let fresh = db.connect().await;
    fresh.run("SELECT count(*) FROM rag.search('note')").await;
    let most = most_memory(fresh.pid.into());
    assert!(most < 250, "{most} MB");
}

/// A role that has tables in schema m, and `count` collections m.bait_1, m.bait_2 ...
async fn with_baits(db: &Database<'_>, count: usize) -> Session {
    let role = db.create_role("attacker").await;
    db.connect().await.run(&format!("CREATE SCHEMA m AUTHORIZATION {}", quote(&role))).await;
    let attacker = db.connect_as(&role).await;
    attacker.run("SET search_path = m, public").await;
    for n in 1..=count {
        attacker
            .run(&format!(
                "CREATE TABLE bait_{n} (id int PRIMARY KEY, body text);
                 SELECT rag.create_collection('bait_{n}', 'm.bait_{n}', '{{body}}', embedding_model => 'fake/embed-8')"
            ))
            .await;
    }
    attacker
}

/// Somebody else's rows, one after the other, are each embedded in less than this.
async fn others_are_served(session: &Session, from: i32, limit: Duration) {
    for id in from..from + 4 {
        let began = Instant::now();
        session.run(&format!("INSERT INTO good VALUES ({id}, 'somebody else''s row')")).await;
        is_soon_current(session, "good").await;
        assert!(began.elapsed() < limit, "row {id} took {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn many_collections_of_one_owner_hold_nobody_up() {
    const BAITS: usize = 16;
    let cluster = Cluster::builder().setting("rag.worker_statement_timeout", "1s").start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    make(&session, "good", "fake/embed-8").await;
    let attacker = with_baits(&db, BAITS).await;
    current(&session).await;
    let for_all = |sql: &str| (1..=BAITS).map(|n| sql.replace("{n}", &n.to_string())).collect::<String>();
    // Locks, of collections that worked until then.
    attacker.run(&for_all("INSERT INTO bait_{n} VALUES (1, 'x');")).await;
    current(&session).await;
    attacker.run(&format!("BEGIN; {}", for_all("INSERT INTO bait_{n} VALUES (3, 'x');"))).await;
    let locker = cluster.connect(&db.name, SUPERUSER).await;
    locker.run(&format!("BEGIN; {}", for_all("LOCK TABLE m.bait_{n}_chunks;"))).await;
    attacker.run("COMMIT").await;
    others_are_served(&session, 1, Duration::from_secs(5)).await;
    locker.run("ROLLBACK").await;
    for n in 1..=BAITS {
        is_soon_current(&session, &format!("bait_{n}")).await;
    }
    // Code.
    attacker
        .run(&format!(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(4); RETURN NEW; END $$;
             {}",
            for_all("CREATE TRIGGER hold BEFORE INSERT ON bait_{n}_chunks FOR EACH ROW EXECUTE FUNCTION hold();")
        ))
        .await;
    attacker.run(&format!("BEGIN; {} COMMIT", for_all("INSERT INTO bait_{n} VALUES (4, 'y'), (5, 'y');"))).await;
    session.wait_until("a pause", PATIENCE, "SELECT count(*) > 0 FROM rag_internal.pause").await;
    others_are_served(&session, 10, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn what_an_owners_code_locks_is_given_up() {
    let (db, session) = Database::open().await;
    make(&session, "good", "fake/embed-8").await;
    let attacker = with_baits(&db, 1).await;
    current(&session).await;
    let workers = session.value("SELECT rag_internal.worker_pids()").await;
    attacker
        .run(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_advisory_lock(71), pg_advisory_lock(71); RETURN NEW; END $$;
             CREATE TRIGGER hold BEFORE INSERT ON bait_1_chunks FOR EACH ROW EXECUTE FUNCTION hold();
             INSERT INTO bait_1 VALUES (1, 'x')",
        )
        .await;
    is_soon_current(&session, "bait_1").await;
    session.wait_until("the lock to be free", PATIENCE, "SELECT pg_try_advisory_lock(71)").await;
    assert_eq!(session.value("SELECT rag_internal.worker_pids()").await, workers, "the worker lost its place");
}

#[tokio::test]
async fn nothing_is_left_in_the_queue_of_a_collection_that_is_dropped() {
    let (_db, session) = Database::open().await;
    make(&session, "good", "fake/embed-8").await;
    for n in 0..24 {
        let drop = if n % 2 == 0 { "" } else { "SELECT rag.drop_collection('gone');" };
        session
            .run(
                "CREATE TABLE gone (id int PRIMARY KEY, body text);
                 SELECT rag.create_collection('gone', 'gone', '{body}', embedding_model => 'fake/embed-8')",
            )
            .await;
        session.run("INSERT INTO gone SELECT i, 'row ' || i FROM generate_series(1, 2000) i").await;
        session.run(&format!("SELECT pg_sleep({})", 0.01 + f64::from(n) * 0.004)).await;
        session.run(drop).await;
        session.run("DROP TABLE gone").await;
    }
    let orphans = "SELECT count(*) FROM rag_internal.queue q
        WHERE NOT EXISTS (SELECT FROM rag_internal.collection c WHERE c.id = q.collection)";
    assert_eq!(session.number(orphans).await, 0);
    // What is left all the same goes when a worker starts; what a restore may have brought before its collection stays.
    session
        .run(
            "INSERT INTO rag_internal.queue (collection, key) VALUES (1, '{\"id\": 1}'), (2, '{\"id\": 1}'), (1000000, '{\"id\": 1}');
             INSERT INTO rag_internal.pause (collection, until) VALUES (2, now());
             INSERT INTO rag_internal.failure (collection, key, attempts, error) VALUES (2, '{}', 1, 'x')",
        )
        .await;
    session.run("SELECT pg_terminate_backend(p) FROM unnest(rag_internal.worker_pids()) p").await;
    session.run("INSERT INTO good VALUES (2, 'wakes it')").await;
    is_soon_current(&session, "good").await;
    session.wait_until("the sweep", PATIENCE, &format!("SELECT ({orphans}) = 1")).await;
    assert_eq!(session.number("SELECT count(*) FROM rag_internal.pause").await, 0);
    assert_eq!(session.number("SELECT count(*) FROM rag_internal.failure").await, 0);
}

#[tokio::test]
async fn the_queue_takes_nothing_that_stops_its_collection() {
    let (_db, session) = Database::open().await;
    make(&session, "good", "fake/embed-8").await;
    let many = "jsonb_build_object('id', (SELECT jsonb_agg(i) FROM generate_series(1, 1000) i))";
    for (columns, values) in [
        ("key", "'[1]'"),
        ("key", "'\"x\"'"),
        ("key", "'null'"),
        ("keys", "'\"x\"'"),
        ("keys", "'{\"id\": 5}'"),
        ("keys", "'{\"id\": [1], \"n\": {\"a\": [1]}}'"),
        ("keys", many),
        ("rows", "2147483647"),
        ("rows", "0"),
        ("rows", "-1"),
    ] {
        let sql = format!(
            "INSERT INTO rag_internal.queue (collection, {columns}) SELECT id, {values} FROM rag_internal.collection"
        );
        session.error(&sql, "23514").await;
    }
    session.run("INSERT INTO rag_internal.queue (collection, keys, rows) SELECT id, '{\"id\": [7, 8]}', 2 FROM rag_internal.collection").await;
    is_soon_current(&session, "good").await;
}
