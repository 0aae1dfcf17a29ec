//! `rag.embed`, read and written by a client in pgvector's own type.

use pgvector::Vector;
use ragent_server_tests::database::{Database, current};
use ragent_server_tests::provider::embeddings::embed;

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
