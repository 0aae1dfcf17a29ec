//! `rag.embed`, read and written by a client in pgvector's own type; and what a provider does wrong, which becomes an error
//! that says what happened and what to do, and nothing secret.

use std::time::{Duration, Instant};

use pgvector::Vector;
use ragent_server_tests::database::{API_KEY, Database, create_server, current};
use ragent_server_tests::provider::control::{Endpoint, FaultKind};
use ragent_server_tests::provider::embeddings::embed;
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::PATIENCE;
use tokio_postgres::error::DbError;

/// Server `once`: the same provider, asked only once.
async fn open() -> (Database<'static>, Session) {
    let (db, session) = Database::open().await;
    session.run(&create_server("once", &db.provider.base_url())).await;
    session.run("ALTER SERVER once OPTIONS (max_retries '0', timeout '2')").await;
    (db, session)
}

fn expect_no_secret(error: &DbError) {
    let said = format!("{error:?}");
    assert!(!said.contains(API_KEY), "the key is in an error: {said}");
}

/// Fault, SQLSTATE, and a word that the message (or the detail) must have: the value that was wrong.
fn faults() -> Vec<(FaultKind, &'static str, &'static str)> {
    vec![
        (FaultKind::Status429 { retry_after: None }, "53400", "429"),
        (FaultKind::Status500, "08P01", "500"),
        (FaultKind::Status401, "28000", "401"),
        (FaultKind::Status404, "22023|42704", "404"),
        (FaultKind::HangBeforeHeaders, "08006", "2"),
        (FaultKind::HangMidBody, "08006", "2"),
        (FaultKind::SlowDrip { interval_ms: 500 }, "08006", "2"),
        (FaultKind::CutBody, "08006|08P01", ""),
        (FaultKind::CloseBeforeHeaders, "08001|08006|08P01", ""),
        (FaultKind::Html, "08P01", ""),
        (FaultKind::EmptyBody, "08P01", ""),
        (FaultKind::Redirect, "08P01|22023", "302"),
        (FaultKind::Body20Mb { declared: true }, "08P01|54000", "16"),
        (FaultKind::Body20Mb { declared: false }, "08P01|54000", "16"),
    ]
}

fn faults_of_vectors() -> Vec<(FaultKind, &'static str)> {
    vec![
        (FaultKind::WrongCount, "1"),
        (FaultKind::MixedDimension, "7"),
        (FaultKind::Nan, ""),
        (FaultKind::NullElement, ""),
    ]
}

#[tokio::test]
async fn an_embedding_fails_with_the_right_sqlstate_and_a_hint() {
    let (db, session) = open().await;
    for (kind, sqlstate, word) in faults() {
        db.provider.fail(kind.clone(), 1);
        let error = session.refusal("SELECT rag.embed('x', 'once/embed-8')", sqlstate).await;
        expect_no_secret(&error);
        let said = format!("{} {}", error.message(), error.detail().unwrap_or(""));
        assert!(said.contains(word), "{kind:?}: no {word} in {said:?}");
        db.provider.heal();
        assert_eq!(session.value("SELECT vector_dims(rag.embed('x', 'once/embed-8'))").await, "8", "after {kind:?}");
    }
    assert_eq!(db.provider.counters().requests.get("/followed-a-redirect"), None);
}

#[tokio::test]
async fn wrong_vectors_are_errors_that_name_the_values() {
    let (db, session) = open().await;
    for (kind, word) in faults_of_vectors() {
        db.provider.fail(kind.clone(), 1);
        let error = session.refusal("SELECT rag.embed(ARRAY['x', 'y'], 'once/embed-8')", "08P01").await;
        let said = format!("{} {}", error.message(), error.detail().unwrap_or(""));
        assert!(said.contains(word), "{kind:?}: no {word} in {said:?}");
    }
}

#[tokio::test]
async fn a_collection_refuses_a_query_vector_of_another_dimension_than_its_own() {
    let (db, session) = open().await;
    session.run("CREATE TABLE d (id int PRIMARY KEY, body text); INSERT INTO d VALUES (1, 'a text')").await;
    session.run("SELECT rag.create_collection('d', 'd', '{body}', embedding_model => 'once/embed-8')").await;
    ragent_server_tests::database::current(&session).await;
    db.provider.fail(FaultKind::WrongDimension, 1);
    let error = session.refusal("SELECT * FROM rag.search('a text', 'd')", "08P01|22023").await;
    let said = format!("{} {}", error.message(), error.detail().unwrap_or(""));
    assert!(said.contains('9') && said.contains('8'), "both dimensions should be in {said:?}");
}

#[tokio::test]
async fn an_answer_fails_with_the_right_sqlstate_and_a_hint() {
    let (db, session) = open().await;
    db.create_collection(&session, "articles", &["The office closes at six."]).await;
    for (kind, sqlstate, word) in faults() {
        db.provider.fail_at(Endpoint::Chat, kind.clone(), 1);
        let error = session.refusal("SELECT rag.ask('When?', chat_model => 'once/chat')", sqlstate).await;
        expect_no_secret(&error);
        let said = format!("{} {}", error.message(), error.detail().unwrap_or(""));
        assert!(said.contains(word), "{kind:?}: no {word} in {said:?}");
        db.provider.heal();
    }
}

#[tokio::test]
async fn a_rate_limit_is_waited_out_as_the_provider_asks() {
    let (db, session) = open().await;
    db.provider.fail(FaultKind::Status429 { retry_after: Some("1".into()) }, 1);
    let started = Instant::now();
    assert_eq!(session.value("SELECT vector_dims(rag.embed('x', 'fake/embed-8'))").await, "8");
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(1), "tried again after {took:?}, the provider asked for 1 s");
    assert!(took < Duration::from_secs(5), "tried again only after {took:?}");
    assert_eq!(db.provider.counters().embedding_requests(), 2);
}

#[tokio::test]
async fn transient_faults_are_tried_again_and_permanent_ones_are_not() {
    let (db, session) = open().await;
    db.provider.fail(FaultKind::Status500, 2);
    assert_eq!(session.value("SELECT vector_dims(rag.embed('x', 'fake/embed-8'))").await, "8");
    assert_eq!(db.provider.counters().embedding_requests(), 3);
    db.provider.forget();
    db.provider.fail(FaultKind::Status500, u64::MAX);
    session.refusal("SELECT rag.embed('x', 'fake/embed-8')", "08P01").await;
    assert_eq!(db.provider.counters().embedding_requests(), 3, "max_retries is 2");
    db.provider.heal();
    db.provider.forget();
    db.provider.fail(FaultKind::Status401, u64::MAX);
    session.refusal("SELECT rag.embed('x', 'fake/embed-8')", "28000").await;
    assert_eq!(db.provider.counters().embedding_requests(), 1);
}

#[tokio::test]
async fn nobody_listening_is_a_connection_failure() {
    let (_db, session) = open().await;
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port").local_addr().expect("an address");
    session.run(&create_server("nobody", &format!("http://{free}/v1"))).await;
    let error = session.refusal("SELECT rag.embed('x', 'nobody/embed-8')", "08001").await;
    assert!(format!("{error:?}").contains("nobody"), "the server's name should be in {error:?}");
    session.run(&create_server("nowhere", "http://nowhere.invalid/v1")).await;
    session.refusal("SELECT rag.embed('x', 'nowhere/embed-8')", "08001").await;
}

#[tokio::test]
async fn a_response_may_be_as_large_as_the_server_option_says() {
    let (db, session) = open().await;
    session.run("ALTER SERVER once OPTIONS (max_response_bytes '2000')").await;
    session.refusal("SELECT rag.embed('x', 'once/embed-1536')", "08P01|54000").await;
    assert_eq!(session.value("SELECT vector_dims(rag.embed('x', 'once/embed-8'))").await, "8");
    session.run("ALTER SERVER once OPTIONS (SET max_response_bytes '100000')").await;
    assert_eq!(session.value("SELECT vector_dims(rag.embed('x', 'once/embed-1536'))").await, "1536");
    drop(db);
}

#[tokio::test]
async fn requests_carry_at_most_the_items_that_the_server_option_says() {
    let (db, session) = open().await;
    session.run("ALTER SERVER once OPTIONS (max_batch_items '10')").await;
    let embedded =
        "SELECT count(*) FROM unnest(rag.embed((SELECT array_agg('text ' || i) FROM generate_series(1, 25) i),
                                                         'once/embed-8'))";
    assert_eq!(session.value(embedded).await, "25");
    let items = db.provider.counters().items;
    assert!(items.iter().all(|n| *n <= 10) && items.iter().sum::<usize>() == 25, "{items:?}");
}

#[tokio::test]
async fn a_changed_server_option_counts_at_once() {
    let (db, session) = open().await;
    let other = ragent_server_tests::provider::FakeProvider::start();
    session.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    session.run(&format!("ALTER SERVER fake OPTIONS (SET base_url '{}')", other.base_url())).await;
    session.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    assert_eq!((db.provider.counters().embedding_requests(), other.counters().embedding_requests()), (1, 1));
}

#[tokio::test]
async fn connections_are_kept_between_requests() {
    let (db, session) = open().await;
    for _ in 0..5 {
        session.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    }
    let counters = db.provider.wait_until("five requests", PATIENCE, |c| c.embedding_requests() == 5).await;
    assert_eq!(counters.connections, 1);
}

#[tokio::test]
async fn null_and_blank_texts_ask_no_provider() {
    let (db, session) = open().await;
    assert_eq!(session.maybe("SELECT rag.embed(NULL::text, 'fake/embed-8')").await, None);
    assert_eq!(session.maybe("SELECT rag.embed(NULL::text[], 'fake/embed-8')").await, None);
    let found = session.value("SELECT rag.embed(ARRAY[NULL, 'x', NULL], 'fake/embed-8')::text").await;
    assert!(found.starts_with("{NULL,") && found.ends_with(",NULL}"), "{found}");
    session.refusal("SELECT rag.embed('', 'fake/embed-8')", "22023").await;
    session.refusal("SELECT rag.embed(E' \\n\\t', 'fake/embed-8')", "22023").await;
    session.refusal("SELECT rag.embed(ARRAY['x', ' '], 'fake/embed-8')", "22023").await;
    assert_eq!(session.value("SELECT cardinality(rag.embed('{}'::text[], 'fake/embed-8'))").await, "0");
    assert_eq!(db.provider.counters().embedding_requests(), 1);
}

#[tokio::test]
async fn unknown_servers_and_malformed_models_are_refused() {
    let (_db, session) = open().await;
    let error = session.refusal("SELECT rag.embed('x', 'missing/embed-8')", "42704").await;
    assert!(error.message().contains("missing"), "{error:?}");
    for model in ["embed-8", "/embed-8", "fake/", "", "/"] {
        session.refusal(&format!("SELECT rag.embed('x', '{model}')"), "22023|42704").await;
    }
    session.refusal("SELECT rag.embed('x', 'local/no-such-model')", "42704").await;
    session.refusal("SELECT rag.embed('x', 'local/../../etc')", "22023|42704").await;
}

#[tokio::test]
async fn a_vector_comes_as_the_provider_gave_it() {
    let (_db, session) = Database::open().await;
    let row = session.query_one("SELECT rag.embed('backup every night', 'fake/embed-8')", &[]).await.expect("a vector");
    assert_eq!(row.get::<_, Vector>(0).as_slice(), embed("backup every night", 8));
}

#[tokio::test]
async fn vectors_of_an_array_keep_their_places_and_null_stays_null() {
    let (db, session) = Database::open().await;
    let texts = vec![Some("one"), None, Some("three"), Some("one")];
    let row = session.query_one("SELECT rag.embed($1::text[], 'fake/embed-64')", &[&texts]).await.expect("an array");
    let vectors: Vec<Option<Vector>> = row.get(0);
    let expected: Vec<Option<Vector>> = texts.iter().map(|t| t.map(|t| Vector::from(embed(t, 64)))).collect();
    assert_eq!(vectors, expected);
    assert_eq!(db.provider.counters().embedding_requests(), 1);
}

#[tokio::test]
async fn a_client_searches_with_a_vector_of_its_own() {
    let (db, session) = Database::open().await;
    db.create_collection(&session, "articles", &["A backup is taken every night.", "The kitchen is closed."]).await;
    current(&session).await;
    let query = Vector::from(embed("backup night", 384));
    let found = session.query("SELECT content, score FROM rag.search($1::vector, 'articles', 1)", &[&query]).await;
    let found = found.expect("a search by vector");
    assert_eq!(found[0].get::<_, &str>(0), "A backup is taken every night.");
    // The title is embedded with the text.
    let embedded = embed("Article 1\n\nA backup is taken every night.", 384);
    let similarity: f32 = embedded.iter().zip(query.as_slice()).map(|(a, b)| a * b).sum();
    assert!((found[0].get::<_, f64>(1) - f64::from(similarity)).abs() < 1e-6);
    let stored = session.query_one("SELECT embedding FROM articles_chunks WHERE id = 1", &[]).await.expect("a chunk");
    assert_eq!(stored.get::<_, Vector>(0).as_slice(), embedded);
}
