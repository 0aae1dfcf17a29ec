//! Keys, titles and contents are the same text whoever writes and reads them, and follow their columns' types.

use ragent_server_tests::database::{Database, current, granted, quote};
use ragent_server_tests::session::Session;

/// Settings of a session that decide how PostgreSQL writes values.
const ODD: &str = "SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET IntervalStyle = 'sql_standard';
    SET extra_float_digits = -5; SET bytea_output = 'escape'; SET quote_all_identifiers = on; SET search_path = elsewhere, pg_catalog";
const OTHERS: &str = "SET TimeZone = 'America/New_York'; SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'iso_8601';
    SET search_path = public, elsewhere";

const LOG: &str = "CREATE SCHEMA elsewhere; GRANT USAGE ON SCHEMA elsewhere TO PUBLIC;
    CREATE TABLE orders (id int); CREATE TYPE kind AS (name text, since date); CREATE DOMAIN day AS date;
    CREATE TABLE log (id int PRIMARY KEY, at timestamptz, day day, took interval, ratio float8, raw bytea, about regclass, span tstzrange,
                      days date[], kind kind, body text, hits int DEFAULT 0);";
const ROW: &str =
    "(1, '2024-05-01 12:00+00', '2024-05-02', '-1 day +02:00', 0.1::float8 + 0.2, '\\x01ff', 'public.orders',
    '[2024-05-01 12:00+00,)', '{2024-05-01}', ROW('pump', '2024-05-01')::public.kind, 'The pump was replaced.')";

async fn collect(session: &Session, name: &str, arguments: &str) {
    session
        .run(&format!(
            "SELECT rag.create_collection('{name}', 'public.{name}', {arguments}, embedding_model => 'fake/embed-64')"
        ))
        .await;
    current(session).await;
}

/// How many texts the provider embedded since it forgot.
fn embedded_texts(db: &Database<'_>) -> usize {
    db.provider.counters().items.iter().sum()
}

/// Row-level security that shows all, so that it decides.
async fn guard(session: &Session, table: &str, reader: &str) {
    session
        .run(&format!(
            "GRANT SELECT ON {table} TO {0}; ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
             CREATE POLICY everything ON {table} TO {0} USING (true)",
            quote(reader)
        ))
        .await;
    granted(session).await;
}

#[tokio::test]
async fn what_is_found_does_not_depend_on_the_settings_of_writer_or_reader() {
    let (db, admin) = Database::open().await;
    let reader = db.create_role("reader").await;
    let (writer, guest) = (db.connect().await, db.connect_as(&reader).await);
    admin.run(LOG).await;
    writer.run(ODD).await;
    let columns = "'{at,day,took,ratio,raw,about,span,days,kind,body}', title => 'at'";
    writer.run(&format!("INSERT INTO public.log VALUES {ROW}")).await;
    collect(&admin, "log", columns).await;
    let chunk = admin.value("SELECT content FROM log_chunks").await;
    for text in [
        "2024-05-01 12:00:00+00",
        "2024-05-02",
        "-1 days +02:00:00",
        "0.30000000000000004",
        "\\x01ff",
        "public.orders",
        "(pump,2024-05-01)",
    ] {
        assert!(chunk.contains(text), "{text} is not in {chunk}");
    }
    let found = "SELECT title FROM rag.search('pump', 'log')";
    let sessions = [&admin, &writer, &guest];
    let check = async |what: &str, sessions: &[&Session], direct: bool| {
        for settings in ["RESET ALL", ODD, OTHERS] {
            for session in sessions {
                session.run(settings).await;
                assert_eq!(session.column(found).await, ["2024-05-01 12:00:00+00"], "{what}, {settings}");
                if direct {
                    assert_eq!(session.number("SELECT count(*) FROM public.log_chunks").await, 1, "{what}, {settings}");
                }
            }
        }
    };
    admin.run(&format!("GRANT SELECT ON log TO {}", quote(&reader))).await;
    granted(&admin).await;
    check("the same version", &sessions, true).await;
    admin.run("UPDATE public.log SET hits = 1").await;
    check("after an unrelated update", &sessions, true).await;
    guard(&admin, "public.log", &reader).await;
    check("under row-level security", &sessions, true).await;
    db.provider.forget();
    // Nothing of it changed, whoever looks.
    writer
        .run(&format!(
            "{OTHERS}; UPDATE public.log SET at = at, hits = 2; UPDATE public.log SET body = 'The valve.' WHERE false"
        ))
        .await;
    admin.run("SELECT rag.refresh('log')").await;
    current(&admin).await;
    assert_eq!(embedded_texts(&db), 0);
}

#[tokio::test]
async fn keys_are_the_same_whoever_writes_and_reads_them() {
    let (db, admin) = Database::open().await;
    let reader = db.create_role("reader").await;
    let (writer, guest) = (db.connect().await, db.connect_as(&reader).await);
    admin.run(LOG).await;
    for (n, (key, values, json)) in [
        ("timestamptz", ["'2024-05-01 12:00+00'", "'2024-05-01 13:00+00'"], "2024-05-01T12:00:00+00:00"),
        ("regclass", ["'public.orders'", "'pg_class'"], "public.orders"),
        ("interval", ["interval '-1 day +02:00'", "'1 mon'"], "-1 days +02:00:00"),
        ("money", ["1.5::numeric", "2::numeric"], "$1.50"),
        ("float8", ["0.1::float8 + 0.2", "1"], "0.30000000000000004"),
        ("bytea", ["'\\x01ff'", "'\\x02'"], "\\x01ff"),
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("keyed_{n}");
        admin.run(&format!("CREATE TABLE {table} (id {key}, n int, body text, PRIMARY KEY (id, n))")).await;
        collect(&admin, &table, "'{body}'").await;
        writer
            .run(&format!(
                "{ODD}; SET IntervalStyle = 'postgres'; INSERT INTO public.{table} VALUES ({}, 1, 'the pump')",
                values[0]
            ))
            .await;
        // Many rows are captured in groups.
        writer
            .run(&format!(
                "{ODD}; INSERT INTO public.{table} SELECT {}, n, 'valve ' || n FROM generate_series(1, 60) n",
                values[1]
            ))
            .await;
        current(&admin).await;
        let failures = "SELECT concat(key, error) FROM rag.failures";
        assert_eq!(admin.column(failures).await, Vec::<String>::new(), "{key}");
        assert_eq!(admin.number(&format!("SELECT count(*) FROM {table}_chunks")).await, 61, "{key}");
        guard(&admin, &format!("public.{table}"), &reader).await;
        let found = format!("SELECT key->>'id' FROM rag.search('the pump', '{table}', 1)");
        for settings in ["RESET ALL", ODD, OTHERS] {
            for session in [&admin, &guest] {
                session.run(settings).await;
                assert_eq!(session.value(&found).await, json, "{key}, {settings}");
                assert_eq!(
                    session.number(&format!("SELECT count(*) FROM public.{table}_chunks")).await,
                    61,
                    "{key}, {settings}"
                );
            }
        }
        admin.run("RESET ALL").await;
        writer.run(&format!("{OTHERS}; DELETE FROM public.{table} WHERE n = 1")).await;
        current(&admin).await;
        assert_eq!(admin.number(&format!("SELECT count(*) FROM {table}_chunks WHERE n = 1")).await, 0, "{key}");
        admin.run(&format!("DROP TABLE {table}")).await;
    }
}

#[tokio::test]
async fn metadata_that_jsonb_cannot_hold_is_left_out_for_that_row() {
    let (db, admin) = Database::open().await;
    let reader = db.create_role("reader").await;
    admin
        .run(
            "CREATE TABLE notes (id int PRIMARY KEY, body text, attrs json, list json[], n int);
             INSERT INTO notes VALUES
                (1, 'Parcels leave our store within two days.', '{\"src\": \"web\"}', ARRAY['{\"a\": 1}']::json[], 1),
                (2, 'Parcels with a NUL.', '{\"src\": \"fax\\u0000\"}', ARRAY['\"\\u0000\"']::json[], 2),
                (3, 'Parcels with half a character.', '\"\\ud800\"', NULL, 3),
                (4, 'Parcels with a number out of range.', '[1e400000]', NULL, 4),
                (5, 'Parcels that are deep.', (repeat('[', 5000) || repeat(']', 5000))::json, NULL, 5)",
        )
        .await;
    collect(&admin, "notes", "'{body}', metadata => '{attrs,list,n}'").await;
    let found = "SELECT concat_ws(' ', key->>'id', metadata->>'attrs', metadata->>'list', metadata->>'n')
                 FROM rag.search('parcels', 'notes') WHERE key->>'id' <> '5' ORDER BY 1";
    let expected = ["1 {\"src\": \"web\"} [{\"a\": 1}] 1", "2 2", "3 3", "4 4"];
    assert_eq!(admin.column(found).await, expected);
    guard(&admin, "notes", &reader).await;
    let guest = db.connect_as(&reader).await;
    assert_eq!(guest.column(found).await, expected);
    assert_eq!(admin.number("SELECT count(*) FROM rag.search('parcels')").await, 5);
    assert!(
        admin
            .value("SELECT rag.ask('When do parcels leave?', chat_model => 'local/extractive')")
            .await
            .contains("two days")
    );
}

#[tokio::test]
async fn more_columns_than_a_function_has_arguments_work() {
    let (db, admin) = Database::open().await;
    let reader = db.create_role("reader").await;
    let guest = db.connect_as(&reader).await;
    for n in [51, 120] {
        let (table, columns) = (format!("wide{n}"), (1..=n).map(|i| format!("c{i}")).collect::<Vec<_>>().join(","));
        let definitions = columns.replace(',', " text DEFAULT 'a word', ");
        admin
            .run(&format!(
                "CREATE TABLE {table} (id int PRIMARY KEY, title text, {definitions} text DEFAULT 'the last')"
            ))
            .await;
        admin.run(&format!("INSERT INTO {table} (id, title) VALUES (1, 'wide')")).await;
        collect(&admin, &table, &format!("'{{{columns}}}', title => 'title', metadata => '{{{columns}}}'")).await;
        guard(&admin, &table, &reader).await;
        let keys = format!("SELECT count(*) FROM rag.search('last', '{table}', 1), jsonb_object_keys(metadata)");
        for session in [&admin, &guest] {
            assert_eq!(session.number(&keys).await, n);
            assert_eq!(session.number(&format!("SELECT count(*) FROM {table}_chunks")).await, 1);
        }
        admin.run(&format!("UPDATE {table} SET c{n} = 'another'")).await;
        assert_eq!(guest.number(&format!("SELECT count(*) FROM rag.search('last', '{table}', 1)")).await, 0, "{n}");
        current(&admin).await;
        assert_eq!(guest.number(&keys).await, n);
    }
}

/// The columns `id`, `title`, `body`, `link` and `extra`, embedded.
async fn articles(admin: &Session, id: &str) {
    admin
        .run(&format!(
            "CREATE TABLE articles (id {id} PRIMARY KEY, title text, body text, link text, extra int);
             INSERT INTO articles SELECT n::text::{id}, 'Article ' || n, '0' || n, 'http://' || n, n FROM generate_series(1, 5) n"
        ))
        .await;
    collect(admin, "articles", "'{body}', title => 'title', link => 'link', metadata => '{extra}'").await;
}

#[tokio::test]
async fn an_altered_type_is_followed_and_only_what_changed_is_embedded_again() {
    let (db, admin) = Database::open().await;
    let reader = db.create_role("reader").await;
    articles(&admin, "int").await;
    guard(&admin, "articles", &reader).await;
    let guest = db.connect_as(&reader).await;
    let keys = "SELECT string_agg(key->>'id', ' ' ORDER BY key->>'id') FROM rag.search('article', 'articles')";
    for (ddl, embedded) in [
        ("ALTER TABLE articles ALTER id TYPE bigint", 0),
        ("ALTER TABLE articles ALTER id TYPE text", 0),
        ("ALTER TABLE articles ALTER id TYPE varchar(20)", 0),
        ("ALTER TABLE articles ALTER id TYPE varchar(40) COLLATE \"POSIX\"", 0),
        ("ALTER TABLE articles ALTER id TYPE numeric(20) USING id::numeric", 0),
        ("ALTER TABLE articles ALTER body TYPE varchar(20), ALTER title TYPE varchar", 0),
        ("ALTER TABLE articles ALTER link TYPE varchar, ALTER extra TYPE text", 0),
        ("ALTER TABLE articles ALTER body TYPE int USING body::int", 5),
        ("ALTER TABLE articles ALTER title TYPE text USING CASE WHEN id = 3 THEN 'another' ELSE title END", 1),
    ] {
        db.provider.forget();
        admin.run(ddl).await;
        current(&admin).await;
        let problem = admin.rows("SELECT hint, last_error, failed FROM rag.status").await;
        assert_eq!(problem, [vec![None, None, Some("0".to_owned())]], "{ddl}");
        assert_eq!(embedded_texts(&db), embedded, "{ddl}");
        for session in [&admin, &guest] {
            assert_eq!(session.value(keys).await, "1 2 3 4 5", "{ddl}");
            assert_eq!(session.number("SELECT count(*) FROM articles_chunks").await, 5, "{ddl}");
        }
        admin.run("UPDATE articles SET link = link || 'x', body = body WHERE id::text = '2'").await;
    }
    admin.run("INSERT INTO articles VALUES (6, 'six', 6, '', '')").await;
    current(&admin).await;
    assert_eq!(guest.number("SELECT count(*) FROM articles_chunks").await, 6);
}

#[tokio::test]
async fn a_key_whose_chunks_cannot_follow_never_fails_the_alter() {
    let (db, admin) = Database::open().await;
    articles(&admin, "text").await;
    // What the new key is cannot be told from the old one.
    admin.run("ALTER TABLE articles ALTER id TYPE uuid USING md5(id)::uuid").await;
    let warned = admin.notices();
    let warning = warned.last().expect("a warning");
    assert!(
        warning.message().contains("does not follow") && warning.hint().unwrap_or("").contains("rag.refresh"),
        "{warning:?}"
    );
    let error = admin.refusal("SELECT * FROM rag.search('article', 'articles')", "55000").await;
    assert!(error.hint().unwrap_or("").contains("rag.refresh"), "{error:?}");
    admin.run("INSERT INTO articles VALUES (md5('x')::uuid, 'x', 'x')").await;
    admin.run("SELECT rag.refresh('articles')").await;
    current(&admin).await;
    assert_eq!(admin.number("SELECT count(*) FROM rag.search('article', 'articles')").await, 6);
    // Somebody who holds the chunk table delays nobody for long, and a later refresh keeps what is embedded.
    let holder = db.connect().await;
    holder.run("BEGIN; LOCK TABLE articles_chunks IN ACCESS SHARE MODE").await;
    admin.run("ALTER TABLE articles ALTER id TYPE text").await;
    assert!(admin.notices().last().expect("a warning").message().contains("does not follow"));
    holder.run("COMMIT").await;
    db.provider.forget();
    admin.run("SELECT rag.refresh('articles')").await;
    current(&admin).await;
    assert_eq!(embedded_texts(&db), 0);
    assert_eq!(admin.number("SELECT count(*) FROM articles_chunks").await, 6);
}

#[tokio::test]
async fn a_dropped_column_is_not_refused_and_the_collection_says_so() {
    let (db, admin) = Database::open().await;
    let reader = db.create_role("reader").await;
    articles(&admin, "int").await;
    admin.run(&format!("GRANT SELECT ON articles TO {}", quote(&reader))).await;
    granted(&admin).await;
    let guest = db.connect_as(&reader).await;
    for column in ["extra", "link", "title", "body"] {
        admin.run(&format!("BEGIN; ALTER TABLE articles DROP COLUMN {column}")).await;
        let error = admin.refusal("SAVEPOINT s; SELECT * FROM rag.search('article', 'articles')", "55000").await;
        assert!(error.message().contains(&format!("no longer has the column \"{column}\"")), "{}", error.message());
        admin.run("ROLLBACK").await;
    }
    admin.run("ALTER TABLE articles DROP COLUMN body").await;
    guest.refusal("SELECT * FROM articles_chunks", "55000").await;
    admin.run("DROP TABLE articles").await;
    assert_eq!(admin.number("SELECT count(*) FROM pg_class WHERE relname = 'articles_chunks'").await, 0);
}

#[tokio::test]
async fn what_becomes_of_a_type_is_noticed() {
    let (db, admin) = Database::open().await;
    admin
        .run(
            "CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN feeling AS mood; CREATE TYPE entry AS (what text, how feeling[]);
             CREATE TABLE diary (id int PRIMARY KEY, entry entry);
             INSERT INTO diary VALUES (1, ROW('rain', '{bad}')), (2, ROW('sun', '{good}'));
             CREATE TABLE other (id mood PRIMARY KEY, body text); INSERT INTO other VALUES ('good', 'a day');
             CREATE TABLE felt (id feeling PRIMARY KEY, body text); INSERT INTO felt VALUES ('bad', 'a night'), ('good', 'a week')",
        )
        .await;
    collect(&admin, "diary", "'{entry}'").await;
    collect(&admin, "other", "'{body}'").await;
    // PostgreSQL itself has no operator that compares values of such a key.
    collect(&admin, "felt", "'{body}'").await;
    let text = "SELECT string_agg(content, ' ' ORDER BY id) FROM diary_chunks";
    assert_eq!(admin.value(text).await, "(rain,{bad}) (sun,{good})");
    for (ddl, now, embedded) in [
        ("ALTER TYPE mood RENAME VALUE 'bad' TO 'awful'", "(rain,{awful}) (sun,{good})", 1),
        ("ALTER TYPE entry ADD ATTRIBUTE place text", "(rain,{awful},) (sun,{good},)", 2),
        ("ALTER DOMAIN feeling SET DEFAULT 'good'", "(rain,{awful},) (sun,{good},)", 0),
        ("CREATE TABLE unrelated (mood mood); ALTER TABLE unrelated ADD n int", "(rain,{awful},) (sun,{good},)", 0),
    ] {
        db.provider.forget();
        admin.run(ddl).await;
        current(&admin).await;
        assert_eq!(admin.value(text).await, now, "{ddl}");
        assert_eq!(embedded_texts(&db), embedded, "{ddl}");
    }
    assert_eq!(admin.value("SELECT key->>'id' FROM rag.search('day', 'other')").await, "good");
    assert_eq!(admin.value("SELECT key->>'id' FROM rag.search('a night', 'felt', 1)").await, "awful");
    assert_eq!(admin.number("SELECT count(*) FROM felt_chunks").await, 2);
    admin
        .run("UPDATE felt SET body = 'an evening' WHERE body = 'a night'; DELETE FROM felt WHERE body = 'a week'")
        .await;
    current(&admin).await;
    assert_eq!(admin.value("SELECT string_agg(id || content, ' ') FROM felt_chunks").await, "awfulan evening");
    assert_eq!(admin.number("SELECT count(*) FROM rag.verify('felt')").await, 0);
}

#[tokio::test]
async fn a_chunk_table_shows_many_chunks_as_it_shows_few_and_tells_nobody_more() {
    let (db, admin) = Database::open().await;
    let (reader, stranger) = (db.create_role("reader").await, db.create_role("stranger").await);
    admin
        .run(
            "CREATE TABLE docs (id int PRIMARY KEY, tenant int, body text);
             INSERT INTO docs SELECT n, n % 2, 'word ' || n FROM generate_series(1, 300) n; ANALYZE docs",
        )
        .await;
    collect(&admin, "docs", "'{body}'").await;
    admin
        .run(&format!(
            "GRANT SELECT ON docs TO {0}; ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
             CREATE POLICY own ON docs TO {0} USING (tenant = 1); GRANT SELECT ON docs_chunks TO {1}",
            quote(&reader),
            quote(&stranger)
        ))
        .await;
    granted(&admin).await;
    let (guest, other) = (db.connect_as(&reader).await, db.connect_as(&stranger).await);
    assert_eq!(guest.number("SELECT count(*) FROM docs_chunks WHERE id < 20").await, 10);
    assert_eq!(guest.number("SELECT count(*) FROM docs_chunks").await, 150);
    assert_eq!(guest.number("SELECT count(*) FROM docs_chunks WHERE id % 2 = 0").await, 0);
    // One whose row says something else by now is not shown.
    admin.run("BEGIN; UPDATE docs SET body = 'x' WHERE id = 299").await;
    assert_eq!(guest.number("SELECT count(*) FROM docs_chunks").await, 150);
    admin.run(&format!("SET LOCAL ROLE {}", quote(&reader))).await;
    assert_eq!(admin.number("SELECT count(*) FROM docs_chunks").await, 149);
    admin.run("ROLLBACK").await;
    let hash = admin.value("SELECT source_hash FROM docs_chunks WHERE id = 2").await;
    let by_hand = format!("SELECT rag_internal.shows_row('docs_chunks'::regclass, {hash}, 2)");
    assert_eq!(guest.value(&by_hand).await, "f");
    other.error(&by_hand, "42501").await;
    other.error("SELECT * FROM docs_chunks", "42501").await;
    guest.refusal(&by_hand.replace(", 2)", ", 'x')"), "22023").await;
    // A policy that reads what asks it.
    admin
        .run(&format!(
            "GRANT SELECT ON docs_chunks TO {0}; DROP POLICY own ON docs;
             CREATE POLICY own ON docs TO {0} USING (EXISTS (SELECT FROM docs_chunks c WHERE c.id = docs.id))",
            quote(&reader)
        ))
        .await;
    guest.error("SELECT count(*) FROM docs_chunks", "42P17").await;
}
