//! `rag.ask` and `rag.answer`: the loop, its caps, its citations and its records.

use ragent_server_tests::database::{Database, current, quote};
use ragent_server_tests::installation::stdout_of;
use ragent_server_tests::provider::control::{Endpoint, FaultKind, ScriptedCall, ScriptedReply};
use ragent_server_tests::session::Session;
use serde_json::{Value, json};

const BODIES: [&str; 4] = [
    "The office closes at six in the evening.",
    "Employees receive thirty vacation days a year.",
    "The kitchen is cleaned every Friday.",
    "Parking permits are issued by the reception.",
];

async fn open() -> (Database<'static>, Session) {
    let (db, session) = Database::open().await;
    db.create_collection(&session, "handbook", &BODIES).await;
    db.provider.forget();
    (db, session)
}

/// All columns of `rag.answer` as JSON.
async fn answer(session: &Session, question: &str, model: &str) -> Value {
    let sql = format!("SELECT to_jsonb(a) FROM rag.answer('{question}', chat_model => '{model}') a");
    serde_json::from_str(&session.value(&sql).await).expect("JSON")
}

fn calls(queries: &[&str]) -> ScriptedReply {
    let call = |q: &&str| ScriptedCall { name: None, arguments: json!({"query": q}).to_string() };
    ScriptedReply { tool_calls: queries.iter().map(call).collect(), ..ScriptedReply::default() }
}

fn says(text: &str) -> ScriptedReply {
    ScriptedReply { content: Some(text.into()), ..ScriptedReply::default() }
}

/// Every citation is a row of the source, with its text.
async fn expect_citations_join(session: &Session, run: &Value, least: usize) {
    let citations = run["citations"].as_array().expect("an array");
    assert!(citations.len() >= least, "{run}");
    let text = run["answer"].as_str().expect("text");
    for citation in citations {
        assert!(text.contains(&format!("[{}]", citation["marker"])), "{run}");
        let joined = format!(
            "SELECT count(*) FROM handbook h JOIN handbook_chunks c USING (id)
              WHERE h.id = {} AND c.chunk = {} AND strpos(c.content, $q${}$q$) > 0 AND h.title = $q${}$q$",
            citation["key"]["id"],
            citation["chunk"],
            citation["quote"].as_str().expect("a quote").trim_end_matches('…'),
            citation["title"].as_str().expect("a title"),
        );
        assert_eq!(session.number(&joined).await, 1, "{citation} joins no chunk");
        assert_eq!(citation["collection"], "handbook");
    }
}

#[tokio::test]
async fn a_chat_model_searches_and_answers_with_citations_that_join_back() {
    let (db, session) = open().await;
    let run = answer(&session, "How many vacation days do employees receive?", "fake/chat").await;
    assert!(run["answer"].as_str().is_some_and(|a| a.contains("thirty vacation days") && a.contains("[1]")), "{run}");
    expect_citations_join(&session, &run, 1).await;
    assert_eq!(run["citations"][0]["key"], json!({"id": 2}));
    for (name, value) in [
        ("decision", json!("used_search")),
        ("outcome", json!("answered")),
        ("stop_reason", json!("answered")),
        ("searches", json!(1)),
        ("rounds", json!(1)),
        ("model", json!("fake/chat")),
    ] {
        assert_eq!(run[name], value, "{name} of {run}");
    }
    assert!(run["input_tokens"].as_i64() > Some(0) && run["output_tokens"].as_i64() > Some(0), "{run}");
    assert!(run["latency_ms"].as_f64() > Some(0.0), "{run}");
    assert_eq!(db.provider.counters().chat_requests(), 2);
    assert_eq!(db.provider.counters().embedding_requests(), 1);
}

#[tokio::test]
async fn ask_gives_the_answer_and_its_sources_as_text() {
    let (_db, session) = open().await;
    let text = session.value("SELECT rag.ask('When does the office close?', chat_model => 'fake/chat')").await;
    let (answer, sources) = text.split_once("Sources:").expect("a list of sources");
    assert!(answer.contains("six in the evening") && answer.contains("[1]"), "{text}");
    assert!(sources.contains("[1]") && sources.contains("Article 1") && sources.contains("handbook"), "{text}");
}

#[tokio::test]
async fn the_keyless_model_answers_and_says_when_it_does_not_know() {
    let (_db, session) = open().await;
    let run = answer(&session, "How many vacation days do employees receive?", "local/extractive").await;
    assert!(run["answer"].as_str().is_some_and(|a| a.contains("thirty vacation days")), "{run}");
    assert_eq!((&run["decision"], &run["outcome"]), (&json!("used_search"), &json!("answered")));
    expect_citations_join(&session, &run, 1).await;
    let run = answer(&session, "Which planet has the most moons?", "local/extractive").await;
    assert_eq!(run["outcome"], "unknown", "{run}");
    assert_eq!(run["citations"], json!([]), "{run}");
    let same = answer(&session, "How many vacation days do employees receive?", "local/extractive").await;
    let again = answer(&session, "How many vacation days do employees receive?", "local/extractive").await;
    assert_eq!((&same["answer"], &same["citations"]), (&again["answer"], &again["citations"]), "it is deterministic");
}

#[tokio::test]
async fn a_model_that_never_stops_is_stopped() {
    let (db, session) = open().await;
    let run = answer(&session, "When does the office close?", "fake/chat-never-stops").await;
    let (searches, rounds) = (run["searches"].as_i64(), run["rounds"].as_i64());
    assert!(searches <= Some(6) && rounds <= Some(3), "{run}");
    assert!(searches >= Some(1), "{run}");
    assert_ne!(run["stop_reason"], "answered", "{run}");
    assert!(run["answer"].as_str().is_some_and(|a| !a.is_empty()), "{run}");
    assert!(db.provider.counters().chat_requests() <= 5, "{:?}", db.provider.counters());
    assert!(db.provider.counters().embedding_requests() <= 6);
    // The last request offers no tool, or forbids it.
    let requests = db.provider.chat_requests();
    let last = requests.last().expect("a request");
    assert!(last["tool_choice"] == "none" || last["tools"].is_null(), "{last}");
}

#[tokio::test]
async fn broken_json_and_unknown_tools_are_told_to_the_model_and_not_to_the_user() {
    for model in ["fake/chat-broken-json", "fake/chat-unknown-tool"] {
        let (db, session) = open().await;
        let run = answer(&session, "When does the office close?", model).await;
        assert_eq!((&run["outcome"], &run["searches"]), (&json!("unknown"), &json!(0)), "{run}");
        let requests = db.provider.chat_requests();
        let told = requests.iter().flat_map(|r| r["messages"].as_array().cloned().unwrap_or_default());
        let told: Vec<Value> = told.filter(|m| m["role"] == "tool").collect();
        assert!(told.iter().any(|m| m["content"].as_str().is_some_and(|c| c.contains("error"))), "{told:?}");
    }
}

#[tokio::test]
async fn a_greeting_needs_no_search() {
    let (db, session) = open().await;
    let run = answer(&session, "Hello!", "fake/chat-no-search").await;
    assert_eq!(
        (&run["decision"], &run["searches"], &run["rounds"]),
        (&json!("skipped_search"), &json!(0), &json!(0)),
        "{run}"
    );
    assert_eq!(db.provider.counters().embedding_requests(), 0);
}

#[tokio::test]
async fn a_citation_of_something_that_was_not_retrieved_is_removed() {
    let (_db, session) = open().await;
    let run = answer(&session, "When does the office close?", "fake/chat-false-citation").await;
    let text = run["answer"].as_str().expect("text");
    assert!(text.contains("[1]") && !text.contains("99"), "{run}");
    expect_citations_join(&session, &run, 1).await;
    assert_eq!(run["citations"].as_array().map(Vec::len), Some(1), "{run}");
}

#[tokio::test]
async fn several_calls_in_one_message_are_searched_together_and_evidence_is_not_repeated() {
    let (db, session) = open().await;
    db.provider.script(vec![
        calls(&["vacation days", "office closes", "vacation days"]),
        calls(&["vacation days a year"]),
        says("Thirty days [1]. It closes at six [2]."),
    ]);
    let run = answer(&session, "How many vacation days, and when does the office close?", "fake/chat").await;
    assert!(run["searches"].as_i64() <= Some(3), "{run}");
    let items = db.provider.counters().items;
    assert_eq!(items[0], 2, "the queries of one message go in one request, each once: {items:?}");
    let requests = db.provider.chat_requests();
    let messages = requests.last().expect("a request")["messages"].as_array().cloned().expect("messages");
    let told: Vec<&str> =
        messages.iter().filter(|m| m["role"] == "tool").filter_map(|m| m["content"].as_str()).collect();
    let times = told.iter().map(|c| c.matches("thirty vacation days").count()).sum::<usize>();
    assert_eq!(times, 1, "a passage is shown once: {told:#?}");
}

#[tokio::test]
async fn every_readable_collection_is_offered_and_only_a_named_one_if_named() {
    let (db, session) = open().await;
    session
        .run(
            "CREATE TABLE recipes (id int PRIMARY KEY, body text); INSERT INTO recipes VALUES (1, 'Boil the rice.');
             SELECT rag.create_collection('recipes', 'recipes', '{body}', embedding_model => 'fake/embed-64',
                                          description => 'what the kitchen cooks')",
        )
        .await;
    current(&session).await;
    let offered = async |sql: &str| -> Vec<String> {
        session.run(sql).await;
        let request = db.provider.chat_requests().pop().expect("a request");
        let tools = request["tools"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> =
            tools.iter().filter_map(|t| t["function"]["name"].as_str().map(str::to_owned)).collect();
        names.sort();
        names
    };
    assert_eq!(
        offered("SELECT rag.ask('Hi', chat_model => 'fake/chat-no-search')").await,
        ["search_handbook", "search_recipes"]
    );
    let first = &db.provider.chat_requests()[0];
    assert!(first.to_string().contains("what the kitchen cooks"), "{first}");
    assert_eq!(offered("SELECT rag.ask('Hi', 'recipes', 'fake/chat-no-search')").await, ["search_recipes"]);
    session.refusal("SELECT rag.ask('Hi', 'recipies', 'fake/chat-no-search')", "42704").await;
}

#[tokio::test]
async fn a_run_leaves_its_steps_and_a_readable_trace() {
    let (_db, session) = open().await;
    let run = answer(&session, "When does the office close?", "fake/chat").await;
    let id = run["run_id"].as_str().expect("a run id");
    let recorded = session.value(&format!("SELECT to_jsonb(r) FROM rag.runs r WHERE id = '{id}'")).await;
    let recorded: Value = serde_json::from_str(&recorded).expect("JSON");
    assert_eq!(recorded["question"], "When does the office close?", "{recorded}");
    for name in ["searches", "rounds", "decision", "outcome", "input_tokens", "output_tokens"] {
        assert_eq!(recorded[name], run[name], "{name} of {recorded}");
    }
    let kinds = session.column(&format!("SELECT kind FROM rag.steps WHERE run_id = '{id}' ORDER BY number")).await;
    assert_eq!(kinds, ["model_call", "search", "model_call", "answer"]);
    let trace = session.value(&format!("SELECT rag.trace('{id}')")).await;
    for part in ["When does the office close?", "handbook", "fake/chat", "six in the evening"] {
        assert!(trace.contains(part), "no {part} in the trace:\n{trace}");
    }
}

#[tokio::test]
async fn each_role_sees_its_own_runs() {
    let (db, admin) = open().await;
    let (ada, bob) = (db.create_role("ada").await, db.create_role("bob").await);
    admin.run(&format!("GRANT SELECT ON handbook TO {ada}, {bob}")).await;
    let (ada, bob) = (db.connect_as(&ada).await, db.connect_as(&bob).await);
    let run = answer(&ada, "When does the office close?", "fake/chat").await;
    let id = run["run_id"].as_str().expect("a run id");
    assert_eq!(ada.number("SELECT count(*) FROM rag.runs").await, 1);
    assert_eq!(ada.number("SELECT count(*) FROM rag.steps").await, 4);
    for (table, key) in [("rag.runs", "id"), ("rag.steps", "run_id")] {
        assert_eq!(bob.number(&format!("SELECT count(*) FROM {table}")).await, 0);
        // A refusal is as good as a change of nothing; what counts is what is left.
        let _ = bob.try_rows(&format!("DELETE FROM {table}")).await;
        let _ = bob.try_rows(&format!("UPDATE {table} SET {key} = gen_random_uuid()")).await;
    }
    assert_eq!(ada.number(&format!("SELECT count(*) FROM rag.steps WHERE run_id = '{id}'")).await, 4);
    bob.refusal(&format!("SELECT rag.trace('{id}')"), "42704|42501|02000|P0002").await;
    assert!(ada.value(&format!("SELECT rag.trace('{id}')")).await.contains("office"));
    assert_eq!(admin.number("SELECT count(*) FROM rag.runs").await, 1, "a superuser sees all");
}

/// A run as a superuser writes it, with what the table does not fill in by itself.
fn insert_run(id: u32, role: &str, role_oid: &str, rest: &[(&str, &str)]) -> String {
    let mut columns = vec![
        ("id", format!("'00000000-0000-0000-0000-{id:012}'")),
        ("role", format!("'{role}'")),
        ("role_oid", role_oid.to_owned()),
        ("question", format!("'question {id}'")),
        ("model", "'fake/chat'".to_owned()),
        ("status", "'running'".to_owned()),
        ("started_at", "now()".to_owned()),
    ];
    for (name, value) in rest {
        columns.retain(|(known, _)| known != name);
        columns.push((name, (*value).to_owned()));
    }
    let (names, values): (Vec<&str>, Vec<String>) = columns.into_iter().unzip();
    format!("INSERT INTO rag.runs ({}) VALUES ({});", names.join(", "), values.join(", "))
}

#[tokio::test]
async fn a_run_that_is_over_has_a_status_and_nothing_left_to_resume() {
    let (_db, session) = open().await;
    for (question, status) in [("When does the office close?", "answered"), ("Who wrote Hamlet?", "unknown")] {
        let run = answer(&session, question, "local/extractive").await;
        let recorded = session
            .value(&format!(
                "SELECT to_jsonb(r) FROM rag.runs r WHERE id = '{}' AND finished_at >= started_at
                    AND role_oid = current_user::regrole AND latency_ms > 0",
                run["run_id"].as_str().expect("a run id")
            ))
            .await;
        let recorded: Value = serde_json::from_str(&recorded).expect("JSON");
        assert_eq!((&recorded["status"], &recorded["outcome"]), (&json!(status), &json!(status)), "{recorded}");
        for name in ["state", "state_version", "error", "error_sqlstate", "error_hint"] {
            assert!(recorded[name].is_null(), "{name} of {recorded}");
        }
        assert_eq!(recorded["citations"], run["citations"]);
    }
}

#[tokio::test]
async fn a_transaction_has_written_nothing_while_a_run_is_under_way() {
    let (db, admin) = open().await;
    let role = db.create_role("reader").await;
    // A policy is asked while the run searches, and so sees the transaction as it is then.
    admin
        .run(&format!(
            "CREATE FUNCTION look() RETURNS boolean LANGUAGE plpgsql AS $$
             BEGIN
               RAISE NOTICE 'transaction id %, runs %', pg_current_xact_id_if_assigned(), (SELECT count(*) FROM rag.runs);
               RETURN true;
             END $$;
             GRANT SELECT ON handbook TO {role}; ALTER TABLE handbook ENABLE ROW LEVEL SECURITY;
             CREATE POLICY look ON handbook USING (look())"
        ))
        .await;
    let reader = db.connect_as(&role).await;
    answer(&reader, "When does the office close?", "fake/chat").await;
    let notices = reader.notices();
    assert!(notices.iter().any(|n| n.message() == "transaction id <NULL>, runs 0"), "{notices:?}");
    assert_eq!(reader.value("SELECT string_agg(status, ',') FROM rag.runs").await, "answered");
}

#[tokio::test]
async fn a_renamed_role_keeps_its_runs_and_a_new_role_of_its_name_gets_none() {
    let (db, admin) = open().await;
    let role = db.create_role("Reader \"x\"").await;
    let (name, renamed) = (quote(&role), quote(&format!("{role} renamed")));
    admin.run(&format!("GRANT SELECT ON handbook TO {name}")).await;
    let ask = "SELECT rag.ask('When does the office close?', chat_model => 'fake/chat')";
    let counts = "SELECT (SELECT count(*) FROM rag.runs) || ' ' || (SELECT count(*) FROM rag.steps)";
    db.connect_as(&role).await.run(ask).await;
    admin.run(&format!("ALTER ROLE {name} RENAME TO {renamed}; CREATE ROLE {name} LOGIN")).await;
    let (old, new) = (db.connect_as(&format!("{role} renamed")).await, db.connect_as(&role).await);
    assert_eq!(old.value(counts).await, "1 4", "the renamed role sees its run");
    assert_eq!(new.value(counts).await, "0 0", "the new role of the name does not");
    new.run("DELETE FROM rag.runs").await;
    assert_eq!(old.value(counts).await, "1 4");
    drop((old, new));
    // Dropped and created anew, under the old name and under the newer one.
    admin.run(&format!("DROP OWNED BY {renamed}; DROP ROLE {renamed}; CREATE ROLE {renamed} LOGIN")).await;
    assert_eq!(db.connect_as(&format!("{role} renamed")).await.value(counts).await, "0 0");
    assert_eq!(admin.value(counts).await, "1 4", "a superuser still sees it");
    admin.run(&format!("DROP ROLE {renamed}")).await;
}

#[tokio::test]
async fn runs_restored_from_another_cluster_belong_to_the_role_of_their_name() {
    let (db, admin) = Database::open().await;
    let (ada, bob) = (db.create_role("ada").await, db.create_role("bob").await);
    let oid_of = |role: &str| format!("'{role}'::regrole");
    let elsewhere = [("cluster", "1")];
    admin.run(&insert_run(1, &ada, &oid_of(&bob), &elsewhere)).await;
    admin.run(&insert_run(2, "nobody_here", &oid_of(&bob), &elsewhere)).await;
    // Of this cluster, under a name that ada had once; and that way replication brings rows, which fires few triggers.
    admin.run(&insert_run(3, &bob, &oid_of(&ada), &[])).await;
    admin
        .run(&format!(
            "SET session_replication_role = replica; {} RESET session_replication_role",
            insert_run(4, &ada, &oid_of(&bob), &elsewhere)
        ))
        .await;
    let questions = "SELECT question FROM rag.runs ORDER BY 1";
    assert_eq!(db.connect_as(&ada).await.column(questions).await, ["question 1", "question 3", "question 4"]);
    assert_eq!(db.connect_as(&bob).await.column(questions).await, Vec::<String>::new());
    assert_eq!(admin.value("SELECT role_oid FROM rag.runs WHERE role = 'nobody_here'").await, "0");
    let one_cluster = "SELECT count(DISTINCT cluster) || ' ' || bool_and(cluster = (pg_control_system()).system_identifier) FROM rag.runs";
    assert_eq!(admin.value(one_cluster).await, "1 true");

    // Restored into this cluster they keep their owners; a run whose name another role bears by now is not dumped.
    admin.run("INSERT INTO rag.steps SELECT id, 1, 'model_call', 1, '{}', 0, 0 FROM rag.runs").await;
    let mut dump = db.cluster.installation.program("pg_dump");
    dump.args(["-U", "postgres", "-n", "rag", "-e", "pg_ragent", "--data-only", "-h"]);
    dump.arg(db.cluster.socket_folder()).arg(&db.name);
    let dump = stdout_of("pg_dump", dump.output().expect("pg_dump can be started"));
    for (question, times) in [("question 1", 1), ("question 2", 1), ("question 3", 0), ("question 4", 1)] {
        assert_eq!(dump.matches(question).count(), times, "{question} in {dump}");
    }
    assert_eq!(dump.matches("model_call").count(), 3, "steps go with their run: {dump}");
}

#[tokio::test]
async fn unfinished_and_failed_runs_have_a_trace() {
    let (_db, session) = Database::open().await;
    let me = "current_user::regrole";
    let failed = [
        ("status", "'failed'"),
        ("error", "'the provider is away'"),
        ("error_sqlstate", "'08006'"),
        ("error_hint", "'Ask again.'"),
        ("finished_at", "now()"),
    ];
    session.run(&insert_run(1, "postgres", me, &[("state", "'{}'"), ("state_version", "1")])).await;
    session.run(&insert_run(2, "postgres", me, &failed)).await;
    session.run(&insert_run(3, "postgres", me, &[("status", "'awaiting_approval'")])).await;
    session.run(&insert_run(4, "postgres", me, &[("status", "'cancelled'"), ("finished_at", "now()")])).await;
    session
        .run(
            "INSERT INTO rag.steps SELECT id, 1, 'model_call', 1,
                '{\"messages\": 2, \"tool_choice\": \"auto\", \"content\": \"Let me see.\", \"tool_calls\": [], \"truncated\": false}',
                10, 1 FROM rag.runs",
        )
        .await;
    for (id, words) in [
        (1, "outcome   not finished\n"),
        (2, "outcome   failed\n"),
        (2, "error     the provider is away (SQLSTATE 08006)\nhint      Ask again.\n"),
        (3, "outcome   waiting for approval\n"),
        (4, "outcome   cancelled\n"),
    ] {
        let trace = session.value(&format!("SELECT rag.trace('00000000-0000-0000-0000-{id:012}')")).await;
        assert!(trace.contains(words) && trace.contains("said \"Let me see.\""), "{trace}");
    }
    // What cannot be read is an error and no gap.
    session.run("UPDATE rag.steps SET kind = 'dance' WHERE run_id = '00000000-0000-0000-0000-000000000001'").await;
    let error = session.refusal("SELECT rag.trace('00000000-0000-0000-0000-000000000001')", "XX001").await;
    assert!(error.message().contains("no step of kind \"dance\""), "{}", error.message());
}

#[tokio::test]
async fn a_record_that_contradicts_itself_is_refused() {
    let (_db, session) = Database::open().await;
    for rest in [
        &[("status", "'asleep'")][..],
        &[("status", "'answered'"), ("finished_at", "now()")],
        &[("status", "'failed'"), ("finished_at", "now()")],
        &[("finished_at", "now()")],
        &[("status", "'cancelled'")],
        &[("state", "'{}'")],
        &[("status", "'cancelled'"), ("finished_at", "now()"), ("state", "'{}'"), ("state_version", "1")],
    ] {
        session.error(&insert_run(1, "postgres", "10", rest), "23514").await;
    }
}

#[tokio::test]
async fn nobody_can_put_the_triggers_of_runs_on_a_table_of_their_own() {
    let (db, admin) = open().await;
    let role = db.create_role("climber").await;
    admin.run(&format!("CREATE SCHEMA den AUTHORIZATION {role}")).await;
    let climber = db.connect_as(&role).await;
    climber.run("SELECT rag.ask('Hello!', chat_model => 'local/extractive')").await;
    climber.run("CREATE TABLE den.t (id uuid)").await;
    for function in ["rag_internal.forget_steps", "rag_internal.own_run"] {
        let trigger = format!("CREATE TRIGGER go AFTER DELETE ON den.t FOR EACH ROW EXECUTE FUNCTION {function}()");
        climber.error(&trigger, "42501").await;
    }
    // Nor does it help who made the trigger.
    admin
        .run("CREATE TRIGGER go AFTER DELETE ON den.t FOR EACH ROW EXECUTE FUNCTION rag_internal.forget_steps()")
        .await;
    climber.run("INSERT INTO den.t SELECT id FROM rag.runs").await;
    climber.refusal("DELETE FROM den.t", "42501").await;
    assert!(climber.number("SELECT count(*) FROM rag.steps").await > 0);
    climber.error("DELETE FROM rag.steps", "42501").await;
    // What it is for still works, whatever operators the role has made.
    climber
        .run(
            "SET search_path = den, pg_catalog;
             CREATE FUNCTION den.no(uuid, uuid) RETURNS boolean LANGUAGE sql AS 'SELECT false';
             CREATE OPERATOR den.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = den.no);
             DELETE FROM rag.runs",
        )
        .await;
    assert_eq!(admin.value("SELECT (SELECT count(*) FROM rag.runs) + (SELECT count(*) FROM rag.steps)").await, "0");
}

#[tokio::test]
async fn a_read_only_transaction_answers_without_recording() {
    let (_db, session) = open().await;
    session.run("BEGIN READ ONLY").await;
    let run = answer(&session, "When does the office close?", "fake/chat").await;
    session.run("COMMIT").await;
    assert!(run["answer"].as_str().is_some_and(|a| a.contains("six in the evening")), "{run}");
    assert_eq!(session.number("SELECT count(*) FROM rag.runs").await, 0);
    // In a transaction that is rolled back there is nothing left either, and nothing breaks.
    session.run("BEGIN").await;
    answer(&session, "When does the office close?", "fake/chat").await;
    session.run("ROLLBACK").await;
    assert_eq!(session.number("SELECT count(*) FROM rag.runs").await, 0);
}

#[tokio::test]
async fn without_collections_a_model_is_asked_without_tools() {
    let (db, session) = Database::open().await;
    let run = answer(&session, "Anything?", "fake/chat").await;
    assert_eq!((&run["decision"], &run["citations"]), (&json!("skipped_search"), &json!([])), "{run}");
    let request = db.provider.chat_requests().pop().expect("a request");
    assert!(request["tools"].as_array().is_none_or(Vec::is_empty), "{request}");
}

#[tokio::test]
async fn questionable_questions_are_refused_with_a_hint() {
    let (_db, session) = open().await;
    session.refusal("SELECT rag.ask('', chat_model => 'fake/chat')", "22023").await;
    session.refusal("SELECT rag.ask(E' \\n', chat_model => 'fake/chat')", "22023").await;
    session.refusal("SELECT rag.ask('Hi', chat_model => 'nowhere/chat')", "42704").await;
    session.refusal("SELECT rag.ask('Hi', chat_model => 'chat')", "22023|42704").await;
    session.refusal("SELECT rag.ask('Hi', chat_model => 'local/no-such-model')", "42704").await;
}

#[tokio::test]
async fn an_embedding_failure_inside_an_answer_is_the_answers_error() {
    let (db, session) = open().await;
    session.run("ALTER SERVER fake OPTIONS (max_retries '0')").await;
    db.provider.fail_at(Endpoint::Embeddings, FaultKind::Status500, 1);
    session.refusal("SELECT rag.ask('When does the office close?', chat_model => 'fake/chat')", "08P01").await;
    let run = answer(&session, "When does the office close?", "fake/chat").await;
    assert_eq!(run["outcome"], "answered", "the next question is answered");
}

#[tokio::test]
async fn a_role_under_row_level_security_is_answered_from_its_own_rows() {
    let (db, admin) = open().await;
    let role = db.create_role("reader").await;
    admin
        .run(&format!(
            "GRANT SELECT ON handbook TO {role}; ALTER TABLE handbook ENABLE ROW LEVEL SECURITY;
             CREATE POLICY no_vacation ON handbook USING (id <> 2)"
        ))
        .await;
    let reader = db.connect_as(&role).await;
    for model in ["fake/chat", "local/extractive"] {
        let run = answer(&reader, "How many vacation days do employees receive?", model).await;
        assert!(!run.to_string().contains("thirty"), "{run}");
    }
    let shown = db.provider.chat_requests().iter().any(|r| r.to_string().contains("thirty"));
    assert!(!shown, "the hidden row went to the provider");
    let run = answer(&admin, "How many vacation days do employees receive?", "fake/chat").await;
    assert!(run.to_string().contains("thirty"), "{run}");
}
