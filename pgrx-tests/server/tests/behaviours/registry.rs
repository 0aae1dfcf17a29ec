//! What is registered: every session knows of a change at its next search, and a collection's chunks belong to a generation.

use ragent_server_tests::database::{Database, current, quote};
use ragent_server_tests::session::Session;

const BODIES: [&str; 3] = [
    "Restore a backup with pg_restore.",
    "Employees receive thirty vacation days a year.",
    "A backup is taken at two.",
];
const FOUND: &str = "SELECT count(*) FROM rag.search((SELECT embedding FROM probe), 'articles')";

/// A collection `articles`, and a vector to search it with: nobody asks the provider.
async fn open() -> (Database<'static>, Session) {
    let (db, session) = Database::open().await;
    db.create_collection(&session, "articles", &BODIES).await;
    session
        .run("CREATE TABLE probe AS SELECT rag.embed('backup', 'fake/embed-384') AS embedding; GRANT SELECT ON probe TO PUBLIC")
        .await;
    (db, session)
}

#[tokio::test]
async fn another_sessions_next_search_follows_every_kind_of_renaming() {
    let (db, session) = open().await;
    let other = db.connect().await;
    assert_eq!(other.number(FOUND).await, 3);
    let ids =
        "SELECT string_agg(key::text, ' ' ORDER BY key) FROM rag.search((SELECT embedding FROM probe), 'articles')";
    for (ddl, expected) in [
        ("ALTER TABLE articles RENAME COLUMN id TO number", r#"{"number": 1} {"number": 2} {"number": 3}"#),
        ("ALTER TABLE articles RENAME TO papers", r#"{"number": 1} {"number": 2} {"number": 3}"#),
        ("CREATE SCHEMA shop; ALTER TABLE papers SET SCHEMA shop", r#"{"number": 1} {"number": 2} {"number": 3}"#),
        ("ALTER SCHEMA shop RENAME TO store", r#"{"number": 1} {"number": 2} {"number": 3}"#),
        ("ALTER TABLE articles_chunks RENAME TO pieces", r#"{"number": 1} {"number": 2} {"number": 3}"#),
        ("ALTER TABLE pieces SET SCHEMA store", r#"{"number": 1} {"number": 2} {"number": 3}"#),
        ("ALTER TABLE store.papers RENAME COLUMN number TO id", r#"{"id": 1} {"id": 2} {"id": 3}"#),
        ("ALTER EXTENSION vector SET SCHEMA store", r#"{"id": 1} {"id": 2} {"id": 3}"#),
    ] {
        session.run(ddl).await;
        assert_eq!(other.value(ids).await, expected, "after {ddl}");
    }
    // A name that now belongs to another table is not the collection's.
    session.run("CREATE TABLE articles (id int PRIMARY KEY, body text); INSERT INTO articles VALUES (1, 'x')").await;
    assert_eq!(other.number(FOUND).await, 3);
}

#[tokio::test]
async fn rights_are_those_of_the_moment() {
    let (db, session) = open().await;
    let reader = db.create_role("reader").await;
    let other = db.connect_as(&reader).await;
    other.refusal(FOUND, "42501").await;
    for (change, visible) in [
        (format!("GRANT SELECT ON articles TO {0}", quote(&reader)), true),
        (format!("REVOKE SELECT ON articles FROM {0}", quote(&reader)), false),
        (format!("GRANT SELECT (id, title, body) ON articles TO {0}", quote(&reader)), true),
        (format!("REVOKE SELECT (title) ON articles FROM {0}", quote(&reader)), false),
        (format!("GRANT pg_read_all_data TO {0}", quote(&reader)), true),
    ] {
        session.run(&change).await;
        if visible {
            assert_eq!(other.number(FOUND).await, 3, "after {change}");
        } else {
            other.refusal(FOUND, "42501").await;
        }
        let listed = i64::from(visible);
        assert_eq!(other.number("SELECT count(*) FROM rag.collections").await, listed, "after {change}");
    }
}

#[tokio::test]
async fn policies_are_those_of_the_moment() {
    let (db, session) = open().await;
    let reader = db.create_role("reader").await;
    session.run(&format!("GRANT SELECT ON articles TO {}", quote(&reader))).await;
    let other = db.connect_as(&reader).await;
    for (change, visible) in [
        ("SELECT 1", 3),
        ("ALTER TABLE articles ENABLE ROW LEVEL SECURITY", 0),
        ("CREATE POLICY few ON articles USING (id > 1)", 2),
        ("ALTER POLICY few ON articles USING (id > 2)", 1),
        ("ALTER TABLE articles DISABLE ROW LEVEL SECURITY", 3),
    ] {
        session.run(change).await;
        assert_eq!(other.number(FOUND).await, visible, "after {change}");
    }
}

#[tokio::test]
async fn a_transaction_sees_what_it_altered_and_what_it_took_back() {
    let (db, session) = open().await;
    let title =
        "SELECT count(*) FROM rag.search((SELECT embedding FROM probe), 'articles') WHERE title LIKE 'Article %'";
    assert_eq!(session.number(FOUND).await, 3);
    session.run("BEGIN; ALTER TABLE articles RENAME COLUMN title TO heading").await;
    assert_eq!(session.number(title).await, 3);
    // A title is embedded: with another one a row is not what its chunks were made of.
    session.run("SAVEPOINT r; UPDATE articles SET heading = 'New'").await;
    assert_eq!(session.number(FOUND).await, 0);
    session.run("ROLLBACK TO SAVEPOINT r").await;
    session
        .run("SAVEPOINT s; ALTER TABLE articles RENAME TO papers; ALTER TABLE papers RENAME COLUMN id TO number")
        .await;
    assert_eq!(session.number(title).await, 3);
    session.run("ROLLBACK TO SAVEPOINT s").await;
    assert_eq!(session.number(title).await, 3);
    session.run("SAVEPOINT t; SELECT rag.drop_collection('articles')").await;
    session.refusal(FOUND, "42704").await;
    session.run("ROLLBACK TO SAVEPOINT t").await;
    assert_eq!(session.number(title).await, 3);
    session.run("ROLLBACK").await;
    assert_eq!(session.number(title).await, 3);
    drop(db);
}

#[tokio::test]
async fn a_collection_that_is_dropped_and_made_again_is_found_by_every_session() {
    let (db, session) = open().await;
    let other = db.connect().await;
    assert_eq!(other.number(FOUND).await, 3);
    session.run("SELECT rag.drop_collection('articles')").await;
    other.refusal(FOUND, "42704").await;
    session
        .run("SELECT rag.create_collection('articles', 'articles', '{title}', embedding_model => 'fake/embed-384')")
        .await;
    current(&session).await;
    assert_eq!(other.number(FOUND).await, 3);
    session.run("DROP TABLE articles").await;
    other.refusal(FOUND, "42704").await;
}

#[tokio::test]
async fn an_extension_that_is_made_again_in_one_session_is_read_anew() {
    let (db, session) = open().await;
    for _ in 0..2 {
        assert_eq!(session.number(FOUND).await, 3);
        session.run("DROP EXTENSION pg_ragent CASCADE; DROP TABLE articles_chunks; CREATE EXTENSION pg_ragent").await;
        session.refusal(FOUND, "42704").await;
        session.run(&ragent_server_tests::database::create_server("fake", &db.provider.base_url())).await;
        let create =
            "SELECT rag.create_collection('articles', 'articles', '{body}', embedding_model => 'fake/embed-384')";
        session.run(create).await;
        current(&session).await;
    }
    assert_eq!(session.number(FOUND).await, 3);
}

#[tokio::test]
async fn a_snapshot_that_is_older_than_a_collection_is_no_error() {
    let (db, session) = open().await;
    let old = db.connect().await;
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM articles").await;
    session
        .run(
            "CREATE TABLE notes (id int PRIMARY KEY, body text); INSERT INTO notes VALUES (1, 'a note');
             SELECT rag.create_collection('notes', 'notes', '{body}', embedding_model => 'fake/embed-384')",
        )
        .await;
    current(&session).await;
    // Its own snapshot holds none of these rows; writing to the table is captured all the same.
    let notes = "SELECT count(*) FROM rag.search((SELECT embedding FROM probe), 'notes')";
    assert_eq!(old.number(notes).await, 0);
    old.run("INSERT INTO notes VALUES (2, 'another note'); COMMIT").await;
    current(&session).await;
    assert_eq!(old.number(notes).await, 2);
}

#[tokio::test]
async fn a_broken_collection_can_be_used_as_soon_as_it_is_mended() {
    let (db, session) = open().await;
    let other = db.connect().await;
    assert_eq!(other.number(FOUND).await, 3);
    session.run("CREATE TABLE more () INHERITS (articles)").await;
    other.refusal(FOUND, "55000").await;
    session.run("DROP TABLE more").await;
    assert_eq!(other.number(FOUND).await, 3);
    session.run("ALTER TABLE articles DROP CONSTRAINT articles_pkey").await;
    other.refusal(FOUND, "55000").await;
    session.run("ALTER TABLE articles ADD PRIMARY KEY (id)").await;
    assert_eq!(other.number(FOUND).await, 3);
}

#[tokio::test]
async fn a_collection_is_served_by_one_generation_whose_table_numbers_its_chunks() {
    let (_db, session) = open().await;
    let generation = "SELECT c.name, g.model, g.dimensions, g.chunk_tokens, g.chunk_overlap, g.chunk_table, g.state
                        FROM rag_internal.generation g JOIN rag_internal.collection c ON c.id = g.collection";
    let row = ["articles", "fake/embed-384", "384", "400", "50", "articles_chunks", "serving"];
    assert_eq!(session.rows(generation).await, [row.map(|v| Some(v.to_owned())).to_vec()]);
    let second = "INSERT INTO rag_internal.generation (collection, model, dimensions, chunker, chunk_tokens, chunk_overlap,
                                                       chunk_table, chunk_key_columns, state)
                  SELECT collection, model, dimensions, chunker, chunk_tokens, chunk_overlap, 'probe', chunk_key_columns, ";
    session.error(&format!("{second} 'serving' FROM rag_internal.generation"), "23505").await;
    session.error(&format!("{second} 'waiting' FROM rag_internal.generation"), "23514").await;
    let numbers = "SELECT count(DISTINCT chunk_id) = count(*) AND count(*) = 3 FROM articles_chunks";
    assert_eq!(session.value(numbers).await, "t");
    session.error("UPDATE articles_chunks SET chunk_id = 7", "23505").await;
    session.run("SELECT rag.drop_collection('articles')").await;
    assert_eq!(session.number("SELECT count(*) FROM rag_internal.generation").await, 0);
}

#[tokio::test]
async fn functions_that_nobody_should_call_are_not_for_everybody() {
    let (_db, session) = Database::open().await;
    // Views and policies call functions as their reader, and PostgreSQL asks for EXECUTE when it clones a trigger.
    let open = "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                 WHERE n.nspname = 'rag_internal' AND has_function_privilege('public', p.oid, 'EXECUTE')
                   AND (p.prosecdef OR p.prorettype IN ('trigger'::regtype, 'event_trigger'::regtype))
                   AND p.proname NOT IN ('capture')";
    let of_registry = "('registry_changed', 'used_columns', 'columns_by_name', 'primary_key', 'shares_rows', 'collection_facts',
                        'reading_runs_no_code', 'number_columns', 'note_owner', 'grants_to_sync', 'forget_dropped_tables',
                        'forget_dropped', 'follow_altered', 'follow_grants')";
    assert_eq!(session.column(&format!("{open} AND p.proname IN {of_registry}")).await, Vec::<String>::new());
}

/// What is known of a collection takes milliseconds to read: of those that a role may not read, nothing is.
#[tokio::test]
async fn a_search_of_all_reads_nothing_of_collections_that_the_role_may_not_read() {
    let (db, session) = open().await;
    for n in 1..=6 {
        session
            .run(&format!(
                "CREATE TABLE t{n} (id int PRIMARY KEY, body text, more text); INSERT INTO t{n} VALUES (1, 'Backup {n}')"
            ))
            .await;
        session
            .run(&format!(
                "SELECT rag.create_collection('t{n}', 't{n}', '{{body}}', embedding_model => 'fake/embed-384')"
            ))
            .await;
    }
    current(&session).await;
    let role = db.create_role("app").await;
    session
        .run(&format!(
            "GRANT SELECT ON t1 TO {role}; GRANT SELECT (id, body) ON t2 TO {role}; GRANT SELECT (more) ON t3 TO {role};
             ALTER ROLE {role} SET track_functions = 'pl'",
            role = quote(&role)
        ))
        .await;
    let app = db.connect_as(&role).await;
    let found = "SELECT collection FROM rag.search((SELECT embedding FROM probe)) ORDER BY 1";
    assert_eq!(app.column(found).await, ["t1", "t2"]);
    drop(app);
    let calls = "SELECT sum(calls) BETWEEN 1 AND 4 FROM pg_stat_user_functions WHERE funcname = 'collection_facts'";
    session.wait_until("its count of calls", ragent_server_tests::wait::PATIENCE, calls).await;
    // Rights are asked for anew.
    let app = db.connect_as(&role).await;
    assert_eq!(app.column(found).await, ["t1", "t2"]);
    session.run(&format!("GRANT SELECT ON t4 TO {role}; REVOKE SELECT ON t1 FROM {role}", role = quote(&role))).await;
    assert_eq!(app.column(found).await, ["t2", "t4"]);
}
