//! Rows that changed and wait to be embedded: which come first, what those who ask are told, what is found meanwhile, and that
//! a row that cannot be read keeps nobody waiting.

use std::time::Duration;

use ragent_server_tests::database::{Database, current, quote};
use ragent_server_tests::provider::control::{Endpoint, FaultKind};
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::PATIENCE;

/// A collection `articles` (`id`, `title`, `body`, `author`) of so many rows with bodies of their own, which are embedded.
async fn open(rows: u32) -> (Database<'static>, Session) {
    let (db, session) = Database::open().await;
    session
        .run(&format!(
            "CREATE TABLE articles (id int PRIMARY KEY, title text, body text, author text DEFAULT 'ann');
             INSERT INTO articles SELECT i, 'Article ' || i, 'body of ' || i FROM generate_series(1, {rows}) i;
             SELECT rag.create_collection('articles', 'articles', '{{body}}', title => 'title', metadata => '{{author}}',
                                          embedding_model => 'fake/embed-64')"
        ))
        .await;
    current(&session).await;
    db.provider.forget();
    (db, session)
}

/// Nothing is embedded until the provider is healed, but for queries.
fn stop_embedding(db: &Database<'_>) {
    db.provider.fail_at(Endpoint::Embeddings, FaultKind::HangBeforeHeaders, u64::MAX);
}

/// What a session was told since it was last asked: message, detail and hint of each NOTICE.
fn told_since(session: &Session, before: usize) -> Vec<String> {
    let notices = session.notices();
    let told = notices.iter().skip(before).filter(|n| n.severity() == "NOTICE");
    told.map(|n| format!("{} | {} | {}", n.message(), n.detail().unwrap_or("-"), n.hint().unwrap_or("-"))).collect()
}

/// What a statement tells besides its rows.
async fn told(session: &Session, sql: &str) -> Vec<String> {
    let before = session.notices().len();
    session.run(sql).await;
    told_since(session, before)
}

/// A search that asks no model: a vector that is near everything.
const BY_VECTOR: &str = "rag.search(array_fill(0.1, ARRAY[64])::vector";

#[tokio::test]
async fn a_change_of_one_row_goes_before_a_bulk_one() {
    let (db, session) = open(800).await;
    session.run("ALTER SERVER fake OPTIONS (max_batch_items '16', max_in_flight '2')").await;
    db.provider.set_latency(Duration::from_millis(100));
    session.run("UPDATE articles SET body = 'rewritten ' || id").await;
    db.provider.wait_until("the rewrite is under way", PATIENCE, |c| c.texts_embedded() >= 16).await;
    session.run("UPDATE articles SET body = 'the small change' WHERE id = 790").await;
    // And a row of the rewrite that is changed once more: whichever entry comes first, the row ends as it is.
    session.run("UPDATE articles SET body = 'the other small change' WHERE id = 795").await;
    let small = |text: &str| text.contains("the small change") || text.contains("the other small change");
    let counters = db
        .provider
        .wait_until("the small changes are embedded", PATIENCE, |c| c.texts.keys().filter(|t| small(t)).count() == 2)
        .await;
    assert!(counters.texts_embedded() < 400, "{} texts came first", counters.texts_embedded());
    db.provider.heal();
    current(&session).await;
    let wrong = "SELECT count(*) FROM articles a FULL JOIN articles_chunks c USING (id) WHERE a.body IS DISTINCT FROM c.content";
    assert_eq!(session.number(wrong).await, 0);
    assert_eq!(session.number("SELECT count(*) FROM rag_internal.queue").await, 0);
    let texts = db.provider.counters().texts;
    assert!(texts.values().all(|n| *n == 1), "some text was embedded twice");
    assert!(!texts.keys().any(|t| t.contains("rewritten 790")), "of the row as it was");
}

#[tokio::test]
async fn many_changes_of_one_row_each_are_a_bulk_change_too() {
    let (db, session) = Database::open().await;
    // Of a partitioned table, each row is captured by itself; so is a loop over rows.
    session
        .run(
            "CREATE TABLE articles (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
             CREATE TABLE first PARTITION OF articles DEFAULT;
             SELECT rag.create_collection('articles', 'articles', '{body}', embedding_model => 'fake/embed-64');
             CREATE TABLE pages (id int PRIMARY KEY, body text);
             SELECT rag.create_collection('pages', 'pages', '{body}', embedding_model => 'fake/embed-64')",
        )
        .await;
    current(&session).await;
    stop_embedding(&db);
    session
        .run(
            "INSERT INTO articles SELECT i, 'body of ' || i FROM generate_series(1, 200) i;
             DO $$ BEGIN FOR i IN 1..200 LOOP INSERT INTO pages VALUES (i, 'page ' || i); END LOOP; END $$",
        )
        .await;
    session.run("INSERT INTO articles VALUES (1000, 'one more')").await;
    session.run("INSERT INTO pages VALUES (1000, 'one more')").await;
    for collection in ["articles", "pages"] {
        let queued = format!(
            "SELECT count(*) FILTER (WHERE is_bulk) || ' ' || count(*) FILTER (WHERE NOT is_bulk)
             FROM rag_internal.queue q JOIN rag_internal.collection c ON c.id = q.collection WHERE c.name = '{collection}'"
        );
        assert_eq!(session.value(&queued).await, "150 51", "{collection}");
    }
    db.provider.heal();
    current(&session).await;
    assert_eq!(session.number("SELECT count(*) FROM articles_chunks").await, 201);
}

#[tokio::test]
async fn whoever_searches_or_asks_is_told_what_waits() {
    let (db, session) = open(3).await;
    let searches = format!("SELECT * FROM {BY_VECTOR}, 'articles')");
    assert_eq!(told(&session, &searches).await, Vec::<String>::new());
    assert_eq!(session.value("SELECT pending FROM rag.answer('body?', chat_model => 'local/extractive')").await, "0");
    stop_embedding(&db);
    session.run("UPDATE articles SET body = body || '!' WHERE id = 1").await;
    session.run("UPDATE articles SET body = body || '!' WHERE id = 1").await;
    let one = "1 row of collection \"articles\" changed and waits to be embedded | Changed rows are not found until then. | \
               rag.wait_until_current('articles') waits for it. With rag.alter_collection(..., serve_stale => true), \
               rows are found by their old text meanwhile.";
    assert_eq!(told(&session, &searches).await, [one]);
    assert_eq!(told(&session, &format!("SELECT * FROM {BY_VECTOR})")).await, [one], "of all collections");
    // Once a statement, however often it searches.
    let often = format!("SELECT count(*) FROM generate_series(1, 5), LATERAL {BY_VECTOR}, 'articles')");
    assert_eq!(told(&session, &often).await, [one]);
    assert_eq!(told(&session, &format!("BEGIN READ ONLY; {searches}; COMMIT")).await, [one]);
    session
        .run("UPDATE articles SET body = body || '!' WHERE id = 2; INSERT INTO articles VALUES (4, 't', 'new')")
        .await;
    let three = told(&session, &searches).await;
    assert!(
        three.len() == 1 && three[0].starts_with("3 rows of collection \"articles\" changed and wait"),
        "{three:?}"
    );
    // Nobody waits for what this transaction did; it is told of all the same.
    session.run("TRUNCATE articles").await;
    let compared = told(&session, &searches).await;
    assert!(compared[0].contains("; collection \"articles\" waits to be compared with all rows"), "{compared:?}");
    db.provider.heal();
    current(&session).await;
    assert_eq!(told(&session, &searches).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_answer_says_how_many_rows_wait() {
    let (db, session) = open(3).await;
    // The chat model is asked, and searches; the worker waits for the lock of the row's transaction.
    session
        .run(
            "CREATE TABLE other (id int PRIMARY KEY, body text);
        INSERT INTO other VALUES (1, 'What the fox said.');
        SELECT rag.create_collection('other', 'other', '{body}', embedding_model => 'fake/embed-64')",
        )
        .await;
    current(&session).await;
    session
        .run("BEGIN; UPDATE articles SET body = body || '!' WHERE id < 3; UPDATE other SET body = 'What the owl said.'")
        .await;
    let before = session.notices().len();
    let pending = session
        .rows("SELECT pending, outcome FROM rag.answer('What is the body of 3?', chat_model => 'fake/chat')")
        .await;
    assert_eq!(pending, [[Some("3".to_owned()), Some("answered".to_owned())]]);
    let told = told_since(&session, before);
    assert!(
        told.len() == 1 && told[0].starts_with("3 rows of collections \"articles\", \"other\" changed"),
        "{told:?}"
    );
    assert!(told[0].contains("rag.wait_until_current() waits"), "{told:?}");
    let ask = "SELECT rag.ask('What is the body of 3?', 'other', chat_model => 'fake/chat')";
    let told = self::told(&session, ask).await;
    assert!(told.len() == 1 && told[0].starts_with("1 row of collection \"other\" changed and waits"), "{told:?}");
    session.run("TRUNCATE other").await;
    let pending =
        session.maybe("SELECT pending FROM rag.answer('body?', 'other', chat_model => 'local/extractive')").await;
    assert_eq!(pending, None, "a comparison tells no number");
    session.run("ROLLBACK").await;
    drop(db);
}

#[tokio::test]
async fn nobody_is_told_of_rows_that_a_policy_hides() {
    let (db, session) = open(60).await;
    let bob = db.create_role("bob").await;
    session
        .run(&format!(
            "UPDATE articles SET author = 'bob' WHERE id <= 2; GRANT SELECT ON articles TO {role};
             ALTER TABLE articles ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON articles USING (author = 'bob')",
            role = quote(&bob)
        ))
        .await;
    current(&session).await;
    let bob = db.connect_as(&bob).await;
    let searches = format!("SELECT * FROM {BY_VECTOR}, 'articles')");
    stop_embedding(&db);
    session.run("UPDATE articles SET body = body || '!' WHERE id = 50").await;
    assert_eq!(told(&bob, &searches).await, Vec::<String>::new());
    assert!(told(&session, &searches).await[0].starts_with("1 row of"));
    // Also of a bulk change, a part of which it sees.
    session.run("UPDATE articles SET body = body || '?'").await;
    let seen = told(&bob, &searches).await;
    assert!(seen.len() == 1 && seen[0].starts_with("2 rows of collection \"articles\""), "{seen:?}");
    // What is not named is told of where it is searched.
    let unnamed = told(&bob, &format!("SELECT * FROM {BY_VECTOR})")).await;
    assert!(unnamed.len() == 1 && unnamed[0].starts_with("2 rows of collection \"articles\""), "{unnamed:?}");
    // A row that was its own and is no more.
    session.run("UPDATE articles SET author = 'ann' WHERE id = 2; DELETE FROM articles WHERE id = 3").await;
    assert!(told(&bob, &searches).await[0].starts_with("1 row of"));
    assert!(told(&session, &searches).await[0].starts_with("60 rows of"));
    db.provider.heal();
}

#[tokio::test]
async fn stale_text_is_served_where_the_owner_wants_it() {
    let (db, session) = open(3).await;
    let bob = db.create_role("bob").await;
    session
        .run(&format!(
            "GRANT SELECT ON articles TO {role}; ALTER TABLE articles ENABLE ROW LEVEL SECURITY;
             CREATE POLICY own ON articles USING (author = 'ann')",
            role = quote(&bob)
        ))
        .await;
    let bob = db.connect_as(&bob).await;
    let found = format!(
        "SELECT content || ' / ' || title || ' / ' || (metadata->>'author') FROM {BY_VECTOR}, 'articles') ORDER BY key"
    );
    stop_embedding(&db);
    // The metadata and the title are the row's of today.
    session.run("UPDATE articles SET body = 'changed', title = 'New' WHERE id = 1").await;
    let (old, others) = ("body of 1 / New / ann", ["body of 2 / Article 2 / ann", "body of 3 / Article 3 / ann"]);
    for asker in [&session, &bob] {
        assert_eq!(asker.column(&found).await, others, "it is hidden unless the owner says otherwise");
    }
    let error = bob.refusal("SELECT rag.alter_collection('articles', serve_stale => true)", "42501").await;
    assert!(error.message().contains("must be owner"), "{}", error.message());
    session.run("SELECT rag.alter_collection('articles', serve_stale => true)").await;
    assert_eq!(session.value("SELECT serve_stale FROM rag.collections").await, "t");
    for asker in [&session, &bob] {
        assert_eq!(asker.column(&found).await, [&[old], &others[..]].concat());
        let said = told(asker, &found).await;
        assert!(said[0].contains("| Changed rows are found by their old text until then. |"), "{said:?}");
        assert!(!said[0].contains("alter_collection"), "{said:?}");
    }
    // Never of a deleted row, nor of one that a policy hides now.
    session
        .run("DELETE FROM articles WHERE id = 2; UPDATE articles SET author = 'eve', body = 'hidden' WHERE id = 3")
        .await;
    assert_eq!(session.column(&found).await, [old, "body of 3 / Article 3 / eve"]);
    assert_eq!(bob.column(&found).await, [old]);
    session.run("SELECT rag.alter_collection('articles', serve_stale => false)").await;
    assert_eq!(bob.column(&found).await, Vec::<String>::new());
    db.provider.heal();
    current(&session).await;
    assert_eq!(bob.column(&found).await, ["changed / New / ann"]);
}

#[tokio::test]
async fn a_collection_is_altered_by_its_owner() {
    let (_db, session) = open(1).await;
    let facts = "SELECT coalesce(description, '-') || ' ' || serve_stale FROM rag.collections WHERE name = 'articles'";
    for (given, now) in [
        ("", "- false"),
        (", 'About bodies.'", "About bodies. false"),
        (", serve_stale => true", "About bodies. true"),
        (", NULL, NULL", "About bodies. true"),
        (", ' ', false", "- false"),
    ] {
        session.run(&format!("SELECT rag.alter_collection('articles'{given})")).await;
        assert_eq!(session.value(facts).await, now, "{given}");
    }
    session.refusal("SELECT rag.alter_collection('articles', repeat('x', 4001))", "54000").await;
    session.refusal("SELECT rag.alter_collection('nothing', 'x')", "42704").await;
    session.refusal("SELECT rag.alter_collection(NULL)", "22004").await;
    session.error("BEGIN READ ONLY; SELECT rag.alter_collection('articles', 'x')", "25006").await;
    session
        .run(
            "ROLLBACK; CREATE TABLE b (id int PRIMARY KEY, body text);
        SELECT rag.create_collection('b', 'b', '{body}', embedding_model => 'fake/embed-64', serve_stale => true)",
        )
        .await;
    assert_eq!(session.column("SELECT serve_stale FROM rag.collections ORDER BY name").await, ["f", "t"]);
}

#[tokio::test]
async fn nulls_are_asked_nothing() {
    let (db, session) = open(2).await;
    db.provider.forget();
    session.run("CREATE TABLE questions (id int, question text); INSERT INTO questions VALUES (1, NULL), (2, 'body of 2'), (3, NULL)").await;
    let joined = "SELECT q.id || ' ' || coalesce(s.content, '-')
        FROM questions q LEFT JOIN LATERAL rag.search(q.question, 'articles', k => 1) s ON true ORDER BY q.id";
    assert_eq!(session.column(joined).await, ["1 -", "2 body of 2", "3 -"]);
    assert_eq!(db.provider.counters().texts_embedded(), 1);
    for empty in [
        "SELECT * FROM rag.search(NULL::text)",
        "SELECT * FROM rag.search(NULL::vector, 'articles', NULL, NULL)",
        "SELECT * FROM rag.answer(NULL, chat_model => 'fake/chat')",
    ] {
        assert_eq!(session.rows(empty).await.len(), 0, "{empty}");
    }
    for null in [
        "rag.ask(NULL, chat_model => 'fake/chat')",
        "rag.embed(NULL::text, 'fake/embed-64')",
        "rag.embed(NULL::text[], 'fake/embed-64')",
    ] {
        assert_eq!(session.maybe(&format!("SELECT {null}")).await, None, "{null}");
    }
    assert_eq!(db.provider.counters().chat_requests(), 0);
    for empty in ["''", "E' \\n'", "U&'\\200B\\3164'"] {
        session.refusal(&format!("SELECT * FROM rag.search({empty})"), "22023").await;
        session.refusal(&format!("SELECT rag.ask({empty})"), "22023").await;
    }
}

#[tokio::test]
async fn a_row_without_content_is_found_by_its_title() {
    let (db, session) = open(1).await;
    session
        .run("INSERT INTO articles VALUES (2, 'Opening hours of the library', NULL), (3, U&'\\200B', U&'\\3164 \\FEFF'), (4, NULL, ''), (5, 'Parking', ' ')")
        .await;
    current(&session).await;
    let chunks = "SELECT id || ' ' || chunk || ' ' || content FROM articles_chunks WHERE id > 1 ORDER BY 1";
    assert_eq!(session.column(chunks).await, ["2 1 Opening hours of the library", "5 1 Parking"]);
    let texts = db.provider.counters().texts;
    assert!(texts.contains_key("Opening hours of the library") && texts.len() == 2, "{texts:?}");
    let found = "SELECT content || ' / ' || title FROM rag.search('library opening hours', 'articles', k => 1)";
    assert_eq!(session.value(found).await, "Opening hours of the library / Opening hours of the library");
    // With a content it is that, and without any text it is not found.
    session.run("UPDATE articles SET body = 'From nine to five.' WHERE id = 2; UPDATE articles SET title = ' ' WHERE id = 5").await;
    current(&session).await;
    assert_eq!(session.column(chunks).await, ["2 1 From nine to five."]);
}

/// How many collections wait as a whole.
const BLOCKED: &str = "SELECT count(*) FROM rag_internal.collection WHERE last_error IS NOT NULL";

#[tokio::test]
async fn a_key_that_cannot_be_read_parks_its_row_and_no_other() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE orders (id int); CREATE TABLE notes (tbl regclass PRIMARY KEY, note text);
             SELECT rag.create_collection('notes', 'notes', '{note}', embedding_model => 'fake/embed-64');
             CREATE TYPE mood AS ENUM ('glad', 'sad', 'mad');
             CREATE TABLE moods (mood mood PRIMARY KEY, note text);
             SELECT rag.create_collection('moods', 'moods', '{note}', embedding_model => 'fake/embed-64')",
        )
        .await;
    current(&session).await;
    // One transaction, so that no worker is quicker than the rename.
    session
        .run(
            "BEGIN; INSERT INTO notes VALUES ('orders', 'One row for each order.'), ('pg_class', 'The catalog of tables.');
             INSERT INTO moods VALUES ('glad', 'How one is on a good day.'), ('mad', 'How one is on a bad day.');
             DROP TABLE orders; ALTER TYPE mood RENAME VALUE 'glad' TO 'happy'; COMMIT",
        )
        .await;
    current(&session).await;
    assert_eq!(
        session.column("SELECT content FROM notes_chunks ORDER BY 1").await,
        ["One row for each order.", "The catalog of tables."]
    );
    assert_eq!(session.column("SELECT mood FROM moods_chunks ORDER BY 1").await, ["happy", "mad"]);
    let failures = session
        .column("SELECT collection || ' ' || key::text || ' ' || error || ' ' || sqlstate FROM rag.failures ORDER BY 1")
        .await;
    assert_eq!(
        failures,
        [
            "moods {\"mood\": \"glad\"} the key cannot be read: invalid input value for enum public.mood: \"glad\" 22P02",
            "notes {\"tbl\": \"public.orders\"} the key cannot be read: relation \"public.orders\" does not exist 42P01"
        ]
    );
    assert_eq!(session.column("SELECT DISTINCT hint LIKE '%compared once%' FROM rag.failures").await, ["t"]);
    // Tried once more it is given up once more, and no comparison leads to another.
    assert_eq!(session.number("SELECT rag.retry_failures()").await, 2);
    current(&session).await;
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 2);
    assert_eq!(session.number("SELECT count(*) FROM rag_internal.queue").await, 0);
    assert_eq!(session.number(BLOCKED).await, 0);
    // Nor does it keep a comparison from what the other rows miss.
    session
        .run(
            "DELETE FROM notes_chunks WHERE tbl = 'pg_class'::regclass; DELETE FROM moods_chunks WHERE mood = 'mad';
             INSERT INTO rag_internal.queue (collection, key) SELECT id, NULL FROM rag_internal.collection",
        )
        .await;
    current(&session).await;
    for (collection, chunks) in [("notes", 2), ("moods", 2)] {
        assert_eq!(session.number(&format!("SELECT count(*) FROM {collection}_chunks")).await, chunks);
        let found = session.column(&format!("SELECT problem FROM rag.verify('{collection}')")).await;
        assert_eq!(found, ["failed"], "{collection}");
    }
    assert_eq!(session.column("SELECT DISTINCT state FROM rag.status").await, ["failures"]);
}

#[tokio::test]
async fn keys_of_a_bulk_change_that_cannot_be_read_are_found_otherwise() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TYPE mood AS ENUM ('glad', 'sad', 'mad');
             CREATE TABLE moods (mood mood, n int, note text, PRIMARY KEY (mood, n));
             SELECT rag.create_collection('moods', 'moods', '{note}', embedding_model => 'fake/embed-64');
             BEGIN; INSERT INTO moods SELECT (ARRAY['glad', 'sad', 'mad'])[1 + i % 3]::mood, i, 'note ' || i FROM generate_series(1, 90) i;
             ALTER TYPE mood RENAME VALUE 'glad' TO 'happy'; COMMIT",
        )
        .await;
    current(&session).await;
    assert_eq!(
        session
            .number("SELECT count(*) FROM moods_chunks c JOIN moods m USING (mood, n) WHERE c.content = m.note")
            .await,
        90
    );
    assert_eq!(session.number("SELECT count(*) FROM rag.failures WHERE key->>'mood' = 'glad'").await, 30);
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 30);
}

#[tokio::test]
async fn a_row_whose_value_cannot_be_read_parks_itself() {
    let (_db, session) = Database::open().await;
    // A value that its output function refuses: of an enum, a label that is not there any more.
    session
        .run(
            "CREATE TYPE mood AS ENUM ('glad', 'sad');
             CREATE TABLE articles (id int PRIMARY KEY, body text, mood mood);
             SELECT rag.create_collection('articles', 'articles', '{body,mood}', embedding_model => 'fake/embed-64');
             BEGIN; INSERT INTO articles SELECT i, 'body of ' || i, CASE WHEN i = 7 THEN 'sad' ELSE 'glad' END::mood
                    FROM generate_series(1, 20) i;
             SET LOCAL allow_system_table_mods = on; DELETE FROM pg_enum WHERE enumlabel = 'sad'; COMMIT",
        )
        .await;
    session.wait_until("the others are embedded", PATIENCE, "SELECT count(*) = 19 FROM articles_chunks").await;
    // It has as many attempts as a row that a provider refuses.
    session
        .wait_until("it was tried", PATIENCE, "SELECT attempts > 0 AND claimed_by IS NULL FROM rag_internal.queue")
        .await;
    session
        .run("UPDATE rag_internal.queue SET attempts = 3, retry_at = NULL; SELECT rag_internal.wake_at_commit()")
        .await;
    current(&session).await;
    let failure = "SELECT key::text || ' ' || sqlstate FROM rag.failures";
    assert_eq!(session.column(failure).await, ["{\"id\": 7} 22P03"]);
    assert_eq!(session.number(BLOCKED).await, 0);
}

#[tokio::test]
async fn a_text_that_cannot_be_recorded_costs_no_run() {
    let (_db, session) = open(1).await;
    session
        .run(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN IF NEW.detail::text LIKE '%body of 1%' THEN RAISE 'not this one'; END IF; RETURN NEW; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON rag.steps FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await;
    let before = session.notices().len();
    let run = session
        .rows("SELECT answer, run_id FROM rag.answer('What is the body of 1?', 'articles', chat_model => 'fake/chat')")
        .await;
    assert_eq!(run[0][0].as_deref(), Some("body of 1 [1]"));
    let warned =
        session.notices()[before..].iter().any(|n| n.message() == "a text of this run is not recorded: not this one");
    assert!(warned, "{:?}", session.notices());
    let id = run[0][1].as_deref().expect("it is recorded");
    let steps = format!(
        "SELECT kind || ' ' || (detail->>'content' IS NOT NULL) FROM rag.steps WHERE run_id = '{id}' ORDER BY number"
    );
    assert_eq!(session.column(&steps).await, ["model_call false", "search false", "model_call false", "answer false"]);
    assert_eq!(session.value(&format!("SELECT answer FROM rag.runs WHERE id = '{id}'")).await, "body of 1 [1]");
    session.value(&format!("SELECT rag.trace('{id}')")).await;
}
