//! `rag.search`: the right rows, through the index, in a shape that joins back.

use ragent_server_tests::database::{Database, current};
use ragent_server_tests::session::Session;

const BODIES: [&str; 5] = [
    "Restore a backup with pg_restore.",
    "Employees receive thirty vacation days a year.",
    "The kitchen is closed on Sundays.",
    "A backup is taken every night at two.",
    "Vacation must be requested a month before.",
];

async fn open() -> (Database<'static>, Session) {
    let (db, session) = Database::open().await;
    db.create_collection(&session, "articles", &BODIES).await;
    (db, session)
}

#[tokio::test]
async fn the_nearest_rows_come_first_with_everything_that_was_asked_for() {
    let (db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE pages (id int PRIMARY KEY, body text, heading text, url text, lang text, n int);
             INSERT INTO pages VALUES (1, 'how to restore a backup', 'Backup', 'http://x/1', 'en', 7),
                                      (2, 'how to cook rice', NULL, NULL, NULL, NULL);
             SELECT rag.create_collection('pages', 'pages', '{body}', title => 'heading', link => 'url',
                                          metadata => '{lang,n}', embedding_model => 'fake/embed-384')",
        )
        .await;
    current(&session).await;
    let rows = session
        .rows("SELECT collection, key, chunk, content, title, link, metadata FROM rag.search('restore a backup', 'pages')")
        .await;
    let row = |values: [Option<&str>; 7]| values.map(|v| v.map(str::to_owned)).to_vec();
    assert_eq!(
        rows,
        [
            row([
                Some("pages"),
                Some(r#"{"id": 1}"#),
                Some("1"),
                Some("how to restore a backup"),
                Some("Backup"),
                Some("http://x/1"),
                Some(r#"{"n": 7, "lang": "en"}"#),
            ]),
            row([
                Some("pages"),
                Some(r#"{"id": 2}"#),
                Some("1"),
                Some("how to cook rice"),
                None,
                None,
                Some(r#"{"n": null, "lang": null}"#),
            ]),
        ]
    );
    let scores = "SELECT bool_and(score BETWEEN -1 AND 1.000001) AND count(*) = 2 AND max(score) > 0.75
                    FROM rag.search('restore a backup', 'pages')";
    assert_eq!(session.value(scores).await, "t");
    drop(db);
}

#[tokio::test]
async fn the_score_is_the_cosine_similarity_and_the_order_is_its() {
    let (_db, session) = open().await;
    let off = "SELECT count(*) FROM rag.search('vacation days', 'articles', 10) s
                 JOIN articles_chunks c ON c.id = (s.key->>'id')::int AND c.chunk = s.chunk
                WHERE abs(s.score - (1 - (c.embedding <=> rag.embed('vacation days', 'fake/embed-384')))) > 1e-6";
    assert_eq!(session.number(off).await, 0);
    let order = "SELECT array_agg(score) = array_agg(score ORDER BY score DESC)
                   FROM (SELECT score FROM rag.search('vacation days', 'articles')) s";
    assert_eq!(session.value(order).await, "t");
    assert_eq!(session.value("SELECT key->>'id' FROM rag.search('vacation days', 'articles', 1)").await, "2");
}

#[tokio::test]
async fn keys_join_back_to_the_rows() {
    let (_db, session) = open().await;
    let joined = "SELECT a.body FROM rag.search('backup every night', 'articles', 1) s
                    JOIN articles a ON a.id = (s.key->>'id')::int";
    assert_eq!(session.column(joined).await, [BODIES[3]]);
}

#[tokio::test]
async fn a_query_vector_finds_what_its_text_finds() {
    let (db, session) = open().await;
    let by_text = session.rows("SELECT key, score FROM rag.search('vacation days', 'articles')").await;
    db.provider.forget();
    let by_vector = "SELECT key, score FROM rag.search((SELECT embedding FROM q), 'articles')";
    session.run("CREATE TEMP TABLE q AS SELECT rag.embed('vacation days', 'fake/embed-384') AS embedding").await;
    assert_eq!(session.rows(by_vector).await, by_text);
    assert_eq!(db.provider.counters().embedding_requests(), 1, "the vector query asked the provider");
}

#[tokio::test]
async fn a_vector_of_another_dimension_is_refused_with_both_dimensions() {
    let (_db, session) = open().await;
    let error = session.refusal("SELECT * FROM rag.search('[1,2,3]'::vector, 'articles')", "22023|22000").await;
    let said = format!("{} {}", error.message(), error.detail().unwrap_or(""));
    assert!(said.contains("384") && said.contains('3'), "{said}");
}

#[tokio::test]
async fn k_is_from_1_to_1000_and_more_than_there_are_gives_all() {
    let (_db, session) = open().await;
    for k in ["0", "-1", "1001", "2147483647"] {
        session.refusal(&format!("SELECT * FROM rag.search('x', 'articles', {k})"), "22023|22004").await;
    }
    assert_eq!(session.number("SELECT count(*) FROM rag.search('x', 'articles', 2)").await, 2);
    for k in ["5", "6", "1000", "NULL"] {
        assert_eq!(session.number(&format!("SELECT count(*) FROM rag.search('x', 'articles', {k})")).await, 5);
    }
}

#[tokio::test]
async fn questionable_arguments_are_refused_with_a_hint() {
    let (_db, session) = open().await;
    let error = session.refusal("SELECT * FROM rag.search('x', 'artciles')", "42704").await;
    assert!(error.message().contains("artciles"), "{error:?}");
    session.refusal("SELECT * FROM rag.search('', 'articles')", "22023").await;
    session.refusal("SELECT * FROM rag.search('   ', 'articles')", "22023").await;
    session.refusal("SELECT * FROM rag.search('x', '')", "42704|22023").await;
    session.refusal("SELECT * FROM rag.search('x', 'articles', min_score => 'NaN')", "22023").await;
    session.refusal("SELECT * FROM rag.wait_until_current('artciles')", "42704").await;
    session.refusal("SELECT rag.retry_failures('artciles')", "42704").await;
    session.refusal("SELECT rag.trace('00000000-0000-0000-0000-000000000000')", "42704|02000|P0002").await;
}

#[tokio::test]
async fn min_score_leaves_out_what_is_worse() {
    let (_db, session) = open().await;
    let all = "SELECT count(*) FROM rag.search('vacation days', 'articles') WHERE score >= 0.2";
    let expected = session.number(all).await;
    assert!((1..5).contains(&expected));
    let limited = "SELECT count(*) FROM rag.search('vacation days', 'articles', min_score => 0.2)";
    assert_eq!(session.number(limited).await, expected);
    assert_eq!(session.number("SELECT count(*) FROM rag.search('vacation days', 'articles', min_score => 1)").await, 0);
    session.refusal("SELECT * FROM rag.search('x', 'articles', min_score => 1.1)", "22023").await;
    assert_eq!(
        session.number("SELECT count(*) FROM rag.search('vacation days', 'articles', min_score => -1)").await,
        5
    );
}

#[tokio::test]
async fn without_a_name_every_readable_collection_is_searched_with_its_own_model() {
    let (db, session) = open().await;
    session
        .run(
            "CREATE TABLE notes (id int PRIMARY KEY, body text); INSERT INTO notes VALUES (1, 'my vacation days are over');
             SELECT rag.create_collection('notes', 'notes', '{body}', embedding_model => 'fake/embed-64');
             CREATE TABLE empty (id int PRIMARY KEY, body text);
             SELECT rag.create_collection('empty', 'empty', '{body}', embedding_model => 'fake/embed-384')",
        )
        .await;
    current(&session).await;
    let found = session.rows("SELECT collection, key->>'id' FROM rag.search('vacation days', k => 2) ORDER BY 1").await;
    let row = |c: &str, k: &str| vec![Some(c.to_owned()), Some(k.to_owned())];
    assert_eq!(found, [row("articles", "2"), row("notes", "1")]);
    let order = "SELECT array_agg(score) = array_agg(score ORDER BY score DESC)
                   FROM (SELECT score FROM rag.search('vacation days')) s";
    assert_eq!(session.value(order).await, "t");
    // One request for each model, not for each collection.
    db.provider.forget();
    session.run("SELECT * FROM rag.search('vacation days')").await;
    assert_eq!(db.provider.counters().embedding_requests(), 2);
}

#[tokio::test]
async fn a_database_without_collections_finds_nothing() {
    let (_db, session) = Database::open().await;
    assert_eq!(session.number("SELECT count(*) FROM rag.search('x')").await, 0);
    assert_eq!(session.number("SELECT count(*) FROM rag.collections").await, 0);
    assert_eq!(session.value("SELECT rag.wait_until_current()").await, "t");
}

#[tokio::test]
async fn the_hnsw_index_is_used_and_gives_nearly_what_exact_search_gives() {
    let (db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE docs (id int PRIMARY KEY, body text);
             INSERT INTO docs SELECT i, 'word' || i % 17 || ' term' || i % 23 || ' thing' || i % 101 || ' number' || i
               FROM generate_series(1, 3000) i;
             SELECT rag.create_collection('docs', 'docs', '{body}', embedding_model => 'fake/embed-64')",
        )
        .await;
    current(&session).await;
    session.run("ANALYZE docs; ANALYZE docs_chunks").await;
    let scans = "SELECT s.idx_scan FROM pg_stat_user_indexes s JOIN pg_class i ON i.oid = s.indexrelid
                   JOIN pg_am a ON a.oid = i.relam WHERE a.amname = 'hnsw' AND s.relname = 'docs_chunks'";
    let flushed = async || {
        session.run("SELECT pg_stat_force_next_flush()").await;
        session.number(scans).await
    };
    let role = db.create_role("reader").await;
    session.run(&format!("GRANT SELECT ON docs TO {role}")).await;
    let before = flushed().await;
    session.run("SELECT * FROM rag.search('word3 term5 thing7', 'docs', 10)").await;
    let after = flushed().await;
    assert_eq!(after, before + 1, "one search, one scan of the index");
    let sequential = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'docs_chunks'";
    let whole = session.number(sequential).await;
    let reader = db.connect_as(&role).await;
    reader.run("SELECT * FROM rag.search('word3 term5 thing7', 'docs', 10); SELECT pg_stat_force_next_flush()").await;
    drop(reader);
    let used = format!("SELECT idx_scan > {after} FROM ({scans}) s");
    session.wait_until("an ordinary role's search to use the index", ragent_server_tests::wait::PATIENCE, &used).await;
    session.run("SELECT pg_stat_force_next_flush()").await;
    assert_eq!(session.number(sequential).await, whole, "the chunk table was read as a whole");
    let recall = "WITH q AS MATERIALIZED (SELECT rag.embed('word3 term5 thing7', 'fake/embed-64') AS v),
          exact AS (SELECT 1 - (embedding <=> v) AS s FROM docs_chunks, q ORDER BY (embedding <=> v) + 0 LIMIT 10),
          found AS (SELECT score AS s FROM rag.search((SELECT v FROM q), 'docs', 10))
        SELECT (SELECT count(*) FROM found WHERE s >= (SELECT min(s) - 1e-6 FROM exact))";
    assert!(session.number(recall).await >= 9, "recall of 10 below 0.9");
}

#[tokio::test]
async fn a_changed_row_is_never_found_with_its_old_text_by_those_who_joined_it() {
    let (db, session) = open().await;
    db.provider.break_down(ragent_server_tests::provider::control::FaultKind::HangBeforeHeaders);
    session.run("DELETE FROM articles WHERE id = 2").await;
    db.provider.heal();
    // Whether or not the worker has been there, a row that is gone is not found.
    assert_eq!(
        session.number("SELECT count(*) FROM rag.search('vacation days', 'articles') WHERE key->>'id' = '2'").await,
        0
    );
    current(&session).await;
    assert_eq!(session.number("SELECT count(*) FROM articles_chunks WHERE id = 2").await, 0);
}

#[tokio::test]
async fn searching_works_in_a_read_only_transaction_a_cursor_and_a_function() {
    let (_db, session) = open().await;
    session
        .run(
            "BEGIN READ ONLY; SELECT * FROM rag.search('vacation', 'articles');
             DECLARE c CURSOR FOR SELECT * FROM rag.search('vacation', 'articles'); FETCH 2 FROM c; COMMIT;
             CREATE FUNCTION f(q text) RETURNS bigint LANGUAGE plpgsql AS
                $$ BEGIN RETURN (SELECT count(*) FROM rag.search(q, 'articles')); END $$;
             SELECT f(q) FROM unnest(ARRAY['a', 'b', 'c']) q",
        )
        .await;
    let lateral =
        "SELECT count(*) FROM (VALUES ('backup'), ('vacation')) v (q), LATERAL rag.search(v.q, 'articles', 2)";
    assert_eq!(session.number(lateral).await, 4);
}
