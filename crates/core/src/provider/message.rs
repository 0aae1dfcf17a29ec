//! Words for a person out of a provider's body.

use serde_json::Value;

use crate::text::shorten;

/// The longest message [`error_message`] gives, in characters.
const MAX_CHARS: usize = 300;
/// So much of an error's body is looked at, in bytes.
pub(super) const MAX_ERROR_BODY: usize = 64 << 10;

/// The provider's own words from an error body, else a short printable excerpt; at most 300 characters, one line.
///
/// Reads `{"error":{"message":…}}` (OpenAI), `{"error":"…"}` (Ollama), `{"message":…}`, `{"detail":…}` (vLLM, FastAPI),
/// `{"errors":[…]}` and lists of any of them (Gemini).
///
/// ```
/// use ragent_core::provider::error_message;
/// assert_eq!(error_message(br#"{"error":{"message":"no such model","code":404}}"#), "no such model");
/// ```
pub fn error_message(body: &[u8]) -> String {
    let body = &body[..body.len().min(MAX_ERROR_BODY)];
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => match words(&value, 0) {
            Some(words) => printable(words.as_bytes(), MAX_CHARS),
            None => printable(body, MAX_CHARS),
        },
        Err(_) if body.trim_ascii_start().starts_with(b"<") => html_excerpt(body),
        Err(_) => printable(body, MAX_CHARS),
    }
}

/// The first text under the names that providers use for it.
fn words(value: &Value, depth: u8) -> Option<String> {
    if depth > 4 {
        return None;
    }
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Array(items) => items.iter().find_map(|item| words(item, depth + 1)),
        Value::Object(map) => ["error", "message", "msg", "detail", "details", "errors", "title", "reason"]
            .iter()
            .find_map(|name| map.get(*name).and_then(|inner| words(inner, depth + 1))),
        _ => None,
    }
}

/// Title of an HTML page, else its text without tags.
pub fn html_excerpt(body: &[u8]) -> String {
    let page = String::from_utf8_lossy(&body[..body.len().min(8192)]).into_owned();
    // ASCII lower-casing keeps byte offsets.
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title").and_then(|open| {
        let start = open + lower[open..].find('>')? + 1;
        let end = start + lower[start..].find("</title")?;
        Some(&page[start..end])
    });
    match title {
        Some(title) if !title.trim().is_empty() => printable(title.as_bytes(), 120),
        _ => printable(strip_tags(&page).as_bytes(), 120),
    }
}

fn strip_tags(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut inside = false;
    for c in page.chars() {
        match c {
            '<' => inside = true,
            '>' if inside => {
                inside = false;
                out.push(' ');
            }
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out
}

/// One printable line of at most `max` characters: white space collapsed, control characters and bytes that
/// are no UTF-8 shown as `?`.
pub fn printable(body: &[u8], max: usize) -> String {
    // A character has at most four bytes, and collapsing only shortens; white space beyond this is not worth reading.
    let head = &body[..body.len().min(max.saturating_mul(16))];
    let text = String::from_utf8_lossy(head);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String =
        line.chars().map(|c| if c.is_control() || c == char::REPLACEMENT_CHARACTER { '?' } else { c }).collect();
    if line.is_empty() { "(nothing)".into() } else { shorten(&line, max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_providers_own_words_are_found() {
        for (body, words) in [
            (r#"{"error":{"message":"Incorrect API key","type":"x"}}"#, "Incorrect API key"),
            (r#"{"error":"model not found"}"#, "model not found"),
            (r#"{"object":"error","message":"too long"}"#, "too long"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#, "field required"),
            (r#"[{"error":{"code":400,"message":"bad key"}}]"#, "bad key"),
            (r#"{"error":{"message":null,"details":"quota"}}"#, "quota"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
            ("<!doctype html><TITLE>Forbidden</TITLE>", "Forbidden"),
            ("<p>busy, <b>come back</b></p>", "busy, come back"),
            ("plain\r\n  words", "plain words"),
            ("", "(nothing)"),
        ] {
            assert_eq!(error_message(body.as_bytes()), words, "{body}");
        }
    }

    #[test]
    fn a_message_is_one_printable_line_of_at_most_300_characters() {
        let long = error_message(format!(r#"{{"error":"{}"}}"#, "ж".repeat(5000)).as_bytes());
        assert_eq!(long.chars().count(), 300);
        let binary = error_message(&[0xff, 0x00, 0x1b, b'[', b'3', b'1', b'm', 0xc3]);
        assert!(binary.chars().all(|c| !c.is_control()), "{binary:?}");
        assert!(error_message(&b" ".repeat(20_000_000)).chars().count() <= 300);
    }
}
