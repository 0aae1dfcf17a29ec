//! Whatever changes the source reaches the chunks, once, and nothing else does.

use ragent_server_tests::database::{Database, current};
use ragent_server_tests::session::Session;

/// A collection `articles` of three rows.
async fn open() -> (Database<'static>, Session) {
    let (db, session) = Database::open().await;
    db.create_collection(&session, "articles", &["one", "two", "three"]).await;
    db.provider.forget();
    (db, session)
}

/// The chunks' contents, and a check that each is its row's body and no row is without.
async fn contents(session: &Session) -> Vec<String> {
    current(session).await;
    let wrong =
        "SELECT count(*) FROM (SELECT * FROM articles WHERE btrim(body) <> '') a FULL JOIN articles_chunks c USING (id)
                  WHERE a.body IS DISTINCT FROM c.content";
    assert_eq!(session.number(wrong).await, 0, "rows and chunks differ");
    session.column("SELECT content FROM articles_chunks ORDER BY content").await
}

/// How many changes wait in the queue, as seen by a transaction that makes them.
async fn queued(session: &Session) -> i64 {
    session.number("SELECT count(*) FROM rag_internal.queue").await
}

#[tokio::test]
async fn insert_update_delete_and_truncate() {
    let (db, session) = open().await;
    session.run("INSERT INTO articles VALUES (4, 't', 'four'), (5, 't', 'five')").await;
    assert_eq!(contents(&session).await, ["five", "four", "one", "three", "two"]);
    session.run("UPDATE articles SET body = 'ONE' WHERE id = 1; DELETE FROM articles WHERE id = 2").await;
    assert_eq!(contents(&session).await, ["ONE", "five", "four", "three"]);
    session.run("TRUNCATE articles").await;
    assert_eq!(contents(&session).await, Vec::<String>::new());
    session.run("INSERT INTO articles VALUES (1, 't', 'again')").await;
    assert_eq!(contents(&session).await, ["again"]);
    drop(db);
}

#[tokio::test]
async fn copy_and_on_conflict_and_merge_and_writable_cte() {
    let (db, session) = open().await;
    let mut psql = db.cluster.psql_command(&db.name);
    let script = db.cluster.socket_folder().join(format!("{}.sql", db.name));
    std::fs::write(&script, "COPY articles FROM stdin;\n10\tt\tcopied ten\n11\tt\tcopied eleven\n\\.\n")
        .expect("a file");
    assert!(psql.arg("-f").arg(&script).status().expect("psql can be started").success());
    session
        .run(
            "INSERT INTO articles VALUES (1, 't', 'upserted one'), (12, 't', 'twelve')
                ON CONFLICT (id) DO UPDATE SET body = EXCLUDED.body;
             INSERT INTO articles VALUES (2, 't', 'ignored') ON CONFLICT DO NOTHING;
             WITH gone AS (DELETE FROM articles WHERE id = 3 RETURNING *)
                INSERT INTO articles SELECT 13, title, 'moved ' || body FROM gone;
             MERGE INTO articles a USING (VALUES (2, 'merged two'), (14, 'merged fourteen')) v (id, body) ON a.id = v.id
                WHEN MATCHED THEN UPDATE SET body = v.body WHEN NOT MATCHED THEN INSERT VALUES (v.id, 't', v.body)",
        )
        .await;
    let expected =
        ["copied eleven", "copied ten", "merged fourteen", "merged two", "moved three", "twelve", "upserted one"];
    assert_eq!(contents(&session).await, expected);
}

#[tokio::test]
async fn nothing_of_a_rolled_back_transaction() {
    let (db, session) = open().await;
    session
        .run("BEGIN; INSERT INTO articles VALUES (4, 't', 'never'); DELETE FROM articles WHERE id = 1; ROLLBACK")
        .await;
    assert_eq!(queued(&session).await, 0);
    session
        .run(
            "BEGIN; INSERT INTO articles VALUES (4, 't', 'kept');
             SAVEPOINT s; UPDATE articles SET body = 'undone' WHERE id = 1; INSERT INTO articles VALUES (5, 't', 'undone');
             ROLLBACK TO s; UPDATE articles SET body = 'two changed' WHERE id = 2; COMMIT",
        )
        .await;
    assert_eq!(contents(&session).await, ["kept", "one", "three", "two changed"]);
    session.run("BEGIN; TRUNCATE articles; ROLLBACK").await;
    assert_eq!(contents(&session).await, ["kept", "one", "three", "two changed"]);
    let texts = db.provider.counters().texts;
    assert!(!texts.keys().any(|t| t.contains("never") || t.contains("undone")), "{texts:?}");
}

#[tokio::test]
async fn an_unrelated_column_queues_nothing() {
    let (db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE articles (id int PRIMARY KEY, body text, views int DEFAULT 0, kind text);
             INSERT INTO articles VALUES (1, 'one', 0, 'a'), (2, 'two', 0, 'b');
             SELECT rag.create_collection('articles', 'articles', '{body}', metadata => '{kind}',
                                          embedding_model => 'fake/embed-64')",
        )
        .await;
    current(&session).await;
    db.provider.forget();
    session.run("BEGIN; UPDATE articles SET views = views + 1").await;
    assert_eq!(queued(&session).await, 0, "a counter's update was captured");
    session.run("UPDATE articles SET body = body").await;
    assert_eq!(queued(&session).await, 0, "an update that changes nothing was captured");
    session.run("UPDATE articles SET body = body || '!' WHERE id = 1").await;
    assert!(queued(&session).await >= 1);
    session.run("COMMIT").await;
    current(&session).await;
    assert_eq!(db.provider.counters().texts_embedded(), 1);
}

#[tokio::test]
async fn metadata_changes_are_found_without_embedding_again() {
    let (db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE articles (id int PRIMARY KEY, body text, kind text);
             INSERT INTO articles VALUES (1, 'one', 'a');
             SELECT rag.create_collection('articles', 'articles', '{body}', metadata => '{kind}',
                                          embedding_model => 'fake/embed-64')",
        )
        .await;
    current(&session).await;
    db.provider.forget();
    session.run("UPDATE articles SET kind = 'z'").await;
    current(&session).await;
    assert_eq!(db.provider.counters().texts_embedded(), 0, "metadata is not embedded");
    assert_eq!(session.value("SELECT metadata->>'kind' FROM rag.search('one', 'articles')").await, "z");
}

#[tokio::test]
async fn a_changed_key_moves_the_chunks() {
    let (_db, session) = open().await;
    session.run("UPDATE articles SET id = id + 100").await;
    assert_eq!(contents(&session).await, ["one", "three", "two"]);
    assert_eq!(session.column("SELECT id FROM articles_chunks ORDER BY id").await, ["101", "102", "103"]);
    // Keys that change places.
    session.run("BEGIN; UPDATE articles SET id = -1 WHERE id = 101; UPDATE articles SET id = 101 WHERE id = 102").await;
    session.run("UPDATE articles SET id = 102 WHERE id = -1; COMMIT").await;
    assert_eq!(contents(&session).await, ["one", "three", "two"]);
    assert_eq!(session.value("SELECT content FROM articles_chunks WHERE id = 101").await, "two");
}

#[tokio::test]
async fn unchanged_chunks_are_not_embedded_again() {
    let (db, session) = Database::open().await;
    let paragraphs = "string_agg('Paragraph ' || i || ' has' || repeat(' some words', 30), E'\\n\\n' ORDER BY i)";
    session
        .run(&format!(
            "CREATE TABLE articles (id int PRIMARY KEY, body text);
             INSERT INTO articles SELECT 1, {paragraphs} FROM generate_series(1, 60) i;
             SELECT rag.create_collection('articles', 'articles', '{{body}}', embedding_model => 'fake/embed-64',
                                          chunk_tokens => 100, chunk_overlap => 0)"
        ))
        .await;
    current(&session).await;
    let all = db.provider.counters().texts_embedded();
    assert!(all > 20, "{all} chunks");
    db.provider.forget();
    session.run("UPDATE articles SET body = replace(body, 'Paragraph 60 ', 'The last paragraph ')").await;
    current(&session).await;
    let again = db.provider.counters().texts_embedded();
    assert!(again <= 2, "{again} of {all} chunks were embedded again for a change of the last");
    assert_eq!(session.number("SELECT count(*) FROM articles_chunks WHERE content ~ 'The last paragraph'").await, 1);
    db.provider.forget();
    session.run("UPDATE articles SET body = body || ' '; UPDATE articles SET body = rtrim(body)").await;
    current(&session).await;
    assert_eq!(db.provider.counters().texts_embedded(), 0, "the text did not change");
}

#[tokio::test]
async fn many_changes_of_a_row_are_embedded_as_the_last_one() {
    let (db, session) = open().await;
    session
        .run("DO $$ BEGIN FOR i IN 1..200 LOOP UPDATE articles SET body = 'version ' || i WHERE id = 1; END LOOP; END $$")
        .await;
    assert_eq!(contents(&session).await, ["three", "two", "version 200"]);
    assert_eq!(db.provider.counters().texts_embedded(), 1);
}

#[tokio::test]
async fn a_shorter_text_leaves_no_chunks_behind() {
    let (_db, session) = open().await;
    session.run("UPDATE articles SET body = repeat('a long text of many words. ', 2000) WHERE id = 1").await;
    current(&session).await;
    assert!(session.number("SELECT count(*) FROM articles_chunks WHERE id = 1").await > 5);
    session.run("UPDATE articles SET body = 'short' WHERE id = 1").await;
    assert_eq!(contents(&session).await, ["short", "three", "two"]);
}

#[tokio::test]
async fn a_writer_needs_nothing_but_the_right_to_write() {
    let (db, session) = open().await;
    let role = db.create_role("writer").await;
    session.run(&format!("GRANT INSERT, UPDATE, DELETE, SELECT, TRUNCATE ON articles TO {role}")).await;
    let writer = db.connect_as(&role).await;
    writer
        .run(
            "INSERT INTO articles VALUES (4, 't', 'four'); UPDATE articles SET body = 'ONE' WHERE id = 1;
             DELETE FROM articles WHERE id = 2",
        )
        .await;
    assert_eq!(contents(&session).await, ["ONE", "four", "three"]);
    writer.run("TRUNCATE articles").await;
    assert_eq!(contents(&session).await, Vec::<String>::new());
}

#[tokio::test]
async fn changes_that_a_foreign_key_makes_are_captured() {
    let (_db, session) = open().await;
    session
        .run(
            "CREATE TABLE topics (id int PRIMARY KEY); INSERT INTO topics VALUES (1), (2);
             ALTER TABLE articles ADD topic int REFERENCES topics ON DELETE CASCADE;
             UPDATE articles SET topic = CASE WHEN id = 1 THEN 1 ELSE 2 END;
             DELETE FROM topics WHERE id = 2",
        )
        .await;
    assert_eq!(contents(&session).await, ["one"]);
}

#[tokio::test]
async fn concurrent_writers_lose_nothing() {
    let (db, session) = open().await;
    db.provider.set_latency(std::time::Duration::from_millis(20));
    let writers: Vec<_> = (0..4).map(|_| db.connect()).collect();
    let writers = futures(writers).await;
    let work = writers.iter().enumerate().map(|(w, writer)| async move {
        let mut random = ragent_server_tests::random::Random::new(w as u64);
        for step in 0..60 {
            let id = 1 + random.below(40);
            let sql = match random.below(4) {
                0 => format!("DELETE FROM articles WHERE id = {id}"),
                1 => format!("UPDATE articles SET body = 'writer {w} step {step}' WHERE id = {id}"),
                _ => format!(
                    "INSERT INTO articles VALUES ({id}, 't', 'writer {w} step {step}')
                        ON CONFLICT (id) DO UPDATE SET body = EXCLUDED.body"
                ),
            };
            writer.run(&sql).await;
        }
    });
    futures(work.collect()).await;
    assert!(!contents(&session).await.is_empty());
}

#[tokio::test]
async fn many_rows_of_a_statement_are_queued_as_few_entries_and_few_as_one_each() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE articles (id int PRIMARY KEY, body text);
             SELECT rag.create_collection('articles', 'articles', '{body}', embedding_model => 'fake/embed-64')",
        )
        .await;
    for write in [
        "INSERT INTO articles SELECT i, 'article ' || i FROM generate_series(1, 1200) i",
        "UPDATE articles SET body = 'changed ' || id WHERE id > 100",
        "UPDATE articles SET id = id + 5000 WHERE id > 1100",
        "DELETE FROM articles WHERE id BETWEEN 200 AND 400",
    ] {
        session.run(&format!("BEGIN; {write}")).await;
        let entries = session.rows("SELECT count(keys), sum(rows) FROM rag_internal.queue").await.remove(0);
        let number = |n: usize| entries[n].as_ref().and_then(|v| v.parse::<i64>().ok()).unwrap_or(0);
        assert!(number(0) <= 4 && number(1) >= 200, "{write}: {entries:?}");
        assert_eq!(session.number("SELECT pending FROM rag.status").await, number(1), "{write}");
        session.run("COMMIT").await;
        assert!(!contents(&session).await.is_empty());
    }
    session.run("BEGIN; INSERT INTO articles SELECT -i, 'few ' || i FROM generate_series(1, 20) i").await;
    assert_eq!(session.number("SELECT count(key) FROM rag_internal.queue").await, 20);
    session.run("COMMIT").await;
    assert_eq!(contents(&session).await.iter().filter(|c| c.starts_with("few")).count(), 20);
}

#[tokio::test]
async fn many_rows_that_wait_follow_a_renamed_key() {
    let (_db, session) = open().await;
    session
        .run(
            "BEGIN; INSERT INTO articles SELECT i, 't', 'more ' || i FROM generate_series(10, 300) i;
             ALTER TABLE articles RENAME id TO number; COMMIT",
        )
        .await;
    current(&session).await;
    assert_eq!(session.number("SELECT count(*) FROM articles_chunks").await, 294);
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 0);
}

/// Runs futures concurrently.
async fn futures<T>(all: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut pinned: Vec<_> = all.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = pinned.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, slot) in pinned.iter_mut().zip(&mut done) {
            if slot.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *slot = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
