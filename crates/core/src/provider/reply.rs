//! A reply with a success status, and why it may be unusable all the same.

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use super::json::{Fields, First};
use super::{json, message, status_named};
use crate::text::shorten;

/// Why a reply with a success status cannot be used. Every message names what was expected and what came.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The body is no JSON at all, usually an HTML page of a proxy.
    #[error("expected JSON, got {what}: {excerpt}")]
    NotJson {
        /// "an HTML page", "an empty body", "compressed data", "something else".
        what: &'static str,
        /// Printable beginning of the body.
        excerpt: String,
    },
    /// The body begins as JSON and then breaks.
    #[error("reply is broken JSON ({detail}), near: {excerpt}")]
    BrokenJson {
        /// The parser's words, with the place.
        detail: String,
        /// Printable text around the place.
        excerpt: String,
    },
    /// The body ends too early.
    #[error("reply was cut off after {bytes} bytes, near: {excerpt}")]
    Cut {
        /// Bytes received.
        bytes: usize,
        /// Printable end of the body.
        excerpt: String,
    },
    /// JSON of another shape.
    #[error("reply has an unexpected shape: {0}")]
    Shape(String),
    /// A success status, but the body is an error.
    #[error("provider reported an error: {words}")]
    Reported {
        /// The HTTP status that it stands for, where the error says so.
        status: Option<u16>,
        /// The provider's words.
        words: String,
    },
    /// Too few or too many embeddings.
    #[error("expected {expected} embeddings, got {got}")]
    Count {
        /// Texts sent.
        expected: usize,
        /// Embeddings received.
        got: usize,
    },
    /// An embedding that answers no text, or one that another answered already.
    #[error("embedding {position} has index {got}, expected each of 0 to {last} once")]
    Index {
        /// Place in the reply, from 0.
        position: usize,
        /// Its index, or "none".
        got: String,
        /// Highest index allowed.
        last: usize,
    },
    /// An embedding of another length.
    #[error("embedding {index} has {got} dimensions, expected {expected}")]
    Dimension {
        /// Index of the text.
        index: usize,
        /// Length expected.
        expected: usize,
        /// Length received.
        got: usize,
    },
    /// A number that is none.
    #[error("embedding {index} has {got} at position {position}, expected a finite number")]
    Value {
        /// Index of the text.
        index: usize,
        /// Place in the embedding, from 0.
        position: usize,
        /// What stands there.
        got: String,
    },
    /// All zeros: its direction, and so its similarity to anything, is undefined.
    #[error("embedding {index} is zero in all its {dimensions} dimensions, expected a direction")]
    Zero {
        /// Index of the text.
        index: usize,
        /// Length.
        dimensions: usize,
    },
    /// No choice to read.
    #[error("reply has no choices, expected one: {0}")]
    NoChoices(String),
}

/// Parses a body as JSON of type `T` and says what came when it is not.
///
/// # Errors
/// [`ReplyError::NotJson`], [`ReplyError::BrokenJson`], [`ReplyError::Cut`]; [`ReplyError::Shape`] for JSON that is no `T`.
pub fn parse_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ReplyError> {
    let error = match serde_json::from_slice(body) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let first = body.iter().find(|b| !b.is_ascii_whitespace());
    match first {
        None => {
            return Err(ReplyError::NotJson { what: "an empty body", excerpt: "(nothing)".into() });
        }
        Some(b'<') => {
            return Err(ReplyError::NotJson { what: "an HTML page", excerpt: message::html_excerpt(body) });
        }
        Some(b'{' | b'[') => {}
        // The second byte of gzip is no UTF-8.
        Some(0x1f) if body.starts_with("\u{1f}\u{fffd}".as_bytes()) => {
            return Err(ReplyError::NotJson {
                what: "compressed data",
                excerpt: "gzip, which was not asked for".into(),
            });
        }
        Some(_) => {
            return Err(ReplyError::NotJson { what: "something else", excerpt: message::printable(body, 120) });
        }
    }
    Err(match error.classify() {
        serde_json::error::Category::Data => ReplyError::Shape(shorten(&error.to_string(), 200)),
        serde_json::error::Category::Eof => {
            let from = body.len().saturating_sub(60);
            ReplyError::Cut { bytes: body.len(), excerpt: message::printable(&body[from..], 60) }
        }
        _ => {
            let at = offset_of(body, error.line(), error.column());
            let from = at.saturating_sub(40);
            let to = (at + 20).min(body.len());
            ReplyError::BrokenJson { detail: error.to_string(), excerpt: message::printable(&body[from..to], 60) }
        }
    })
}

/// The error that a reply reports in spite of its success status, if it does: `{"error": …}` and its relatives.
pub fn reported(reply: &Fields<'_>) -> Option<ReplyError> {
    if let Some(error) = reply.get("error") {
        return Some(reported_by(error, Some(reply)));
    }
    if let Some(first) = reply.get("errors").and_then(First::<&RawValue, 1>::of).and_then(|e| e.items.first().copied())
    {
        return Some(reported_by(first, Some(reply)));
    }
    let is_error = [("object", "error"), ("type", "error"), ("status", "error")]
        .iter()
        .any(|(name, value)| reply.text(name, 16).as_deref() == Some(value));
    let words = reply.any(&["message", "detail", "msg"])?;
    let status = status_of(reply);
    (is_error || status.is_some())
        .then(|| ReplyError::Reported { status, words: message::error_message(words.get().as_bytes()) })
}

/// An error as it stands in a reply: an object, or words alone.
pub fn reported_by(error: &RawValue, around: Option<&Fields<'_>>) -> ReplyError {
    let fields = Fields::of(error);
    let status = fields.as_ref().and_then(status_of).or_else(|| around.and_then(status_of));
    ReplyError::Reported { status, words: message::error_message(error.get().as_bytes()) }
}

/// The status that the fields of an error name: a number, the number as text, or a word that stands for it.
fn status_of(error: &Fields<'_>) -> Option<u16> {
    let names = ["code", "status", "status_code", "http_status", "statusCode", "type"];
    let named = names.iter().find_map(|name| {
        let value = error.get(name)?;
        json::text(value, 64).as_deref().map_or_else(|| status_named(value.get()), status_named)
    });
    // What is behind a gateway has its own code, deeper.
    named.or_else(|| {
        error.object("metadata").or_else(|| error.object("error")).as_ref().and_then(|inner| {
            let value = inner.any(&["code", "status", "provider_code"])?;
            json::text(value, 64).as_deref().map_or_else(|| status_named(value.get()), status_named)
        })
    })
}

/// Byte offset of a line and column as serde_json counts them (lines from 1, columns in bytes).
fn offset_of(body: &[u8], line: usize, column: usize) -> usize {
    let mut start = 0;
    for _ in 1..line {
        match body[start..].iter().position(|&b| b == b'\n') {
            Some(end) => start += end + 1,
            None => break,
        }
    }
    (start + column).min(body.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_a_success_body_names_its_status() {
        let read = |body: &str| match parse_json::<Fields<'_>>(body.as_bytes()).ok().and_then(|f| reported(&f)) {
            Some(ReplyError::Reported { status, words }) => Some((status, words)),
            _ => None,
        };
        for (body, status, words) in [
            (r#"{"error":{"code":429,"message":"slow down"}}"#, Some(429), "slow down"),
            (r#"{"error":{"code":"429","message":"slow down"}}"#, Some(429), "slow down"),
            (r#"{"error":{"code":429.0,"message":"slow"}}"#, Some(429), "slow"),
            (r#"{"error":{"code":8,"message":"quota","status":"RESOURCE_EXHAUSTED"}}"#, Some(429), "quota"),
            (
                r#"{"error":{"message":"Quota","type":"insufficient_quota","param":null,"code":null}}"#,
                Some(429),
                "Quota",
            ),
            (r#"{"choices":null,"error":{"message":"busy","metadata":{"code":503}}}"#, Some(503), "busy"),
            (r#"{"error":"model is loading","code":503}"#, Some(503), "model is loading"),
            (r#"{"error":"model is loading"}"#, None, "model is loading"),
            (r#"{"object":"error","message":"too long","code":400}"#, Some(400), "too long"),
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Some(503), "Overloaded"),
            (r#"{"errors":[{"message":"no","code":"401"}]}"#, Some(401), "no"),
            (r#"{"detail":"no","status":422}"#, Some(422), "no"),
        ] {
            assert_eq!(read(body), Some((status, words.to_owned())), "{body}");
        }
        for body in [r#"{"error":null}"#, r#"{"data":[],"status":"ok"}"#, r#"{"message":"x"}"#, "{}"] {
            assert_eq!(read(body), None, "{body}");
        }
    }

    #[test]
    fn what_came_instead_of_json_is_said() {
        let error = |body: &str| parse_json::<serde_json::Value>(body.as_bytes()).unwrap_err().to_string();
        assert_eq!(error(""), "expected JSON, got an empty body: (nothing)");
        assert_eq!(
            error("<html><head><title>502 Bad\n Gateway</title></head><body>x</body></html>"),
            "expected JSON, got an HTML page: 502 Bad Gateway"
        );
        assert_eq!(error("upstream timed out"), "expected JSON, got something else: upstream timed out");
        assert!(
            error("{\"data\":[{\"embedding\":[0.1,0.").starts_with("reply was cut off after 29 bytes, near: {\"data\"")
        );
        let nan = error("{\"data\":\n [{\"embedding\":[0.1, NaN]}]}");
        assert!(nan.contains("line 2") && nan.contains("NaN"), "{nan}");
    }
}
