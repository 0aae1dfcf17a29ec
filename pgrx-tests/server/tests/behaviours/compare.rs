//! Whatever is done to a source, its triggers or its chunks: what is not current is noticed, said, and mended.

use std::collections::BTreeMap;
use std::process::Command;

use ragent_server_tests::cluster::SUPERUSER;
use ragent_server_tests::database::{Database, current, literal, quote};
use ragent_server_tests::installation::stdout_of;
use ragent_server_tests::provider::control::FaultKind;
use ragent_server_tests::random::Random;
use ragent_server_tests::session::{Session, TextRow};
use ragent_server_tests::wait::PATIENCE;

/// Makes a table a collection of the same name, of its column `body`.
async fn collect(session: &Session, table: &str) {
    let sql =
        format!("SELECT rag.create_collection('{table}', '{table}', '{{body}}', embedding_model => 'fake/embed-64')");
    session.run(&sql).await;
}

/// A table `id`, `body` of these texts as a collection, everything current.
async fn make(session: &Session, table: &str, bodies: &[&str]) {
    session.run(&format!("CREATE TABLE {table} (id int PRIMARY KEY, body text)")).await;
    for (n, body) in bodies.iter().enumerate() {
        session.run(&format!("INSERT INTO {table} VALUES ({}, {})", n + 1, literal(body))).await;
    }
    collect(session, table).await;
    current(session).await;
}

/// A table in parts, one of them divided once more, as a collection; rows 1 to 8, two in each part.
async fn make_in_parts(session: &Session, table: &str) {
    session
        .run(&format!(
            "CREATE TABLE {table} (id int, part int, body text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
             CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES IN (1);
             CREATE TABLE {table}_2 PARTITION OF {table} FOR VALUES IN (2);
             CREATE TABLE {table}_3 PARTITION OF {table} FOR VALUES IN (3, 4) PARTITION BY LIST (part);
             CREATE TABLE {table}_3a PARTITION OF {table}_3 FOR VALUES IN (3);
             CREATE TABLE {table}_3b PARTITION OF {table}_3 FOR VALUES IN (4);
             INSERT INTO {table} SELECT i, 1 + i % 4, 'row number ' || i FROM generate_series(1, 8) i"
        ))
        .await;
    collect(session, table).await;
    current(session).await;
}

/// What rag.verify finds: problem and rows.
async fn verify(session: &Session, table: &str) -> BTreeMap<String, String> {
    let rows = session.rows(&format!("SELECT problem, rows FROM rag.verify('{table}')")).await;
    let cell = |cell: &Option<String>| cell.clone().unwrap_or_default();
    rows.iter().map(|row: &TextRow| (cell(&row[0]), cell(&row[1]))).collect()
}

fn found(findings: &[(&str, &str)]) -> BTreeMap<String, String> {
    findings.iter().map(|(problem, rows)| ((*problem).into(), (*rows).into())).collect()
}

/// Everything is current, rag.verify finds nothing, and neither does a comparison by hand.
async fn expect_exact(session: &Session, table: &str) {
    current(session).await;
    assert_eq!(verify(session, table).await, found(&[]), "{table}");
    let key = if session
        .number(&format!("SELECT count(*) FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attname = 'part'"))
        .await
        > 0
    {
        "id, part"
    } else {
        "id"
    };
    let wrong = session
        .rows(&format!(
            "SELECT {key}, t.body, c.content
             FROM (SELECT * FROM {table} WHERE btrim(body, E' \\n\\u200b\\ufeff') <> '') t FULL JOIN {table}_chunks c USING ({key})
             WHERE t.body IS DISTINCT FROM c.content"
        ))
        .await;
    assert_eq!(wrong, Vec::<TextRow>::new(), "rows and chunks of {table} differ");
    assert_eq!(session.value(&format!("SELECT capture FROM rag.status WHERE collection = '{table}'")).await, "on");
}

/// The first content that a search gives.
async fn first(session: &Session, table: &str, query: &str) -> String {
    session.value(&format!("SELECT content FROM rag.search({}, '{table}', 1)", literal(query))).await
}

async fn capture(session: &Session, table: &str) -> String {
    session.value(&format!("SELECT capture FROM rag.status WHERE collection = '{table}'")).await
}

/// Names and modes of a table's triggers.
async fn modes(session: &Session, table: &str) -> Vec<String> {
    let sql = format!(
        "SELECT regexp_replace(tgname, '^rag_capture_[0-9]+_', '') || ' ' || tgenabled::text FROM pg_trigger
         WHERE tgrelid = '{table}'::regclass AND NOT tgisinternal ORDER BY 1"
    );
    session.column(&sql).await
}

const PLAIN: [&str; 7] =
    ["delete O", "delete_replica R", "insert O", "insert_replica R", "truncate A", "update O", "update_replica R"];
const IN_PARTS: [&str; 4] = ["delete A", "insert A", "truncate A", "update A"];

/// No trigger says that values changed where DDL changes them; nor does the version of a row.
#[tokio::test]
async fn values_that_ddl_changes_are_embedded_and_the_former_ones_found_no_more() {
    let (_db, session) = Database::open().await;
    make(&session, "pool", &["The pool opens at seven.", "The sauna closes at nine.", "Towels cost two euros."]).await;
    for ddl in [
        "ALTER TABLE pool ALTER body TYPE text USING upper(body)",
        "ALTER TABLE pool ALTER id TYPE int USING 4 - id",
        "ALTER TABLE pool DROP body, ADD body text DEFAULT 'Nobody knows when the pool opens.'",
        "ALTER TABLE pool RENAME body TO words; ALTER TABLE pool RENAME words TO body",
        "SET LOCAL session_replication_role = replica; ALTER TABLE pool ALTER id TYPE bigint, ALTER body TYPE varchar USING lower(body)",
    ] {
        session.run(&format!("BEGIN; {ddl}")).await;
        let old = "SELECT count(*) FROM rag.search('pool', 'pool') f LEFT JOIN pool p ON p.id = (f.key->>'id')::int
             WHERE p.body IS DISTINCT FROM f.content";
        assert_eq!(session.number(old).await, 0, "{ddl}");
        session.run("COMMIT").await;
        expect_exact(&session, "pool").await;
        assert_eq!(session.number("SELECT count(*) FROM rag.search('pool', 'pool')").await, 3, "{ddl}");
    }
    // What was dropped and added again is followed like what always was there.
    session.run("ALTER TABLE pool RENAME body TO words; UPDATE pool SET words = 'It opens at six.' WHERE id = 1").await;
    current(&session).await;
    assert_eq!(session.value("SELECT content FROM rag.collections").await, "{words}");
    assert_eq!(first(&session, "pool", "When does it open?").await, "It opens at six.");
    // A column that did not change costs nothing.
    session.run("ALTER TABLE pool ADD n int").await;
    session.run("BEGIN; ALTER TABLE pool ALTER n TYPE int USING 1").await;
    assert_eq!(session.number("SELECT count(*) FROM rag_internal.queue").await, 0);
    session.run("COMMIT").await;
    // With event triggers off, as a superuser can have them, a source can go without its collection.
    session
        .run(
            "ALTER EVENT TRIGGER rag_forget_dropped DISABLE; DROP TABLE pool CASCADE;
             ALTER EVENT TRIGGER rag_forget_dropped ENABLE ALWAYS",
        )
        .await;
    for query in ["SELECT * FROM rag.search('pool', 'pool')", "SELECT rag.refresh('pool')"] {
        let error = session.refusal(query, "55000").await;
        assert!(error.hint().unwrap_or("").contains("rag.drop_collection('pool')"), "{error:?}");
    }
    session.run("SELECT rag.drop_collection('pool')").await;
}

#[tokio::test]
async fn what_changed_while_triggers_were_off_is_found_once_they_are_on() {
    let (_db, session) = Database::open().await;
    make(&session, "pool", &["The pool opens at seven.", "The sauna closes at nine.", "Towels cost two euros."]).await;
    assert_eq!(modes(&session, "pool").await, PLAIN);
    for (off, on) in [
        ("DISABLE TRIGGER USER", "ENABLE TRIGGER USER"),
        ("DISABLE TRIGGER ALL", "ENABLE TRIGGER ALL"),
        ("DISABLE TRIGGER ALL", "ENABLE TRIGGER USER"),
    ] {
        let hour = if off.ends_with("USER") { "eight" } else { "six" };
        session.run(&format!("ALTER TABLE pool {off}")).await;
        let state = capture(&session, "pool").await;
        assert!(state.starts_with("off since 2") && state.contains("disabled") && state.contains("6 more"), "{state}");
        let hint = session.value("SELECT hint FROM rag.status WHERE collection = 'pool'").await;
        assert!(hint.contains("rag.refresh('pool')"), "{hint}");
        session
            .run(&format!(
                "UPDATE pool SET body = 'The pool opens at {hour}, {on}.' WHERE id = 1; DELETE FROM pool WHERE id = 3;
                 INSERT INTO pool VALUES (4, 'Lockers take one euro coins.') ON CONFLICT DO NOTHING;
                 UPDATE pool SET body = '' WHERE id = 2"
            ))
            .await;
        let findings = verify(&session, "pool").await;
        assert_eq!(findings["capture"], "7");
        assert_eq!(findings["stale"], "1");
        session.run(&format!("ALTER TABLE pool {on}")).await;
        assert_eq!(modes(&session, "pool").await, PLAIN);
        expect_exact(&session, "pool").await;
        assert_eq!(
            first(&session, "pool", "When does the pool open?").await,
            format!("The pool opens at {hour}, {on}.")
        );
        session.run("UPDATE pool SET body = 'The sauna is open.' WHERE id = 2").await;
        expect_exact(&session, "pool").await;
    }
    // Afterwards all is as before: one entry for a row, also as a subscriber's apply worker writes it.
    for role in ["origin", "replica"] {
        session
            .run(&format!(
                "SET session_replication_role = {role}; BEGIN; INSERT INTO pool VALUES (10, 'A new rule, by {role}.')"
            ))
            .await;
        assert_eq!(session.number("SELECT count(*) FROM rag_internal.queue").await, 1, "{role}");
        session.run("COMMIT; RESET session_replication_role").await;
        expect_exact(&session, "pool").await;
        session.run("DELETE FROM pool WHERE id = 10").await;
        current(&session).await;
    }
}

#[tokio::test]
async fn triggers_that_are_switched_one_by_one_or_in_one_transaction_are_noticed() {
    let (_db, session) = Database::open().await;
    make(&session, "notes", &["one", "two"]).await;
    let id = session.value("SELECT id FROM rag_internal.collection").await;
    let update = format!("rag_capture_{id}_update");
    session
        .run(&format!("ALTER TABLE notes DISABLE TRIGGER {update}; UPDATE notes SET body = 'uno' WHERE id = 1"))
        .await;
    current(&session).await;
    assert_eq!(verify(&session, "notes").await, found(&[("capture", "1"), ("stale", "1")]));
    session.run(&format!("ALTER TABLE notes ENABLE ALWAYS TRIGGER {update}")).await;
    assert_eq!(modes(&session, "notes").await, PLAIN);
    expect_exact(&session, "notes").await;
    session
        .run(
            "BEGIN; ALTER TABLE notes DISABLE TRIGGER USER; UPDATE notes SET body = 'dos' WHERE id = 2;
             INSERT INTO notes VALUES (3, 'tres'); ALTER TABLE notes ENABLE TRIGGER USER; COMMIT",
        )
        .await;
    expect_exact(&session, "notes").await;
    assert_eq!(first(&session, "notes", "dos").await, "dos");
    // Under replica nothing of this is missed either.
    session
        .run(
            "SET session_replication_role = replica; ALTER TABLE notes DISABLE TRIGGER USER; DELETE FROM notes WHERE id = 3;
             ALTER TABLE notes ENABLE TRIGGER USER; RESET session_replication_role",
        )
        .await;
    assert_eq!(modes(&session, "notes").await, PLAIN);
    expect_exact(&session, "notes").await;
    // What is taken back never was.
    session.run("BEGIN; ALTER TABLE notes DISABLE TRIGGER USER; ROLLBACK").await;
    assert_eq!(session.number("SELECT count(*) FROM rag_internal.capture_gap").await, 0);
    assert_eq!(session.number("SELECT count(*) FROM rag_internal.queue").await, 0);
}

#[tokio::test]
async fn parts_whose_triggers_are_switched_by_several_sessions_at_a_time_wait_for_nobody_and_are_compared() {
    let (db, session) = Database::open().await;
    make_in_parts(&session, "parts").await;
    let (a, b) = (db.connect().await, db.connect().await);
    for session in [&a, &b] {
        session.run("SET lock_timeout = '5 s'").await;
    }
    a.run("BEGIN; ALTER TABLE parts_1 DISABLE TRIGGER ALL").await;
    b.run("BEGIN; ALTER TABLE parts_3a DISABLE TRIGGER USER").await;
    a.run("UPDATE parts_1 SET body = 'first ' || id; COMMIT").await;
    b.run("TRUNCATE parts_3a; INSERT INTO parts_3a VALUES (30, 3, 'thirty'); COMMIT").await;
    let state = capture(&session, "parts").await;
    assert!(state.starts_with("off since"), "{state}");
    a.run("BEGIN; ALTER TABLE parts_1 ENABLE TRIGGER ALL").await;
    b.run("BEGIN; ALTER TABLE parts_3a ENABLE TRIGGER USER").await;
    a.run("COMMIT").await;
    b.run("COMMIT").await;
    expect_exact(&session, "parts").await;
    for part in ["parts", "parts_1", "parts_3a"] {
        assert_eq!(modes(&session, part).await, IN_PARTS, "{part}");
    }
    assert_eq!([&a, &b].iter().map(|s| s.notices().len()).sum::<usize>(), 0);
}

#[tokio::test]
async fn a_comparison_that_fails_waits_and_is_not_lost() {
    let (db, admin) = Database::open().await;
    let role = quote(&db.create_role("owner").await);
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {role}")).await;
    make(&db.connect_as(role.trim_matches('"')).await, "notes", &["one", "two"]).await;
    // The owner may read the keys by which chunks without a row are found, but no texts.
    admin
        .run(&format!(
            "DELETE FROM notes_chunks WHERE id = 2; REVOKE SELECT ON notes FROM {role}; GRANT SELECT (id) ON notes TO {role};
             INSERT INTO rag_internal.queue (collection, key) SELECT id, NULL FROM rag_internal.collection"
        ))
        .await;
    let fails = "SELECT coalesce(last_error LIKE 'permission denied%', false) FROM rag_internal.collection";
    admin.wait_until("the failure", PATIENCE, fails).await;
    admin.run(&format!("GRANT SELECT ON notes TO {role}; SELECT rag.retry_failures()")).await;
    expect_exact(&admin, "notes").await;
}

#[tokio::test]
async fn a_trigger_that_was_dropped_replaced_or_renamed_is_told_and_made_anew() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("owner").await;
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {}", quote(&role))).await;
    let owner = db.connect_as(&role).await;
    make(&owner, "notes", &["one", "two"]).await;
    let id = admin.value("SELECT id FROM rag_internal.collection").await;
    owner.run("CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'").await;
    for (n, (change, what)) in [
        (format!("DROP TRIGGER rag_capture_{id}_insert ON notes"), "missing"),
        (format!("ALTER TRIGGER rag_capture_{id}_insert ON notes RENAME TO mine"), "missing"),
        (
            format!(
                "CREATE OR REPLACE TRIGGER rag_capture_{id}_insert AFTER INSERT ON notes
                 FOR EACH STATEMENT EXECUTE FUNCTION nothing()"
            ),
            "another one",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        owner.run(&change).await;
        let state = capture(&owner, "notes").await;
        assert!(state.starts_with("off since 2") && state.ends_with(&format!("is {what}")), "{change}: {state}");
        owner.run(&format!("INSERT INTO notes VALUES ({}, 'more {n}')", 3 + n)).await;
        current(&owner).await;
        assert_eq!(verify(&owner, "notes").await["capture"], "1", "{change}");
        owner.run("SELECT rag.refresh('notes')").await;
        assert_eq!(modes(&owner, "notes").await, PLAIN, "{change}");
        expect_exact(&owner, "notes").await;
    }
    // Without anybody having seen it: there is no telling since when.
    admin.run("ALTER EVENT TRIGGER rag_follow_altered DISABLE; ALTER TABLE notes DISABLE TRIGGER USER").await;
    admin
        .run("UPDATE notes SET body = 'unseen' WHERE id = 1; ALTER EVENT TRIGGER rag_follow_altered ENABLE ALWAYS")
        .await;
    assert!(capture(&owner, "notes").await.starts_with("off: trigger"));
    owner.run("SELECT rag.refresh('notes')").await;
    assert_eq!(modes(&owner, "notes").await, PLAIN);
    expect_exact(&owner, "notes").await;
    owner.run("SELECT rag.drop_collection('notes')").await;
    assert_eq!(modes(&owner, "notes").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_load_by_pg_restore_with_triggers_disabled_is_embedded() {
    let (db, session) = Database::open().await;
    make(&session, "pool", &["The pool opens at seven.", "The sauna closes at nine."]).await;
    let file = db.cluster.socket_folder().join(format!("{}.dump", db.name));
    let program = |name: &str| {
        let mut program = db.cluster.installation.program(name);
        program.env("PGHOST", db.cluster.socket_folder()).env("PGUSER", SUPERUSER).env_remove("PGPORT");
        program
    };
    let run = |command: &mut Command, what: &str| stdout_of(what, command.output().expect("it can be started"));
    run(program("pg_dump").args(["-Fc", "-t", "pool", "-d", &db.name, "-f"]).arg(&file), "pg_dump");
    session.run("DELETE FROM pool; INSERT INTO pool VALUES (3, 'A row of before the load.')").await;
    expect_exact(&session, "pool").await;
    let restore = ["--data-only", "--disable-triggers", "--exit-on-error", "-t", "pool", "-d", &db.name];
    run(program("pg_restore").args(restore).arg(&file), "pg_restore");
    assert_eq!(modes(&session, "pool").await, PLAIN);
    expect_exact(&session, "pool").await;
    assert_eq!(first(&session, "pool", "When does the pool open?").await, "The pool opens at seven.");
}

#[tokio::test]
async fn a_dump_of_a_table_in_parts_is_restored_with_all_of_its_triggers() {
    let (db, session) = Database::open().await;
    make_in_parts(&session, "parts").await;
    make(&session, "notes", &["one"]).await;
    let (file, copy) = (db.cluster.socket_folder().join(format!("{}.dump", db.name)), format!("{}_copy", db.name));
    let program = |name: &str| {
        let mut program = db.cluster.installation.program(name);
        program.env("PGHOST", db.cluster.socket_folder()).env("PGUSER", SUPERUSER).env_remove("PGPORT");
        program
    };
    let run = |command: &mut Command, what: &str| stdout_of(what, command.output().expect("it can be started"));
    run(program("pg_dump").args(["-Fc", "-d", &db.name, "-f"]).arg(&file), "pg_dump");
    let postgres = db.cluster.connect("postgres", SUPERUSER).await;
    for options in [&["--exit-on-error"][..], &["--exit-on-error", "--single-transaction"]] {
        postgres.run(&format!("CREATE DATABASE {copy} TEMPLATE template0")).await;
        run(program("pg_restore").args(options).args(["-d", &copy]).arg(&file), "pg_restore");
        let restored = db.cluster.connect(&copy, SUPERUSER).await;
        assert_eq!(modes(&restored, "notes").await, PLAIN);
        for part in ["parts", "parts_1", "parts_3", "parts_3b"] {
            assert_eq!(modes(&restored, part).await, IN_PARTS, "{part}");
        }
        expect_exact(&restored, "parts").await;
        expect_exact(&restored, "notes").await;
        restored.run("TRUNCATE parts_3b; UPDATE parts SET body = 'new' WHERE id = 1").await;
        expect_exact(&restored, "parts").await;
        drop(restored);
        postgres.run(&format!("DROP DATABASE {copy} WITH (FORCE)")).await;
    }
}

#[tokio::test]
async fn a_partition_that_is_swapped_in_one_transaction_is_compared_by_content() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE fruit (id int, part int, body text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
             CREATE TABLE fruit_1 PARTITION OF fruit FOR VALUES IN (1);
             INSERT INTO fruit VALUES (1, 1, 'old text about apples'), (2, 1, 'old text about pears'), (3, 1, 'text about plums')",
        )
        .await;
    collect(&session, "fruit").await;
    current(&session).await;
    session
        .run(
            "BEGIN; CREATE TABLE fruit_new (LIKE fruit INCLUDING ALL);
             INSERT INTO fruit_new VALUES (1, 1, 'new text about apples'), (2, 1, 'new text about pears'), (3, 1, 'text about plums');
             ALTER TABLE fruit DETACH PARTITION fruit_1; ALTER TABLE fruit ATTACH PARTITION fruit_new FOR VALUES IN (1); COMMIT",
        )
        .await;
    expect_exact(&session, "fruit").await;
    assert_eq!(modes(&session, "fruit_new").await, IN_PARTS);
    assert_eq!(modes(&session, "fruit_1").await, Vec::<String>::new(), "what is no part any more has no triggers");
    assert_eq!(first(&session, "fruit", "text about apples").await, "new text about apples");
    assert_eq!(session.number("SELECT count(*) FROM rag.search('text', 'fruit')").await, 3);
    session.run("TRUNCATE fruit_1").await;
    assert_eq!(session.notices().iter().filter(|n| n.severity() == "WARNING").count(), 0);
}

#[tokio::test]
async fn truncate_of_a_part_at_any_level_and_what_comes_and_goes_with_parts_is_captured() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("owner").await;
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {}", quote(&role))).await;
    let owner = db.connect_as(&role).await;
    make_in_parts(&owner, "parts").await;
    make_in_parts(&owner, "others").await;
    let refill =
        "INSERT INTO parts SELECT i, 1 + i % 4, 'row number ' || i FROM generate_series(1, 8) i ON CONFLICT DO NOTHING";
    for (change, left) in [
        ("TRUNCATE parts_1", 6),
        ("TRUNCATE parts_3", 4),
        ("TRUNCATE parts_3b", 6),
        ("TRUNCATE parts", 0),
        ("TRUNCATE parts_1, parts_3a", 4),
        ("DROP TABLE parts_2", 6),
        ("CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2)", 6),
        ("TRUNCATE parts_2; ALTER TABLE parts DETACH PARTITION parts_3", 2),
        ("TRUNCATE parts_3; INSERT INTO parts_3 VALUES (30, 3, 'thirty'), (40, 4, 'forty')", 2),
        ("ALTER TABLE parts ATTACH PARTITION parts_3 FOR VALUES IN (3, 4)", 4),
        ("TRUNCATE parts_3a", 3),
        (
            "CREATE TABLE parts_5 (LIKE parts INCLUDING ALL); INSERT INTO parts_5 VALUES (50, 5, 'fifty');
          ALTER TABLE parts ATTACH PARTITION parts_5 FOR VALUES IN (5)",
            4,
        ),
        ("ALTER TABLE parts DETACH PARTITION parts_5 CONCURRENTLY", 3),
        ("TRUNCATE parts_5", 3),
    ] {
        for statement in change.split("; ") {
            owner.run(statement).await;
        }
        expect_exact(&owner, "parts").await;
        assert_eq!(owner.number("SELECT count(*) FROM parts_chunks").await, left, "{change}");
        if change.starts_with("TRUNCATE parts") && left != 2 && left != 3 {
            owner.run(refill).await;
            current(&owner).await;
        }
    }
    assert_eq!(modes(&owner, "parts_5").await, Vec::<String>::new());
    expect_exact(&owner, "others").await;
    assert_eq!(owner.number("SELECT count(*) FROM others_chunks").await, 8);
    let warnings: Vec<String> =
        owner.notices().iter().filter(|n| n.severity() == "WARNING").map(|n| n.message().to_owned()).collect();
    assert_eq!(warnings, Vec::<String>::new());
    owner.run("SELECT rag.drop_collection('parts')").await;
    let left = "SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relname LIKE 'parts%'";
    assert_eq!(owner.number(left).await, 0);
}

#[tokio::test]
async fn commands_that_change_no_rows_ask_for_no_comparison() {
    let (_db, session) = Database::open().await;
    make_in_parts(&session, "parts").await;
    make_in_parts(&session, "others").await;
    session.run("CREATE TABLE plain (id int PRIMARY KEY); CREATE TABLE p (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF p DEFAULT").await;
    const COMPARED: &str =
        "SELECT c.name FROM rag_internal.queue q JOIN rag_internal.collection c ON c.id = q.collection
        WHERE q.key IS NULL AND q.keys IS NULL ORDER BY 1";
    for change in [
        "DROP TABLE plain",
        "DROP TABLE p1",
        "ALTER TABLE parts ADD extra int",
        "ALTER TABLE parts_1 SET (fillfactor = 90)",
        "ALTER TABLE parts ENABLE ROW LEVEL SECURITY",
        "CREATE INDEX ON parts (body)",
        "ALTER TABLE parts RENAME extra TO more",
        "CREATE TRIGGER mine BEFORE INSERT ON parts_1 FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "ALTER TABLE parts_1 DISABLE TRIGGER mine",
        "DROP TRIGGER mine ON parts_1",
    ] {
        session.run("BEGIN").await;
        session.run(change).await;
        assert_eq!(session.column(COMPARED).await, Vec::<String>::new(), "{change}");
        session.run("COMMIT").await;
    }
    session.run("BEGIN; DROP TABLE parts_1").await;
    let mut compared = session.column(COMPARED).await;
    compared.dedup();
    assert_eq!(compared, ["parts"]);
    session.run("ROLLBACK").await;
}

#[tokio::test]
async fn rows_that_changed_while_a_collection_could_not_be_used_are_found() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TABLE notes (id int CONSTRAINT notes_pk PRIMARY KEY, body text);
             INSERT INTO notes VALUES (1, 'old text about apples'), (2, 'pears')",
        )
        .await;
    collect(&session, "notes").await;
    current(&session).await;
    session
        .run("ALTER TABLE notes DROP CONSTRAINT notes_pk; UPDATE notes SET body = 'new text about apples' WHERE id = 1")
        .await;
    let findings = session.rows("SELECT problem, detail, hint FROM rag.verify('notes')").await;
    assert_eq!(findings[0][0].as_deref(), Some("unusable"));
    assert!(findings[0][1].as_deref().is_some_and(|d| d.contains("primary key")), "{findings:?}");
    session.run("ALTER TABLE notes ADD PRIMARY KEY (id)").await;
    session.wait_until("the comparison", PATIENCE, "SELECT count(*) = 0 FROM rag_internal.queue").await;
    expect_exact(&session, "notes").await;
    assert_eq!(first(&session, "notes", "apples").await, "new text about apples");
}

#[tokio::test]
async fn verify_names_each_kind_of_fault_and_changes_nothing() {
    let (db, session) = Database::open().await;
    db.provider.break_down(FaultKind::RejectTextContaining { text: "poison".into() });
    let long = "A sentence that is one of many in this text about chunks. ".repeat(120);
    make(&session, "notes", &["one", "two", "three", "four", "five", &long, "seven", ""]).await;
    assert_eq!(verify(&session, "notes").await, found(&[]));
    session.run("INSERT INTO notes VALUES (9, 'poison')").await;
    session.wait_until("the parked row", PATIENCE, "SELECT count(*) = 1 FROM rag.failures").await;
    session
        .run(
            "DELETE FROM notes_chunks WHERE id IN (1, 2); UPDATE notes_chunks SET source_hash = 0 WHERE id = 3;
             UPDATE notes_chunks SET model = 'fake/other' WHERE id = 4; DELETE FROM notes_chunks WHERE id = 6 AND chunk = 1;
             INSERT INTO notes_chunks SELECT (jsonb_populate_record(c, '{\"id\": 77, \"chunk_id\": -1}')).* FROM notes_chunks c WHERE id = 5",
        )
        .await;
    let expected = found(&[
        ("failed", "1"),
        ("incomplete", "1"),
        ("missing", "2"),
        ("orphaned", "1"),
        ("other model", "1"),
        ("stale", "1"),
    ]);
    // Neither a writer that is not done yet nor a reader's transaction is in its way, and it is in nobody's.
    let writer = db.connect().await;
    writer.run("BEGIN; UPDATE notes SET body = 'seven and a half' WHERE id = 7").await;
    session.run("BEGIN READ ONLY").await;
    assert_eq!(verify(&session, "notes").await, expected);
    writer.run("COMMIT; SET lock_timeout = '5 s'; INSERT INTO notes VALUES (10, 'ten')").await;
    session.run("COMMIT").await;
    assert_eq!(verify(&session, "notes").await, expected);
    let examples = session.column("SELECT problem || ' ' || example FROM rag.verify('notes')").await;
    assert!(examples.contains(&r#"missing {"id": 1}"#.to_owned()), "{examples:?}");
    assert!(examples.contains(&r#"orphaned {"id": 77}"#.to_owned()), "{examples:?}");
    let hints = session.number("SELECT count(*) FROM rag.verify('notes') WHERE hint = '' OR detail = ''").await;
    assert_eq!(hints, 0);
    db.provider.heal();
    session.run("SELECT rag.refresh('notes')").await;
    current(&session).await;
    assert_eq!(verify(&session, "notes").await, found(&[]));
    assert_eq!(session.number("SELECT count(*) FROM notes_chunks WHERE id IN (9, 77)").await, 1);
    // For its owner and superusers only.
    let stranger = db.create_role("stranger").await;
    session.run(&format!("GRANT SELECT ON notes TO {}", quote(&stranger))).await;
    db.connect_as(&stranger).await.refusal("SELECT * FROM rag.verify('notes')", "42501").await;
    session.refusal("SELECT * FROM rag.verify('nothing')", "42704").await;
    session.refusal("SELECT * FROM rag.verify(NULL)", "22004|22023").await;
}

#[tokio::test]
async fn an_emptied_chunk_table_is_told_and_filled_again_and_rows_without_text_are_left_alone() {
    let (db, session) = Database::open().await;
    make(&session, "notes", &["one", "two", "", " \u{200b}\u{feff}\n"]).await;
    session.run("INSERT INTO notes VALUES (5, NULL); TRUNCATE notes_chunks").await;
    assert_eq!(verify(&session, "notes").await, found(&[("missing", "2")]));
    session.run("SELECT rag.refresh('notes')").await;
    expect_exact(&session, "notes").await;
    // Nothing is left to do, so nothing is queued by another comparison: the provider hears nothing.
    let before = db.provider.counters().requests;
    session.run("SELECT rag.refresh('notes')").await;
    expect_exact(&session, "notes").await;
    assert_eq!(db.provider.counters().requests, before);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_does_not_keep_the_others_from_being_compared() {
    let (_db, session) = Database::open().await;
    session
        .run(
            "CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE TABLE notes (id int PRIMARY KEY, body text, mood mood);
             INSERT INTO notes SELECT i, 'note ' || i, 'good' FROM generate_series(1, 9) i;
             SELECT rag.create_collection('notes', 'notes', '{body,mood}', embedding_model => 'fake/embed-64')",
        )
        .await;
    current(&session).await;
    session
        .run(
            "ALTER TABLE notes DISABLE TRIGGER USER; UPDATE notes SET body = 'changed' WHERE id IN (1, 9);
             UPDATE notes SET mood = 'bad' WHERE id = 5; DELETE FROM notes WHERE id = 2;
             DELETE FROM pg_enum WHERE enumlabel = 'bad'",
        )
        .await;
    let problems = session.column("SELECT problem FROM rag.verify('notes') ORDER BY 1").await;
    assert_eq!(problems, ["capture", "unreadable"]);
    session.run("ALTER TABLE notes ENABLE TRIGGER USER").await;
    current(&session).await;
    assert_eq!(verify(&session, "notes").await, found(&[("failed", "1")]));
    assert_eq!(session.value("SELECT key FROM rag.failures").await, r#"{"id": 5}"#);
    let changed = "SELECT count(*) FROM notes_chunks WHERE content LIKE 'changed%'";
    assert_eq!(session.number(changed).await, 2);
    assert_eq!(session.number("SELECT count(*) FROM notes_chunks WHERE id = 2").await, 0);
    // It is known by now: others are compared together again.
    session.run("DELETE FROM notes_chunks WHERE id = 3").await;
    assert_eq!(verify(&session, "notes").await, found(&[("failed", "1"), ("missing", "1")]));
}

#[tokio::test]
async fn altering_a_source_succeeds_whatever_keeps_the_collection_from_following() {
    let (db, session) = Database::open().await;
    make(&session, "notes", &["one", "two"]).await;
    session.run("ALTER TABLE notes DISABLE TRIGGER USER; UPDATE notes SET body = 'uno' WHERE id = 1").await;
    let other = db.connect().await;
    other.run("BEGIN; LOCK TABLE rag_internal.queue IN SHARE MODE").await;
    session.run("SET lock_timeout = '100 ms'; ALTER TABLE notes ENABLE TRIGGER USER; RESET lock_timeout").await;
    other.run("ROLLBACK").await;
    let warned = session
        .notices()
        .iter()
        .any(|n| n.severity() == "WARNING" && n.hint().is_some_and(|h| h.contains("rag.refresh('notes')")));
    assert!(warned, "{:?}", session.notices());
    assert!(capture(&session, "notes").await.starts_with("off since"));
    session.run("SELECT rag.refresh('notes')").await;
    assert_eq!(modes(&session, "notes").await, PLAIN);
    expect_exact(&session, "notes").await;
}

/// What is done at random to a table, and whether it takes rag.refresh afterwards.
struct Doings {
    random: Random,
    /// Names of tables that were made.
    tables: usize,
    /// The tables that hold parts 1 and 2.
    parts: [String; 2],
}

impl Doings {
    fn body(&mut self) -> String {
        let words = ["apple", "pear", "plum", "quince", "medlar", "sloe"];
        match self.random.below(12) {
            0 => "''".into(),
            1 => "E' \\u200b\\n'".into(),
            2 => "NULL".into(),
            n => format!("'{} {}'", self.random.pick(&words), n + self.random.below(30)),
        }
    }

    fn id(&mut self) -> usize {
        self.random.below(12)
    }

    /// Statements on rows of a table, whose key is `id` or `id` and `part`.
    fn rows(&mut self, table: &str, is_in_parts: bool) -> String {
        let (id, to, body) = (self.id(), self.id(), self.body());
        let part = if is_in_parts { format!(", {}", 1 + self.random.below(4)) } else { String::new() };
        match self.random.below(8) {
            0..3 => format!("INSERT INTO {table} VALUES ({id}{part}, {body}) ON CONFLICT DO NOTHING"),
            3 | 4 => format!("UPDATE {table} SET body = {body} WHERE id = {id}"),
            5 => format!("DELETE FROM {table} WHERE id BETWEEN {id} AND {id} + 2"),
            6 => {
                format!("UPDATE {table} SET id = id + 100 WHERE id = {to} AND id + 100 NOT IN (SELECT id FROM {table})")
            }
            _ if is_in_parts => format!(
                "UPDATE {table} SET part = part % 4 + 1 WHERE id = {id} AND id NOT IN (SELECT id FROM {table} GROUP BY id HAVING count(*) > 1)"
            ),
            _ => format!("DELETE FROM {table} WHERE id = {id}; INSERT INTO {table} VALUES ({id}, {body})"),
        }
    }

    fn triggers(&mut self, table: &str, whole: &str) -> String {
        let which = self.random.choose(&["USER", "ALL"]);
        let rows = self.rows(whole, whole != "plain");
        match self.random.below(3) {
            0 => format!("ALTER TABLE {table} DISABLE TRIGGER {which}"),
            1 => format!("ALTER TABLE {table} ENABLE TRIGGER {which}"),
            _ => format!(
                "ALTER TABLE {table} DISABLE TRIGGER {which}; {rows}; ALTER TABLE {table} ENABLE TRIGGER {which}"
            ),
        }
    }

    fn parts(&mut self) -> String {
        let place = self.random.below(2);
        let (part, old) = (place + 1, self.parts[place].clone());
        let (id, body) = (self.id(), self.body());
        match self.random.below(4) {
            0 => format!("TRUNCATE {}", self.random.pick(&[old.as_str(), "whole_3", "whole_3a", "whole_3b", "whole"])),
            1 => {
                self.tables += 1;
                let new = format!("new_{}", self.tables);
                self.parts[place].clone_from(&new);
                let (first, second) = (self.body(), self.body());
                format!(
                    "CREATE TABLE {new} (LIKE whole INCLUDING ALL); INSERT INTO {new} VALUES ({id}, {part}, {first}), ({id} + 1, {part}, {second});
                     ALTER TABLE whole DETACH PARTITION {old}; ALTER TABLE whole ATTACH PARTITION {new} FOR VALUES IN ({part})"
                )
            }
            2 => format!("DROP TABLE {old}; CREATE TABLE {old} PARTITION OF whole FOR VALUES IN ({part})"),
            _ => format!(
                "ALTER TABLE whole DETACH PARTITION {old}; UPDATE {old} SET body = {body}; TRUNCATE TABLE ONLY whole_3a;
                 ALTER TABLE whole ATTACH PARTITION {old} FOR VALUES IN ({part})"
            ),
        }
    }

    /// What to do next to a table; true: it takes a refresh.
    fn next(&mut self, table: &str, id: &str) -> (String, bool) {
        let is_in_parts = table != "plain";
        match self.random.below(20) {
            0..4 => (self.triggers(table, table), false),
            4 => {
                let part = if is_in_parts { self.parts[0].clone() } else { table.to_owned() };
                (self.triggers(&part, table), false)
            }
            5 | 6 if is_in_parts => (self.parts(), false),
            5 => (format!("TRUNCATE {table}"), false),
            6 => (
                format!(
                    "SET session_replication_role = replica; {}; RESET session_replication_role",
                    self.rows(table, is_in_parts)
                ),
                false,
            ),
            7 => {
                let word = self.random.choose(&["insert", "update", "delete", "truncate"]);
                (format!("DROP TRIGGER IF EXISTS rag_capture_{id}_{word} ON {table}"), true)
            }
            8 => (format!("TRUNCATE {table}_chunks"), true),
            9 => {
                let rows = self.rows(table, is_in_parts);
                (format!("BEGIN; {rows}; SAVEPOINT s; TRUNCATE {table}; ROLLBACK TO s; COMMIT"), false)
            }
            _ => (self.rows(table, is_in_parts), false),
        }
    }
}

#[tokio::test]
async fn after_anything_at_all_verify_is_clean_and_chunks_are_what_rows_say() {
    let number = |name: &str, usual: usize| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    let (seed, cases) = (number("RAGENT_SEED", 20), number("RAGENT_CASES", 300) / 20);
    let (_db, session) = Database::open().await;
    make(&session, "plain", &["one", "two", "three"]).await;
    make_in_parts(&session, "whole").await;
    let mut doings =
        Doings { random: Random::new(seed as u64), tables: 0, parts: ["whole_1".into(), "whole_2".into()] };
    for case in 0..cases {
        for table in ["plain", "whole"] {
            let id = session.value(&format!("SELECT id FROM rag_internal.collection WHERE name = '{table}'")).await;
            let (mut done, mut refresh) = (Vec::new(), false);
            for _ in 0..1 + doings.random.below(8) {
                let (sql, takes_refresh) = doings.next(table, &id);
                refresh |= takes_refresh;
                // Some wait for the worker in between.
                let wait = doings.random.below(6) == 0;
                if let Err(error) = session.try_rows(&sql).await {
                    panic!("RAGENT_SEED={seed}, case {case}: {sql}: {error:?}");
                }
                if wait && session.number("SELECT count(*) FROM rag_internal.capture_gap").await == 0 {
                    current(&session).await;
                }
                done.push(sql);
            }
            let end = if refresh {
                format!("SELECT rag.refresh('{table}')")
            } else {
                format!("ALTER TABLE {table} ENABLE TRIGGER ALL")
            };
            session.run(&end).await;
            if table == "whole" && !refresh {
                for part in ["whole_3", "whole_3a", "whole_3b", &doings.parts[0], &doings.parts[1]] {
                    session.run(&format!("ALTER TABLE {part} ENABLE TRIGGER ALL")).await;
                }
            }
            println!("RAGENT_SEED={seed}, case {case}: {done:#?}; {end}");
            expect_exact(&session, table).await;
        }
    }
}
