//! Rows with equal texts: they are embedded once, have one entry in the index, and hide nothing.

use std::time::Duration;

use ragent_server_tests::cluster::Cluster;
use ragent_server_tests::database::{Database, current, granted, quote};
use ragent_server_tests::provider::control::{Endpoint, FaultKind};
use ragent_server_tests::random::Random;
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::PATIENCE;

/// A collection `docs` of a table `id`, `body`, with its first rows.
async fn collect(session: &Session, rows: &str) {
    session
        .run(&format!(
            "CREATE FUNCTION words(seed text) RETURNS text LANGUAGE sql IMMUTABLE AS
                $$ SELECT string_agg(md5(seed || i), ' ' ORDER BY i) FROM generate_series(1, 6) i $$;
             CREATE TABLE docs (id int PRIMARY KEY, body text);
             INSERT INTO docs {rows};
             SELECT rag.create_collection('docs', 'docs', '{{body}}', embedding_model => 'fake/embed-384')"
        ))
        .await;
    current(session).await;
}

/// Texts that are not stored, and texts of chunks that have no original or several.
async fn check(session: &Session, most_originals: usize) {
    let lost = "SELECT count(*) FROM docs d WHERE NOT EXISTS (SELECT FROM docs_chunks c WHERE c.id = d.id AND c.content = d.body)";
    assert_eq!(session.number(lost).await, 0, "rows are without their chunk");
    let originals = "SELECT coalesce(min(n), 1), coalesce(max(n), 1)
        FROM (SELECT count(*) FILTER (WHERE NOT is_copy) AS n FROM docs_chunks GROUP BY content_hash) t";
    let found = session.rows(originals).await.remove(0);
    let number = |n: usize| found[n].as_ref().and_then(|v| v.parse::<usize>().ok()).expect("a number");
    assert_eq!(number(0), 1, "a text is not in the index");
    assert!(number(1) <= most_originals, "a text is in the index {} times", number(1));
}

/// How many of the texts are not found first by a search for themselves. What is in the index is compared exactly: the fake
/// model's vectors are as far from each other as can be, and an index does not find all of such.
async fn not_found(session: &Session) -> i64 {
    session.run("SET rag.exact_search_size = '1GB'").await;
    session
        .number(
            "SELECT count(*) FROM (SELECT DISTINCT body FROM docs) d
             WHERE NOT EXISTS (SELECT FROM rag.search(d.body, 'docs', k => 1) f
                               WHERE f.content = d.body AND f.score > 0.999)",
        )
        .await
}

/// Has searches of the session go by the index, however small the table is.
async fn by_index(session: &Session) {
    session.run("SET rag.exact_search_size = 0; SET enable_seqscan = off").await;
}

#[tokio::test]
async fn many_equal_texts_hide_no_other() {
    let (_db, session) = Database::open().await;
    collect(
        &session,
        "SELECT i, 'Please do not reply to this message.' FROM generate_series(1, 400) i
         UNION ALL VALUES (5001, 'The boiler in cellar B leaks.'), (5002, 'Elevator two is out of service.')",
    )
    .await;
    check(&session, 1).await;
    let entries = "SELECT count(*) FROM docs_chunks WHERE NOT is_copy";
    assert_eq!(session.number(entries).await, 3);
    // What is shown and counted is as many as there are.
    assert_eq!(session.value("SELECT rows || ' ' || chunks FROM rag.status").await, "402 402");
    assert_eq!(not_found(&session).await, 0);
    by_index(&session).await;
    for _ in 0..2 {
        for text in ["The boiler in cellar B leaks.", "Elevator two is out of service."] {
            let found = format!("SELECT content FROM rag.search('{text}', 'docs', k => 1)");
            assert_eq!(session.value(&found).await, text);
        }
        for (k, expected) in [(1, 1), (7, 7), (402, 402), (1000, 402)] {
            let found = format!(
                "SELECT count(DISTINCT key) FROM rag.search('Please do not reply to this message.', 'docs', k => {k})"
            );
            assert_eq!(session.number(&found).await, expected, "k {k}");
        }
        session.run("RESET rag.exact_search_size").await;
    }
}

#[tokio::test]
async fn an_equal_text_is_embedded_once() {
    let (db, session) = Database::open().await;
    session.run("ALTER SERVER fake OPTIONS (max_in_flight '1')").await;
    collect(&session, "SELECT i, 'the same in all' FROM generate_series(1, 400) i").await;
    assert_eq!(db.provider.counters().texts.get("the same in all"), Some(&1), "400 rows in some jobs");
    db.provider.forget();
    session
        .run(
            "INSERT INTO docs SELECT i, 'the same in all' FROM generate_series(401, 500) i;
             UPDATE docs SET body = 'the same in all' WHERE id = 7; UPDATE docs SET body = 'another' WHERE id = 8",
        )
        .await;
    current(&session).await;
    assert_eq!(db.provider.counters().texts.into_keys().collect::<Vec<_>>(), ["another"]);
    check(&session, 1).await;
}

#[tokio::test]
async fn a_long_row_that_repeats_a_passage_is_embedded_once_for_each_passage() {
    let (db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE docs (id int PRIMARY KEY, body text);
             INSERT INTO docs SELECT 1, string_agg('Passage ' || i % 7 || repeat(' of some words', 20) || '.', E'\\n\\n' ORDER BY i)
                FROM generate_series(1, 3000) i;
             SELECT rag.create_collection('docs', 'docs', '{body}', embedding_model => 'fake/embed-64',
                                          chunk_tokens => 70, chunk_overlap => 0)",
        )
        .await;
    current(&session).await;
    let distinct = session.number("SELECT count(DISTINCT content_hash) FROM docs_chunks").await;
    assert!(distinct < 50 && session.number("SELECT count(*) FROM docs_chunks").await > 1000, "{distinct}");
    let texts = db.provider.counters().texts;
    assert_eq!(
        texts.iter().filter(|(text, _)| text.contains("some words")).map(|(_, times)| *times).sum::<u64>(),
        distinct as u64
    );
    let originals = "SELECT count(*) FROM docs_chunks WHERE NOT is_copy";
    assert_eq!(session.number(originals).await, distinct);
    // Everything moves by one place: nothing is embedded again but what is new, and each text stays in the index.
    db.provider.forget();
    session
        .run("UPDATE docs SET body = E'A new beginning' || repeat(' of some words', 20) || E'.\\n\\n' || body")
        .await;
    current(&session).await;
    let texts = db.provider.counters().texts;
    assert!(texts.len() < 50 && texts.values().all(|times| *times == 1), "{} texts", texts.len());
    let distinct = session.number("SELECT count(DISTINCT content_hash) FROM docs_chunks").await;
    assert_eq!(session.number(originals).await, distinct);
    let texts = "SELECT count(DISTINCT content_hash) FROM docs_chunks WHERE NOT is_copy";
    assert_eq!(session.number(texts).await, distinct);
}

#[tokio::test]
async fn a_text_that_is_refused_concerns_all_rows_that_have_it_and_no_others() {
    let (db, session) = Database::open().await;
    db.provider.fail_at(Endpoint::Embeddings, FaultKind::RejectTextContaining { text: "bad".into() }, u64::MAX);
    session
        .run(
            "CREATE TABLE docs (id int PRIMARY KEY, body text);
             INSERT INTO docs VALUES (1, 'bad'), (2, 'good'), (3, 'bad'), (4, 'good'), (5, 'well');
             SELECT rag.create_collection('docs', 'docs', '{body}', embedding_model => 'fake/embed-64')",
        )
        .await;
    session.wait_until("the good ones", PATIENCE, "SELECT count(*) = 3 FROM docs_chunks").await;
    session.wait_until("the bad ones", PATIENCE, "SELECT count(*) = 2 FROM rag.failures").await;
    db.provider.heal();
    session.run("SELECT rag.retry_failures('docs')").await;
    current(&session).await;
    assert_eq!(
        session.column("SELECT content FROM docs_chunks ORDER BY id").await,
        ["bad", "good", "bad", "good", "well"]
    );
    check(&session, 1).await;
}

#[tokio::test]
async fn when_the_original_goes_a_copy_takes_its_place() {
    let (_db, session) = Database::open().await;
    collect(&session, "SELECT i, CASE WHEN i <= 6 THEN 'the same' ELSE 'note ' || i END FROM generate_series(1, 40) i")
        .await;
    let original = "SELECT id FROM docs_chunks WHERE content = 'the same' AND NOT is_copy";
    for change in ["DELETE FROM docs WHERE id = $", "UPDATE docs SET body = 'another ' || id WHERE id = $"].repeat(2) {
        let id = session.value(original).await;
        session.run(&change.replace('$', &id)).await;
        current(&session).await;
        check(&session, 1).await;
        assert_ne!(session.value(original).await, id);
        assert_eq!(not_found(&session).await, 0, "{change}");
    }
    // One row takes another's text, which becomes a third's.
    session.run("UPDATE docs SET body = CASE id WHEN 10 THEN 'note 11' WHEN 11 THEN 'note 12' ELSE body END").await;
    current(&session).await;
    check(&session, 1).await;
    assert_eq!(not_found(&session).await, 0);
    // The last of them go together.
    session.run("DELETE FROM docs WHERE body = 'the same'").await;
    current(&session).await;
    check(&session, 1).await;
    session.run("TRUNCATE docs; INSERT INTO docs VALUES (1, 'the same'), (2, 'the same')").await;
    current(&session).await;
    check(&session, 1).await;
}

#[tokio::test]
async fn a_comparison_repairs_what_was_done_by_hand() {
    let (_db, session) = Database::open().await;
    collect(&session, "SELECT i, 'text ' || i % 4 FROM generate_series(1, 40) i").await;
    for damage in ["DELETE FROM docs_chunks WHERE NOT is_copy", "UPDATE docs_chunks SET is_copy = NOT is_copy"] {
        session.run(damage).await;
        session.run("SELECT rag.refresh('docs')").await;
        current(&session).await;
        check(&session, 1).await;
        assert_eq!(session.number("SELECT count(*) FROM docs_chunks WHERE NOT is_copy").await, 4, "{damage}");
    }
}

#[tokio::test]
async fn a_copy_is_found_by_who_does_not_see_the_original() {
    let (db, admin) = Database::open().await;
    let (role, of_columns) = (db.create_role("reader").await, db.create_role("columns").await);
    admin
        .run(
            "CREATE TABLE docs (id int PRIMARY KEY, body text, tenant int, secret text);
             INSERT INTO docs SELECT i, 'The same for everybody.', i % 50, 'x' FROM generate_series(1, 500) i;
             INSERT INTO docs SELECT i, 'The same for everybody but ' || i, i % 50, 'x' FROM generate_series(501, 600) i;
             ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
             CREATE POLICY own ON docs USING (tenant = 7);
             SELECT rag.create_collection('docs', 'docs', '{body}', embedding_model => 'fake/embed-384')",
        )
        .await;
    admin
        .run(&format!(
            "GRANT SELECT ON docs TO {}; GRANT SELECT (id, body, tenant) ON docs TO {}",
            quote(&role),
            quote(&of_columns)
        ))
        .await;
    current(&admin).await;
    granted(&admin).await;
    check(&admin, 1).await;
    // The original belongs to a tenant that the roles do not see.
    admin
        .run(
            "UPDATE docs d SET tenant = 8
             WHERE id <= 500 AND EXISTS (SELECT FROM docs_chunks c WHERE c.id = d.id AND NOT c.is_copy)",
        )
        .await;
    let equal = admin.number("SELECT count(*) FROM docs WHERE tenant = 7 AND id <= 500").await;
    assert!(equal >= 9);
    for role in [role, of_columns] {
        let reader = db.connect_as(&role).await;
        for size in ["0", "'1GB'"] {
            reader.run(&format!("SET rag.exact_search_size = {size}")).await;
            let search = |k: usize| {
                format!(
                    "SELECT count(*) || ' ' || count(*) FILTER (WHERE content = 'The same for everybody.')
                         FROM rag.search('The same for everybody.', 'docs', k => {k})"
                )
            };
            assert_eq!(reader.value(&search(1)).await, "1 1", "{role} {size}");
            assert_eq!(reader.value(&search(8)).await, "8 8", "{role} {size}");
            // All rows of the tenant, and nothing of anybody else's.
            assert_eq!(reader.value(&search(100)).await, format!("{} {equal}", equal + 2), "{role} {size}");
        }
        assert_eq!(
            reader.number("SELECT count(*) FROM docs_chunks WHERE content = 'The same for everybody.'").await,
            equal
        );
    }
}

#[tokio::test]
async fn of_equal_texts_the_same_ones_are_shown_each_time() {
    let (_db, session) = Database::open().await;
    collect(&session, "SELECT i, CASE WHEN i % 4 > 0 THEN 'the same text' ELSE 'the same text ' || i END FROM generate_series(1, 200) i").await;
    let mut answers = Vec::new();
    for setting in
        ["rag.exact_search_size = 0", "enable_seqscan = off", "rag.exact_search_size = '1GB'", "enable_seqscan = on"]
    {
        session.run(&format!("SET {setting}")).await;
        answers.push(session.column("SELECT key->>'id' FROM rag.search('the same text', 'docs', k => 20)").await);
    }
    assert!(answers.iter().all(|answer| answer.len() == 20 && *answer == answers[0]), "{answers:?}");
}

/// A thousand rows of which nine tenths have one of ten texts. Each text has words of its own: with few of them, different texts
/// would have the same vector of the fake model.
const THOUSAND: &str =
    "SELECT i, CASE WHEN i % 10 > 0 THEN words('repeated ' || i % 100 / 10) ELSE words('single ' || i) END
     FROM generate_series(1, 1000) i";

#[tokio::test]
async fn each_text_of_a_thousand_rows_is_found_first() {
    let (_db, session) = Database::open().await;
    collect(&session, THOUSAND).await;
    check(&session, 1).await;
    assert_eq!(not_found(&session).await, 0);
    change_at_random(&session, 1, 6).await;
    current(&session).await;
    check(&session, 1).await;
    assert_eq!(not_found(&session).await, 0);
}

/// Changes rows of `docs` at random: they take others' texts, get new ones, go and come.
async fn change_at_random(session: &Session, seed: u64, rounds: usize) {
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let (part, of) = (random.below(9), 9);
        let sql = match random.below(4) {
            0 => format!("DELETE FROM docs WHERE id % {of} = {part} AND id % 7 = {}", random.below(7)),
            1 => format!("UPDATE docs SET body = words(id || ' round {seed} {round}') WHERE id % {of} = {part}"),
            2 => format!(
                "INSERT INTO docs SELECT i, words('repeated ' || i % 10) FROM generate_series(1, 1000) i
                 WHERE i % {of} = {part} ON CONFLICT (id) DO UPDATE SET body = EXCLUDED.body"
            ),
            _ => format!(
                "UPDATE docs d SET body = o.body FROM docs o
                 WHERE d.id % {of} = {part} AND o.id = d.id + {}",
                1 + random.below(20)
            ),
        };
        session.run(&sql).await;
    }
}

#[tokio::test]
async fn two_workers_leave_no_text_without_its_entry() {
    let cluster = Cluster::builder().setting("rag.workers", "2").start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    session.run("ALTER SERVER fake OPTIONS (max_in_flight '2', max_batch_items '10')").await;
    collect(&session, THOUSAND).await;
    check(&session, 2).await;
    db.provider.set_latency(Duration::from_millis(5));
    let other = db.connect().await;
    for seed in 0..4 {
        tokio::join!(change_at_random(&session, 2 * seed, 5), change_at_random(&other, 2 * seed + 1, 5));
        current(&session).await;
        check(&session, 8).await;
    }
    assert_eq!(not_found(&session).await, 0);
    let trouble = "SELECT count(*) FROM rag.status WHERE failed > 0 OR last_error IS NOT NULL";
    assert_eq!(session.number(trouble).await, 0);
    assert_eq!(cluster.log().matches("deadlock").count(), 0, "{}", cluster.log());
    session.run("SELECT rag.refresh('docs')").await;
    current(&session).await;
    check(&session, 1).await;
    assert_eq!(not_found(&session).await, 0);
}

#[tokio::test]
async fn a_copy_that_somebody_holds_is_waited_for() {
    let (db, session) = Database::open().await;
    collect(&session, "VALUES (1, 'the same'), (2, 'the same'), (3, 'another')").await;
    let other = db.connect().await;
    other.run("BEGIN; SELECT 1 FROM docs_chunks WHERE is_copy FOR UPDATE").await;
    let original = session.value("SELECT id FROM docs_chunks WHERE content = 'the same' AND NOT is_copy").await;
    session.run(&format!("DELETE FROM docs WHERE id = {original}")).await;
    session
        .wait_until("it to say so", PATIENCE, "SELECT coalesce(last_error, '') LIKE '%changing%' FROM rag.status")
        .await;
    other.run("COMMIT").await;
    current(&session).await;
    check(&session, 1).await;
    assert_eq!(session.number("SELECT count(*) FROM rag.status WHERE last_error IS NOT NULL").await, 0);
}
