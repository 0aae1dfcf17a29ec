//! A reply with a success status, and why it may be unusable all the same.

use serde::de::DeserializeOwned;
use thiserror::Error;

use super::message;
use crate::text::shorten;

/// Why a reply with a success status cannot be used. Every message names what was expected and what came.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The body is no JSON at all, usually an HTML page of a proxy.
    #[error("expected JSON, got {what}: {excerpt}")]
    NotJson {
        /// "an HTML page", "an empty body", "something else".
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
    #[error("provider reported an error: {0}")]
    Reported(String),
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
pub fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ReplyError> {
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
