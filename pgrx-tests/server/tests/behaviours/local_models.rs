//! Models of server `local` besides the default one: those that want words before a query and before a document, and those that
//! do not embed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ragent_server_tests::cluster::Cluster;
use ragent_server_tests::database::{Database, current};
use ragent_server_tests::session::Session;

const MINILM: &str = "all-MiniLM-L6-v2";
const PREFIXES: &str = r#"{"query_prefix": "query: ", "document_prefix": "passage: "}"#;

/// The folder of the real model: where the tests' models are, else where it is installed.
async fn installed(session: &Session) -> PathBuf {
    match std::env::var_os("RAGENT_MODEL_DIR") {
        Some(dir) => PathBuf::from(dir).join(MINILM),
        None => {
            let share = session.value("SELECT setting FROM pg_config WHERE name = 'SHAREDIR'").await;
            PathBuf::from(share).join("pg_ragent/models").join(MINILM)
        }
    }
}

/// A folder of models with the real one as it is, the same with prefixes, and a cross-encoder of which there is no more than
/// its configuration.
fn fill(models: &Path, minilm: &Path) {
    fs::set_permissions(models, fs::Permissions::from_mode(0o755)).expect("everybody may look");
    symlink(minilm, models.join("plain")).expect("linked");
    let prefixed = models.join("prefixed");
    fs::create_dir(&prefixed).expect("made");
    for entry in fs::read_dir(minilm).expect("the real model is installed").flatten() {
        symlink(entry.path(), prefixed.join(entry.file_name())).expect("linked");
    }
    fs::write(prefixed.join("ragent.json"), PREFIXES).expect("written");
    let config = fs::read_to_string(minilm.join("config.json")).expect("read");
    fs::create_dir(models.join("pairs")).expect("made");
    let config = config.replace("\"BertModel\"", "\"BertForSequenceClassification\"");
    fs::write(models.join("pairs/config.json"), config).expect("written");
    fs::create_dir(models.join(".adding-another")).expect("made");
}

#[tokio::test]
async fn queries_and_documents_have_the_prefixes_of_their_model() {
    let models = tempfile::tempdir().expect("a temporary folder");
    let path = models.path().to_str().expect("a plain path");
    let cluster = Cluster::builder().setting("rag.model_dir", path).start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    fill(models.path(), &installed(&session).await);

    let same = |one: &str, other: &str| format!("SELECT round((({one}) <=> ({other}))::numeric, 5) = 0");
    for (one, other, expected) in [
        ("rag.embed('a b', 'local/prefixed')", "rag.embed('query: a b', 'local/plain')", "t"),
        ("rag.embed('a b', 'local/prefixed', 'document')", "rag.embed('passage: a b', 'local/plain')", "t"),
        ("rag.embed('a b', 'local/prefixed')", "rag.embed('a b', 'local/prefixed', 'document')", "f"),
        ("rag.embed('a b', 'local/plain')", "rag.embed('a b', 'local/plain', input_type => 'document')", "t"),
        (
            "(rag.embed(ARRAY['a b'], 'local/prefixed', 'document'))[1]",
            "rag.embed('a b', 'local/prefixed', 'document')",
            "t",
        ),
    ] {
        assert_eq!(session.value(&same(one, other)).await, expected, "{one} {other}");
    }
    let error = session.refusal("SELECT rag.embed('x', 'local/plain', 'passage')", "22023").await;
    assert!(error.message().contains("passage"), "{error:?}");

    // What the worker embeds is to be found, and what is searched with is a query.
    session.run("CREATE TABLE note (id int PRIMARY KEY, body text)").await;
    session.run("INSERT INTO note VALUES (1, 'Wings lift an aircraft.'), (2, 'Bread is baked in the morning.')").await;
    session.run("SELECT rag.create_collection('note', 'note', '{body}', embedding_model => 'local/prefixed')").await;
    current(&session).await;
    let stored = "SELECT embedding FROM note_chunks WHERE id = 1";
    let document = "SELECT rag.embed(content, 'local/plain') FROM (SELECT 'passage: ' || content FROM note_chunks WHERE id = 1) c (content)";
    assert_eq!(session.value(&same(stored, document)).await, "t");
    let found = session
        .value(
            "SELECT abs(score - (1 - (c.embedding <=> rag.embed('query: What lifts a plane?', 'local/plain')))) < 1e-4
             FROM rag.search('What lifts a plane?', 'note', k => 1) s JOIN note_chunks c ON c.id = (s.key->>'id')::int",
        )
        .await;
    assert_eq!(found, "t");

    // A cross-encoder is no embedding model; one that is being added is no model yet.
    let error = session.refusal("SELECT rag.embed('x', 'local/pairs')", "22023").await;
    assert!(error.message().contains("reranks"), "{error:?}");
    let error = session.refusal("SELECT rag.embed('x', 'local/none')", "42704").await;
    let hint = error.hint().expect("a hint");
    assert!(hint.contains("pairs, plain, prefixed") && !hint.contains("adding"), "{hint}");
}
