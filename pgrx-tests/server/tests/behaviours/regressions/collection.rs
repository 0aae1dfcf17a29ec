//! Tables that are altered or dropped under their collection.

use ragent_server_tests::cluster::{Cluster, SUPERUSER};
use ragent_server_tests::database::{Database, current, quote};
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::PATIENCE;

use super::{collect, make, warnings};

/// Switches the cluster's workers on or off and waits until `session` knows.
async fn set_worker(session: &Session, value: &str) {
    session.run(&format!("ALTER SYSTEM SET rag.worker = {value}")).await;
    session.run("SELECT pg_reload_conf()").await;
    let set = format!("SELECT current_setting('rag.worker') = '{value}'");
    session.wait_until("the reload", PATIENCE, &set).await;
}

#[tokio::test]
async fn a_renamed_key_is_followed_by_what_is_queued_and_the_extension_can_be_dropped_while_workers_are_off() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    session.run("CREATE TABLE notes (id int PRIMARY KEY, body text)").await;
    collect(&session, "notes").await;
    set_worker(&session, "off").await;
    session.run("INSERT INTO notes VALUES (1, 'one'), (2, 'two')").await;
    session.run("ALTER TABLE notes RENAME id TO ident; INSERT INTO notes VALUES (3, 'three')").await;
    assert_eq!(session.number("SELECT count(*) FROM rag_internal.queue").await, 3);
    set_worker(&session, "on").await;
    current(&session).await;
    assert_eq!(session.column("SELECT content FROM notes_chunks ORDER BY 1").await, ["one", "three", "two"]);
    assert_eq!(session.column("SELECT key->>'ident' FROM rag.search('two', 'notes', 1)").await, ["2"]);
    // A worker that is off sees the end of its extension all the same and leaves the database alone.
    set_worker(&session, "off").await;
    session.run("DROP EXTENSION pg_ragent CASCADE").await;
    let gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'pg_ragent worker'
                    AND datname = current_database()";
    session.wait_until("the worker to end", PATIENCE, gone).await;
}

#[tokio::test]
async fn a_renamed_key_is_followed_by_what_was_given_up() {
    use ragent_server_tests::provider::control::FaultKind;
    let (db, session) = Database::open().await;
    db.provider.break_down(FaultKind::RejectTextContaining { text: "poison".into() });
    session.run("CREATE TABLE notes (id int PRIMARY KEY, body text)").await;
    collect(&session, "notes").await;
    session.run("INSERT INTO notes VALUES (1, 'poison')").await;
    session.wait_until("the parked row", PATIENCE, "SELECT count(*) = 1 FROM rag.failures").await;
    session.run("ALTER TABLE notes RENAME id TO ident").await;
    assert_eq!(session.value("SELECT key::text FROM rag.failures").await, r#"{"ident": 1}"#);
    db.provider.heal();
    assert_eq!(session.number("SELECT rag.retry_failures()").await, 1);
    current(&session).await;
    assert_eq!(session.number("SELECT count(*) FROM notes_chunks").await, 1);
}

/// Nothing of a collection is left, and `others` is still searched.
async fn expect_forgotten(session: &Session, name: &str) {
    assert_eq!(session.column("SELECT name FROM rag.collections").await, ["others"]);
    assert_eq!(session.maybe(&format!("SELECT to_regclass('{name}_chunks')")).await, None);
    assert_eq!(session.number("SELECT count(*) FROM rag.search('others')").await, 2);
}

#[tokio::test]
async fn dropping_a_source_needs_no_cascade() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("owner").await;
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {}", quote(&role))).await;
    make(&admin, "others").await;
    let owner = db.connect_as(&role).await;
    make(&owner, "notes").await;
    current(&admin).await;
    owner.run("DROP TABLE notes").await;
    expect_forgotten(&admin, "notes").await;
}

#[tokio::test]
async fn dropping_a_source_takes_views_of_its_chunks_along_when_it_cascades() {
    let (_db, session) = Database::open().await;
    make(&session, "others").await;
    make(&session, "notes").await;
    current(&session).await;
    session.run("CREATE VIEW digest AS SELECT id, content FROM notes_chunks; DROP TABLE notes CASCADE").await;
    expect_forgotten(&session, "notes").await;
    assert_eq!(session.maybe("SELECT to_regclass('digest')").await, None);
}

#[tokio::test]
async fn a_source_whose_chunk_table_was_dropped_is_an_ordinary_table() {
    let (_db, session) = Database::open().await;
    make(&session, "others").await;
    make(&session, "notes").await;
    current(&session).await;
    session.run("DROP TABLE notes_chunks").await;
    expect_forgotten(&session, "notes").await;
    session
        .run("INSERT INTO notes VALUES (3, 'three'); UPDATE notes SET body = 'x'; DELETE FROM notes WHERE id = 1; TRUNCATE notes")
        .await;
    assert_eq!(warnings(&session), Vec::<String>::new());
    let triggers = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'notes'::regclass AND NOT tgisinternal";
    assert_eq!(session.number(triggers).await, 0);
    collect(&session, "notes").await;
    current(&session).await;
}

#[tokio::test]
async fn a_source_that_goes_with_its_type_ends_its_collection() {
    let (_db, session) = Database::open().await;
    make(&session, "others").await;
    session
        .run(
            "CREATE TYPE note AS (id int, body text); CREATE TABLE notes OF note (PRIMARY KEY (id));
             INSERT INTO notes VALUES (1, 'one')",
        )
        .await;
    collect(&session, "notes").await;
    current(&session).await;
    session.run("DROP TYPE note CASCADE").await;
    expect_forgotten(&session, "notes").await;
    current(&session).await;
}

#[tokio::test]
async fn a_collection_is_compared_when_a_partition_of_it_is_dropped_and_not_when_another_table_is() {
    let cluster = Cluster::builder().start().await;
    let db = Database::in_cluster(&cluster).await;
    let session = db.connect().await;
    for table in ["notes", "others"] {
        session
            .run(&format!(
                "CREATE TABLE {table} (id int, part int, body text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
                 CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES IN (1);
                 CREATE TABLE {table}_2 PARTITION OF {table} FOR VALUES IN (2) PARTITION BY LIST (id);
                 CREATE TABLE {table}_3 PARTITION OF {table}_2 DEFAULT"
            ))
            .await;
        collect(&session, table).await;
    }
    current(&session).await;
    set_worker(&session, "off").await;
    const COMPARED: &str =
        "SELECT DISTINCT c.name FROM rag_internal.queue q JOIN rag_internal.collection c ON c.id = q.collection
        WHERE q.key IS NULL AND q.keys IS NULL";
    session.run("CREATE TABLE plain (id int PRIMARY KEY); DROP TABLE plain").await;
    assert_eq!(session.column(COMPARED).await, Vec::<String>::new());
    for drop in ["DROP TABLE notes_1", "DROP TABLE notes_3", "DROP TABLE notes_2"] {
        session.run(drop).await;
        assert_eq!(session.column(COMPARED).await, ["notes"], "{drop}");
        session.run("DELETE FROM rag_internal.queue").await;
    }
}

#[tokio::test]
async fn a_collection_whose_source_is_missing_hurts_nobody_and_can_be_dropped() {
    let (_db, session) = Database::open().await;
    make(&session, "others").await;
    make(&session, "notes").await;
    current(&session).await;
    // As after a restore that left the table out.
    session.run("ALTER EVENT TRIGGER rag_forget_dropped DISABLE; DROP TABLE notes CASCADE").await;
    session.run("ALTER EVENT TRIGGER rag_forget_dropped ENABLE").await;
    assert_eq!(session.number("SELECT count(*) FROM rag.search('others')").await, 2);
    session.run("SELECT rag.ask('others?', chat_model => 'fake/chat'); SELECT * FROM rag.status").await;
    current(&session).await;
    session.run("SELECT rag.drop_collection('notes')").await;
    assert_eq!(session.column("SELECT name FROM rag_internal.collection").await, ["others"]);
}

#[tokio::test]
async fn without_its_key_or_content_a_source_is_written_and_only_its_collection_is_not_searched() {
    for (change, repair) in [
        ("ALTER TABLE notes DROP CONSTRAINT notes_pkey", Some("ALTER TABLE notes ADD PRIMARY KEY (id)")),
        ("ALTER TABLE notes DROP COLUMN body CASCADE", None),
        ("ALTER TABLE notes DROP COLUMN id CASCADE", None),
        ("ALTER TABLE notes DROP COLUMN title CASCADE", None),
    ] {
        let (_db, session) = Database::open().await;
        make(&session, "others").await;
        session
            .run("CREATE TABLE notes (id int PRIMARY KEY, body text, n int, title text); INSERT INTO notes VALUES (1, 'one', 0, 't')")
            .await;
        session
            .run("SELECT rag.create_collection('notes', 'notes', '{body}', title => 'title', embedding_model => 'fake/embed-64')")
            .await;
        current(&session).await;
        session.run(change).await;
        session
            .run("INSERT INTO notes (n) SELECT 5 WHERE false; UPDATE notes SET n = n + 1; DELETE FROM notes WHERE n = 77")
            .await;
        assert_eq!(
            session.number("SELECT count(*) FROM rag.search('others') WHERE collection = 'others'").await,
            2,
            "{change}"
        );
        session.run("SELECT rag.ask('others?', chat_model => 'fake/chat'); SELECT * FROM rag.status").await;
        session.run("INSERT INTO others VALUES (3, 'others three')").await;
        assert_eq!(session.value("SELECT rag.wait_until_current('others', '20 s')").await, "t", "{change}");
        session.refusal("SELECT * FROM rag.search('one', 'notes')", "55000").await;
        match repair {
            Some(repair) => {
                session.run(&format!("INSERT INTO notes VALUES (2, 'two', 1, 't'); {repair}")).await;
                current(&session).await;
                assert_eq!(session.number("SELECT count(*) FROM rag.search('one two', 'notes')").await, 2, "{change}");
            }
            None => session.run("SELECT rag.drop_collection('notes')").await,
        }
    }
}

#[tokio::test]
async fn an_encoding_that_texts_do_not_fit_is_refused() {
    let cluster = ragent_server_tests::database::shared_cluster().await;
    let postgres = cluster.connect("postgres", SUPERUSER).await;
    postgres.run("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'").await;
    let latin = cluster.connect("latin", SUPERUSER).await;
    let error = latin.error("CREATE EXTENSION pg_ragent CASCADE", "0A000|22023|55000").await;
    assert!(error.message().contains("UTF8") || error.hint().is_some_and(|h| h.contains("UTF8")), "{error:?}");
    drop(latin);
    postgres.run("DROP DATABASE latin WITH (FORCE)").await;
}

#[tokio::test]
async fn grants_that_others_made_or_that_the_owner_has_anyway_are_no_endless_work() {
    let (db, admin) = Database::open().await;
    let (owner, reader, third) =
        (db.create_role("owner").await, db.create_role("reader").await, db.create_role("third").await);
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {owner}")).await;
    let session = db.connect_as(&owner).await;
    super::make(&session, "notes").await;
    current(&session).await;
    session.run(&format!("GRANT SELECT (id, body) ON notes TO {owner}")).await;
    // A reader hands on what it was given of the chunk table, to a role that may not read the source.
    session
        .run(&format!(
            "GRANT SELECT ON notes TO {reader} WITH GRANT OPTION; GRANT SELECT ON notes_chunks TO {reader} WITH GRANT OPTION"
        ))
        .await;
    let reader_session = db.connect_as(&reader).await;
    reader_session.run(&format!("GRANT SELECT ON notes_chunks TO {third}")).await;
    let third_session = db.connect_as(&third).await;
    third_session.error("SELECT * FROM notes_chunks", "42501").await;
    session.run(&format!("REVOKE SELECT ON notes FROM {reader} CASCADE")).await;
    reader_session.error("SELECT * FROM notes_chunks", "42501").await;
    session.run("DROP TABLE notes").await;
}

#[tokio::test]
async fn a_table_that_very_many_roles_may_read_is_registered_like_any_other() {
    let (db, admin) = Database::open().await;
    let group = db.name.clone();
    admin
        .run(&format!(
            "CREATE TABLE notes (id int PRIMARY KEY, body text); INSERT INTO notes VALUES (1, 'one');
             DO $$ BEGIN FOR n IN 1..500 LOOP
                EXECUTE format('CREATE ROLE {group}_reader_%s', n); EXECUTE format('GRANT SELECT ON notes TO {group}_reader_%s', n);
             END LOOP; END $$"
        ))
        .await;
    let registered = admin
        .try_rows("SELECT rag.create_collection('notes', 'notes', '{body}', embedding_model => 'fake/embed-8')")
        .await;
    let granted =
        admin.number("SELECT count(*) FROM pg_class c, aclexplode(c.relacl) a WHERE c.relname = 'notes_chunks'").await;
    admin
        .run(&format!(
            "DO $$ BEGIN FOR n IN 1..500 LOOP
                EXECUTE format('DROP OWNED BY {group}_reader_%s', n); EXECUTE format('DROP ROLE {group}_reader_%s', n);
             END LOOP; END $$"
        ))
        .await;
    registered.expect("it is registered");
    assert!(granted >= 500, "{granted} grants were carried over");
}
