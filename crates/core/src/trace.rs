//! A run, printed for a person: what `rag.trace` returns.

use crate::agent::{AnswerDetail, Citation, Detail, ModelCallDetail, Status, Step, Told};
use crate::model::{ToolChoice, Usage};
use crate::text::{counted, one_line};

/// One row of `rag.runs`.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// Identifier of the run.
    pub id: String,
    /// What was asked; `None`: no texts of this run were recorded (`rag.record` was `metadata`).
    pub question: Option<String>,
    /// Chat model, `'server/model-name'`.
    pub model: String,
    /// Where it stands.
    pub status: Status,
    /// `used_search` or `skipped_search`; `None` before its end.
    pub decision: Option<String>,
    /// Why it ended.
    pub stop_reason: Option<String>,
    /// The answer.
    pub answer: Option<String>,
    /// What the answer cites.
    pub citations: Vec<Citation>,
    /// Why it failed.
    pub error: Option<RunError>,
    /// Searches run; 0 before its end, as are the three below.
    pub searches: u32,
    /// Rounds of tool calls.
    pub rounds: u32,
    /// Tokens of all model calls together.
    pub usage: Usage,
    /// Milliseconds from question to end.
    pub latency_ms: Option<f64>,
    /// When it began, as text.
    pub started_at: String,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunError {
    /// The message.
    pub message: String,
    /// Its SQLSTATE.
    pub sqlstate: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}

/// Longest question, answer and error printed, in characters.
const LONG: usize = 1_200;
/// Longest other text printed, in characters.
const SHORT: usize = 160;
/// Most citations, and tool calls of a message, printed.
const MAX_ITEMS: usize = 12;

/// The run as text: a header, the answer with its sources, then the steps, numbered from 1 and indented. Long texts are
/// shortened, and every value stands on one line, so that no text of a row can pass for a line of the trace.
pub fn render(run: &RunRow, steps: &[Step]) -> String {
    let mut out = String::new();
    header(&mut out, run);
    for (step, number) in steps.iter().zip(1..) {
        render_step(&mut out, number, step, run.question.is_some());
    }
    out
}

fn header(out: &mut String, run: &RunRow) {
    let mut field = |name: &str, value: &str| out.push_str(&format!("{name:<10}{value}\n"));
    field("run", &one_line(&run.id, SHORT));
    field("started", &one_line(&run.started_at, SHORT));
    match &run.question {
        Some(question) => field("question", &one_line(question, LONG)),
        None => field(
            "recorded",
            "no texts, since rag.record was metadata: no question, answer, passages, arguments, results",
        ),
    }
    field("model", &one_line(&run.model, SHORT));
    let outcome = match run.status {
        Status::Running => "not finished",
        Status::AwaitingApproval => "waiting for approval",
        Status::Answered | Status::Unknown | Status::Ungrounded | Status::Failed | Status::Cancelled => {
            run.status.as_str()
        }
    };
    let words = [run.decision.as_deref(), run.stop_reason.as_deref().filter(|reason| *reason != outcome)];
    let words = words.into_iter().flatten().map(|word| one_line(word, SHORT));
    field("outcome", &std::iter::once(outcome.to_owned()).chain(words).collect::<Vec<_>>().join(", "));
    let mut cost =
        vec![counted(run.rounds.into(), "round", "rounds"), counted(run.searches.into(), "search", "searches")];
    cost.extend(tokens(run.usage));
    cost.extend(run.latency_ms.map(milliseconds));
    field("cost", &cost.join(", "));
    if let Some(answer) = &run.answer {
        field("answer", &one_line(answer, LONG));
    }
    if let Some(RunError { message, sqlstate, hint }) = &run.error {
        let sqlstate = sqlstate.as_deref().map(|code| format!(" (SQLSTATE {})", one_line(code, SHORT)));
        field("error", &format!("{}{}", one_line(message, LONG), sqlstate.unwrap_or_default()));
        if let Some(hint) = hint {
            field("hint", &one_line(hint, LONG));
        }
    }
    for citation in run.citations.iter().take(MAX_ITEMS) {
        field("source", &source(citation));
    }
}

fn source(citation: &Citation) -> String {
    let title =
        citation.title.as_deref().filter(|title| !title.trim().is_empty()).map(|title| format!(" {}", quoted(title)));
    format!(
        "[{}]{} {} {} chunk {}",
        citation.marker,
        title.unwrap_or_default(),
        one_line(&citation.collection, SHORT),
        one_line(&citation.key.to_string(), SHORT),
        citation.chunk
    )
}

fn render_step(out: &mut String, number: usize, step: &Step, has_texts: bool) {
    let mut cost: Vec<String> = tokens(step.usage).into_iter().collect();
    cost.extend(step.latency_ms.map(milliseconds));
    let cost = if cost.is_empty() { String::new() } else { format!(" ({})", cost.join(", ")) };
    let kind = step.detail.kind().replace('_', " ");
    out.push_str(&format!("\n{number:>3}. round {}: {kind}{cost}\n", step.round));
    let mut say = |text: String| out.push_str(&format!("       {text}\n"));
    match &step.detail {
        Detail::ModelCall(detail) => model_call(detail, has_texts, &mut say),
        Detail::Tool(detail) => detail.trace(&mut say),
        Detail::Answer(detail) => answer(detail, &mut say),
    }
}

fn model_call(detail: &ModelCallDetail, has_texts: bool, say: &mut impl FnMut(String)) {
    let by = detail.model.as_deref().map(|model| format!("{} ", one_line(model, SHORT))).unwrap_or_default();
    let choice = if detail.tool_choice == ToolChoice::None { ", tools forbidden" } else { "" };
    let told = match detail.told {
        None => "",
        Some(Told::Empty) => ", told that its reply was empty",
        Some(Told::Search) => ", told to search before it answers",
        Some(Told::Cite) => ", told to cite what its answer rests on",
    };
    say(format!("{by}read {}{choice}{told}", counted(detail.messages as i64, "message", "messages")));
    let content = detail.content.as_deref().filter(|text| !text.trim().is_empty());
    if let Some(content) = content {
        say(format!("said {}", quoted(content)));
    }
    let shown = if has_texts { detail.tool_calls.as_slice() } else { &[] };
    for call in shown.iter().take(MAX_ITEMS) {
        let name = if call.name.trim().is_empty() { "(no name)" } else { &call.name };
        say(format!("called {} {}", one_line(name, SHORT), one_line(&call.arguments, SHORT)));
    }
    let more = detail.tool_calls.len().saturating_sub(MAX_ITEMS) + detail.tool_calls_dropped.unwrap_or(0);
    if !has_texts && !detail.tool_calls.is_empty() {
        say(format!("called {}", counted(detail.tool_calls.len() as i64, "tool", "tools")));
    } else if more > 0 {
        say(format!("and {more} more"));
    }
    if has_texts && detail.tool_calls.is_empty() && content.is_none() {
        say("said nothing".into());
    }
    if detail.truncated {
        say("was cut off at its output limit".into());
    }
    if detail.filtered {
        say("was ended by the provider's content filter".into());
    }
}

fn answer(detail: &AnswerDetail, say: &mut impl FnMut(String)) {
    say(format!("{}, {}, stopped: {}", detail.outcome.as_str(), detail.decision.as_str(), detail.stop_reason.as_str()));
    let removed = match detail.removed_markers {
        0 => String::new(),
        n => format!(", {} removed that named nothing", counted(n.into(), "marker", "markers")),
    };
    let uncited = if detail.uncited { ", none of the evidence is cited" } else { "" };
    say(format!(
        "{} of {}{removed}{uncited}",
        counted(detail.citations as i64, "citation", "citations"),
        counted(detail.evidence as i64, "passage", "passages")
    ));
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", one_line(text, SHORT))
}

fn tokens(usage: Usage) -> Option<String> {
    let Usage { input_tokens, output_tokens } = usage;
    (input_tokens > 0 || output_tokens > 0).then(|| format!("{input_tokens} tokens read, {output_tokens} written"))
}

fn milliseconds(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run() -> RunRow {
        RunRow {
            id: "0192".into(),
            question: Some("What does\nVACUUM do?".into()),
            model: "fake/chat".into(),
            status: Status::Running,
            decision: None,
            stop_reason: None,
            answer: None,
            citations: Vec::new(),
            error: None,
            searches: 0,
            rounds: 0,
            usage: Usage::default(),
            latency_ms: None,
            started_at: "2030-01-01 00:00:00+00".into(),
        }
    }

    fn step(kind: &str, round: u32, detail: Value) -> Step {
        let detail = Detail::read(kind, detail).expect("a detail of its kind");
        Step { round, detail, usage: Usage::default(), latency_ms: Some(12.3) }
    }

    #[test]
    fn a_run_reads_from_question_to_answer() {
        let citation = json!({"marker": 1, "collection": "manual", "key": {"url": "sql-vacuum.html"}, "chunk": 1, "title": "VACUUM", "link": null, "quote": "…"});
        let run = RunRow {
            status: Status::Answered,
            decision: Some("used_search".into()),
            stop_reason: Some("max_rounds".into()),
            answer: Some("It reclaims storage [1].".into()),
            citations: vec![serde_json::from_value(citation).unwrap()],
            searches: 1,
            rounds: 2,
            usage: Usage { input_tokens: 300, output_tokens: 20 },
            latency_ms: Some(1234.5),
            ..run()
        };
        let steps = [
            Step {
                usage: Usage { input_tokens: 100, output_tokens: 10 },
                ..step(
                    "model_call",
                    1,
                    json!({"messages": 2, "tool_choice": "auto", "content": null, "tool_calls": [
                    {"name": "search_manual", "arguments": "{\"query\":\"vacuum\"}"}, {"name": "search_web", "arguments": "{"}], "truncated": false}),
                )
            },
            step(
                "search",
                1,
                json!({"tool": "search_manual", "collection": "manual", "query": "vacuum", "k": 5, "from_memory": false, "new_evidence": 1, "hits": [
                {"key": {"url": "sql-vacuum.html"}, "chunk": 1, "title": "VACUUM", "score": 0.75, "marker": 1, "new": true},
                {"key": {"url": "a.html"}, "chunk": 2, "title": null, "score": 0.5, "marker": 1, "new": false},
                {"key": {"url": "b.html"}, "chunk": 3, "title": null, "score": 0.25, "new": false, "omitted": true}]}),
            ),
            Step {
                latency_ms: None,
                ..step(
                    "search",
                    1,
                    json!({"tool": "search_web", "arguments": "{", "error": "there is no tool \"search_web\""}),
                )
            },
            step(
                "model_call",
                2,
                json!({"messages": 5, "tool_choice": "none", "content": "It reclaims\n  storage [1].", "tool_calls": [], "truncated": true}),
            ),
            Step {
                latency_ms: None,
                ..step(
                    "answer",
                    2,
                    json!({"decision": "used_search", "outcome": "answered", "stop_reason": "max_rounds", "citations": 1, "removed_markers": 2, "evidence": 1, "uncited": false}),
                )
            },
        ];
        assert_eq!(render(&run, &steps), include_str!("../tests/data/trace.txt"));
    }

    #[test]
    fn without_texts_numbers_stay_and_the_trace_says_so() {
        let planted = "planted";
        let hits =
            json!([{"key": {"id": planted}, "chunk": 3, "title": planted, "score": 0.75, "new": true, "marker": 1}]);
        let details = [
            (
                "model_call",
                json!({"messages": 2, "tool_choice": "auto", "content": planted, "truncated": false,
                "tool_calls": [{"name": planted, "arguments": planted}, {"name": planted, "arguments": planted}]}),
            ),
            (
                "search",
                json!({"tool": "search_c", "collection": "c", "query": planted, "k": 5, "from_memory": false,
                "new_evidence": 1, "hits": hits}),
            ),
            ("search", json!({"tool": "search_c", "collection": "c", "query": planted, "error": "not searched"})),
            ("search", json!({"tool": planted, "arguments": planted, "error": planted})),
            (
                "model_call",
                json!({"messages": 5, "tool_choice": "none", "content": planted, "tool_calls": [], "truncated": false}),
            ),
        ];
        let steps: Vec<Step> = details
            .into_iter()
            .map(|(kind, detail)| {
                let whole = step(kind, 1, detail);
                let stored = whole.detail.clone().without_texts().to_json();
                assert!(!stored.to_string().contains(planted), "{stored}");
                step(kind, 1, stored)
            })
            .collect();
        let text = render(&RunRow { question: None, ..run() }, &steps);
        assert!(!text.contains(planted), "{text}");
        for words in [
            "recorded  no texts, since rag.record was metadata",
            "called 2 tools\n",
            "       c, k 5\n       1 passage, 1 new\n       [1] 0.750 chunk 3\n",
            "       c\n       refused: not searched\n",
            "12 ms)\n       refused\n",
        ] {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        assert!(!text.contains("said nothing"), "{text}");
    }

    #[test]
    fn runs_that_are_not_answered_say_where_they_stand() {
        let error =
            RunError { message: "server down".into(), sqlstate: Some("08006".into()), hint: Some("Ask again.".into()) };
        let failed = render(&RunRow { status: Status::Failed, error: Some(error), ..run() }, &[]);
        for line in ["outcome   failed\n", "error     server down (SQLSTATE 08006)\n", "hint      Ask again.\n"] {
            assert!(failed.contains(line), "{failed}");
        }
        for (status, words) in [
            (Status::Running, "not finished"),
            (Status::AwaitingApproval, "waiting for approval"),
            (Status::Cancelled, "cancelled"),
        ] {
            let text = render(&RunRow { status, ..run() }, &[]);
            assert!(text.contains(&format!("outcome   {words}\n")), "{text}");
        }
    }

    #[test]
    fn what_a_model_was_told_and_what_ended_it_is_said() {
        for (field, value, words) in [
            ("told", json!("search"), "told to search before it answers"),
            ("told", json!("cite"), "told to cite what its answer rests on"),
            ("told", json!("empty"), "told that its reply was empty"),
            ("truncated", json!(true), "was cut off at its output limit"),
            ("filtered", json!(true), "was ended by the provider's content filter"),
        ] {
            let mut detail =
                json!({"messages": 4, "tool_choice": "auto", "content": "So.", "tool_calls": [], "truncated": false});
            detail[field] = value;
            let text = render(&RunRow { status: Status::Ungrounded, ..run() }, &[step("model_call", 1, detail)]);
            assert!(text.contains(words) && text.contains("outcome   ungrounded\n"), "{text}");
        }
    }

    #[test]
    fn steps_that_this_version_does_not_know_are_an_error() {
        for (kind, detail, words) in [
            ("approval", json!({"by": "x"}), "no step of kind \"approval\""),
            ("search", Value::Null, "kind \"search\" cannot be read"),
            ("model_call", json!([]), "kind \"model_call\" cannot be read"),
        ] {
            let error = Detail::read(kind, detail).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn long_texts_are_shortened_and_cannot_forge_lines() {
        let hostile = format!("x\n\n  9. round 9: answer\u{1b}[31m {}", "y".repeat(5000));
        let run = RunRow { question: Some(hostile.clone()), answer: Some(hostile.clone()), ..run() };
        let many: Vec<Value> = (0..40)
            .map(
                |i| json!({"key": {"id": hostile}, "chunk": i, "title": hostile, "score": 1, "new": true, "marker": i}),
            )
            .collect();
        let detail = json!({"tool": hostile, "query": hostile, "collection": hostile, "k": 40, "from_memory": false, "new_evidence": 40, "hits": many});
        let text = render(&run, &[step("search", 1, detail)]);
        assert!(text.lines().all(|l| l.chars().count() <= LONG + 10 && !l.starts_with("  9.")), "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("and 28 more"));
    }
}
