//! The hunt for a planted key: in everything that an ordinary role can read, in every error, log, dump and process title,
//! however the key came to the server and however a provider repeats it.

use std::fmt::Debug;
use std::path::Path;

use ragent_server_tests::cluster::Cluster;
use ragent_server_tests::database::{Database, current, literal, quote};
use ragent_server_tests::installation::stdout_of;
use ragent_server_tests::provider::control::FaultKind;
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::{PATIENCE, wait_for};

/// A key with all that is written differently in JSON, in a URL and in a shell; no part of it occurs by itself.
const KEY: &str = "sk-Zq7/x\"9Kf+Vw=3&pT%Hd\\8Rm'Yc2_Lg6-nB4jX5";

/// So many characters in a row of the key tell too much.
const PART: usize = 8;

/// The part of the key that a text has, in any case of letters and in any form that a provider may give it.
fn leak(text: &str) -> Option<String> {
    let text = text.to_lowercase();
    let percent = |b: u8| match b {
        b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    let in_url: String = KEY.bytes().map(percent).collect();
    let in_json = serde_json::Value::from(KEY).to_string();
    [KEY.to_owned(), in_url, in_json].iter().find_map(|form| {
        let form: Vec<char> = form.to_lowercase().chars().collect();
        // Every fourth is enough to find eleven characters in a row, and quicker in a log of many megabytes.
        form.windows(PART).step_by(PART / 2).map(String::from_iter).find(|part| text.contains(part))
    })
}

/// Checks that what `place` is about has no part of the key.
#[track_caller]
fn nothing_leaks(place: &str, said: &str) {
    if let Some(part) = leak(said) {
        let line = said.lines().find(|line| leak(line).is_some()).unwrap_or(said);
        panic!("{place} has {part:?} of the key: {line}");
    }
}

#[track_caller]
fn no_error_leaks(place: &str, error: &impl Debug) {
    // Debug output writes quotes and backslashes twice.
    nothing_leaks(place, &format!("{error:?}").replace("\\\"", "\"").replace("\\\\", "\\"));
}

/// How the key comes to the server.
#[derive(Debug, Clone, Copy)]
enum Planted {
    MappingOfPublic,
    MappingOfRole,
    Environment,
    File,
}

const PLANTED: [Planted; 4] = [Planted::MappingOfPublic, Planted::MappingOfRole, Planted::Environment, Planted::File];

/// A cluster whose environment has the key, with every tracing variable set.
async fn cluster(settings: &[(&str, &str)]) -> Cluster {
    let mut builder = Cluster::builder().environment("PLANTED_KEY", KEY);
    for (name, value) in [("RUST_BACKTRACE", "full"), ("RUST_LOG", "trace")] {
        builder = builder.environment(name, value);
    }
    for (name, value) in settings {
        builder = builder.setting(name, value);
    }
    builder.start().await
}

/// The server `planted`, of the database's provider, with the key planted for a role.
async fn plant(db: &Database<'_>, admin: &Session, how: Planted, role: &str) {
    let mapping = format!("OPTIONS (api_key {})", literal(KEY));
    let file = db.cluster.socket_folder().join("planted");
    let (options, then) = match how {
        Planted::MappingOfPublic => (String::new(), format!("CREATE USER MAPPING FOR PUBLIC SERVER planted {mapping}")),
        Planted::MappingOfRole => {
            let mappings =
                [role, "postgres"].map(|r| format!("CREATE USER MAPPING FOR {} SERVER planted {mapping}", quote(r)));
            (String::new(), mappings.join("; "))
        }
        Planted::Environment => (", api_key_env 'PLANTED_KEY'".into(), "SELECT 1".into()),
        Planted::File => {
            std::fs::write(&file, format!("{KEY}\n")).expect("the key file can be written");
            let path = literal(file.to_str().expect("a plain name"));
            (format!(", api_key_file {path}"), "SELECT 1".into())
        }
    };
    admin
        .run(&format!(
            "DROP SERVER IF EXISTS planted CASCADE;
             CREATE SERVER planted FOREIGN DATA WRAPPER rag_provider
                OPTIONS (api 'openai', base_url '{}', max_retries '0'{options});
             GRANT USAGE ON FOREIGN SERVER planted TO {}; {then}",
            db.provider.base_url(),
            quote(role)
        ))
        .await;
}

/// Looks into every relation that the session's role may read, whole rows as text, for parts of the key.
///
/// The parts stand here backwards, so that the hunt does not find itself in pg_stat_activity.
async fn hunt(session: &Session) -> Vec<String> {
    let characters: Vec<char> = KEY.to_lowercase().chars().collect();
    let parts: Vec<String> = characters
        .chunks(PART / 2)
        .zip(characters.chunks(PART / 2).skip(1))
        .map(|(a, b)| literal(&a.iter().chain(b).rev().collect::<String>()))
        .collect();
    session
        .run(&format!(
            "CREATE TEMP TABLE IF NOT EXISTS found (place text); TRUNCATE found;
             CREATE TEMP TABLE IF NOT EXISTS parts AS SELECT reverse(unnest(ARRAY[{}])) AS part;
             DO $hunt$
             DECLARE place regclass; hits bigint; looked int := 0;
             BEGIN
                FOR place IN SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                              WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND c.relname NOT IN ('found', 'parts')
                                -- The rest of it shows catalogs that are looked into by themselves, slowly.
                                AND (n.nspname <> 'information_schema' OR c.relname ~ 'foreign|mapping')
                                AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
                LOOP
                   BEGIN
                      EXECUTE format('SELECT count(*) FROM (SELECT lower(replace(t::text, ''\"\"'', ''\"'')) AS row FROM %s AS t OFFSET 0) r
                                      WHERE EXISTS (SELECT FROM parts p WHERE strpos(r.row, p.part) > 0)', place) INTO hits;
                      looked := looked + 1;
                      IF hits > 0 THEN INSERT INTO found VALUES (place::text); END IF;
                   EXCEPTION WHEN insufficient_privilege OR feature_not_supported
                               OR object_not_in_prerequisite_state OR undefined_file THEN NULL;
                   END;
                END LOOP;
                IF looked < 110 THEN RAISE EXCEPTION 'looked into % relations only', looked; END IF;
             END $hunt$",
            parts.join(", ")
        ))
        .await;
    session.column("SELECT place FROM found").await
}

/// What a person asks of a provider.
const ASKED: [&str; 2] =
    ["SELECT rag.embed('x', 'planted/embed-8')", "SELECT rag.ask('Who?', chat_model => 'planted/chat')"];

#[tokio::test]
async fn an_ordinary_role_finds_the_key_nowhere() {
    let cluster = cluster(&[]).await;
    let db = Database::in_cluster(&cluster).await;
    let admin = db.connect().await;
    let role = db.create_role("hunter").await;
    admin.run(&format!("GRANT CREATE ON SCHEMA public TO {}", quote(&role))).await;
    for (n, how) in PLANTED.into_iter().enumerate() {
        plant(&db, &admin, how, &role).await;
        let hunter = db.connect_as(&role).await;
        // Everything in which an error of a provider may end: runs, steps, errors and failures of a collection of its own.
        let model = "planted/embed-8";
        hunter
            .run(&format!(
                "CREATE TABLE notes_{n} (id int PRIMARY KEY, body text); INSERT INTO notes_{n} VALUES (1, 'The office closes.');
                 SELECT rag.create_collection('notes_{n}', 'notes_{n}', '{{body}}', embedding_model => '{model}', dimensions => 8)"
            ))
            .await;
        current(&hunter).await;
        hunter.run("SELECT rag.ask('When does the office close?', chat_model => 'planted/chat')").await;
        let body = r#"{"error": {"message": "Incorrect API key provided: KEY (KEY_URL)."}}"#;
        db.provider.break_down(FaultKind::EchoKey { status: 400, body: body.into() });
        hunter.run("SET client_min_messages = debug5").await;
        for sql in ASKED {
            let error = hunter.error(sql, "22023").await;
            no_error_leaks("an error", &error);
        }
        hunter.run("RESET client_min_messages").await;
        hunter.run(&format!("INSERT INTO notes_{n} VALUES (2, 'refused')")).await;
        let failed = format!("SELECT count(*) = 1 FROM rag.failures WHERE collection = 'notes_{n}'");
        hunter.wait_until("the row to be given up", PATIENCE, &failed).await;
        let shown = hunter.rows("SELECT * FROM rag.failures; SELECT * FROM rag.status; SELECT * FROM rag.runs").await;
        assert!(format!("{shown:?}").contains("Incorrect API key"), "{how:?}: the provider's words are shown nowhere");
        db.provider.heal();
        // While requests are under way, of the role and of the worker.
        db.provider.break_down(FaultKind::HangBeforeHeaders);
        hunter.run(&format!("INSERT INTO notes_{n} VALUES (3, 'waiting')")).await;
        let asking = db.connect_as(&role).await;
        let under_way = "SET statement_timeout = '20 s'; SELECT rag.embed('x', 'planted/embed-8')";
        let (_, (found, titles)) = tokio::join!(asking.try_rows(under_way), async {
            db.provider.wait_until("two stalled requests", PATIENCE, |c| c.stalled >= 2).await;
            let seen = (hunt(&hunter).await, process_titles(&cluster));
            db.provider.heal();
            seen
        });
        // Everybody sees a mapping of their own.
        let is_own = |place: &String| matches!(how, Planted::MappingOfRole) && place.contains("user_mapping");
        assert!(found.iter().all(is_own), "{how:?}: {found:?}");
        assert!(titles.contains("pg_ragent worker"), "no worker among the processes: {titles}");
        nothing_leaks("a process title", &titles);
        let functions = "SELECT string_agg(pg_get_functiondef(p.oid), ' ') FROM pg_proc p
                         WHERE p.pronamespace IN ('rag'::regnamespace, 'rag_internal'::regnamespace)";
        nothing_leaks("a function", &hunter.value(functions).await);
        nothing_leaks("a notice", &format!("{:?}", hunter.notices()));
        current(&hunter).await;
        // The hunt itself works: a superuser finds the key where PostgreSQL keeps it.
        let places = hunt(&admin).await;
        let is_mapped = matches!(how, Planted::MappingOfPublic | Planted::MappingOfRole);
        assert_eq!(places.iter().any(|p| p.ends_with("pg_user_mapping")), is_mapped, "{how:?}: {places:?}");
        assert!(places.iter().all(|p| p.contains("user_mapping")), "{how:?}: {places:?}");
        hunter.run(&format!("DROP TABLE notes_{n}")).await;
    }
}

/// The command lines of all processes of a cluster, as every user of the machine can read them.
fn process_titles(cluster: &Cluster) -> String {
    let pid = std::fs::read_to_string(cluster.data().join("postmaster.pid")).expect("the server runs");
    let postmaster = pid.lines().next().expect("a first line").to_owned();
    let processes = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let title = |folder: &Path| {
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().to_owned();
        (parent == postmaster).then(|| std::fs::read(folder.join("cmdline")).ok()).flatten()
    };
    let titles = processes.filter_map(|process| title(&process.path()));
    titles.map(|title| String::from_utf8_lossy(&title).replace('\0', " ")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn no_error_has_a_part_of_the_key_however_the_provider_repeats_it() {
    let cluster = cluster(&[]).await;
    let db = Database::in_cluster(&cluster).await;
    let admin = db.connect().await;
    let role = db.create_role("app").await;
    // With the key at every distance from the places where messages are cut.
    const BODIES: [&str; 12] = [
        r#"{"error": {"message": "PAD KEY_JSON and more"}}"#,
        r#"{"error": "PAD KEY_JSON"}"#,
        r#"{"detail": [{"msg": "PAD KEY_JSON"}]}"#,
        r#"{"error": {"message": "PAD KEY_URL and KEY_UPPER"}}"#,
        r#"{"error": {"message": "PAD KEY_JSON", "code": 429}, "data": 1}"#,
        "PAD KEY and more PAD",
        "<html><head><title>PAD KEY</title></head><body>PAD KEY PAD</body></html>",
        r#"{"data": [{"index": 0, "embedding": [1, "PAD KEY_JSON"]}]}"#,
        r#"{"data": [PAD KEY_JSON]}"#,
        r#"{"data": "PAD KEY_JSON"#,
        r#"{"choices": [{"message": {"tool_calls": "PAD KEY_JSON"}}]}"#,
        r#""PAD KEY_JSON""#,
    ];
    let mut said = 0;
    for (n, how) in PLANTED.into_iter().enumerate() {
        plant(&db, &admin, how, &role).await;
        let app = db.connect_as(&role).await;
        for (m, body) in BODIES.into_iter().enumerate() {
            for pad in (0..420).step_by(7).skip((n + 4 * m) % 8).step_by(8) {
                for status in [200, 400, 401] {
                    let body = body.replace("PAD", &"lorem ipsum ".repeat(40)[..pad]);
                    db.provider.fail(FaultKind::EchoKey { status, body: body.clone() }, 1);
                    let Err(error) = app.try_rows(ASKED[(pad + m) % 2]).await else { continue };
                    let error = error.as_db_error().expect("an error of the server");
                    no_error_leaks(&format!("the error of {how:?}, status {status}, body {body}"), error);
                    said += usize::from(error.message().contains("redacted"));
                }
            }
        }
    }
    assert!(said > 100, "the key was taken out of {said} errors only: this shows little");
    nothing_leaks("the log", &cluster.log().lines().filter(|l| !l.contains("USER MAPPING")).collect::<String>());
}

#[tokio::test]
async fn an_option_that_is_refused_is_not_repeated() {
    let (_db, admin) = Database::open().await;
    let key = literal(KEY);
    for sql in [
        format!("CREATE SERVER s FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url 'http://x', api_key {key})"),
        format!("CREATE SERVER s FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url 'http://x', apikey {key})"),
        format!("CREATE USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS (apikey {key})"),
        format!("CREATE USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS (password {key})"),
        format!("ALTER USER MAPPING FOR PUBLIC SERVER fake OPTIONS (ADD key {key})"),
        "CREATE SERVER s FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url 'http://u:sk-Zq7xq9Kf4@x/v1')".into(),
    ] {
        let error = admin.refusal(&sql, "22023|HV00D|HV00C|HV024").await;
        no_error_leaks(&sql, &error);
        assert!(!format!("{error:?}").contains("sk-Zq7"), "{sql}: {error:?}");
    }
}

#[tokio::test]
async fn a_dump_by_an_ordinary_role_does_not_have_the_key() {
    let cluster = cluster(&[]).await;
    let db = Database::in_cluster(&cluster).await;
    let admin = db.connect().await;
    let role = db.create_role("dumper").await;
    db.create_collection(&admin, "articles", &["The office closes at six."]).await;
    admin.run(&format!("GRANT SELECT ON ALL TABLES IN SCHEMA public TO {}", quote(&role))).await;
    for how in PLANTED {
        plant(&db, &admin, how, &role).await;
        let mut dump = db.cluster.installation.program("pg_dump");
        dump.args(["--exclude-table-data=*", "-U", &role, "-h"]).arg(db.cluster.socket_folder()).arg(&db.name);
        let output = dump.output().expect("pg_dump can be started");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        nothing_leaks(&format!("a dump, {how:?}"), &said);
    }
    let mut dump = db.cluster.installation.program("pg_dump");
    dump.args(["--enable-row-security", "-n", "public", "-U", &role, "-h"])
        .arg(db.cluster.socket_folder())
        .arg(&db.name);
    let public = stdout_of("pg_dump of the public schema", dump.output().expect("pg_dump can be started"));
    assert!(public.contains("CREATE TABLE public.articles"), "{public}");
    nothing_leaks("a dump of the public schema", &public);
}

#[tokio::test]
async fn the_log_does_not_have_the_key_even_when_it_has_everything() {
    let major = ragent_server_tests::installation::Installation::find().major;
    let destinations = if major < 15 { "csvlog" } else { "csvlog, jsonlog" };
    let cluster = cluster(&[
        ("logging_collector", "on"),
        ("log_directory", "log"),
        ("log_filename", "all"),
        ("log_destination", &format!("stderr, {destinations}")),
        ("log_error_verbosity", "verbose"),
        ("log_statement", "none"),
    ])
    .await;
    let db = Database::in_cluster(&cluster).await;
    let admin = db.connect().await;
    let role = db.create_role("app").await;
    // Not from the start: the postmaster would log its environment.
    let everything = [("log_min_messages", "debug5"), ("log_min_error_statement", "debug5")];
    everything.iter().for_each(|(name, value)| cluster.set(name, value));
    cluster.reload();
    let is_set = "SELECT current_setting('log_min_messages') = 'debug5'";
    admin.wait_until("the reload", PATIENCE, is_set).await;
    for how in PLANTED {
        // A session that sets a key sees to it that the statement is not logged, as the guide says.
        admin.run("SET log_min_messages = warning; SET log_min_error_statement = panic").await;
        plant(&db, &admin, how, &role).await;
        admin.run("RESET log_min_messages; RESET log_min_error_statement").await;
        let app = db.connect_as(&role).await;
        app.run("SELECT rag.embed('x', 'planted/embed-8')").await;
        for body in [r#"{"error": {"message": "bad key KEY_JSON"}}"#, "<p>KEY", r#"{"data": "KEY_JSON"#] {
            for status in [200, 401, 403] {
                for sql in ASKED {
                    db.provider.fail(FaultKind::EchoKey { status, body: body.into() }, 1);
                    app.error(sql, "08P01|28000").await;
                }
            }
        }
        // The worker meets one, too, and reports it.
        let body = r#"{"error": {"message": "bad key KEY"}}"#;
        db.provider.break_down(FaultKind::EchoKey { status: 400, body: body.into() });
        admin
            .run(
                "CREATE TABLE notes (id int PRIMARY KEY, body text); INSERT INTO notes VALUES (1, 'refused');
                 SELECT rag.create_collection('notes', 'notes', '{body}', embedding_model => 'planted/embed-8', dimensions => 8)",
            )
            .await;
        admin.wait_until("the row to be given up", PATIENCE, "SELECT count(*) = 1 FROM rag.failures").await;
        db.provider.heal();
        admin.run("DROP TABLE notes").await;
    }
    let logs = || {
        let files = std::fs::read_dir(cluster.data().join("log")).expect("the collector's folder").flatten();
        let text = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        files.map(|file| (file.path(), text(&file.path()))).collect::<Vec<_>>()
    };
    admin.run("DO $$ BEGIN RAISE LOG 'the end of it'; END $$").await;
    wait_for("the collector to write", PATIENCE, || async {
        logs().iter().all(|(_, text)| text.contains("the end of it")).then_some(())
    })
    .await;
    let logs = logs();
    assert_eq!(logs.len(), 3, "stderr, CSV and JSON: {:?}", logs.iter().map(|(path, _)| path).collect::<Vec<_>>());
    for (path, text) in logs {
        assert!(text.contains("DEBUG") && text.contains("planted"), "{} does not have everything", path.display());
        nothing_leaks(&path.display().to_string(), &text);
    }
    nothing_leaks("the log before the collector", &cluster.log());
}

#[tokio::test]
async fn a_model_that_says_the_key_is_not_heard() {
    let cluster = cluster(&[]).await;
    let db = Database::in_cluster(&cluster).await;
    let admin = db.connect().await;
    let role = db.create_role("app").await;
    plant(&db, &admin, PLANTED[0], &role).await;
    let app = db.connect_as(&role).await;
    let body = r#"{"choices": [{"message": {"role": "assistant", "content": "Your key is KEY_JSON."}}]}"#;
    for _ in 0..3 {
        db.provider.fail(FaultKind::EchoKey { status: 200, body: body.to_owned() }, 1);
    }
    let answer = app.value("SELECT rag.ask('hello', chat_model => 'fake/chat')").await;
    assert!(answer.contains("Your key is [redacted]."), "{answer}");
    for kept in ["SELECT string_agg(r::text, ' ') FROM rag.runs r", "SELECT string_agg(s::text, ' ') FROM rag.steps s"]
    {
        nothing_leaks(kept, &app.value(kept).await);
    }
}
