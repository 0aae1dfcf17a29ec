//! Tool calls that a model wrote as text, as small models do: a lone JSON object, or one in the tags of its own format.

use serde_json::{Map, Value};

use crate::model::{MAX_CALLS, ToolCall};
use crate::provider::json::mended;

/// Tags that stand around calls, whatever stands before them.
const TAGS: &[(&str, &str)] = &[
    ("<tool_call>", "</tool_call>"),
    ("<tool_calls>", "</tool_calls>"),
    ("<function_call>", "</function_call>"),
    ("<|tool_call|>", "<|/tool_call|>"),
];
/// What stands before calls that nothing ends.
const HEADS: &[&str] = &["[TOOL_CALLS]", "<|python_tag|>", "<|tool_call|>", "functools"];
/// Longest text that is looked at, in bytes.
const MAX_TEXT: usize = 64 << 10;

/// The calls that `text` is, if it is nothing else: each names a tool that `is_offered`. None otherwise.
pub(super) fn read(text: &str, is_offered: impl Fn(&str) -> bool) -> Vec<ToolCall> {
    let text = text.trim();
    if text.len() > MAX_TEXT {
        return Vec::new();
    }
    let mut calls = Vec::new();
    for piece in pieces(text) {
        match read_piece(piece, &is_offered) {
            Some(found) => calls.extend(found),
            None => return Vec::new(),
        }
    }
    calls.truncate(MAX_CALLS);
    for (call, number) in calls.iter_mut().zip(1..) {
        call.id = format!("call_{number}");
    }
    calls
}

/// The texts that should be JSON.
fn pieces(text: &str) -> Vec<&str> {
    for (open, close) in TAGS {
        if text.contains(open) {
            // The end may be missing: the model stopped there.
            return text.split(open).skip(1).map(|rest| rest.split(close).next().unwrap_or_default().trim()).collect();
        }
    }
    for head in HEADS {
        if let Some(rest) = text.strip_prefix(head) {
            return vec![rest.trim()];
        }
    }
    if let Some(rest) = text.strip_prefix("```") {
        // A fence with the language's name, and nothing behind it.
        let body = rest.split_once('\n').map(|(_, body)| body).and_then(|body| body.trim().strip_suffix("```"));
        return body.map(str::trim).into_iter().collect();
    }
    vec![text]
}

fn read_piece(piece: &str, is_offered: &impl Fn(&str) -> bool) -> Option<Vec<ToolCall>> {
    if !piece.starts_with(['{', '[']) {
        return None;
    }
    match serde_json::from_str(&mended(piece)).ok()? {
        Value::Array(items) if !items.is_empty() => items.iter().map(|item| read_call(item, is_offered)).collect(),
        item => Some(vec![read_call(&item, is_offered)?]),
    }
}

/// `{"name", "arguments"}`, also as `parameters`, or inside `function`.
fn read_call(value: &Value, is_offered: &impl Fn(&str) -> bool) -> Option<ToolCall> {
    let object = value.as_object()?;
    let function: &Map<String, Value> = object.get("function").and_then(Value::as_object).unwrap_or(object);
    let name = ["name", "tool", "tool_name", "function"].iter().find_map(|field| function.get(*field)?.as_str())?;
    if !is_offered(name) {
        return None;
    }
    let arguments = ["arguments", "parameters", "args", "input"].iter().find_map(|field| function.get(*field))?;
    let arguments = match arguments {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Some(ToolCall { name: name.to_owned(), arguments, ..ToolCall::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(text: &str) -> Vec<(String, String)> {
        read(text, |name| name == "search_a").into_iter().map(|c| (c.name, c.arguments)).collect()
    }

    #[test]
    fn a_call_written_as_text_is_a_call() {
        let call = r#"{"name": "search_a", "arguments": {"query": "x"}}"#;
        let one = vec![("search_a".to_owned(), r#"{"query":"x"}"#.to_owned())];
        for text in [
            call.to_owned(),
            format!("  {call}\n"),
            format!("```json\n{call}\n```"),
            format!("<tool_call>\n{call}\n</tool_call>"),
            format!("I will look that up.\n<tool_call>{call}"),
            format!("[TOOL_CALLS][{call}]"),
            format!("<|python_tag|>{call}"),
            format!("[{call}]"),
            r#"{"type":"function","function":{"name":"search_a","parameters":{"query":"x"}}}"#.to_owned(),
            r#"{"tool":"search_a","input":"{\"query\":\"x\"}"}"#.to_owned(),
        ] {
            assert_eq!(calls(&text), one, "{text}");
        }
        let odd = r#"{"name": "search_a", "arguments": {"query": "x\ud83d\u0000"}}"#;
        assert_eq!(calls(odd), [("search_a".to_owned(), "{\"query\":\"x\u{fffd}\u{fffd}\"}".to_owned())]);
        let two = format!("<tool_call>{call}</tool_call>\n<tool_call>{call}</tool_call>");
        assert_eq!(calls(&two).len(), 2);
        let ids: Vec<String> = read(&two, |_| true).into_iter().map(|c| c.id).collect();
        assert_eq!(ids, ["call_1", "call_2"]);
        assert_eq!(read(&format!("[{}{call}]", format!("{call},").repeat(500)), |_| true).len(), MAX_CALLS);
    }

    #[test]
    fn other_texts_are_answers() {
        for text in [
            "",
            "It is so [1].",
            r#"{"name": "search_b", "arguments": {}}"#,
            r#"{"name": "search_a"}"#,
            r#"{"answer": 1}"#,
            r#"Call {"name": "search_a", "arguments": {}}"#,
            "```json\n{}\n```",
            "```",
            "<tool_call>search_a</tool_call>",
            "[]",
            "[1]",
            "{",
        ] {
            assert_eq!(calls(text), [], "{text}");
        }
    }
}
