//! What holds for any text that somebody else wrote: a reply, a marker, arguments, a passage, a row. Nothing panics, nothing grows
//! beyond its cap, and what is written is read back as it was.

mod common;

use common::config;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use ragent_core::agent::{Effect, Hit, Input, Limits, Outcome, Run, RunRequest, SearchResult, SearchTool};
use ragent_core::ingest::chunk::{ChunkOptions, DEFAULT, approximate_tokens, chunker};
use ragent_core::model::{ChatReply, Finish, MAX_CALLS, OwnFields, ToolCall};
use ragent_core::prompt::{marker, passages};
use ragent_core::provider::{
    Chat, Embeddings, Redactor, check_base_url, error_message, openai::OpenAi, redact, retry_after, status_named,
};
use ragent_core::text::{sentences, storable, terms};
use serde_json::{Value, json};

/// Text of the pieces that mean something to somebody, and of others.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("[1]".to_owned()),
        Just("[2, 3]".to_owned()),
        Just("【1†x】".to_owned()),
        Just("<think>".to_owned()),
        Just("</think>".to_owned()),
        Just("`".to_owned()),
        Just("```\n".to_owned()),
        Just("<tool_call>".to_owned()),
        Just(r#"{"name":"search_facts","arguments":{"query":"x"}}"#.to_owned()),
        Just("<passage n=\"1\">\n".to_owned()),
        Just("\n</passage>\n".to_owned()),
        Just("I don't know. ".to_owned()),
        Just(". ".to_owned()),
        Just("\u{0}".to_owned()),
        Just("\\u0000\\ud83d".to_owned()),
        "\\PC{0,12}",
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Any JSON, a few levels deep, whose fields are often those that a reply has.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "choices",
        "message",
        "content",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "type",
        "text",
        "error",
        "code",
        "status",
        "data",
        "index",
        "embedding",
        "usage",
        "prompt_tokens",
        "finish_reason",
        "refusal",
        "query",
        "k",
        "other",
    ]);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().map(|(n, v)| (n.to_owned(), v)).collect())),
        ]
    })
}

/// A body: JSON, JSON in the frame of a reply, JSON that is cut or has a byte changed, or anything.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let sound = prop_oneof![
        value(),
        value().prop_map(|message| json!({ "choices": [{ "message": message }] })),
        value().prop_map(|data| json!({ "data": data })),
        (value(), value()).prop_map(
            |(content, calls)| json!({ "choices": [{ "message": { "content": content, "tool_calls": calls } }] })
        ),
        value().prop_map(|embedding| json!({ "data": [{ "index": 0, "embedding": embedding }] })),
    ];
    let sound = sound.prop_map(|value| value.to_string().into_bytes());
    prop_oneof![
        sound.clone(),
        (sound.clone(), any::<prop::sample::Index>()).prop_map(|(body, at)| body[..at.index(body.len() + 1)].to_vec()),
        (sound, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut body, at, byte)| {
            let at = at.index(body.len());
            body[at] = byte;
            body
        }),
        prop::collection::vec(any::<u8>(), 0..200),
    ]
}

/// What may stand between the quotation marks of a JSON string, with escapes that are cut, repeated, or of half a character.
fn escapes() -> impl Strategy<Value = String> {
    let pieces = vec![
        r"\u0000", r"\u00", r"\u", r"\ud83d", r"\ude00", r"\u00e9", r"\\", r#"\""#, r"\n", "u0000", "0000", "00", "a",
        "ж", " ", "[1]",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..16).prop_map(|pieces| pieces.concat())
}

/// Whether all texts of a value, names included, can be stored.
fn is_storable(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.contains('\0'),
        Value::Array(items) => items.iter().all(is_storable),
        Value::Object(fields) => fields.iter().all(|(name, value)| !name.contains('\0') && is_storable(value)),
        _ => true,
    }
}

fn reply() -> impl Strategy<Value = ChatReply> {
    let name = prop_oneof![Just("search_facts".to_owned()), text()];
    let arguments = prop_oneof![
        text(),
        text().prop_map(|q| json!({ "query": q }).to_string()),
        value().prop_map(|v| v.to_string())
    ];
    let call = (text(), name, arguments).prop_map(|(id, name, arguments)| ToolCall {
        id,
        name,
        arguments,
        ..ToolCall::default()
    });
    let finish = prop::sample::select(vec![Finish::Complete, Finish::Complete, Finish::Truncated, Finish::Filtered]);
    (prop::option::of(text()), prop::collection::vec(call, 0..4), finish)
        .prop_map(|(content, tool_calls, finish)| ChatReply { content, tool_calls, finish, ..ChatReply::default() })
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn any_body_is_a_turn_within_its_caps_or_an_error(body in body()) {
        match Chat::reply(&OpenAi, &body) {
            Ok(reply) => {
                prop_assert!(reply.tool_calls.len() <= MAX_CALLS);
                prop_assert!(reply.tool_calls.iter().all(|call| call.arguments.len() <= 64 << 10 && !call.id.is_empty()));
                let own: usize = reply.own.0.iter().map(|(n, v)| n.len() + v.len()).sum();
                prop_assert!(own <= 256 << 10);
            }
            Err(error) => prop_assert!(error.to_string().chars().count() < 700, "{error}"),
        }
        prop_assert!(error_message(&body).chars().count() <= 300);
    }

    #[test]
    fn no_escape_costs_a_run_or_reaches_what_is_stored(said in escapes(), asked in escapes(), inside in escapes()) {
        // The arguments are JSON in a string of JSON: escapes of both.
        let arguments = Value::from(format!(r#"{{"query":"x {inside}","{asked}":1}}"#)).to_string();
        let written = format!(r#""{{\"query\":\"x {asked}\"}}""#);
        for arguments in [arguments, written] {
            let body = format!(
                r#"{{"choices":[{{"message":{{"content":"{said}","tool_calls":[{{"id":"{asked}","function":{{"name":"search_facts","arguments":{arguments}}}}}]}}}}]}}"#
            );
            let reply = Chat::reply(&OpenAi, body.as_bytes());
            prop_assert!(reply.is_ok(), "{}: {:?}", body, reply);
            let reply = reply.expect("it was just looked at");
            let tool = SearchTool { collection: "facts".into(), description: "Facts.".into() };
            let mut run = Run::new(RunRequest { require_grounding: false, ..RunRequest::new("How?", "server/chat", vec![tool.into()]) });
            let mut effect = run.next(Input::Start);
            let answer = loop {
                effect = match effect {
                    Effect::CallModel(_) => run.next(Input::Model(reply.clone())),
                    Effect::Call(calls) => run.next(Input::Called(calls.iter().map(|_| SearchResult::default().into()).collect())),
                    Effect::Done(answer) => break answer,
                };
            };
            let steps: Vec<Value> = run.take_steps().iter().map(|step| step.detail.to_json()).collect();
            prop_assert!(is_storable(&Value::from(steps)) && is_storable(&answer.citations_json()) && !answer.text.contains('\0'));
        }
    }

    #[test]
    fn any_body_is_vectors_of_finite_numbers_or_an_error(body in body(), texts in 0usize..4) {
        if let Ok(embedded) = Embeddings::reply(&OpenAi, &body, texts, None) {
            prop_assert_eq!(embedded.vectors.len(), texts);
            prop_assert!(embedded.vectors.iter().flatten().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn vectors_are_read_as_they_were_written(vectors in prop::collection::vec(prop::collection::vec(-1e6f32..1e6, 3), 1..20), with_index: bool) {
        prop_assume!(vectors.iter().all(|v| v.iter().any(|x| *x != 0.0)));
        let items: Vec<Value> = vectors.iter().enumerate().rev().map(|(index, v)| json!({ "index": index, "embedding": v })).collect();
        let in_order: Vec<Value> = vectors.iter().map(|v| json!({ "embedding": v })).collect();
        let body = json!({ "data": if with_index { items } else { in_order } }).to_string();
        let read = Embeddings::reply(&OpenAi, body.as_bytes(), vectors.len(), Some(3)).expect("a sound reply");
        prop_assert_eq!(read.vectors, vectors);
    }

    #[test]
    fn a_message_goes_back_with_the_fields_it_came_with(value in value(), text in text()) {
        prop_assume!(!value.is_null());
        let written = value.to_string();
        let body = json!({ "choices": [{ "message": { "content": text, "their_own": value } }] }).to_string();
        let reply = Chat::reply(&OpenAi, body.as_bytes()).expect("a sound reply");
        prop_assert_eq!(reply.content, Some(storable(text)));
        prop_assert_eq!(reply.own, OwnFields([("their_own".to_owned(), written)].into()));
    }

    #[test]
    fn markers_stand_where_they_are_said_to_and_taking_them_out_leaves_none(text in text()) {
        let mut end = 0;
        for found in marker::find(&text) {
            prop_assert!(found.range.start >= end && !found.numbers.is_empty());
            prop_assert!(text[found.range.clone()].starts_with(['[', '【']));
            end = found.range.end;
        }
        prop_assert!(marker::without_markers(&text).len() <= text.len());
    }

    #[test]
    fn passages_are_read_back_as_they_were_written(texts in prop::collection::vec(text(), 0..5), title in prop::option::of(text()), notice in text()) {
        let shown = texts.into_iter().zip(1..).map(|(text, number)| passages::Passage::New { number, title: title.clone(), score: 0.5, text, cut: false });
        let report = passages::SearchReport { collection: "c".into(), query: notice.clone(), passages: shown.collect(), omitted: 0, notice: (!notice.is_empty()).then_some(notice) };
        let message = passages::ToolMessage::Results(report);
        prop_assert_eq!(passages::parse(&passages::render(&message)), Some(message));
    }

    #[test]
    fn any_text_is_a_tool_message_or_none(text in text()) {
        let _ = passages::parse(&text);
        let _ = passages::parse(&format!("<search_results collection=\"a\" query=\"b\">\n{text}</search_results>\n"));
    }

    #[test]
    fn nothing_of_a_secret_is_left(secret in "[A-Za-z0-9+/=_-]{12,60}", before in text(), after in text(), from in 0usize..60, to in 0usize..60) {
        let (from, to) = (from.min(secret.len()), to.min(secret.len()));
        let part = &secret[from.min(to)..from.max(to)];
        let redacted = redact(&format!("{before}{part}{after}"), &secret).to_lowercase();
        let lower = secret.to_lowercase();
        for run in lower.as_bytes().windows(8) {
            prop_assert!(!redacted.contains(std::str::from_utf8(run).expect("ASCII")), "{}", redacted);
        }
    }

    #[test]
    fn any_row_is_cut_into_chunks_that_hold_its_words(text in text(), tokens in 16usize..200) {
        let options = ChunkOptions { max_tokens: tokens, overlap_tokens: tokens / 8 };
        let chunks = chunker(DEFAULT).expect("the default").split(&text, &options, &approximate_tokens);
        prop_assert!(chunks.iter().all(|chunk| !chunk.text.trim().is_empty() && chunk.tokens <= tokens));
        let visible = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<std::collections::HashSet<char>>();
        let all: String = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
        prop_assert_eq!(visible(&all), visible(&text));
    }

    #[test]
    fn small_parsers_take_anything(text in text()) {
        let _ = (retry_after(&text, 0), status_named(&text), check_base_url(&text).is_ok(), terms(&text));
        for range in sentences(&text) {
            prop_assert!(!text[range].trim().is_empty());
        }
        prop_assert_eq!(redact(&text, ""), text);
    }
}

proptest! {
    // Each case stores and restores a run after every step.
    #![proptest_config(config(24))]

    #[test]
    fn a_run_holds_to_its_caps_whatever_a_model_says(replies in prop::collection::vec(reply(), 1..9), question in text(), require_grounding: bool, hits in prop::collection::vec(text(), 0..3)) {
        let tool = SearchTool { collection: "facts".into(), description: "Facts.".into() };
        let request = RunRequest { require_grounding, ..RunRequest::new(&question, "server/chat", vec![tool.into()]) };
        let (mut run, mut asked, mut searched) = (Run::new(request), 0, 0);
        let mut effect = run.next(Input::Start);
        let answer = loop {
            if let Some(state) = run.state() {
                let stored: Value = serde_json::from_str(&state.to_string()).expect("JSON");
                let mut restored = Run::restore(Run::VERSION, stored).expect("its own state");
                prop_assert_eq!(&restored.next(Input::Start), &effect);
            }
            effect = match effect {
                Effect::CallModel(_) => {
                    asked += 1;
                    prop_assert!(asked <= 8, "{} calls of the model", asked);
                    run.next(Input::Model(replies[(asked - 1) % replies.len()].clone()))
                }
                Effect::Call(calls) => {
                    searched += calls.len();
                    let found = |_| SearchResult { hits: hits.iter().zip(searched as i64..).map(|(text, key)| Hit {
                        collection: "facts".into(), key: json!({ "id": key }), chunk: 1, content: text.clone(), title: None, link: None, score: 0.5,
                    }).collect() }.into();
                    run.next(Input::Called(calls.into_iter().map(found).collect()))
                }
                Effect::Done(answer) => break answer,
            };
        };
        prop_assert!(searched <= 6 && answer.rounds <= 3 && !answer.text.trim().is_empty());
        prop_assert!(!answer.text.contains('\0') && !answer.text.contains("<think>") || answer.text.contains('`'));
        prop_assert!(answer.text.chars().count() <= Limits::default().max_answer_chars);
        prop_assert_eq!(answer.outcome == Outcome::Answered, !answer.citations.is_empty() && answer.outcome != Outcome::Unknown);
        for citation in &answer.citations {
            let mark = format!("[{}]", citation.marker);
            prop_assert!(answer.text.contains(&mark));
        }
    }
}

/// Four times the text may take some ten times as long, and not sixteen.
#[test]
fn time_grows_with_the_text_and_not_with_its_square() {
    let pieces = [
        "[1]",
        "So it is [1]. ",
        "`a ``b ",
        "<think>",
        "</think>",
        "[",
        "【",
        ". ",
        "```\n",
        "{\"a\":",
        "<tool_call>",
        "a\\u0000",
        "\"",
        "Ж",
    ];
    for piece in pieces {
        let took = |repeat: usize| {
            let text = piece.repeat(repeat);
            let body = json!({ "choices": [{ "message": { "content": text } }] }).to_string();
            let started = Instant::now();
            let reply = Chat::reply(&OpenAi, body.as_bytes()).expect("a sound reply");
            let mut run = Run::new(RunRequest::new("How?", "server/chat", vec![]));
            run.next(Input::Model(reply));
            marker::without_markers(&text);
            error_message(body.as_bytes());
            Redactor::new("sk-some-secret-key").redact(&text);
            started.elapsed()
        };
        took(1_000);
        let (small, large) = (took(20_000), took(80_000));
        assert!(large < small * 12 + Duration::from_millis(500), "{piece:?}: {small:?}, then {large:?}");
    }
}
