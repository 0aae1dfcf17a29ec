//! Replies as providers really write them, and as hostile ones would: what becomes of them in SQL.

use std::time::{Duration, Instant};

use ragent_server_tests::database::{API_KEY, Database, create_server, current};
use ragent_server_tests::provider::control::{Endpoint, FaultKind, ScriptedReply};
use ragent_server_tests::provider::counters::fingerprint;
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::PATIENCE;
use serde_json::{Value, json};

const QUESTION: &str = "When does the office close?";

async fn open() -> (Database<'static>, Session) {
    let (db, session) = Database::open().await;
    db.create_collection(&session, "handbook", &["The office closes at six in the evening."]).await;
    db.provider.forget();
    (db, session)
}

/// All columns of `rag.answer` as JSON.
async fn answer(session: &Session, question: &str) -> Value {
    let sql = format!("SELECT to_jsonb(a) FROM rag.answer('{question}', chat_model => 'fake/chat') a");
    serde_json::from_str(&session.value(&sql).await).expect("JSON")
}

fn says(text: &str) -> ScriptedReply {
    ScriptedReply { content: Some(text.into()), ..ScriptedReply::default() }
}

fn ends(text: &str, reason: &str) -> ScriptedReply {
    ScriptedReply { finish_reason: Some(reason.into()), ..says(text) }
}

fn message(message: Value) -> ScriptedReply {
    ScriptedReply { message: Some(message), ..ScriptedReply::default() }
}

/// A message that calls the first tool.
fn searches(query: &str) -> Value {
    let arguments = json!({ "query": query }).to_string();
    json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "TOOL", "arguments": arguments}}]})
}

/// A body with a message of this content.
fn body(content: &str) -> FaultKind {
    let body = json!({"choices": [{"message": {"role": "assistant", "content": content}}]}).to_string();
    FaultKind::Answer { status: 200, body }
}

#[tokio::test]
async fn megabytes_of_markers_are_no_work() {
    let (db, session) = open().await;
    session.run("SET rag.require_grounding = off; SET statement_timeout = '60s'").await;
    for content in
        ["x. ".to_owned() + &"[1]".repeat(1_000_000), "So it is [1]. ".repeat(200_000), "w ".repeat(4_000_000)]
    {
        db.provider.fail_at(Endpoint::Chat, body(&content), 1);
        let started = Instant::now();
        let run = answer(&session, QUESTION).await;
        let took = started.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?} for {} bytes", content.len());
        assert_eq!((&run["stop_reason"], &run["outcome"]), (&json!("truncated"), &json!("ungrounded")));
        assert!(run["answer"].as_str().is_some_and(|text| text.len() <= 100_000));
    }
}

#[tokio::test]
async fn a_reply_of_millions_of_objects_takes_no_memory() {
    let (db, session) = open().await;
    let peak = async || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", session.pid)).expect("a running backend");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
    };
    let small = "{\"a\":1},".repeat(1_500_000);
    let nested = "[".repeat(6_000_000);
    for (endpoint, body) in [
        (Endpoint::Chat, format!(r#"{{"choices":[{{"message":{{"content":"hi","tool_calls":[{small}1]}}}}]}}"#)),
        (Endpoint::Chat, format!(r#"{{"choices":[{{"message":{{"content":{nested}"#)),
        (Endpoint::Chat, format!(r#"{{"error":[{small}1]}}"#)),
        (Endpoint::Embeddings, format!(r#"{{"data":[],"usage":[{small}1]}}"#)),
        (Endpoint::Embeddings, format!(r#"{{"data":[{small}1]}}"#)),
    ] {
        let before = peak().await;
        for status in [200, 400] {
            db.provider.fail_at(endpoint, FaultKind::Answer { status, body: body.clone() }, 1);
            // Some of it is an answer, some an error.
            let _ = session.try_rows("SELECT rag.ask('When does it close?', chat_model => 'fake/chat')").await;
            db.provider.heal();
        }
        let grown = peak().await - before;
        assert!(grown < 150, "{grown} MB for a reply of {} bytes", body.len());
    }
}

#[tokio::test]
async fn no_cut_and_no_encoding_lets_a_key_through() {
    let (db, session) = open().await;
    session.run("ALTER SERVER fake OPTIONS (max_retries '0')").await;
    let encoded = API_KEY.replace('-', "%2D");
    let escaped: String = API_KEY.chars().map(|c| format!("\\u{:04x}", c as u32)).collect();
    for pad in 0..60 {
        let pad = "x".repeat(pad);
        for (status, body) in [
            (200, format!(r#"{{"choices":[{{"message":{{"content":"Incorrect key {pad}{API_KEY}" , oops"#)),
            (200, format!("bad {pad}{API_KEY}")),
            (200, format!(r#"{{"error":{{"message":"{pad}{API_KEY}"}}}}"#)),
            (400, format!(r#"{{"error":{{"message":"{}{pad}{API_KEY}"}}}}"#, "y".repeat(250))),
            (400, format!(r#"{{"error":"Authorization: Bearer {API_KEY}{pad} url {encoded} json {escaped}"}}"#)),
        ] {
            db.provider.fail_at(Endpoint::Chat, FaultKind::Answer { status, body }, 1);
            let error = session.error("SELECT rag.ask('Hi', chat_model => 'fake/chat')", "08P01|22023").await;
            let said = format!("{error:?}").to_lowercase();
            let parts = [API_KEY, &encoded, &escaped].map(str::to_lowercase);
            for part in parts.iter().flat_map(|whole| whole.as_bytes().windows(9)) {
                let part = std::str::from_utf8(part).expect("ASCII");
                assert!(!said.contains(part), "{part} in {said}");
            }
        }
    }
}

#[tokio::test]
async fn an_error_in_a_success_body_counts_as_its_status() {
    let (db, session) = open().await;
    let busy = r#"{"choices":null,"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"x"}}}"#;
    let busy = FaultKind::Answer { status: 200, body: busy.into() };
    db.provider.fail_at(Endpoint::Chat, busy.clone(), 2);
    assert_eq!(answer(&session, QUESTION).await["outcome"], "answered", "it is asked again");
    assert_eq!(db.provider.counters().chat_requests(), 4);
    session.run("ALTER SERVER fake OPTIONS (max_retries '0')").await;
    for (error, sqlstate) in [
        (r#"{"code":429,"message":"slow down"}"#, "53400"),
        (r#"{"code":"429","message":"slow down"}"#, "53400"),
        (r#"{"code":8,"status":"RESOURCE_EXHAUSTED","message":"quota"}"#, "53400"),
        (r#"{"code":"invalid_api_key","message":"who are you"}"#, "28000"),
        (r#"{"code":404,"message":"no such model"}"#, "42704"),
        (r#"{"code":400,"message":"no"}"#, "22023"),
        (r#""broken""#, "08P01"),
    ] {
        let body = format!(r#"{{"error":{error}}}"#);
        for (endpoint, sql) in [
            (Endpoint::Chat, "SELECT rag.ask('Hi', chat_model => 'fake/chat')"),
            (Endpoint::Embeddings, "SELECT rag.embed('x', 'fake/embed-8')"),
        ] {
            db.provider.fail_at(endpoint, FaultKind::Answer { status: 200, body: body.clone() }, 1);
            session.refusal(sql, sqlstate).await;
        }
    }
    // The worker waits as it does for the status itself: nothing is tried and nothing given up.
    let busy = FaultKind::Answer { status: 200, body: r#"{"error":{"message":"Rate limit","code":429}}"#.into() };
    db.provider.fail_at(Endpoint::Embeddings, busy, u64::MAX);
    session.run("INSERT INTO handbook VALUES (2, 'A', 'one'), (3, 'B', 'two')").await;
    session.wait_until("the error", PATIENCE, "SELECT coalesce(last_error, '') ~ '429' FROM rag.status").await;
    assert_eq!(session.value("SELECT failed || ' ' || pending FROM rag.status").await, "0 2");
    db.provider.heal();
    current(&session).await;
}

#[tokio::test]
async fn embeddings_without_an_index_are_taken_in_order() {
    let (db, session) = open().await;
    let sql = "SELECT rag.embed(ARRAY['one', 'two', 'three'], 'fake/embed-8')::text";
    let expected = session.value(sql).await;
    db.provider.fail_at(Endpoint::Embeddings, FaultKind::WithoutIndex, 1);
    assert_eq!(session.value(sql).await, expected);
    for (data, word) in [
        (r#"{"index":0,"embedding":[1]},{"index":0,"embedding":[1]},{"index":1,"embedding":[1]}"#, "index 0 again"),
        (r#"{"index":0,"embedding":[1]},{"embedding":[1]},{"index":2,"embedding":[1]}"#, "index none"),
        (r#"{"index":0,"embedding":[1]},{"index":1,"embedding":[1]},{"index":3,"embedding":[1]}"#, "index 3"),
        (r#"{"embedding":[1]},{"embedding":[1]}"#, "expected 3 embeddings, got 2"),
        (r#"{"embedding":[1]},{"embedding":["1"]},{"embedding":[1]}"#, "expected a finite number"),
        (r#"{"embedding":[1]},{"embedding":"x"},{"embedding":[1]}"#, "expected a list of numbers"),
    ] {
        let body = format!(r#"{{"data":[{data}]}}"#);
        db.provider.fail_at(Endpoint::Embeddings, FaultKind::Answer { status: 200, body }, 1);
        let error = session.refusal(sql, "08P01").await;
        assert!(error.message().contains(word), "{}", error.message());
    }
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_halved_and_the_limit_kept() {
    let (db, session) = open().await;
    db.provider.break_down(FaultKind::TooManyTexts { limit: 10 });
    let embed =
        "SELECT cardinality(rag.embed((SELECT array_agg('text ' || i) FROM generate_series(1, 40) i), 'fake/embed-8'))";
    assert_eq!(session.value(embed).await, "40");
    db.provider.forget();
    assert_eq!(session.value(embed).await, "40");
    let items = db.provider.counters().items;
    assert!(items.iter().all(|n| *n <= 10), "the limit is known now: {items:?}");
    // The worker learns it too, and blames no row.
    db.provider.forget();
    session.run("INSERT INTO handbook SELECT i, 'T', 'row number ' || i FROM generate_series(100, 260) i").await;
    current(&session).await;
    assert_eq!(session.number("SELECT count(*) FROM rag.failures").await, 0);
    let refused = db.provider.counters().items.iter().filter(|n| **n > 10).count();
    assert!(refused <= 12, "it was refused {refused} times");
    assert_eq!(db.provider.counters().texts.values().max(), Some(&1), "no text is embedded twice");
}

#[tokio::test]
async fn a_text_that_is_refused_alone_costs_its_row_only() {
    let (db, session) = open().await;
    db.provider.break_down(FaultKind::RejectTextContaining { text: "poison".into() });
    session.run("INSERT INTO handbook SELECT i, 'T', CASE WHEN i = 120 THEN 'poison' ELSE 'row ' || i END FROM generate_series(100, 150) i").await;
    session.wait_until("the parked row", PATIENCE, "SELECT count(*) = 1 FROM rag.failures").await;
    current(&session).await;
    assert_eq!(session.value("SELECT string_agg(key->>'id', ',') FROM rag.failures").await, "120");
    assert_eq!(db.provider.counters().texts.values().max(), Some(&1), "no other text is embedded twice");
}

#[tokio::test]
async fn fields_that_only_the_provider_knows_go_back_as_they_came() {
    let (db, session) = open().await;
    let mut asks = searches("office");
    asks["reasoning_content"] = json!("Let me look.");
    asks["tool_calls"][0]["extra_content"] = json!({"google": {"thought_signature": "c2ln", "n": 1.50}});
    db.provider.script(vec![message(asks), says("At six [1].")]);
    assert_eq!(answer(&session, QUESTION).await["outcome"], "answered");
    let requests = db.provider.chat_requests();
    let said = requests[1]["messages"].as_array().expect("messages").iter().find(|m| m["role"] == "assistant");
    let said = said.expect("what the model said");
    assert_eq!(said["reasoning_content"], "Let me look.", "{said}");
    assert_eq!(said["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "c2ln", "{said}");
    // One that refuses them gets the request without them.
    let mut asks = searches("office");
    asks["reasoning"] = json!("Hm.");
    db.provider.script(vec![message(asks), says("At six [1]."), says("At six [1].")]);
    let refusal = r#"{"error":{"message":"property 'reasoning' is unsupported"}}"#.to_owned();
    db.provider.fail_at(
        Endpoint::Chat,
        FaultKind::Answer {
            status: 200,
            body: json!({"choices": [{"message": searches("office"), "x": 1}]})
                .to_string()
                .replace("\"content\":null", "\"content\":null,\"reasoning\":\"Hm.\"")
                .replace("TOOL", "search_handbook"),
        },
        1,
    );
    db.provider.fail_at(Endpoint::Chat, FaultKind::Answer { status: 400, body: refusal }, 1);
    db.provider.forget();
    assert_eq!(answer(&session, QUESTION).await["outcome"], "answered");
    assert!(!db.provider.chat_requests().last().expect("a request").to_string().contains("\"reasoning\""));
}

#[tokio::test]
async fn thoughts_and_calls_in_the_text_are_no_answer() {
    let (db, session) = open().await;
    for thought in ["<think>Passage [1] says six.</think>", "Passage [1] says six.\n</think>"] {
        db.provider.script(vec![message(searches("office")), says(&format!("{thought}\n\nAt six [1]."))]);
        assert_eq!(answer(&session, QUESTION).await["answer"], "At six [1].");
    }
    for call in [
        "<tool_call>\n{\"name\": \"TOOL\", \"arguments\": {\"query\": \"office\"}}\n</tool_call>",
        "{\"name\": \"TOOL\", \"arguments\": {\"query\": \"office\"}}",
    ] {
        let asks = message(json!({"role": "assistant", "content": call, "tool_calls": []}));
        db.provider.script(vec![asks, says("At six [1].")]);
        let run = answer(&session, QUESTION).await;
        assert_eq!((&run["answer"], &run["searches"]), (&json!("At six [1]."), &json!(1)));
    }
    let parts = json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "At six [1]."}]);
    db.provider.script(vec![message(searches("office")), message(json!({"role": "assistant", "content": parts}))]);
    assert_eq!(answer(&session, QUESTION).await["answer"], "At six [1].");
}

#[tokio::test]
async fn an_answer_that_is_cut_or_filtered_is_not_unknown() {
    let (db, session) = open().await;
    for (reason, stop_reason) in [("length", "truncated"), ("content_filter", "content_filter")] {
        for (text, outcome) in
            [("At six [1], unless", "answered"), ("At six, unless", "ungrounded"), ("", "ungrounded")]
        {
            db.provider.script(vec![message(searches("office")), ends(text, reason)]);
            let run = answer(&session, QUESTION).await;
            assert_eq!((&run["stop_reason"], &run["outcome"]), (&json!(stop_reason), &json!(outcome)), "{run}");
            let id = run["run_id"].as_str().expect("a run");
            let status =
                session.value(&format!("SELECT status || ' ' || outcome FROM rag.runs WHERE id = '{id}'")).await;
            assert_eq!(status, format!("{outcome} {outcome}"));
        }
    }
}

#[tokio::test]
async fn characters_that_text_cannot_hold_lose_no_run() {
    let (db, session) = open().await;
    let broken = |content: &str| FaultKind::Answer {
        status: 200,
        body: format!(r#"{{"choices":[{{"message":{{"content":"{content}"}}}}]}}"#),
    };
    for (content, text) in [
        ("At six \\ud83d.", "At six \u{fffd}."),
        ("At\\u0000 six.", "At\u{fffd} six."),
        ("At six \\ud83d\\ude00", "At six 😀"),
        ("At \\u00\\u000000 six", "At \u{fffd}\u{fffd}00 six"),
        ("At \\\\u0000 six", "At \\u0000 six"),
    ] {
        session.run("SET rag.require_grounding = off").await;
        db.provider.fail_at(Endpoint::Chat, broken(content), 1);
        assert_eq!(answer(&session, QUESTION).await["answer"], text);
    }
    for (arguments, query) in [
        (r#"{"query":"x\u00\u000000y"}"#, "x\u{fffd}\u{fffd}00y"),
        (r#"{"query":"office\u0000"}"#, "office\u{fffd}"),
        (r#"{"query":"office \ud83d"}"#, "office \u{fffd}"),
        (r#"{"query":"office\\u0000"}"#, "office\\u0000"),
    ] {
        let mut asks = searches("office");
        asks["tool_calls"][0]["function"]["arguments"] = json!(arguments);
        db.provider.script(vec![message(asks), says("At six.")]);
        let run = answer(&session, QUESTION).await;
        let id = run["run_id"].as_str().expect("a run");
        let searched = format!("SELECT detail->>'query' FROM rag.steps WHERE run_id = '{id}' AND kind = 'search'");
        assert_eq!(session.value(&searched).await, query, "{arguments}");
        session.value(&format!("SELECT rag.trace('{id}')")).await;
    }
}

#[tokio::test]
async fn a_request_that_timed_out_is_not_sent_again() {
    let (db, session) = open().await;
    session.run("ALTER SERVER fake OPTIONS (timeout '1')").await;
    for fault in [FaultKind::HangBeforeHeaders, FaultKind::HangMidBody, FaultKind::CutBody] {
        db.provider.forget();
        db.provider.fail_at(Endpoint::Chat, fault.clone(), u64::MAX);
        session.refusal("SELECT rag.ask('When does it close?', chat_model => 'fake/chat')", "08006").await;
        assert_eq!(db.provider.counters().chat_requests(), 1, "{fault:?}");
        db.provider.heal();
    }
    // A connection that broke before a byte came is.
    db.provider.fail_at(Endpoint::Chat, FaultKind::CloseBeforeHeaders, 1);
    assert_eq!(answer(&session, QUESTION).await["outcome"], "answered");
}

#[tokio::test]
async fn a_question_has_one_deadline_for_everything() {
    let (db, session) = open().await;
    session.run("SET rag.ask_timeout = '1s'").await;
    let expect = async |what: &str| {
        let started = Instant::now();
        let error = session.refusal("SELECT rag.ask('When does it close?', chat_model => 'fake/chat')", "57014").await;
        let took = started.elapsed();
        assert!(took < Duration::from_secs(3), "{what}: {took:?}");
        assert!(error.message().contains("within 1 s"), "{}", error.message());
        assert!(error.hint().is_some_and(|hint| hint.contains("rag.ask_timeout")), "{error:?}");
    };
    db.provider.fail_at(Endpoint::Chat, FaultKind::HangBeforeHeaders, u64::MAX);
    expect("a model that hangs").await;
    db.provider.heal();
    db.provider.fail_at(Endpoint::Embeddings, FaultKind::HangBeforeHeaders, u64::MAX);
    expect("an embedding that hangs").await;
    db.provider.heal();
    // Many requests, each in time, together are not.
    db.provider.set_latency(Duration::from_millis(400));
    expect("slow steps").await;
    // A pause that would go beyond it is not begun.
    db.provider.heal();
    db.provider.fail_at(Endpoint::Chat, FaultKind::Status429 { retry_after: Some("10".into()) }, 1);
    session.refusal("SELECT rag.ask('When does it close?', chat_model => 'fake/chat')", "53400").await;
    // It concerns questions only, and 0 is none.
    db.provider.set_latency(Duration::from_millis(400));
    session.run("SET rag.ask_timeout = 0").await;
    assert_eq!(answer(&session, QUESTION).await["outcome"], "answered");
    db.provider.heal();
}

#[tokio::test]
async fn what_no_passage_supports_is_ungrounded_and_says_so() {
    let (db, session) = open().await;
    let ask = format!("SELECT rag.ask('{QUESTION}', chat_model => 'fake/chat')");
    // It skips the search, is told, and searches.
    db.provider.script(vec![says("At nine."), message(searches("office")), says("At six [1].")]);
    let run = answer(&session, QUESTION).await;
    assert_eq!(
        (&run["outcome"], &run["decision"], &run["answer"]),
        (&json!("answered"), &json!("used_search"), &json!("At six [1]."))
    );
    let trace = session.value(&format!("SELECT rag.trace('{}')", run["run_id"].as_str().expect("a run"))).await;
    assert!(trace.contains("told to search"), "{trace}");
    // It insists on what it made up, with a marker of its own invention.
    for made_up in ["At nine.", "At nine [1]."] {
        db.provider.script(vec![says(made_up), says(made_up)]);
        let run = answer(&session, QUESTION).await;
        assert_eq!((&run["outcome"], &run["citations"]), (&json!("ungrounded"), &json!([])));
        db.provider.script(vec![says(made_up), says(made_up)]);
        let text = session.value(&ask).await;
        assert!(text.contains("nothing of the data supports it"), "{text}");
    }
    // It searched and cites nothing, is told, and cites or does not.
    for (last, outcome) in [("At six [1].", "answered"), ("At six.", "ungrounded"), ("At six [7].", "ungrounded")] {
        db.provider.script(vec![message(searches("office")), says("At six."), says(last)]);
        assert_eq!(answer(&session, QUESTION).await["outcome"], outcome, "{last}");
    }
    let kept = "SELECT string_agg(DISTINCT status, ',' ORDER BY status) FROM rag.runs";
    assert_eq!(session.value(kept).await, "answered,ungrounded");
    // Nobody insists.
    db.provider.forget();
    session.run("SET rag.require_grounding = off").await;
    db.provider.script(vec![says("At nine.")]);
    assert_eq!(answer(&session, QUESTION).await["outcome"], "ungrounded");
    assert_eq!(db.provider.counters().chat_requests(), 1);
    session.run("RESET rag.require_grounding").await;
    // A greeting costs one call and is answered like one.
    db.provider.forget();
    db.provider.script(vec![says("Hello! Ask me about the handbook.")]);
    assert_eq!(
        session.value("SELECT rag.ask('hello', chat_model => 'fake/chat')").await,
        "Hello! Ask me about the handbook."
    );
    assert_eq!(db.provider.counters().chat_requests(), 1);
}

#[tokio::test]
async fn azure_is_reached_with_its_header_and_version() {
    let (db, session) = open().await;
    session.run(&create_server("azure", &db.provider.base_url())).await;
    session.run("ALTER SERVER azure OPTIONS (auth_header 'api-key', api_version '2024-10-21')").await;
    for sql in ["SELECT rag.embed('x', 'azure/embed-8')", "SELECT rag.ask('Hi', chat_model => 'azure/chat-no-search')"]
    {
        session.run(sql).await;
        let counters = db.provider.counters();
        assert_eq!(counters.last_query, "api-version=2024-10-21");
        assert_eq!((counters.last_api_key, counters.last_authorization), (Some(fingerprint(API_KEY)), None));
    }
    session.error("ALTER SERVER azure OPTIONS (SET auth_header 'cookie')", "22023").await;
    session.error("ALTER SERVER azure OPTIONS (SET api_version '1&key=x')", "22023").await;
}
