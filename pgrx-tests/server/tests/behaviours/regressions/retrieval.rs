//! What was shown to those who may not see it, or not shown to those who may.

use ragent_server_tests::database::{API_KEY, Database, create_server, current, granted, quote};
use ragent_server_tests::provider::FakeProvider;
use ragent_server_tests::provider::control::FaultKind;

use super::{collect, collect_with, make, warnings};

#[tokio::test]
async fn the_old_text_of_a_changed_row_is_not_shown_while_the_new_one_waits() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("reader").await;
    admin
        .run(&format!(
            "CREATE TABLE notes (id int PRIMARY KEY, body text, open boolean);
             INSERT INTO notes VALUES (1, 'the code is 4711', false), (2, 'the tea is ready', true), (3, 'the code is 4712', false);
             GRANT SELECT ON notes TO {}; ALTER TABLE notes ENABLE ROW LEVEL SECURITY; CREATE POLICY open ON notes USING (open)",
            quote(&role)
        ))
        .await;
    collect(&admin, "notes").await;
    current(&admin).await;
    let reader = db.connect_as(&role).await;
    db.provider.fail_at(
        ragent_server_tests::provider::control::Endpoint::Embeddings,
        FaultKind::RejectTextContaining { text: "redacted".into() },
        u64::MAX,
    );
    admin
        .run(
            "BEGIN; UPDATE notes SET body = 'redacted', open = true WHERE id = 1;
             DELETE FROM notes WHERE id = 3; INSERT INTO notes VALUES (3, 'redacted too', true)",
        )
        .await;
    let found = "SELECT string_agg(content, '; ') FROM rag.search('code tea', 'notes')";
    let chunks = "SELECT string_agg(content, '; ') FROM notes_chunks";
    // The owner's own look, within the transaction; a superuser is not under policies, but the text is out of date.
    assert_eq!(admin.value(found).await, "the tea is ready");
    admin.run("COMMIT").await;
    for sql in [found, chunks] {
        assert_eq!(reader.value(sql).await, "the tea is ready", "{sql}");
    }
    let everywhere = "SELECT string_agg(content, '; ') FROM rag.search('code tea')";
    assert_eq!(reader.value(everywhere).await, "the tea is ready");
    let answer = reader.value("SELECT rag.ask('the code?', chat_model => 'fake/chat')").await;
    assert!(!answer.contains("471"), "{answer}");
    db.provider.heal();
    admin.run("UPDATE notes SET body = 'published' WHERE id = 1; DELETE FROM notes WHERE id = 3").await;
    current(&admin).await;
    assert_eq!(reader.number("SELECT count(*) FROM notes_chunks").await, 2);
}

#[tokio::test]
async fn a_metadata_or_counter_change_hides_nothing() {
    let (_db, admin) = Database::open().await;
    admin
        .run("CREATE TABLE notes (id int PRIMARY KEY, body text, views int); INSERT INTO notes VALUES (1, 'one', 0)")
        .await;
    collect(&admin, "notes").await;
    current(&admin).await;
    admin.run("BEGIN; UPDATE notes SET views = 1").await;
    assert_eq!(admin.number("SELECT count(*) FROM rag.search('one', 'notes')").await, 1);
    assert_eq!(admin.number("SELECT count(*) FROM notes_chunks").await, 1);
    admin.run("COMMIT").await;
}

#[tokio::test]
async fn bypassing_policies_is_no_grant() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("backup").await;
    make(&admin, "notes").await;
    current(&admin).await;
    admin.run(&format!("ALTER ROLE {} BYPASSRLS", quote(&role))).await;
    let backup = db.connect_as(&role).await;
    backup.error("SELECT * FROM notes_chunks", "42501").await;
    backup.refusal("SELECT * FROM rag.search('one', 'notes')", "42501").await;
    admin.run(&format!("GRANT SELECT ON notes TO {}", quote(&role))).await;
    crate::dumps::followed(&admin).await;
    assert_eq!(backup.number("SELECT count(*) FROM notes_chunks").await, 2);
    admin.run(&format!("REVOKE SELECT ON notes FROM {}", quote(&role))).await;
    backup.error("SELECT * FROM notes_chunks", "42501").await;
}

#[tokio::test]
async fn grants_on_the_source_are_followed_by_the_chunk_table() {
    let (db, admin) = Database::open().await;
    let (owner, reader) = (db.create_role("owner").await, db.create_role("reader").await);
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {}", quote(&owner))).await;
    let owner = db.connect_as(&owner).await;
    make(&owner, "notes").await;
    current(&owner).await;
    let role = quote(&reader);
    let reader = db.connect_as(&reader).await;
    let count = "SELECT count(*) FROM notes_chunks";
    for (grant, revoke) in [
        (format!("GRANT SELECT ON notes TO {role}"), format!("REVOKE SELECT ON notes FROM {role}")),
        (format!("GRANT ALL ON notes TO {role}"), format!("REVOKE ALL ON notes FROM {role}")),
        ("GRANT SELECT ON notes TO PUBLIC".into(), "REVOKE SELECT ON notes FROM PUBLIC".into()),
        (
            format!("GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"),
            format!("REVOKE SELECT ON ALL TABLES IN SCHEMA public FROM {role}"),
        ),
        (format!("GRANT SELECT (id, body) ON notes TO {role}"), format!("REVOKE SELECT (body) ON notes FROM {role}")),
    ] {
        reader.error(count, "42501").await;
        owner.run(&grant).await;
        granted(&admin).await;
        assert_eq!(reader.number(count).await, 2, "{grant}");
        // The policy refuses at once, the privilege follows.
        owner.run(&revoke).await;
    }
    reader.error(count, "42501").await;
    granted(&admin).await;
    reader.error(count, "42501").await;
}

#[tokio::test]
async fn columns_that_were_granted_are_searched_under_policies() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("reader").await;
    admin
        .run(&format!(
            "CREATE TABLE notes (id int PRIMARY KEY, body text, tenant int, secret text);
             INSERT INTO notes SELECT i, 'note ' || i, i % 2, 'x' FROM generate_series(1, 6) i;
             ALTER TABLE notes ENABLE ROW LEVEL SECURITY; CREATE POLICY odd ON notes USING (tenant = 1);
             GRANT SELECT (id, body) ON notes TO {}",
            quote(&role)
        ))
        .await;
    collect(&admin, "notes").await;
    current(&admin).await;
    let reader = db.connect_as(&role).await;
    reader.error("SELECT * FROM notes", "42501").await;
    assert_eq!(reader.column("SELECT id FROM notes ORDER BY 1").await, ["1", "3", "5"]);
    assert_eq!(reader.column("SELECT id FROM notes_chunks ORDER BY 1").await, ["1", "3", "5"]);
    assert_eq!(reader.column("SELECT key->>'id' FROM rag.search('note', 'notes') ORDER BY 1").await, ["1", "3", "5"]);
    admin.run("UPDATE notes SET tenant = 0 WHERE id = 5").await;
    assert_eq!(reader.column("SELECT key->>'id' FROM rag.search('note') ORDER BY 1").await, ["1", "3"]);
}

#[tokio::test]
async fn a_leaky_function_sees_nothing_of_hidden_collections() {
    let (db, admin) = Database::open().await;
    let (owner, spy) = (db.create_role("owner").await, db.create_role("spy").await);
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {}, {}", quote(&owner), quote(&spy))).await;
    let owner = db.connect_as(&owner).await;
    owner.run("CREATE TABLE hidden (id int PRIMARY KEY, body text); INSERT INTO hidden VALUES (1, 'poison')").await;
    db.provider.break_down(FaultKind::RejectTextContaining { text: "poison".into() });
    collect(&owner, "hidden").await;
    owner
        .wait_until("the parked row", ragent_server_tests::wait::PATIENCE, "SELECT count(*) = 1 FROM rag.failures")
        .await;
    let spy = db.connect_as(&spy).await;
    spy.run(
        "CREATE FUNCTION leak(anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS
            $$ BEGIN RAISE NOTICE 'leaked %', $1; RETURN true; END $$",
    )
    .await;
    for view in ["rag.collections", "rag.status", "rag.failures"] {
        let whole = format!("SELECT * FROM {view} v WHERE leak(v::text)");
        assert_eq!(spy.rows(&whole).await, Vec::<Vec<_>>::new());
        let column = if view == "rag.collections" { "name" } else { "collection" };
        assert_eq!(spy.rows(&format!("SELECT * FROM {view} WHERE leak({column})")).await, Vec::<Vec<_>>::new());
        assert!(spy.notices().iter().all(|n| !n.message().contains("hidden")), "{view}: {:?}", spy.notices());
    }
    // The function does tell what it sees.
    spy.run("SELECT leak('x'::text)").await;
    assert!(spy.notices().iter().any(|n| n.message().contains("leaked x")));
}

#[tokio::test]
async fn a_collection_that_cannot_be_searched_is_left_out_with_a_warning() {
    let (db, admin) = Database::open().await;
    make(&admin, "good").await;
    admin
        .run("CREATE TABLE broken (id int PRIMARY KEY, body text, label text); INSERT INTO broken VALUES (1, 'broken', 'x')")
        .await;
    admin
        .run(
            "SELECT rag.create_collection('broken', 'broken', '{body}', metadata => '{label}',
                                          embedding_model => 'fake/embed-64')",
        )
        .await;
    let other = FakeProvider::start();
    admin.run(&create_server("other", &other.base_url())).await;
    admin.run("CREATE TABLE remote (id int PRIMARY KEY, body text); INSERT INTO remote VALUES (1, 'remote')").await;
    collect_with(&admin, "remote", "other/embed-8").await;
    current(&admin).await;
    let role = db.create_role("reader").await;
    admin.run(&format!("GRANT SELECT ON ALL TABLES IN SCHEMA public TO {}", quote(&role))).await;
    let search = "SELECT DISTINCT collection FROM rag.search('good broken remote') ORDER BY 1";
    assert_eq!(admin.column(search).await, ["broken", "good", "remote"]);
    // Its label column goes, then its reader's right to use the server, then the server.
    admin.run("ALTER TABLE broken RENAME label TO tag; ALTER TABLE broken DROP COLUMN tag").await;
    let reader = db.connect_as(&role).await;
    for (change, expected, named) in [
        ("SELECT 1", vec!["good", "remote"], "broken"),
        ("REVOKE USAGE ON FOREIGN SERVER other FROM PUBLIC", vec!["good"], "other"),
        ("DROP SERVER other CASCADE", vec!["good"], "other"),
    ] {
        admin.run(change).await;
        let before = warnings(&reader).len();
        assert_eq!(reader.column(search).await, expected, "{change}");
        let told = warnings(&reader)[before..].join("\n");
        assert!(told.contains(named), "no warning about {named} after {change}: {told}");
        assert!(!told.contains(API_KEY));
        let answer = reader.value("SELECT rag.ask('good one?', chat_model => 'fake/chat')").await;
        assert!(answer.contains("good"), "{change}: {answer}");
    }
    // Asked for by name, it is an error.
    reader.refusal("SELECT * FROM rag.search('x', 'broken')", "55000").await;
    reader.refusal("SELECT * FROM rag.search('x', 'remote')", "42704").await;
    // Where nothing is left, the error is told.
    admin.run("DROP TABLE good, broken").await;
    reader.refusal("SELECT * FROM rag.search('x')", "42704").await;
}

#[tokio::test]
async fn messages_are_ascii() {
    let (_db, admin) = Database::open().await;
    make(&admin, "notes").await;
    admin.run("SET client_encoding = 'latin1'").await;
    for sql in [
        "SELECT rag.ask('x', NULL, 'nope/x')",
        "SELECT rag.embed('x', 'nope/x')",
        "SELECT rag.embed('x', 'nonsense')",
        "SELECT rag.embed('x', 'local/none')",
        "SELECT rag.embed(repeat(' ', 9))",
        "SELECT * FROM rag.search('x', 'none')",
        "SELECT * FROM rag.search('x', k => 0)",
        "SELECT rag.create_collection('c', 'rag.collections', '{name}')",
        "SELECT rag.create_collection('notes', 'notes', '{body}')",
        "SELECT rag.create_collection('c', 'notes', '{nothing}')",
        "SELECT rag.create_collection('c', 'notes', '{body}', chunk_table => 'rag.c')",
        "CREATE SERVER x FOREIGN DATA WRAPPER rag_provider",
        "CREATE SERVER x FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai')",
        "CREATE SERVER x FOREIGN DATA WRAPPER rag_provider OPTIONS (nonsense 'x')",
    ] {
        let Err(error) = admin.try_rows(sql).await else { panic!("{sql} should fail") };
        let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error:?}"));
        assert_ne!(error.code().code(), "22P05", "{sql}: {}", error.message());
        assert!(format!("{error:?}").is_ascii(), "{sql}: {error:?}");
    }
    admin.run("RESET client_encoding").await;
    let comments = "SELECT string_agg(description, E'\\n') FROM pg_description d
        WHERE description ~ '[^\\u0001-\\u007f]'
          AND (d.objoid, d.classoid) IN (SELECT objid, classid FROM pg_depend
                                          WHERE refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_ragent'))";
    assert_eq!(admin.maybe(comments).await, None, "comments that are not ASCII");
    let bodies = "SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = 'rag'::regnamespace AND prosrc ~ '[^\\u0001-\\u007f]'";
    assert_eq!(admin.maybe(bodies).await, None);
}

#[tokio::test]
async fn a_server_option_that_is_refused_is_not_repeated() {
    let (_db, admin) = Database::open().await;
    for options in [
        "api 'openai', base_url 'https://user:PLANTED@host/v1'",
        "api 'openai', base_url 'https://host/v1?key=PLANTED'",
        "api 'openai', base_url 'PLANTED'",
        "api 'openai', base_url 'http://host/v1', api_key_env 'sk-PLANTED'",
        "api 'openai', base_url 'http://host/v1', api_key_file 'sk-PLANTED'",
        "api 'openai', base_url 'http://host/v1', api_key 'sk-PLANTED'",
    ] {
        let sql = format!("CREATE SERVER x FOREIGN DATA WRAPPER rag_provider OPTIONS ({options})");
        let error = admin.refusal(&sql, "22023|HV00D").await;
        assert!(!format!("{error:?}").contains("PLANTED"), "{error:?}");
    }
    let sql = "CREATE USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS (api_key E'sk-PLANTED\\n')";
    let error = admin.refusal(sql, "22023").await;
    assert!(!format!("{error:?}").contains("PLANTED"), "{error:?}");
}

#[tokio::test]
async fn a_servers_owner_changes_what_needs_no_superuser() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("owner").await;
    admin
        .run(&format!(
            "ALTER SERVER fake OWNER TO {}; CREATE SERVER second FOREIGN DATA WRAPPER rag_provider
                OPTIONS (api 'openai', base_url 'http://127.0.0.1:2/v1')",
            quote(&role)
        ))
        .await;
    let owner = db.connect_as(&role).await;
    owner.run("ALTER SERVER fake OPTIONS (ADD timeout '7')").await;
    owner.run("ALTER SERVER fake OPTIONS (SET timeout '9', ADD max_retries '1'); ALTER SERVER fake OPTIONS (DROP timeout)").await;
    assert_eq!(owner.number("SELECT vector_dims(rag.embed('x', 'fake/embed-8'))").await, 8);
    // Nor does that let it point elsewhere, be it to where another server points.
    owner.refusal("ALTER SERVER fake OPTIONS (SET base_url 'http://127.0.0.1:1/v1')", "42501").await;
    owner.refusal("ALTER SERVER fake OPTIONS (SET base_url 'http://127.0.0.1:2/v1')", "42501").await;
    owner.refusal("ALTER SERVER fake OPTIONS (ADD api_key_file '/etc/hostname')", "42501").await;
}

#[tokio::test]
async fn more_columns_than_a_function_takes_arguments_are_content_and_metadata() {
    let (_db, admin) = Database::open().await;
    admin
        .run(
            "DO $$ BEGIN
                EXECUTE 'CREATE TABLE wide (id int PRIMARY KEY, '
                    || (SELECT string_agg(format('c%s text, m%1$s int', i), ', ') FROM generate_series(1, 130) i) || ')';
             END $$;
             INSERT INTO wide (id, c1, c130, m1, m130) VALUES (1, 'first', 'last', 1, 130);
             SELECT rag.create_collection('wide', 'wide', (SELECT array_agg('c' || i ORDER BY i) FROM generate_series(1, 130) i),
                 metadata => (SELECT array_agg('m' || i ORDER BY i) FROM generate_series(1, 130) i),
                 embedding_model => 'fake/embed-64')",
        )
        .await;
    current(&admin).await;
    let found = "SELECT concat_ws(' ', metadata->>'m1', metadata->>'m130', metadata ? 'm77', content LIKE 'first%last')
                   FROM rag.search('first last', 'wide')";
    assert_eq!(admin.value(found).await, "1 130 t t");
    admin.run("UPDATE wide SET c77 = 'middle'").await;
    current(&admin).await;
    assert_eq!(
        admin.number("SELECT count(*) FROM rag.search('middle', 'wide') WHERE content LIKE '%middle%'").await,
        1
    );
}
