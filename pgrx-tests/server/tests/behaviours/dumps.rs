//! What is right after a dump was restored, whole or in part, by whom and however; and after the extension was dropped and
//! created again. docs/operations.md has these cases as a table.

use std::process::{Command, Output};

use ragent_server_tests::cluster::{Cluster, SUPERUSER};
use ragent_server_tests::database::{Database, create_server, current, granted, quote, shared_cluster};
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::PATIENCE;

/// Grants of every table in these tests, a line for each.
const GRANTS: &str = "SELECT c.oid::regclass || ' ' || coalesce(x.col, '') || ' ' || x.who || ' ' || x.what
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (
        SELECT NULL AS col, coalesce(nullif(a.grantee, 0)::regrole::text, 'PUBLIC') AS who, a.privilege_type || a.is_grantable AS what
        FROM aclexplode(c.relacl) a
        UNION ALL
        SELECT t.attname, coalesce(nullif(a.grantee, 0)::regrole::text, 'PUBLIC'), a.privilege_type || a.is_grantable
        FROM pg_attribute t, aclexplode(t.attacl) a WHERE t.attrelid = c.oid AND t.attacl IS NOT NULL) x
    WHERE n.nspname IN ('app', 'zoo') AND c.relkind IN ('r', 'p') ORDER BY 1";

/// Rows without chunks that show their content, chunks without rows, and what is queued or failed, over all collections.
async fn assert_current(session: &Session, tables: &[&str], what: &str) {
    current(session).await;
    for table in tables {
        let differs = format!(
            "SELECT count(*) FROM {table} s FULL JOIN {table}_chunks c USING (id)
             WHERE c.content IS DISTINCT FROM s.body OR c.embedding IS NULL"
        );
        assert_eq!(session.number(&differs).await, 0, "{what}: rows of {table} whose chunk is another");
        let searched = format!(
            "SELECT count(*) FROM {table} s WHERE NOT EXISTS (
                SELECT FROM rag.search(s.body, (SELECT name FROM rag.collections WHERE source = '{table}'::regclass), 3) f
                WHERE f.content = s.body)"
        );
        assert_eq!(session.number(&searched).await, 0, "{what}: rows of {table} that are not found by their text");
    }
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 0, "{what}");
}

/// What creates the collection of a table, which has its name without the schema.
fn creation(table: &str) -> String {
    let name = bare(table);
    format!(
        "SELECT rag.create_collection('{name}', '{table}', '{{body}}', embedding_model => 'fake/embed-64', dimensions => 64)"
    )
}

/// A table's name without its schema: that of its collection.
fn bare(table: &str) -> &str {
    table.split_once('.').map_or(table, |(_, name)| name)
}

fn done(what: &str, output: &Output) {
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A program of PostgreSQL's for a database, as a role.
fn program(cluster: &Cluster, name: &str, role: &str, database: &str) -> Command {
    let mut program = cluster.installation.program(name);
    program.env_remove("PGPORT").env("PGHOST", cluster.socket_folder()).args(["-U", role, "-d", database]);
    program
}

/// A dump in a file of its own.
fn dump(cluster: &Cluster, database: &str, role: &str, arguments: &[&str]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut command = program(cluster, "pg_dump", role, database);
    command.arg("-f").arg(file.path()).args(arguments);
    done(&format!("pg_dump {arguments:?} as {role}"), &command.output().expect("pg_dump can be started"));
    file
}

/// An empty database; it goes with its name's next one, or with the cluster.
async fn empty(cluster: &Cluster, name: &str) {
    let postgres = cluster.connect("postgres", SUPERUSER).await;
    postgres.run(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    postgres.run(&format!("CREATE DATABASE {name} TEMPLATE template0")).await;
}

/// Restores a plain dump by psql, which stops at the first error.
fn restore(cluster: &Cluster, database: &str, file: &tempfile::NamedTempFile) {
    let output = cluster.psql_command(database).arg("-f").arg(file.path()).output().expect("psql can be started");
    done("psql", &output);
}

/// What the server logged of ours since it had logged so much: warnings and errors in these databases.
fn complaints(cluster: &Cluster, from: usize, database: &str) -> Vec<String> {
    let log = cluster.log();
    let ours = |line: &&str| {
        (line.contains("WARNING:") || line.contains("ERROR:") || line.contains("FATAL:"))
            && line.contains(&format!(" {database} "))
            // What these tests do to the database.
            && !line.contains("terminating connection due to administrator command")
            && !line.contains("terminating background worker")
    };
    log[from..].lines().filter(ours).map(str::to_owned).collect()
}

/// Owners with some tables of their own in schema `app`, each a collection; a partitioned one; and one in schema `zoo`, which
/// comes after `rag_internal` in a dump. Roles that may read them in every way.
struct Zoo {
    db: Database<'static>,
    admin: Session,
    owner: String,
    tables: Vec<String>,
}

impl Zoo {
    async fn new(count: usize) -> Self {
        let (db, admin) = Database::open().await;
        let owner = db.create_role("owner").await;
        let mut readers = Vec::new();
        for n in 0..5 {
            readers.push(quote(&db.create_role(&format!("reader{n}")).await));
        }
        admin
            .run(&format!(
                "CREATE SCHEMA app AUTHORIZATION {o}; CREATE SCHEMA zoo AUTHORIZATION {o}; GRANT USAGE ON SCHEMA app, zoo TO PUBLIC",
                o = quote(&owner)
            ))
            .await;
        let session = db.connect_as(&owner).await;
        let mut tables: Vec<String> = (0..count).map(|n| format!("app.t{n}")).collect();
        tables.extend(["app.parts".to_owned(), "zoo.last".to_owned()]);
        for (n, table) in tables.iter().enumerate() {
            let parts = if table == "app.parts" { "PARTITION BY RANGE (id)" } else { "" };
            session.run(&format!("CREATE TABLE {table} (id int PRIMARY KEY, title text, body text) {parts}")).await;
            if !parts.is_empty() {
                session
                    .run(
                        "CREATE TABLE app.parts_1 PARTITION OF app.parts FOR VALUES FROM (0) TO (3);
                         CREATE TABLE app.parts_2 PARTITION OF app.parts FOR VALUES FROM (3) TO (100)",
                    )
                    .await;
            }
            session
                .run(&format!(
                    "INSERT INTO {table} SELECT i, 'Title', 'text ' || i || ' of table {n}' FROM generate_series(1, 5) i; {}",
                    creation(table)
                ))
                .await;
            let [a, b, c, d, e] = &readers[..] else { unreachable!("five readers") };
            session.run(&format!("GRANT SELECT ON {table} TO {a}, {b}; GRANT SELECT, INSERT ON {table} TO {c}")).await;
            session
                .run(&format!("GRANT SELECT (id, body) ON {table} TO {d}; GRANT SELECT (title) ON {table} TO {e}"))
                .await;
            if n % 2 == 0 {
                session.run(&format!("GRANT SELECT ON {table} TO PUBLIC")).await;
            }
        }
        current(&admin).await;
        granted(&admin).await;
        Self { db, admin, owner, tables }
    }

    fn tables(&self) -> Vec<&str> {
        self.tables.iter().map(String::as_str).collect()
    }

    /// A name for a database of this test.
    fn other(&self, what: &str) -> String {
        format!("{}_{what}", self.db.name)
    }

    async fn connect(&self, database: &str) -> Session {
        self.db.cluster.connect(database, SUPERUSER).await
    }

    fn embedded(&self) -> u64 {
        self.db.provider.counters().texts_embedded()
    }

    /// Restores a plain dump into a database of that name, and checks that everything is there and current, that `embeds` texts
    /// were embedded for it, and that nothing of ours complained.
    async fn restored(&self, what: &str, file: &tempfile::NamedTempFile, embeds: u64) -> (Session, String) {
        let name = self.other("restored");
        empty(self.db.cluster, &name).await;
        let (from, before) = (self.db.cluster.log().len(), self.embedded());
        restore(self.db.cluster, &name, file);
        let there = self.connect(&name).await;
        current(&there).await;
        assert_eq!(self.embedded() - before, embeds, "{what}: texts embedded");
        assert_current(&there, &self.tables(), what).await;
        assert_eq!(complaints(self.db.cluster, from, &name), Vec::<String>::new(), "{what}");
        (there, name)
    }

    /// Creates every collection, and waits until it is current.
    async fn create(&self, there: &Session) {
        for table in &self.tables {
            there.run(&creation(table)).await;
        }
        current(there).await;
    }

    /// Creates every collection anew; how many texts are embedded for that.
    async fn create_again(&self, there: &Session, what: &str) -> u64 {
        let before = self.embedded();
        self.create(there).await;
        let embedded = self.embedded() - before;
        assert_current(there, &self.tables(), what).await;
        let triggers = "SELECT count(*) FROM pg_trigger t WHERE t.tgfoid = 'rag_internal.capture'::regproc AND t.tgparentid = 0
            AND NOT EXISTS (SELECT FROM rag_internal.collection c
                            WHERE c.source = coalesce(pg_partition_root(t.tgrelid), t.tgrelid) AND t.tgname LIKE 'rag_capture_' || c.id || '_%')";
        assert_eq!(there.number(triggers).await, 0, "{what}: triggers of former collections");
        let former = "SELECT count(*) FROM pg_class WHERE relname LIKE 'rag_former%'";
        assert_eq!(there.number(former).await, 0, "{what}: former chunk tables");
        embedded
    }
}

#[tokio::test]
async fn a_parallel_restore_brings_every_grant_and_embeds_nothing() {
    let zoo = Zoo::new(18).await;
    let cluster = zoo.db.cluster;
    let wanted = zoo.admin.column(GRANTS).await;
    assert!(wanted.iter().any(|line| line.starts_with("app.t1_chunks ")), "{wanted:?}");
    let file = dump(cluster, &zoo.db.name, SUPERUSER, &["-Fc"]);
    let times = std::env::var("RAGENT_RESTORES").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    for n in 0..times {
        let name = zoo.other("parallel");
        empty(cluster, &name).await;
        let (from, before) = (cluster.log().len(), zoo.embedded());
        let mut command = program(cluster, "pg_restore", SUPERUSER, &name);
        let output = command.args(["-j4"]).arg(file.path()).output().expect("pg_restore can be started");
        done(&format!("restore {n}"), &output);
        let there = zoo.connect(&name).await;
        assert_eq!(there.column(GRANTS).await, wanted, "restore {n}, at once");
        granted(&there).await;
        assert_eq!(there.column(GRANTS).await, wanted, "restore {n}, after the worker looked");
        current(&there).await;
        assert_eq!(zoo.embedded(), before, "restore {n}: texts were embedded");
        assert_current(&there, &zoo.tables(), &format!("restore {n}")).await;
        assert_eq!(complaints(cluster, from, &name), Vec::<String>::new(), "restore {n}");
        // It goes on from there.
        there.run("INSERT INTO app.t0 VALUES (6, 't', 'text that is new'); INSERT INTO app.parts VALUES (50, 't', 'another')").await;
        assert_current(&there, &["app.t0", "app.parts"], "what is written afterwards").await;
        drop(there);
        zoo.admin.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
    }
}

#[tokio::test]
async fn what_a_whole_dump_brings_is_current_whoever_dumped_and_however() {
    let zoo = Zoo::new(2).await;
    let cluster = zoo.db.cluster;
    let wanted = zoo.admin.column(GRANTS).await;
    let plain = dump(cluster, &zoo.db.name, SUPERUSER, &[]);
    let (there, name) = zoo.restored("a plain dump", &plain, 0).await;
    granted(&there).await;
    assert_eq!(there.column(GRANTS).await, wanted, "a plain dump");
    // --clean drops what is there before it makes it anew.
    let clean = dump(cluster, &zoo.db.name, SUPERUSER, &["--clean", "--if-exists"]);
    let before = zoo.embedded();
    // PostgreSQL 15 wants to drop the keys of partitions by themselves, which it cannot, and drops them with the table.
    let output = cluster.psql_command(&name).args(["-v", "ON_ERROR_STOP=0", "-f"]).arg(clean.path()).output();
    done("psql", &output.expect("psql can be started"));
    current(&there).await;
    assert_eq!(zoo.embedded(), before, "--clean: texts were embedded");
    assert_current(&there, &zoo.tables(), "--clean").await;
    drop(there);
    let without = dump(cluster, &zoo.db.name, SUPERUSER, &["--no-owner"]);
    let (there, _) = zoo.restored("--no-owner", &without, 0).await;
    assert_eq!(there.column("SELECT DISTINCT owner FROM rag.collections").await, [SUPERUSER]);
    drop(there);
    let without = dump(cluster, &zoo.db.name, SUPERUSER, &["--no-privileges"]);
    let (there, _) = zoo.restored("--no-privileges", &without, 0).await;
    assert_eq!(there.number("SELECT count(*) FROM rag_internal.grants_to_sync()").await, 0);
    there.run("INSERT INTO app.t0 VALUES (6, 't', 'new')").await;
    there
        .wait_until(
            "its status to say what is missing",
            PATIENCE,
            "SELECT coalesce(last_error LIKE 'permission denied%', false) FROM rag.status WHERE collection = 't0'",
        )
        .await;
    there.run(&format!("GRANT USAGE ON FOREIGN SERVER fake TO {}", quote(&zoo.owner))).await;
    current(&there).await;
    drop(there);
    // A role for backups: no superuser.
    let backup = zoo.db.create_role("backup").await;
    zoo.admin.run(&format!("ALTER ROLE {0} BYPASSRLS; GRANT pg_read_all_data TO {0}", quote(&backup))).await;
    let file = dump(cluster, &zoo.db.name, &backup, &[]);
    let text = std::fs::read_to_string(file.path()).expect("a dump");
    assert!(!text.contains(ragent_server_tests::database::API_KEY), "the dump of an ordinary role has a key");
    assert!(text.contains("chunk_id_seq"), "numbers of chunks are dumped");
    let (there, name) = zoo.restored("a dump by a role for backups", &file, 0).await;
    granted(&there).await;
    assert_eq!(there.column(GRANTS).await, wanted, "a dump by a role for backups");
    drop(there);
    // Roles come from pg_dumpall; what it says of the cluster has no key either.
    let mut globals = cluster.installation.program("pg_dumpall");
    globals.env_remove("PGPORT").env("PGHOST", cluster.socket_folder()).args(["-U", SUPERUSER, "--globals-only"]);
    let globals = globals.output().expect("pg_dumpall can be started");
    done("pg_dumpall", &globals);
    let text = String::from_utf8_lossy(&globals.stdout).into_owned();
    assert!(text.contains(&zoo.owner) && !text.contains(ragent_server_tests::database::API_KEY));
    zoo.admin.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
}

#[tokio::test]
async fn what_a_part_of_a_dump_leaves_is_taken_over() {
    let zoo = Zoo::new(2).await;
    let cluster = zoo.db.cluster;
    let all = 5 * zoo.tables.len() as u64;
    let name = zoo.other("part");
    let restored = async |arguments: &[&str]| {
        let file = dump(cluster, &zoo.db.name, SUPERUSER, arguments);
        empty(cluster, &name).await;
        restore(cluster, &name, &file);
        zoo.connect(&name).await
    };
    // Without what is registered: the chunks are there.
    let there = restored(&["--exclude-table-data=rag_internal.*"]).await;
    assert_eq!(there.number("SELECT count(*) FROM rag.collections").await, 0);
    there.run("INSERT INTO app.t0 VALUES (6, 't', 'six'); UPDATE app.t0 SET body = 'changed' WHERE id = 2; DELETE FROM app.t0 WHERE id = 3").await;
    let warnings =
        there.notices().into_iter().filter(|n| n.message().contains("belongs to no collection")).collect::<Vec<_>>();
    assert_eq!(warnings.len(), 1, "it is said once: {warnings:?}");
    assert!(warnings[0].hint().is_some_and(|hint| hint.contains("create_collection")), "{warnings:?}");
    assert_eq!(zoo.create_again(&there, "without what is registered").await, 2);
    assert!(there.notices().iter().any(|n| n.message().contains("5 chunks are taken over")), "{:?}", there.notices());
    drop(there);
    // Only half of what is registered.
    let there = restored(&["--exclude-table-data=rag_internal.generation"]).await;
    there
        .refusal("SELECT rag.create_collection('t0', 'app.t0', '{body}', embedding_model => 'fake/embed-64', dimensions => 64)", "42710")
        .await;
    there.run("SELECT rag.drop_collection(name) FROM rag_internal.collection").await;
    assert_eq!(zoo.create_again(&there, "half of what is registered").await, 0);
    drop(there);
    // The tables alone are empty, as are the chunk tables.
    let there = restored(&["--schema-only"]).await;
    assert_eq!(zoo.create_again(&there, "--schema-only").await, 0);
    there.run("INSERT INTO zoo.last VALUES (1, 't', 'text')").await;
    assert_current(&there, &["zoo.last"], "--schema-only").await;
    drop(there);
    // Then the rows, by a program that the worker waits for.
    let there = restored(&["--schema-only"]).await;
    let file = dump(cluster, &zoo.db.name, SUPERUSER, &["-Fc"]);
    let before = zoo.embedded();
    let output = program(cluster, "pg_restore", SUPERUSER, &name).arg("--data-only").arg(file.path()).output();
    done("pg_restore --data-only", &output.expect("pg_restore can be started"));
    current(&there).await;
    assert_eq!(zoo.embedded(), before, "--data-only: texts were embedded");
    assert_current(&there, &zoo.tables(), "--data-only").await;
    drop(there);
    // Without the chunks.
    let there = restored(&["--exclude-table-data=*.*_chunks"]).await;
    let before = zoo.embedded();
    there.run("SELECT rag.refresh(name) FROM rag.collections").await;
    current(&there).await;
    assert_eq!(zoo.embedded() - before, all, "without chunks");
    assert_current(&there, &zoo.tables(), "without chunks").await;
    drop(there);
    // Without rows: their chunks are not shown, and go.
    let there = restored(&["--exclude-table-data=app.t0"]).await;
    assert_eq!(there.number("SELECT count(*) FROM rag.search('text', 't0')").await, 0);
    there.run("SELECT rag.refresh('t0')").await;
    assert_current(&there, &zoo.tables(), "without rows").await;
    drop(there);
    // One table, with its chunk table and without, in a database that has other collections.
    for (chunks, embeds) in [(true, 0), (false, 5)] {
        empty(cluster, &name).await;
        let there = zoo.connect(&name).await;
        there.run("CREATE EXTENSION pg_ragent CASCADE").await;
        there.run(&create_server("fake", &zoo.db.provider.base_url())).await;
        there
            .run(&format!(
                "CREATE SCHEMA app AUTHORIZATION {}; CREATE TABLE mine (id int PRIMARY KEY, body text);
                 SELECT rag.create_collection('mine', 'mine', '{{body}}', embedding_model => 'fake/embed-64', dimensions => 64)",
                quote(&zoo.owner)
            ))
            .await;
        let arguments = ["-t", "app.t1", "-t", "app.t1_chunks"];
        let file = dump(cluster, &zoo.db.name, SUPERUSER, if chunks { &arguments } else { &arguments[..2] });
        restore(cluster, &name, &file);
        let before = zoo.embedded();
        there.run("SELECT rag.create_collection('t1', 'app.t1', '{body}', embedding_model => 'fake/embed-64', dimensions => 64)").await;
        current(&there).await;
        assert_eq!(zoo.embedded() - before, embeds, "-t, with chunks: {chunks}");
        assert_current(&there, &["app.t1"], "-t").await;
        assert_eq!(
            there
                .number(
                    "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.t1'::regclass AND tgname LIKE 'rag_capture%'"
                )
                .await,
            7
        );
        // Dropping it leaves nothing.
        there.run("SELECT rag.drop_collection('t1')").await;
        assert_eq!(
            there
                .number("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.t1'::regclass AND NOT tgisinternal")
                .await,
            0
        );
    }
    zoo.admin.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
}

#[tokio::test]
async fn where_old_texts_are_shown_those_of_another_table_are_not_taken_over() {
    let (db, admin) = Database::open().await;
    let create = |table: &str| {
        format!(
            "SELECT rag.create_collection('notes', '{table}', '{{body}}', embedding_model => 'fake/embed-64', dimensions => 64, serve_stale => true)"
        )
    };
    admin
        .run("CREATE TABLE hers (id int PRIMARY KEY, body text); INSERT INTO hers VALUES (1, 'her secret'), (2, 'the same')")
        .await;
    admin.run(&create("hers")).await;
    current(&admin).await;
    admin
        .run(
            "CREATE TABLE kept AS TABLE notes_chunks; SELECT rag.drop_collection('notes'); ALTER TABLE kept RENAME TO notes_chunks;
             CREATE TABLE ours (id int PRIMARY KEY, body text); INSERT INTO ours VALUES (1, 'our menu'), (2, 'the same')",
        )
        .await;
    let embedded = db.provider.counters().texts_embedded();
    admin.run(&format!("BEGIN; {}", create("ours"))).await;
    assert_eq!(admin.column("SELECT content FROM notes_chunks").await, ["the same"]);
    admin.run("COMMIT").await;
    current(&admin).await;
    assert_eq!(admin.column("SELECT content FROM notes_chunks ORDER BY id").await, ["our menu", "the same"]);
    assert_eq!(db.provider.counters().texts_embedded() - embedded, 1);
}

#[tokio::test]
async fn what_the_extension_leaves_is_taken_over_unless_it_is_another_ones() {
    let zoo = Zoo::new(2).await;
    let there = &zoo.admin;
    let server = create_server("fake", &zoo.db.provider.base_url());
    let again = format!("DROP EXTENSION pg_ragent CASCADE; CREATE EXTENSION pg_ragent; {server}");
    there.run(&again).await;
    assert_eq!(zoo.create_again(there, "DROP EXTENSION").await, 0);
    // DROP SCHEMA of the extension is the same.
    there.run(&format!("DROP SCHEMA rag CASCADE; CREATE EXTENSION pg_ragent; {server}")).await;
    assert_eq!(zoo.create_again(there, "DROP SCHEMA rag").await, 0);
    // Another recipe: the table is taken, its vectors are not.
    there.run(&again).await;
    let before = zoo.embedded();
    there.run("SELECT rag.create_collection('t0', 'app.t0', '{body}', embedding_model => 'fake/embed-32', dimensions => 32)").await;
    current(there).await;
    assert_eq!(zoo.embedded() - before, 5, "another model");
    // What others made of it, or need of it, is not taken.
    for (change, undo) in [
        ("CREATE VIEW seen AS SELECT content FROM app.t1_chunks", "DROP VIEW seen"),
        ("ALTER TABLE app.t1_chunks OWNER TO postgres", "ALTER TABLE app.t1_chunks OWNER TO OWNER"),
        (
            "ALTER TABLE app.t1_chunks RENAME COLUMN content TO other",
            "ALTER TABLE app.t1_chunks RENAME COLUMN other TO content",
        ),
        (
            "CREATE FUNCTION f(text) RETURNS text IMMUTABLE LANGUAGE sql RETURN $1; CREATE INDEX i ON app.t1_chunks (f(content))",
            "DROP FUNCTION f(text) CASCADE",
        ),
    ] {
        there.run(change).await;
        let error = there
            .refusal(
                "SELECT rag.create_collection('t1', 'app.t1', '{body}', embedding_model => 'fake/embed-64', dimensions => 64)",
                "42P07",
            )
            .await;
        assert!(error.hint().is_some_and(|hint| hint.contains("not taken over")), "{change}: {error:?}");
        there.run(&undo.replace("OWNER TO OWNER", &format!("OWNER TO {}", quote(&zoo.owner)))).await;
    }
    // It belongs to a collection.
    there.refusal("SELECT rag.create_collection('x', 'app.t1', '{body}', chunk_table => 'app.t0_chunks', embedding_model => 'fake/embed-64', dimensions => 64)", "42P07").await;
    there.run("SELECT rag.drop_collection('t0')").await;
    // rag.refresh takes over what it can: here the chunk table has lost its policy.
    let embedded = {
        zoo.create(there).await;
        zoo.embedded()
    };
    there.run("DROP POLICY rag_same_as_source ON app.t1_chunks; SELECT rag.refresh('t1')").await;
    current(there).await;
    assert_eq!(zoo.embedded(), embedded, "rag.refresh embeds what it could take over");
    assert_eq!(there.number("SELECT count(*) FROM pg_policy WHERE polrelid = 'app.t1_chunks'::regclass").await, 1);
    // Triggers that are gone come again.
    there
        .run(
            "DO $$ BEGIN EXECUTE format('DROP TRIGGER %I ON app.t1', (SELECT tgname FROM pg_trigger
               WHERE tgrelid = 'app.t1'::regclass AND tgname LIKE 'rag_capture_%_insert')); END $$",
        )
        .await;
    there.run("SELECT rag.refresh('t1'); INSERT INTO app.t1 VALUES (9, 't', 'nine')").await;
    assert_current(there, &["app.t1"], "after rag.refresh").await;
    // With their schema, collections go.
    there.run("DROP SCHEMA app CASCADE").await;
    assert_eq!(there.column("SELECT source::text FROM rag.collections").await, ["zoo.last"]);
    assert_current(there, &["zoo.last"], "after DROP SCHEMA").await;
}

#[tokio::test]
async fn the_owner_of_a_database_dumps_and_restores_tables_of_its_own() {
    let zoo = Zoo::new(2).await;
    let cluster = zoo.db.cluster;
    zoo.admin.run(&format!("ALTER DATABASE {} OWNER TO {}", zoo.db.name, quote(&zoo.owner))).await;
    // What is registered is the superuser's to read.
    let output = program(cluster, "pg_dump", &zoo.owner, &zoo.db.name).output().expect("pg_dump can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && ["permission denied", "lack SELECT privilege"].iter().any(|why| said.contains(why)),
        "{said}"
    );
    let file = dump(cluster, &zoo.db.name, &zoo.owner, &["-n", "app", "-n", "zoo"]);
    let name = zoo.other("owned");
    empty(cluster, &name).await;
    zoo.admin.run(&format!("ALTER DATABASE {name} OWNER TO {}", quote(&zoo.owner))).await;
    let there = zoo.connect(&name).await;
    there.run("CREATE EXTENSION pg_ragent CASCADE").await;
    there.run(&create_server("fake", &zoo.db.provider.base_url())).await;
    let mut psql = cluster.psql_command(&name);
    let output = psql.env("PGUSER", &zoo.owner).arg("-f").arg(file.path()).output().expect("psql can be started");
    done("a restore by the owner", &output);
    drop(there);
    let owner = cluster.connect(&name, &zoo.owner).await;
    let before = zoo.embedded();
    zoo.create(&owner).await;
    assert_eq!(zoo.embedded(), before, "what the owner restored is embedded again");
    assert_current(&owner, &zoo.tables(), "a restore by the owner").await;
    drop(owner);
    zoo.admin.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
}

#[tokio::test]
async fn ddl_of_several_sessions_succeeds_and_loses_nothing() {
    let cluster = shared_cluster().await;
    let (db, admin) = Database::open().await;
    let reader = db.create_role("reader").await;
    let mut tasks = Vec::new();
    for n in 0..4 {
        let owner = db.create_role(&format!("owner{n}")).await;
        admin
            .run(&format!("CREATE SCHEMA s{n} AUTHORIZATION {}; GRANT USAGE ON SCHEMA s{n} TO PUBLIC", quote(&owner)))
            .await;
        let session = cluster.connect(&db.name, &owner).await;
        session
            .run(&format!(
                "CREATE TABLE s{n}.parts (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
                 CREATE TABLE s{n}.plain (id int PRIMARY KEY, body text);
                 SELECT rag.create_collection('parts{n}', 's{n}.parts', '{{body}}', embedding_model => 'fake/embed-8');
                 SELECT rag.create_collection('plain{n}', 's{n}.plain', '{{body}}', embedding_model => 'fake/embed-8')"
            ))
            .await;
        let reader = quote(&reader);
        tasks.push(tokio::spawn(async move {
            for i in 0..15 {
                session
                    .run(&format!(
                        "CREATE TABLE s{n}.p{i} PARTITION OF s{n}.parts FOR VALUES FROM ({i}) TO ({i} + 1);
                         INSERT INTO s{n}.parts VALUES ({i}, 'part {i}'); CREATE TABLE s{n}.t{i} (id int); DROP TABLE s{n}.t{i};
                         BEGIN; GRANT SELECT ON s{n}.parts TO PUBLIC; ALTER TABLE s{n}.plain ADD c{i} int; COMMIT;
                         GRANT SELECT ON s{n}.plain TO {reader}; REVOKE SELECT ON s{n}.plain FROM {reader}"
                    ))
                    .await;
            }
            session.run(&format!("GRANT SELECT ON s{n}.plain TO {reader}")).await;
        }));
    }
    for task in tasks {
        task.await.expect("every statement succeeds");
    }
    current(&admin).await;
    granted(&admin).await;
    for n in 0..4 {
        let chunks = format!(
            "SELECT count(*) FROM s{n}.parts{n}_chunks c JOIN s{n}.parts s USING (id) WHERE c.content = s.body"
        );
        assert_eq!(admin.number(&chunks).await, 15, "chunks of what was written meanwhile");
        let may = format!("SELECT has_table_privilege('{reader}', 's{n}.plain{n}_chunks', 'SELECT')");
        assert_eq!(admin.value(&may).await, "t", "{may}");
    }
    drop(db);
}

#[tokio::test]
async fn two_who_drop_the_tables_of_a_collection_at_once_both_succeed() {
    let (db, admin) = Database::open().await;
    for n in 0..8 {
        db.create_collection(&admin, &format!("d{n}"), &["one"]).await;
    }
    let sessions = [db.connect().await, db.connect().await];
    for n in 0..8 {
        let drops = [format!("DROP TABLE d{n}"), format!("DROP TABLE d{n}_chunks")];
        let [one, two] = &sessions;
        // The second to come may find its table gone along with the other one.
        let (one, two) = tokio::join!(one.try_rows(&drops[0]), two.try_rows(&drops[1]));
        for (result, sql) in [(one, &drops[0]), (two, &drops[1])] {
            if let Err(error) = result {
                ragent_server_tests::session::check_error(&error, sql, "42P01|XX000");
            }
        }
        let left = format!("SELECT count(*) FROM pg_class WHERE relname IN ('d{n}', 'd{n}_chunks')");
        assert_eq!(admin.number(&left).await, 0, "{n}");
    }
    assert_eq!(admin.number("SELECT count(*) FROM rag_internal.collection").await, 0);
}
