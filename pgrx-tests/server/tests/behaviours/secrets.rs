//! Keys are seen by nobody who may not see them, and only those who may can spend or configure.

use ragent_server_tests::cluster::Cluster;
use ragent_server_tests::database::{API_KEY, Database, literal, quote};
use ragent_server_tests::provider::control::FaultKind;
use ragent_server_tests::provider::counters::fingerprint;

fn bearer(key: &str) -> Option<String> {
    Some(fingerprint(&format!("Bearer {key}")))
}

#[tokio::test]
async fn only_a_role_with_usage_may_spend() {
    let (db, admin) = Database::open().await;
    admin.run("REVOKE USAGE ON FOREIGN SERVER fake FROM PUBLIC").await;
    let role = db.create_role("app").await;
    let app = db.connect_as(&role).await;
    let error = app.refusal("SELECT rag.embed('x', 'fake/embed-8')", "42501").await;
    assert!(format!("{error:?}").contains("fake"), "{error:?}");
    app.refusal("SELECT rag.ask('Who?', chat_model => 'fake/chat')", "42501").await;
    assert_eq!(db.provider.counters().embedding_requests() + db.provider.counters().chat_requests(), 0);
    admin.run(&format!("GRANT USAGE ON FOREIGN SERVER fake TO {}", quote(&role))).await;
    assert_eq!(app.value("SELECT vector_dims(rag.embed('x', 'fake/embed-8'))").await, "8");
}

#[tokio::test]
async fn a_role_with_usage_maps_a_key_of_its_own() {
    let (db, _admin) = Database::open().await;
    let role = db.create_role("app").await;
    let app = db.connect_as(&role).await;
    app.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    assert_eq!(db.provider.counters().last_authorization, bearer(API_KEY));
    app.run("CREATE USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS (api_key 'sk-own')").await;
    app.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    assert_eq!(db.provider.counters().last_authorization, bearer("sk-own"));
    app.run("ALTER USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS (SET api_key 'sk-newer')").await;
    app.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    assert_eq!(db.provider.counters().last_authorization, bearer("sk-newer"));
}

#[tokio::test]
async fn a_server_without_a_key_sends_none() {
    let (db, admin) = Database::open().await;
    admin.run("DROP USER MAPPING FOR PUBLIC SERVER fake").await;
    assert_eq!(admin.value("SELECT vector_dims(rag.embed('x', 'fake/embed-8'))").await, "8");
    assert_eq!(db.provider.counters().last_authorization, None);
}

#[tokio::test]
async fn a_key_comes_from_the_environment_or_from_a_file_if_a_superuser_says_so() {
    let cluster = Cluster::builder().environment("TEST_KEY", "sk-from-environment").start().await;
    let db = Database::in_cluster(&cluster).await;
    let admin = db.connect().await;
    admin.run("DROP USER MAPPING FOR PUBLIC SERVER fake").await;
    admin.run("ALTER SERVER fake OPTIONS (api_key_env 'TEST_KEY')").await;
    admin.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    assert_eq!(db.provider.counters().last_authorization, bearer("sk-from-environment"));
    admin.run("ALTER SERVER fake OPTIONS (SET api_key_env 'NO_SUCH_VARIABLE')").await;
    let error = admin.refusal("SELECT rag.embed('x', 'fake/embed-8')", "28000|22023|42704").await;
    assert!(error.message().contains("NO_SUCH_VARIABLE"), "{error:?}");

    let file = cluster.socket_folder().join("key");
    std::fs::write(&file, "sk-from-file\n").expect("the key file can be written");
    let path = literal(file.to_str().expect("a plain name"));
    admin.run(&format!("ALTER SERVER fake OPTIONS (DROP api_key_env, ADD api_key_file {path})")).await;
    admin.run("SELECT rag.embed('x', 'fake/embed-8')").await;
    assert_eq!(db.provider.counters().last_authorization, bearer("sk-from-file"));
    admin.run("ALTER SERVER fake OPTIONS (SET api_key_file '/no/such/file')").await;
    admin.refusal("SELECT rag.embed('x', 'fake/embed-8')", "28000|58P01|22023").await;
}

#[tokio::test]
async fn the_validator_refuses_what_is_not_an_option() {
    let (_db, admin) = Database::open().await;
    for options in [
        "bas_url 'http://x'",
        "api 'openai', base_url 'not a url'",
        "api 'openai', base_url 'ftp://x/v1'",
        "api 'openai', base_url 'file:///etc/passwd'",
        "api 'openai', base_url ''",
        "api 'openai', base_url 'http://user:secret@x/v1'",
        "api 'no-such-api', base_url 'http://x/v1'",
        "api 'openai', base_url 'http://x/v1', api_key 'sk-visible-to-all'",
        "api 'openai', base_url 'http://x/v1', timeout '0'",
        "api 'openai', base_url 'http://x/v1', timeout '-1'",
        "api 'openai', base_url 'http://x/v1', timeout 'soon'",
        "api 'openai', base_url 'http://x/v1', connect_timeout 'x'",
        "api 'openai', base_url 'http://x/v1', max_retries '-1'",
        "api 'openai', base_url 'http://x/v1', max_batch_items '0'",
        "api 'openai', base_url 'http://x/v1', max_batch_tokens '0'",
        "api 'openai', base_url 'http://x/v1', max_in_flight '0'",
        "api 'openai', base_url 'http://x/v1', max_response_bytes '0'",
        "api 'openai', base_url 'http://x/v1', send_dimensions 'perhaps'",
    ] {
        let sql = format!("CREATE SERVER bad FOREIGN DATA WRAPPER rag_provider OPTIONS ({options})");
        admin.refusal(&sql, "22023|HV00D|HV00C|HV024").await;
    }
    for options in ["password 'x'", "base_url 'http://x'", "api_key ''"] {
        let sql = format!("CREATE USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS ({options})");
        admin.refusal(&sql, "22023|HV00D|HV00C|HV024").await;
    }
    admin.refusal("ALTER FOREIGN DATA WRAPPER rag_provider OPTIONS (ADD api 'openai')", "22023|HV00D").await;
}

#[tokio::test]
async fn only_a_superuser_sets_where_requests_go_and_where_keys_come_from() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("owner").await;
    let owner = db.connect_as(&role).await;
    admin.run(&format!("GRANT USAGE ON FOREIGN DATA WRAPPER rag_provider TO {}", quote(&role))).await;
    for options in [
        "api 'openai', base_url 'http://169.254.169.254/v1'",
        "api 'openai', api_key_env 'HOME'",
        "api 'openai', api_key_file '/etc/shadow'",
    ] {
        let sql = format!("CREATE SERVER mine FOREIGN DATA WRAPPER rag_provider OPTIONS ({options})");
        owner.refusal(&sql, "42501").await;
    }
    admin.run(&format!("ALTER SERVER fake OWNER TO {}", quote(&role))).await;
    owner.refusal("ALTER SERVER fake OPTIONS (SET base_url 'http://127.0.0.1:1/v1')", "42501").await;
    for option in ["api_key_file '/etc/passwd'", "api_key_env 'HOME'"] {
        let sql = format!("CREATE USER MAPPING FOR CURRENT_USER SERVER fake OPTIONS ({option})");
        owner.refusal(&sql, "42501").await;
    }
}

#[tokio::test]
async fn a_message_never_carries_the_key_that_the_provider_repeats() {
    let (db, _admin) = Database::open().await;
    let role = db.create_role("app").await;
    let app = db.connect_as(&role).await;
    db.provider.break_down(FaultKind::Status401);
    for sql in ["SELECT rag.embed('x', 'fake/embed-8')", "SELECT rag.ask('Who?', chat_model => 'fake/chat')"] {
        let error = app.refusal(sql, "28000").await;
        assert!(error.message().contains("Incorrect API key") || format!("{error:?}").contains("Incorrect API key"));
        assert!(!format!("{error:?}").contains("sk-planted"), "{error:?}");
    }
}
