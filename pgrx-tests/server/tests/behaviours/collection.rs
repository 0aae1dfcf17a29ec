//! Any table with a primary key can be a collection, whatever its names and types.

use ragent_server_tests::cluster::SUPERUSER;
use ragent_server_tests::database::{Database, current, literal, quote, shared_cluster};
use ragent_server_tests::session::Session;

/// Types of key columns, each with values that are awkward to carry as text.
const KEY_TYPES: [(&str, &[&str]); 22] = [
    ("int", &["-1", "0", "2147483647"]),
    ("bigint", &["9007199254740993", "-9223372036854775808", "1"]),
    ("smallint", &["1", "2", "3"]),
    ("text", &["'it''s \"quoted\" \\ {x}'", "'Ünïcödé 漢字 🐘'", "''"]),
    ("varchar(20)", &["' lead'", "'trail '", "E'tab\\tnewline\\n'"]),
    ("char(6)", &["'a'", "'b '", "'abcdef'"]),
    ("name", &["'n1'", "'N 2'", "'n''3'"]),
    (
        "uuid",
        &[
            "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
            "'00000000-0000-0000-0000-000000000000'",
            "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
        ],
    ),
    ("numeric", &["123456789012345678901234567890.12345", "1.10", "-0.000000000000000001"]),
    ("float8", &["0.1::float8 + 0.2::float8", "1e-300", "'infinity'"]),
    ("boolean", &["true", "false"]),
    ("date", &["'2024-02-01'", "'0044-03-15 BC'", "'infinity'"]),
    ("timestamp", &["'2024-02-01 03:04:05.678901'", "'1999-12-31'", "'-infinity'"]),
    ("timestamptz", &["'2024-02-01 03:04:05.678901+00'", "'2024-10-27 01:30:00+02'", "'infinity'"]),
    ("time", &["'01:02:03.000004'", "'24:00'", "'00:00'"]),
    ("interval", &["'1 year 2 mons 3 days 04:05:06.7'", "'-1 day'", "'1 mon -1 day'"]),
    ("inet", &["'10.0.0.1/8'", "'::1'", "'192.168.0.1'"]),
    ("bytea", &[r"'\x00ff5c'", r"'\x'", r"'\x2720'"]),
    ("int[]", &["'{1,2}'", "'{}'", "'{{1},{2}}'"]),
    ("text[]", &[r#"'{"a,b",NULL,"q\"x"}'"#, "'{}'", "'{x}'"]),
    ("int4range", &["'[1,5)'", "'empty'", "'(,3)'"]),
    ("jsonb", &[r#"'{"a": 1}'"#, "'[null]'", "'\"text\"'"]),
];

/// Settings under which text forms of values are not what a programmer expects.
async fn make_settings_odd(admin: &Session, database: &str) {
    for (name, value) in [
        ("datestyle", "SQL, DMY"),
        ("intervalstyle", "sql_standard"),
        ("timezone", "Asia/Kolkata"),
        ("extra_float_digits", "-3"),
        ("bytea_output", "escape"),
        ("standard_conforming_strings", "on"),
        ("quote_all_identifiers", "on"),
    ] {
        admin.run(&format!("ALTER DATABASE {} SET {name} = {}", quote(database), literal(value))).await;
    }
}

#[tokio::test]
async fn a_key_may_have_any_type_under_any_settings() {
    let (db, admin) = Database::open().await;
    make_settings_odd(&admin, &db.name).await;
    drop(admin);
    // Extension and worker start over, so that the worker has the settings as well.
    let admin = db.connect().await;
    admin.run("DROP EXTENSION pg_ragent CASCADE; CREATE EXTENSION pg_ragent CASCADE").await;
    admin.run(&ragent_server_tests::database::create_server("fake", &db.provider.base_url())).await;
    for (n, (key_type, values)) in KEY_TYPES.iter().enumerate() {
        admin.run(&format!("CREATE TABLE k{n} (id {key_type} PRIMARY KEY, body text)")).await;
        for (i, value) in values.iter().enumerate() {
            admin.run(&format!("INSERT INTO k{n} VALUES ({value}, 'row number {i}')")).await;
        }
        admin
            .run(&format!(
                "SELECT rag.create_collection('k{n}', 'k{n}', '{{body}}', embedding_model => 'fake/embed-64')"
            ))
            .await;
    }
    current(&admin).await;
    for (n, (key_type, _)) in KEY_TYPES.iter().enumerate() {
        let rows = admin.number(&format!("SELECT count(*) FROM k{n}")).await;
        let joined = format!("SELECT count(*) FROM k{n} JOIN k{n}_chunks USING (id) WHERE content = body");
        assert_eq!(admin.number(&joined).await, rows, "chunks of {key_type} keys do not join their rows");
        let found = format!(
            "SELECT count(*) FROM rag.search('row number', 'k{n}') s JOIN k{n} t ON t.id = (jsonb_populate_record(NULL::k{n}, s.key)).id
              WHERE s.content = t.body"
        );
        assert_eq!(admin.number(&found).await, rows, "found keys of type {key_type} do not join their rows");
        // Capture carries keys as well.
        admin.run(&format!("UPDATE k{n} SET body = 'changed'")).await;
    }
    current(&admin).await;
    for (n, (key_type, _)) in KEY_TYPES.iter().enumerate() {
        let stale = format!(
            "SELECT count(*) FROM k{n} FULL JOIN k{n}_chunks USING (id) WHERE content IS DISTINCT FROM 'changed'"
        );
        assert_eq!(admin.number(&stale).await, 0, "stale chunks of {key_type} keys");
        admin.run(&format!("DELETE FROM k{n}")).await;
    }
    current(&admin).await;
    for (n, (key_type, _)) in KEY_TYPES.iter().enumerate() {
        assert_eq!(admin.number(&format!("SELECT count(*) FROM k{n}_chunks")).await, 0, "orphans of {key_type} keys");
    }
}

#[tokio::test]
async fn a_key_may_be_an_enum_a_domain_or_have_several_columns() {
    let (db, admin) = Database::open().await;
    admin
        .run(
            "CREATE TYPE mood AS ENUM ('ok', 'not \"ok\"'); CREATE DOMAIN sku AS text CHECK (value ~ '^[A-Z]');
             CREATE TABLE pages (mood mood, sku sku, chunk int, content text, note text,
                                 PRIMARY KEY (chunk, sku, mood));
             INSERT INTO pages VALUES ('ok', 'A', 1, 'first page'), ('not \"ok\"', 'A', 1, 'second page'),
                                      ('ok', 'B''c', 1, 'third page'), ('ok', 'A', 2, 'fourth page');
             SELECT rag.create_collection('pages', 'pages', '{content}', metadata => '{note}',
                                          embedding_model => 'fake/embed-64')",
        )
        .await;
    current(&admin).await;
    // Key columns that collide with the chunk table's own are renamed.
    let joined = "SELECT count(*) FROM pages p JOIN pages_chunks c
                    ON (c.key_chunk, c.sku, c.mood) = (p.chunk, p.sku, p.mood) AND c.content = p.content";
    assert_eq!(admin.number(joined).await, 4);
    let keys = "SELECT count(*) FROM rag.search('page', 'pages') s JOIN pages p
                  ON s.key = jsonb_build_object('chunk', p.chunk, 'sku', p.sku, 'mood', p.mood) AND s.content = p.content";
    assert_eq!(admin.number(keys).await, 4);
    admin.run("DELETE FROM pages WHERE sku = 'B''c'; UPDATE pages SET content = 'rewritten' WHERE chunk = 2").await;
    current(&admin).await;
    assert_eq!(admin.number("SELECT count(*) FROM pages_chunks").await, 3);
    assert_eq!(admin.number("SELECT count(*) FROM pages_chunks WHERE content = 'rewritten'").await, 1);
    let columns = admin.value("SELECT key_columns::text FROM rag.collections").await;
    assert_eq!(columns, "{chunk,sku,mood}");
    drop(db);
}

#[tokio::test]
async fn every_name_may_need_quotes() {
    let cluster = shared_cluster().await;
    let database = "We\"ird; Data'base";
    let role = "Ro le\"; DROP";
    let db = Database::named(cluster, database).await;
    let admin = db.connect().await;
    admin.run(&format!("DROP ROLE IF EXISTS {0}; CREATE ROLE {0} LOGIN", quote(role))).await;
    let schema = quote("My \"Schema\"");
    let table = format!("{schema}.{}", quote("Ta'ble.x; --"));
    admin.run(&format!("CREATE SCHEMA {schema} AUTHORIZATION {}", quote(role))).await;
    let owner = cluster.connect(database, role).await;
    owner
        .run(&format!(
            "CREATE TABLE {table} (\"Id Col\" int, \"k'2\" text, \"bo\"\"dy\" text, \"Ti tle\" text, \"select\" text,
                                   PRIMARY KEY (\"Id Col\", \"k'2\"));
             INSERT INTO {table} VALUES (1, 'a''b', 'a weird body', 'a weird title', 'meta')"
        ))
        .await;
    let name = "Na'me \"of\" it; --";
    let create = format!(
        "SELECT rag.create_collection({}, {}::regclass, ARRAY['bo\"dy'], title => 'Ti tle', metadata => ARRAY['select'],
                                      embedding_model => 'fake/embed-64', description => 'it''s \"odd\"')",
        literal(name),
        literal(&table)
    );
    assert_eq!(owner.value(&create).await, name);
    current(&owner).await;
    let search =
        format!("SELECT key || metadata || jsonb_build_object('t', title) FROM rag.search('weird', {})", literal(name));
    let found: serde_json::Value = serde_json::from_str(&owner.value(&search).await).expect("JSON");
    assert_eq!(found, serde_json::json!({"Id Col": 1, "k'2": "a'b", "select": "meta", "t": "a weird title"}));
    owner.run(&format!("UPDATE {table} SET \"bo\"\"dy\" = 'changed weird body'")).await;
    current(&owner).await;
    let chunks = owner.value("SELECT chunk_table::text FROM rag.collections").await;
    assert_eq!(owner.value(&format!("SELECT content FROM {chunks}")).await, "changed weird body");
    let answer = format!("SELECT rag.ask('weird body?', {}, 'fake/chat')", literal(name));
    assert!(owner.value(&answer).await.contains("changed weird body"));
    owner.run(&format!("SELECT rag.drop_collection({})", literal(name))).await;
    assert_eq!(owner.number("SELECT count(*) FROM rag.collections").await, 0);
    drop((owner, admin, db));
    cluster.connect("postgres", SUPERUSER).await.run(&format!("DROP ROLE {}", quote(role))).await;
}

#[tokio::test]
async fn what_cannot_be_a_collection_is_refused_with_a_hint() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("other").await;
    admin
        .run(
            "CREATE TABLE keyless (body text); CREATE VIEW seen AS SELECT 1 AS id, 'x'::text AS body;
             CREATE MATERIALIZED VIEW stored AS SELECT * FROM seen; CREATE SEQUENCE counting;
             CREATE TABLE good (id int PRIMARY KEY, body text, n int); CREATE INDEX good_body ON good (body);
             CREATE TEMP TABLE passing (id int PRIMARY KEY, body text);
             GRANT ALL ON good TO PUBLIC",
        )
        .await;
    let create = |arguments: &str| format!("SELECT rag.create_collection({arguments})");
    let model = "embedding_model => 'fake/embed-8'";
    for (arguments, sqlstate) in [
        (format!("'c', 'keyless', '{{body}}', {model}"), "42P16|55000|42809|22023|0A000|42704"),
        (format!("'c', 'seen', '{{body}}', {model}"), "42809|0A000"),
        (format!("'c', 'stored', '{{body}}', {model}"), "42809|0A000"),
        (format!("'c', 'counting', '{{body}}', {model}"), "42809|0A000"),
        (format!("'c', 'good_body', '{{body}}', {model}"), "42809|0A000"),
        (format!("'c', 'passing', '{{body}}', {model}"), "42809|0A000"),
        (format!("'c', 'pg_class', '{{relname}}', {model}"), "42809|42501|0A000|22023"),
        (format!("'c', 'good', '{{nothing}}', {model}"), "42703"),
        (format!("'c', 'good', '{{body,nothing}}', {model}"), "42703"),
        (format!("'c', 'good', '{{body}}', title => 'nothing', {model}"), "42703"),
        (format!("'c', 'good', '{{body}}', link => 'nothing', {model}"), "42703"),
        (format!("'c', 'good', '{{body}}', metadata => '{{nothing}}', {model}"), "42703"),
        (format!("'c', 'good', '{{}}', {model}"), "22023"),
        (format!("'c', 'good', '{{NULL}}', {model}"), "22023|22004|42703"),
        (format!("'c', 'good', NULL, {model}"), "22023|22004"),
        (format!("NULL, 'good', '{{body}}', {model}"), "22023|22004"),
        (format!("'', 'good', '{{body}}', {model}"), "22023"),
        (format!("'c', NULL, '{{body}}', {model}"), "22023|22004"),
        (format!("'c', 'good', '{{body}}', chunk_tokens => 0, {model}"), "22023"),
        (format!("'c', 'good', '{{body}}', chunk_tokens => -5, {model}"), "22023"),
        (format!("'c', 'good', '{{body}}', chunk_overlap => -1, {model}"), "22023"),
        (format!("'c', 'good', '{{body}}', chunk_tokens => 50, chunk_overlap => 50, {model}"), "22023"),
        (format!("'c', 'good', '{{body}}', dimensions => 0, {model}"), "22023"),
        (format!("'c', 'good', '{{body}}', dimensions => 100000, {model}"), "22023"),
        ("'c', 'good', '{body}', embedding_model => 'missing/embed-8'".into(), "42704"),
        ("'c', 'good', '{body}', embedding_model => 'nonsense'".into(), "22023|42704"),
        (format!("'c', 'good', '{{body}}', chunk_table => 'good', {model}"), "42P07"),
        (format!("'c', 'good', '{{body}}', chunk_table => 'no_such_schema.x', {model}"), "3F000"),
    ] {
        admin.refusal(&create(&arguments), sqlstate).await;
    }
    let other = db.connect_as(&role).await;
    other.refusal(&create(&format!("'c', 'good', '{{body}}', {model}")), "42501").await;
    admin.error(&create(&format!("'c', 'no_such_table', '{{body}}', {model}")), "42P01").await;
    assert_eq!(admin.number("SELECT count(*) FROM rag.collections").await, 0);
    assert_eq!(admin.number("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'good'::regclass").await, 0);
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let (db, admin) = Database::open().await;
    db.create_collection(&admin, "articles", &["one"]).await;
    admin.run("CREATE TABLE more (id int PRIMARY KEY, body text)").await;
    let again = "SELECT rag.create_collection('articles', 'more', '{body}', embedding_model => 'fake/embed-8')";
    let error = admin.refusal(again, "42710").await;
    assert!(error.message().contains("articles"), "{error:?}");
    // Another collection over the same table is another matter.
    let second = "SELECT rag.create_collection('titles', 'articles', '{title}', embedding_model => 'fake/embed-8')";
    assert_eq!(admin.value(second).await, "titles");
    current(&admin).await;
    assert_eq!(admin.value("SELECT content FROM titles_chunks").await, "Article 1");
    admin.run("SELECT rag.drop_collection('titles')").await;
    admin.run("UPDATE articles SET body = 'still captured'").await;
    current(&admin).await;
    assert_eq!(admin.value("SELECT content FROM articles_chunks").await, "still captured");
}

#[tokio::test]
async fn empty_rows_have_no_chunks_and_count_as_done() {
    let (db, admin) = Database::open().await;
    admin
        .run(
            "CREATE TABLE n (id int PRIMARY KEY, a text, b text);
             INSERT INTO n VALUES (1, NULL, NULL), (2, '', '  '), (3, E'\\n\\t', NULL), (4, 'only a', NULL), (5, NULL, 'only b'),
                                  (6, 'both a', 'and b');
             SELECT rag.create_collection('n', 'n', '{a,b}', embedding_model => 'fake/embed-64')",
        )
        .await;
    current(&admin).await;
    assert_eq!(admin.column("SELECT id FROM n_chunks ORDER BY id").await, ["4", "5", "6"]);
    let both = admin.value("SELECT content FROM n_chunks WHERE id = 6").await;
    assert!(both.contains("both a") && both.contains("and b"), "{both}");
    assert_eq!(
        admin.rows("SELECT rows, pending, failed FROM rag.status").await[0][1..],
        [Some("0".into()), Some("0".into())]
    );
    admin.run("UPDATE n SET a = NULL, b = ' ' WHERE id = 6").await;
    current(&admin).await;
    assert_eq!(admin.column("SELECT id FROM n_chunks ORDER BY id").await, ["4", "5"]);
    drop(db);
}

#[tokio::test]
async fn a_megabyte_of_text_becomes_many_chunks_within_the_limit() {
    let (db, admin) = Database::open().await;
    admin
        .run(
            "CREATE TABLE big (id int PRIMARY KEY, body text);
             INSERT INTO big SELECT 1, string_agg('Paragraph ' || i || repeat(' of many words', 20), E'\\n\\n')
               FROM generate_series(1, 3500) i;
             INSERT INTO big VALUES (2, repeat('unbroken', 100000));
             SELECT rag.create_collection('big', 'big', '{body}', embedding_model => 'fake/embed-64', chunk_tokens => 200)",
        )
        .await;
    assert!(admin.number("SELECT length(body) FROM big WHERE id = 1").await > 1_000_000);
    current(&admin).await;
    let chunks = admin.number("SELECT count(*) FROM big_chunks WHERE id = 1").await;
    assert!(chunks > 500, "{chunks} chunks");
    assert_eq!(admin.value("SELECT max(chunk) = count(*) AND min(chunk) = 1 FROM big_chunks WHERE id = 1").await, "t");
    assert!(admin.number("SELECT max(length(content)) FROM big_chunks").await < 5000);
    assert!(admin.number("SELECT count(*) FROM big_chunks WHERE id = 2").await > 10);
    // Nothing of the text is missing: every paragraph stands in some chunk.
    let missing = "SELECT count(*) FROM generate_series(1, 3500) i
                    WHERE NOT EXISTS (SELECT FROM big_chunks WHERE id = 1 AND content ~ ('Paragraph ' || i || ' of'))";
    assert_eq!(admin.number(missing).await, 0);
    drop(db);
}

#[tokio::test]
async fn drop_collection_leaves_nothing() {
    let (db, admin) = Database::open().await;
    let count =
        "SELECT (SELECT count(*) FROM pg_class) + (SELECT count(*) FROM pg_proc) + (SELECT count(*) FROM pg_trigger)
                      + (SELECT count(*) FROM pg_policy) + (SELECT count(*) FROM pg_type)";
    admin.run("CREATE TABLE articles (id int PRIMARY KEY, title text, body text)").await;
    admin.run("INSERT INTO articles SELECT i, 't', 'text ' || i FROM generate_series(1, 50) i").await;
    let before = admin.number(count).await;
    admin
        .run("SELECT rag.create_collection('articles', 'articles', '{body}', embedding_model => 'fake/embed-64')")
        .await;
    assert!(admin.number(count).await > before);
    // Also while the worker is busy with it.
    admin.run("SELECT rag.drop_collection('articles')").await;
    assert_eq!(admin.number(count).await, before);
    for left in ["rag.collections", "rag_internal.queue", "rag.failures", "rag.status"] {
        assert_eq!(admin.number(&format!("SELECT count(*) FROM {left}")).await, 0, "{left}");
    }
    admin.run("UPDATE articles SET body = 'x'").await;
    admin.refusal("SELECT rag.drop_collection('articles')", "42704").await;
    admin.run("SELECT rag.drop_collection('articles', if_exists => true)").await;
    admin.refusal("SELECT * FROM rag.search('x', 'articles')", "42704").await;
    admin.refusal("SELECT rag.wait_until_current('articles')", "42704").await;
    admin
        .run("SELECT rag.create_collection('articles', 'articles', '{body}', embedding_model => 'fake/embed-64')")
        .await;
    current(&admin).await;
    assert_eq!(admin.number("SELECT count(*) FROM articles_chunks").await, 50);
    drop(db);
}

#[tokio::test]
async fn only_its_owner_drops_a_collection() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("other").await;
    db.create_collection(&admin, "articles", &["one"]).await;
    admin.run("GRANT ALL ON articles TO PUBLIC").await;
    db.connect_as(&role).await.refusal("SELECT rag.drop_collection('articles')", "42501").await;
    assert_eq!(admin.number("SELECT count(*) FROM rag.collections").await, 1);
}

#[tokio::test]
async fn dropping_the_source_table_ends_the_collection() {
    let (db, admin) = Database::open().await;
    db.create_collection(&admin, "articles", &["one", "two"]).await;
    db.create_collection(&admin, "others", &["three"]).await;
    admin.run("DROP TABLE articles CASCADE").await;
    assert_eq!(admin.number("SELECT count(*) FROM rag.search('one two three')").await, 1);
    assert_eq!(admin.column("SELECT name FROM rag.collections").await, ["others"]);
    assert_eq!(admin.column("SELECT collection FROM rag.status").await, ["others"]);
    assert_eq!(admin.maybe("SELECT to_regclass('articles_chunks')").await, None);
    db.create_collection(&admin, "articles", &["again"]).await;
    assert_eq!(admin.value("SELECT content FROM rag.search('again', 'articles')").await, "again");
}

#[tokio::test]
async fn dropping_the_schema_of_a_collection_ends_it() {
    let (db, admin) = Database::open().await;
    admin
        .run(
            "CREATE SCHEMA shop; CREATE TABLE shop.goods (id int PRIMARY KEY, body text);
             INSERT INTO shop.goods VALUES (1, 'a thing');
             SELECT rag.create_collection('goods', 'shop.goods', '{body}', embedding_model => 'fake/embed-8')",
        )
        .await;
    current(&admin).await;
    assert_eq!(admin.value("SELECT chunk_table::text FROM rag.collections").await, "shop.goods_chunks");
    admin.run("DROP SCHEMA shop CASCADE").await;
    assert_eq!(admin.number("SELECT count(*) FROM rag.collections").await, 0);
    assert_eq!(admin.number("SELECT count(*) FROM rag.search('thing')").await, 0);
    drop(db);
}

#[tokio::test]
async fn renaming_follows() {
    let (db, admin) = Database::open().await;
    db.create_collection(&admin, "articles", &["one"]).await;
    admin
        .run(
            "ALTER TABLE articles RENAME TO papers; ALTER TABLE papers RENAME COLUMN body TO words;
             ALTER TABLE papers RENAME COLUMN title TO heading; CREATE SCHEMA later; ALTER TABLE papers SET SCHEMA later;
             INSERT INTO later.papers VALUES (2, 'Second', 'two')",
        )
        .await;
    current(&admin).await;
    admin.run("UPDATE later.papers SET words = 'one changed' WHERE id = 1").await;
    current(&admin).await;
    let found = "SELECT title || ': ' || content FROM rag.search('one two changed', 'articles') ORDER BY 1";
    assert_eq!(admin.column(found).await, ["Article 1: one changed", "Second: two"]);
    assert_eq!(admin.value("SELECT source::text FROM rag.collections").await, "later.papers");
}

#[tokio::test]
async fn a_new_owner_refreshes_the_collection_and_owns_what_belongs_to_it() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("heir").await;
    db.create_collection(&admin, "articles", &["one"]).await;
    admin.run(&format!("ALTER TABLE articles OWNER TO {}; GRANT CREATE ON SCHEMA public TO {0}", quote(&role))).await;
    let heir = db.connect_as(&role).await;
    heir.run("INSERT INTO articles VALUES (2, 'x', 'two')").await;
    heir.refusal("SELECT * FROM rag.search('one two', 'articles')", "55000").await;
    heir.run("SELECT rag.refresh('articles')").await;
    current(&admin).await;
    assert_eq!(heir.number("SELECT count(*) FROM rag.search('one two', 'articles')").await, 2);
    heir.run("SELECT rag.drop_collection('articles')").await;
}

#[tokio::test]
async fn a_chunk_table_has_an_index_a_policy_and_comments() {
    let (db, admin) = Database::open().await;
    db.create_collection(&admin, "articles", &["one"]).await;
    let index =
        admin.value("SELECT string_agg(indexdef, '; ') FROM pg_indexes WHERE tablename = 'articles_chunks'").await;
    assert!(index.contains("USING hnsw") && index.contains("vector_cosine_ops"), "{index}");
    assert_eq!(admin.value("SELECT relrowsecurity FROM pg_class WHERE relname = 'articles_chunks'").await, "t");
    assert!(admin.number("SELECT count(*) FROM pg_policy WHERE polrelid = 'articles_chunks'::regclass").await > 0);
    let typed = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'articles_chunks'::regclass
                    AND attname = 'embedding'";
    assert_eq!(admin.value(typed).await, "vector(384)");
    let dark =
        "SELECT string_agg(attname, ', ') FROM pg_attribute WHERE attrelid = 'articles_chunks'::regclass AND attnum > 0
                   AND col_description(attrelid, attnum) IS NULL";
    assert_eq!(admin.maybe(dark).await, None, "columns without a comment");
}

#[tokio::test]
async fn vectors_of_more_than_2000_dimensions_are_halves() {
    let (db, admin) = Database::open().await;
    admin
        .run(
            "CREATE TABLE wide (id int PRIMARY KEY, body text); INSERT INTO wide VALUES (1, 'a text'), (2, 'other words');
             SELECT rag.create_collection('wide', 'wide', '{body}', embedding_model => 'fake/embed-3072')",
        )
        .await;
    current(&admin).await;
    let typed = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'wide_chunks'::regclass
                    AND attname = 'embedding'";
    assert_eq!(admin.value(typed).await, "halfvec(3072)");
    assert_eq!(admin.value("SELECT key->>'id' FROM rag.search('a text', 'wide', 1)").await, "1");
    drop(db);
}

#[tokio::test]
async fn partitioned_tables_are_captured_in_every_part() {
    let (db, admin) = Database::open().await;
    admin
        .run(
            "CREATE TABLE events (id int, day date, body text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
             CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
             INSERT INTO events VALUES (1, '2024-05-05', 'an early event');
             SELECT rag.create_collection('events', 'events', '{body}', embedding_model => 'fake/embed-64');
             CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
             INSERT INTO events VALUES (2, '2025-05-05', 'a late event');
             INSERT INTO events_1 VALUES (3, '2024-06-06', 'written to the part itself')",
        )
        .await;
    current(&admin).await;
    assert_eq!(admin.column("SELECT id FROM events_chunks ORDER BY id").await, ["1", "2", "3"]);
    admin.run("UPDATE events SET day = '2025-07-07' WHERE id = 1; DELETE FROM events_1 WHERE id = 3").await;
    current(&admin).await;
    assert_eq!(
        admin.column("SELECT id || ' ' || day FROM events_chunks ORDER BY id").await,
        ["1 2025-07-07", "2 2025-05-05"]
    );
    drop(db);
}
