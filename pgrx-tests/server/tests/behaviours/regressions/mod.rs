//! What once went wrong, so that it does not again: each test is named after what is right instead.

mod collection;
mod ingest;
mod retrieval;
mod security;
mod worker;

use ragent_server_tests::session::Session;

/// Makes a table a collection of the same name, of its column `body`.
async fn collect(session: &Session, table: &str) {
    collect_with(session, table, "fake/embed-64").await;
}

/// The same with a model.
async fn collect_with(session: &Session, table: &str, model: &str) {
    let sql = format!("SELECT rag.create_collection('{table}', '{table}', '{{body}}', embedding_model => '{model}')");
    session.run(&sql).await;
}

/// A table `id`, `body` of two rows as a collection.
async fn make(session: &Session, table: &str) {
    session.run(&format!("CREATE TABLE {table} (id int PRIMARY KEY, body text)")).await;
    session.run(&format!("INSERT INTO {table} VALUES (1, '{table} one'), (2, '{table} two')")).await;
    collect(session, table).await;
}

/// The warnings of a session so far.
fn warnings(session: &Session) -> Vec<String> {
    let notices = session.notices();
    notices.iter().filter(|n| n.severity() == "WARNING").map(|n| n.message().to_owned()).collect()
}
