//! A run, printed for a person: what `rag.trace` returns.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text::shorten;

/// One row of `rag.runs`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRow {
    /// Identifier of the run.
    pub id: String,
    /// What was asked.
    pub question: String,
    /// Chat model, `'server/model-name'`.
    pub model: String,
    /// `used_search` or `skipped_search`; `None` while it runs or when it failed.
    pub decision: Option<String>,
    /// `answered` or `unknown`.
    pub outcome: Option<String>,
    /// Why it ended.
    pub stop_reason: Option<String>,
    /// The answer.
    pub answer: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Citations as in `rag.answer`; anything but an array prints as none.
    pub citations: serde_json::Value,
    /// Searches run.
    pub searches: i64,
    /// Rounds of tool calls.
    pub rounds: i64,
    /// Tokens read by the model.
    pub input_tokens: i64,
    /// Tokens written by the model.
    pub output_tokens: i64,
    /// Time from question to answer.
    pub latency_ms: Option<f64>,
    /// When it began, as text.
    pub started_at: Option<String>,
}

/// One row of `rag.steps`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepRow {
    /// Place within the run, from 1.
    pub number: i64,
    /// `model_call`, `search` or `answer`.
    pub kind: String,
    /// Round, from 1.
    pub round: i64,
    /// The step's particulars, see [`crate::agent::StepKind`].
    pub detail: serde_json::Value,
    /// Tokens read.
    pub input_tokens: i64,
    /// Tokens written.
    pub output_tokens: i64,
    /// Time it took.
    pub latency_ms: Option<f64>,
}

/// Longest question, answer and error printed, in characters.
const LONG: usize = 1_200;
/// Longest other text printed, in characters.
const SHORT: usize = 160;
/// Most tool calls of a message and hits of a search printed.
const MAX_ITEMS: usize = 12;

/// The run as text: a header, the answer with its sources, then the steps, numbered and indented. Long texts are shortened,
/// and every value stands on one line, so that no text of a row can pass for a line of the trace.
pub fn render(run: &RunRow, steps: &[StepRow]) -> String {
    let mut out = String::new();
    header(&mut out, run);
    for step in steps {
        render_step(&mut out, step);
    }
    out
}

fn header(out: &mut String, run: &RunRow) {
    let mut field = |name: &str, value: &str| out.push_str(&format!("{name:<10}{value}\n"));
    field("run", &line(&run.id, SHORT));
    if let Some(started) = &run.started_at {
        field("started", &line(started, SHORT));
    }
    field("question", &line(&run.question, LONG));
    field("model", &line(&run.model, SHORT));
    let outcome = match (&run.error, &run.outcome) {
        (Some(_), _) => "failed".to_owned(),
        (None, Some(outcome)) => line(outcome, SHORT),
        (None, None) => "not finished".to_owned(),
    };
    let words = [run.decision.as_deref(), run.stop_reason.as_deref().filter(|r| *r != outcome)];
    let words: Vec<String> = words.into_iter().flatten().map(|w| line(w, SHORT)).collect();
    field("outcome", &std::iter::once(outcome).chain(words).collect::<Vec<_>>().join(", "));
    let mut cost = vec![count(run.rounds, "round", "rounds"), count(run.searches, "search", "searches")];
    cost.extend(tokens(run.input_tokens, run.output_tokens));
    cost.extend(run.latency_ms.map(milliseconds));
    field("cost", &cost.join(", "));
    if let Some(answer) = &run.answer {
        field("answer", &line(answer, LONG));
    }
    if let Some(error) = &run.error {
        field("error", &line(error, LONG));
    }
    for citation in run.citations.as_array().into_iter().flatten().take(MAX_ITEMS) {
        field("source", &source(citation));
    }
}

fn source(citation: &Value) -> String {
    let title = text_of(&citation["title"]).map(|title| format!(" \"{}\"", line(title, SHORT))).unwrap_or_default();
    format!("[{}]{title} {}", citation["marker"], place(&citation["collection"], &citation["key"], &citation["chunk"]))
}

fn place(collection: &Value, key: &Value, chunk: &Value) -> String {
    let mut out = text_of(collection).map(|c| format!("{} ", line(c, SHORT))).unwrap_or_default();
    out.push_str(&line(&key.to_string(), SHORT));
    if !chunk.is_null() {
        out.push_str(&format!(" chunk {chunk}"));
    }
    out
}

fn render_step(out: &mut String, step: &StepRow) {
    let mut cost: Vec<String> = tokens(step.input_tokens, step.output_tokens).into_iter().collect();
    cost.extend(step.latency_ms.map(milliseconds));
    let cost = if cost.is_empty() { String::new() } else { format!(" ({})", cost.join(", ")) };
    let kind = line(&step.kind.replace('_', " "), SHORT);
    out.push_str(&format!("\n{:>3}. round {}: {kind}{cost}\n", step.number, step.round));
    let mut say = |text: String| out.push_str(&format!("       {text}\n"));
    match step.kind.as_str() {
        "model_call" => model_call(&step.detail, &mut say),
        "search" => search(&step.detail, &mut say),
        "answer" => answer(&step.detail, &mut say),
        _ => say(line(&step.detail.to_string(), LONG)),
    }
}

fn model_call(detail: &Value, say: &mut impl FnMut(String)) {
    let choice = if detail["tool_choice"] == "none" { ", tools forbidden" } else { "" };
    if let Some(messages) = detail["messages"].as_i64() {
        say(format!("read {}{choice}", count(messages, "message", "messages")));
    }
    if let Some(content) = text_of(&detail["content"]) {
        say(format!("said {}", quoted(content)));
    }
    let calls = detail["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    for call in calls.iter().take(MAX_ITEMS) {
        let name = text_of(&call["name"]).unwrap_or("(no name)");
        say(format!("called {} {}", line(name, SHORT), line(text_of(&call["arguments"]).unwrap_or_default(), SHORT)));
    }
    more(calls.len(), say);
    if calls.is_empty() && text_of(&detail["content"]).is_none() {
        say("said nothing".into());
    }
    if detail["truncated"] == true {
        say("was cut off at its output limit".into());
    }
}

fn search(detail: &Value, say: &mut impl FnMut(String)) {
    if let Some(query) = text_of(&detail["query"]) {
        let from_memory = if detail["from_memory"] == true { ", answered from memory" } else { "" };
        let k = detail["k"].as_i64().map(|k| format!(", k {k}")).unwrap_or_default();
        let collection = line(text_of(&detail["collection"]).unwrap_or_default(), SHORT);
        say(format!("{collection}: {}{k}{from_memory}", quoted(query)));
    } else if let Some(tool) = text_of(&detail["tool"]) {
        say(format!("{} {}", line(tool, SHORT), line(text_of(&detail["arguments"]).unwrap_or_default(), SHORT)));
    }
    if let Some(error) = text_of(&detail["error"]) {
        say(format!("refused: {}", line(error, SHORT * 2)));
        return;
    }
    let hits = detail["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let new = detail["new_evidence"].as_i64().unwrap_or(0);
    say(format!("{}, {new} new", count(hits.len() as i64, "passage", "passages")));
    for hit in hits.iter().take(MAX_ITEMS) {
        let marker = hit["marker"].as_i64().map_or_else(|| "left out".to_owned(), |n| format!("[{n}]"));
        let seen = if hit["new"] == false && hit["marker"].is_i64() { ", seen before" } else { "" };
        let score = hit["score"].as_f64().map(|s| format!(" {s:.3}")).unwrap_or_default();
        let title = text_of(&hit["title"]).map(|t| format!(" {}", quoted(t))).unwrap_or_default();
        say(format!("{marker}{score}{title} {}{seen}", place(&Value::Null, &hit["key"], &hit["chunk"])));
    }
    more(hits.len(), say);
}

fn answer(detail: &Value, say: &mut impl FnMut(String)) {
    let word = |name: &str| text_of(&detail[name]).map(|w| line(w, SHORT)).unwrap_or_default();
    say(format!("{}, {}, stopped: {}", word("outcome"), word("decision"), word("stop_reason")));
    let number = |name: &str| detail[name].as_i64().unwrap_or(0);
    let removed = match number("removed_markers") {
        0 => String::new(),
        n => format!(", {} removed that named nothing", count(n, "marker", "markers")),
    };
    let uncited = if detail["uncited"] == true { ", none of the evidence is cited" } else { "" };
    say(format!(
        "{} of {}{removed}{uncited}",
        count(number("citations"), "citation", "citations"),
        count(number("evidence"), "passage", "passages")
    ));
}

fn more(items: usize, say: &mut impl FnMut(String)) {
    if items > MAX_ITEMS {
        say(format!("and {} more", items - MAX_ITEMS));
    }
}

fn text_of(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.trim().is_empty())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", line(text, SHORT))
}

/// `text` on one line without control characters, at most `max` characters.
fn line(text: &str, max: usize) -> String {
    // White space only shrinks, so no more than this can be shown.
    let head: String = text.chars().take(max.saturating_mul(8)).map(|c| if c.is_control() { ' ' } else { c }).collect();
    shorten(&head.split_whitespace().collect::<Vec<_>>().join(" "), max)
}

fn count(n: i64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn tokens(input: i64, output: i64) -> Option<String> {
    (input > 0 || output > 0).then(|| format!("{input} tokens read, {output} written"))
}

fn milliseconds(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(number: i64, kind: &str, round: i64, detail: Value) -> StepRow {
        StepRow { number, kind: kind.into(), round, detail, latency_ms: Some(12.3), ..StepRow::default() }
    }

    #[test]
    fn a_run_reads_from_question_to_answer() {
        let run = RunRow {
            id: "0192".into(),
            question: "What does\nVACUUM do?".into(),
            model: "fake/chat".into(),
            decision: Some("used_search".into()),
            outcome: Some("answered".into()),
            stop_reason: Some("max_rounds".into()),
            answer: Some("It reclaims storage [1].".into()),
            citations: json!([{"marker": 1, "collection": "manual", "key": {"url": "sql-vacuum.html"}, "chunk": 1, "title": "VACUUM", "quote": "…"}]),
            searches: 1,
            rounds: 2,
            input_tokens: 300,
            output_tokens: 20,
            latency_ms: Some(1234.5),
            started_at: Some("2030-01-01 00:00:00+00".into()),
            error: None,
        };
        let steps = [
            StepRow {
                input_tokens: 100,
                output_tokens: 10,
                ..step(
                    1,
                    "model_call",
                    1,
                    json!({"messages": 2, "tool_choice": "auto", "content": null, "tool_calls": [
                    {"name": "search_manual", "arguments": "{\"query\":\"vacuum\"}"}, {"name": "search_web", "arguments": "{"}], "truncated": false}),
                )
            },
            step(
                2,
                "search",
                1,
                json!({"tool": "search_manual", "collection": "manual", "query": "vacuum", "k": 5, "from_memory": false, "new_evidence": 1, "hits": [
                {"key": {"url": "sql-vacuum.html"}, "chunk": 1, "title": "VACUUM", "score": 0.75, "marker": 1, "new": true},
                {"key": {"url": "a.html"}, "chunk": 2, "title": null, "score": 0.5, "marker": 1, "new": false},
                {"key": {"url": "b.html"}, "chunk": 3, "title": null, "score": 0.25, "new": false, "omitted": true}]}),
            ),
            StepRow {
                latency_ms: None,
                ..step(
                    3,
                    "search",
                    1,
                    json!({"tool": "search_web", "arguments": "{", "error": "there is no tool \"search_web\""}),
                )
            },
            step(
                4,
                "model_call",
                2,
                json!({"messages": 5, "tool_choice": "none", "content": "It reclaims\n  storage [1].", "tool_calls": [], "truncated": true}),
            ),
            StepRow {
                latency_ms: None,
                ..step(
                    5,
                    "answer",
                    2,
                    json!({"decision": "used_search", "outcome": "answered", "stop_reason": "max_rounds", "citations": 1, "removed_markers": 2, "evidence": 1, "uncited": false}),
                )
            },
        ];
        assert_eq!(render(&run, &steps), include_str!("../tests/data/trace.txt"));
    }

    #[test]
    fn a_failed_run_says_why_and_odd_rows_do_not_break_it() {
        let run = RunRow { question: "q".into(), error: Some("server down".into()), ..RunRow::default() };
        let text = render(
            &run,
            &[
                step(1, "approval", 1, json!({"by": "x"})),
                step(2, "search", 1, Value::Null),
                step(3, "model_call", 1, json!([])),
            ],
        );
        assert!(text.contains("outcome   failed\n") && text.contains("error     server down\n"), "{text}");
        assert!(text.contains("round 1: approval") && text.contains("{\"by\":\"x\"}"), "{text}");
        assert!(render(&RunRow::default(), &[]).contains("not finished"));
    }

    #[test]
    fn long_texts_are_shortened_and_cannot_forge_lines() {
        let hostile = format!("x\n\n  9. round 9: answer\u{1b}[31m {}", "y".repeat(5000));
        let run = RunRow { question: hostile.clone(), answer: Some(hostile.clone()), ..RunRow::default() };
        let many: Vec<Value> = (0..40)
            .map(
                |i| json!({"key": {"id": hostile}, "chunk": i, "title": hostile, "score": 1, "new": true, "marker": i}),
            )
            .collect();
        let text =
            render(&run, &[step(1, "search", 1, json!({"query": hostile, "collection": hostile, "hits": many}))]);
        assert!(text.lines().all(|l| l.chars().count() <= LONG + 10 && !l.starts_with("  9.")), "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("and 28 more"));
    }
}
