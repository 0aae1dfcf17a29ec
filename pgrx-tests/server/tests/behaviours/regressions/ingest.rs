//! Changes that were captured wrongly, or not at all.

use ragent_server_tests::database::{Database, current, quote};
use ragent_server_tests::session::Session;

use super::{collect, make, warnings};

/// Every row has its chunk and every chunk its row.
async fn expect_exact(session: &Session, table: &str) {
    current(session).await;
    let wrong = format!(
        "SELECT count(*) FROM {table} t FULL JOIN {table}_chunks c USING (id) WHERE t.body IS DISTINCT FROM c.content"
    );
    assert_eq!(session.number(&wrong).await, 0, "rows and chunks of {table} differ");
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 0);
}

#[tokio::test]
async fn tables_written_in_one_session_are_queued_by_their_own_keys() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE plain (id int PRIMARY KEY, n int, body text);
             CREATE TABLE shifted (n int, id int PRIMARY KEY, body text);
             CREATE TABLE wide (id bigint PRIMARY KEY, n text, body text);
             CREATE TABLE worded (body text, id text PRIMARY KEY)",
        )
        .await;
    for table in ["plain", "shifted", "wide", "worded"] {
        collect(&session, table).await;
    }
    session
        .run(
            "INSERT INTO plain VALUES (1, 100, 'a'), (2, 200, 'b'); INSERT INTO shifted VALUES (777, 42, 'c'), (778, 43, 'd');
             INSERT INTO wide VALUES (5000000000, 'n', 'e'); INSERT INTO worded VALUES ('f', 'key'), ('g', 'other key');
             UPDATE plain SET body = 'A' WHERE id = 1; UPDATE shifted SET body = 'C' WHERE id = 42;
             UPDATE wide SET body = 'E'; UPDATE worded SET body = 'F' WHERE id = 'key';
             DELETE FROM plain WHERE id = 2; DELETE FROM shifted WHERE id = 43; DELETE FROM worded WHERE id = 'other key'",
        )
        .await;
    for table in ["plain", "shifted", "wide", "worded"] {
        expect_exact(&session, table).await;
    }
    // The same table with its columns at other places.
    session
        .run(
            "ALTER TABLE plain DROP COLUMN n; ALTER TABLE plain ADD n bigint;
             INSERT INTO plain VALUES (3, 'h', 300); UPDATE plain SET body = 'H', n = 4 WHERE id = 3",
        )
        .await;
    expect_exact(&session, "plain").await;
}

#[tokio::test]
async fn a_role_with_row_security_off_can_write() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("app").await;
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {}", quote(&role))).await;
    let app = db.connect_as(&role).await;
    make(&app, "notes").await;
    app.run(
        "SET row_security = off; INSERT INTO notes VALUES (3, 'three'); UPDATE notes SET body = 'ONE' WHERE id = 1;
         DELETE FROM notes WHERE id = 2",
    )
    .await;
    expect_exact(&admin, "notes").await;
    app.run("TRUNCATE notes").await;
    expect_exact(&admin, "notes").await;
}

#[tokio::test]
async fn keys_do_not_depend_on_how_the_writer_writes_values() {
    let (db, admin) = Database::open().await;
    for (table, key) in [("spans", "daterange"), ("floats", "float8"), ("waits", "interval"), ("days", "date")] {
        admin.run(&format!("CREATE TABLE {table} (id {key} PRIMARY KEY, body text)")).await;
        collect(&admin, table).await;
    }
    let writer = db.connect().await;
    writer
        .run(
            "SET datestyle = 'SQL, DMY'; SET extra_float_digits = 0; SET intervalstyle = 'sql_standard';
             SET timezone = 'Asia/Kolkata';
             INSERT INTO spans VALUES (daterange('2024-02-03', '2024-02-05'), 'a'), (daterange('2024-12-25', NULL), 'b');
             INSERT INTO floats VALUES (0.1::float8 + 0.2::float8, 'c'), (1::float8 / 3, 'd');
             INSERT INTO waits VALUES (interval '-1 day' - interval '2 hours', 'e'), (interval '1 mon -1 day', 'f');
             INSERT INTO days VALUES (make_date(2024, 2, 3), 'g'), (make_date(2024, 12, 25), 'h')",
        )
        .await;
    for table in ["spans", "floats", "waits", "days"] {
        expect_exact(&admin, table).await;
    }
    writer.run("UPDATE spans SET body = 'A' WHERE lower(id) = make_date(2024, 2, 3); DELETE FROM floats").await;
    expect_exact(&admin, "spans").await;
    expect_exact(&admin, "floats").await;
    let found = "SELECT count(*) FROM rag.search('b', 'spans') s JOIN spans ON id = (s.key->>'id')::daterange";
    assert_eq!(admin.number(found).await, 2);
}

#[tokio::test]
async fn a_key_written_in_two_ways_is_one_row() {
    let (_db, session) = Database::open().await;
    session.run("CREATE TABLE waits (id interval PRIMARY KEY, body text)").await;
    let mut tables = vec![("waits", "1 day", "24:00")];
    if session.number("SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'").await > 0 {
        session.run("CREATE EXTENSION citext; CREATE TABLE words (id citext PRIMARY KEY, body text)").await;
        tables.push(("words", "a", "A"));
    }
    for (table, first, second) in tables {
        collect(&session, table).await;
        session
            .run(&format!(
                "BEGIN; INSERT INTO {table} VALUES ('{first}', 'x'); UPDATE {table} SET id = '{second}', body = 'y'; COMMIT"
            ))
            .await;
        expect_exact(&session, table).await;
        session.run(&format!("UPDATE {table} SET id = '{first}', body = 'z'")).await;
        expect_exact(&session, table).await;
        assert_eq!(session.number(&format!("SELECT count(*) FROM {table}_chunks")).await, 1);
        session.run(&format!("DELETE FROM {table} WHERE id = '{second}'")).await;
        expect_exact(&session, table).await;
    }
}

#[tokio::test]
async fn a_key_of_a_nondeterministic_collation_is_one_row() {
    let (_db, session) = Database::open().await;
    if session.number("SELECT count(*) FROM pg_collation WHERE collprovider = 'i'").await == 0 {
        println!("this PostgreSQL has no ICU");
        return;
    }
    session
        .run(
            "CREATE COLLATION careless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
             CREATE TABLE words (id text COLLATE careless PRIMARY KEY, body text); INSERT INTO words VALUES ('a', 'first text')",
        )
        .await;
    collect(&session, "words").await;
    current(&session).await;
    session.run("UPDATE words SET id = 'A', body = 'second text'").await;
    expect_exact(&session, "words").await;
    assert_eq!(session.column("SELECT content FROM words_chunks").await, ["second text"]);
    assert_eq!(session.column("SELECT content FROM rag.search('text', 'words')").await, ["second text"]);
}

#[tokio::test]
async fn a_transaction_older_than_the_collection_is_captured() {
    let (db, admin) = Database::open().await;
    admin.run("CREATE TABLE notes (id int PRIMARY KEY, body text); INSERT INTO notes VALUES (1, 'one')").await;
    let older = db.connect().await;
    older.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class").await;
    collect(&admin, "notes").await;
    older.run("INSERT INTO notes VALUES (2, 'two'); COMMIT").await;
    assert_eq!(warnings(&older), Vec::<String>::new());
    expect_exact(&admin, "notes").await;
}

#[tokio::test]
async fn a_collection_is_not_made_with_a_fixed_snapshot() {
    let (_db, session) = Database::open().await;
    session.run("CREATE TABLE notes (id int PRIMARY KEY, body text)").await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        session.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT 1")).await;
        let create = "SELECT rag.create_collection('notes', 'notes', '{body}', embedding_model => 'fake/embed-8')";
        session.refusal(create, "25001").await;
        session.run("ROLLBACK").await;
    }
}

#[tokio::test]
async fn rows_come_and_go_with_their_partition() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE notes (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
             CREATE TABLE low PARTITION OF notes FOR VALUES FROM (0) TO (10); INSERT INTO notes VALUES (1, 'one');
             CREATE TABLE high (id int PRIMARY KEY, body text); INSERT INTO high VALUES (11, 'eleven'), (12, 'twelve')",
        )
        .await;
    collect(&session, "notes").await;
    current(&session).await;
    session.run("ALTER TABLE notes ATTACH PARTITION high FOR VALUES FROM (10) TO (20)").await;
    expect_exact(&session, "notes").await;
    assert_eq!(session.number("SELECT count(*) FROM notes_chunks").await, 3);
    session.run("ALTER TABLE notes DETACH PARTITION high").await;
    expect_exact(&session, "notes").await;
    assert_eq!(session.number("SELECT count(*) FROM notes_chunks").await, 1);
    // What was detached is written without ado.
    session.run("INSERT INTO high VALUES (13, 'thirteen')").await;
    session.run("ALTER TABLE notes ATTACH PARTITION high FOR VALUES FROM (10) TO (20); DROP TABLE low").await;
    expect_exact(&session, "notes").await;
    assert_eq!(session.column("SELECT id FROM notes_chunks ORDER BY id").await, ["11", "12", "13"]);
}

#[tokio::test]
async fn a_table_that_shares_its_rows_with_another_is_refused() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE whole (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
             CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (10);
             CREATE TABLE parent (id int PRIMARY KEY, body text); CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        )
        .await;
    for table in ["part", "child", "parent"] {
        let create =
            format!("SELECT rag.create_collection('c', '{table}', '{{body}}', embedding_model => 'fake/embed-8')");
        session.refusal(&create, "0A000").await;
    }
}

#[tokio::test]
async fn waiting_for_ones_own_uncommitted_rows_is_refused() {
    let (_db, session) = Database::open().await;
    make(&session, "notes").await;
    current(&session).await;
    for write in [
        "INSERT INTO notes VALUES (3, 'three')",
        "SAVEPOINT s; INSERT INTO notes VALUES (3, 'three'); RELEASE s",
        "SAVEPOINT s; INSERT INTO notes VALUES (3, 'three')",
        "DO $$ BEGIN INSERT INTO notes VALUES (3, 'three'); EXCEPTION WHEN OTHERS THEN NULL; END $$",
    ] {
        session.run(&format!("BEGIN; {write}")).await;
        session.refusal("SELECT rag.wait_until_current(timeout => '20 s')", "25001").await;
        session.run("ROLLBACK").await;
    }
    // Its own rows that it took back do not count.
    session.run("BEGIN; SAVEPOINT s; INSERT INTO notes VALUES (3, 'three'); ROLLBACK TO s").await;
    assert_eq!(session.value("SELECT rag.wait_until_current(timeout => '20 s')").await, "t");
    session.run("COMMIT").await;
}

#[tokio::test]
async fn a_source_that_becomes_a_part_of_another_table_is_still_captured_or_says_that_it_is_not() {
    for (whole, join) in [
        ("CREATE TABLE whole (id int NOT NULL, body text)", "ALTER TABLE notes INHERIT whole"),
        (
            "CREATE TABLE whole (id int PRIMARY KEY, body text) PARTITION BY RANGE (id)",
            "ALTER TABLE whole ATTACH PARTITION notes FOR VALUES FROM (0) TO (10)",
        ),
    ] {
        let (_db, session) = Database::open().await;
        make(&session, "notes").await;
        current(&session).await;
        session.run(whole).await;
        // Refusing it is fine as well.
        if session.try_rows(join).await.is_err() {
            continue;
        }
        session.run("UPDATE whole SET body = 'changed' WHERE id = 1; DELETE FROM whole WHERE id = 2").await;
        session.run("SELECT rag.wait_until_current(timeout => '3 s')").await;
        let error = session.maybe("SELECT last_error FROM rag.status").await;
        let contents = session.column("SELECT content FROM notes_chunks").await;
        assert!(error.is_some() || contents == ["changed"], "{join}: {contents:?}, {error:?}");
    }
}

#[tokio::test]
async fn a_writers_search_path_does_not_matter() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE SCHEMA evil;
             CREATE FUNCTION evil.divide(bigint, int) RETURNS bigint LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'somebody else''s operator ran'; END $$;
             CREATE FUNCTION evil.jsonb_build_object(text, int) RETURNS jsonb LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'somebody else''s function ran'; END $$;
             CREATE OPERATOR evil./ (LEFTARG = bigint, RIGHTARG = int, FUNCTION = evil.divide)",
        )
        .await;
    for argument in ["int", "jsonb", "regclass", "oid", "text", "boolean", "bigint"] {
        session
            .run(&format!(
                "CREATE FUNCTION evil.fail({argument}, {argument}) RETURNS boolean LANGUAGE plpgsql AS
                     $$ BEGIN RAISE EXCEPTION 'somebody else''s operator ran'; END $$"
            ))
            .await;
        for operator in ["=", "<>", "*<>"] {
            session
                .run(&format!(
                    "CREATE OPERATOR evil.{operator} (LEFTARG = {argument}, RIGHTARG = {argument}, FUNCTION = evil.fail)"
                ))
                .await;
        }
    }
    session.run("CREATE TABLE parts (id int PRIMARY KEY, body text) PARTITION BY RANGE (id)").await;
    session.run("CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (1000)").await;
    session.run("CREATE TABLE plain (id int PRIMARY KEY, body text)").await;
    for table in ["parts", "plain"] {
        collect(&session, table).await;
        session
            .run(&format!(
                "SET search_path = evil, pg_catalog, public;
                 INSERT INTO {table} VALUES (1, 'one');
                 INSERT INTO {table} SELECT g, 'many' FROM generate_series(2, 100) g;
                 UPDATE {table} SET body = 'changed'; UPDATE {table} SET id = id + 100;
                 DELETE FROM {table} WHERE id > 150; DELETE FROM {table} WHERE id > 149; RESET search_path"
            ))
            .await;
        expect_exact(&session, table).await;
    }
    session.run("SET search_path = evil, pg_catalog, public; TRUNCATE plain; RESET search_path").await;
    expect_exact(&session, "plain").await;
}
