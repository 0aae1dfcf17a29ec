//! How long a text may be that a caller gives: checked before anything is spent on it.

use crate::error::{Error, Result};
use crate::guc;
use pgrx::PgSqlErrorCode;

/// So many times the longest text may come in one array.
const MOST_IN_ALL: usize = 16;
/// What a text of an array counts for at least, in bytes: about the size of its vector, which is kept until all are there.
const LEAST_OF_ONE: usize = 1024;

/// Checks the length of one text, called `what` in the error, against `rag.max_input_bytes`.
///
/// # Errors
/// 54000.
pub fn check(what: &str, text: &str) -> Result<()> {
    check_within(what, text, guc::max_input_bytes())
}

/// As [`check`], with a limit of its own if that is lower.
///
/// # Errors
/// 54000.
pub fn check_within(what: &str, text: &str, limit: usize) -> Result<()> {
    let most = guc::max_input_bytes();
    let limit = limit.min(most);
    if text.len() <= limit {
        return Ok(());
    }
    Err(too_long(
        format!("{what} has {} bytes, more than {limit}", text.len()),
        if limit < most {
            "Give a shorter text. Long texts belong in a table with a collection, which cuts them into chunks."
        } else {
            "Give a shorter text. Long texts belong in a table with a collection, which cuts them into chunks; a superuser can raise rag.max_input_bytes."
        },
    ))
}

/// Checks the texts of an array, each and all together.
///
/// # Errors
/// 54000.
pub fn check_all(texts: &[&str]) -> Result<()> {
    texts.iter().try_for_each(|text| check("the text", text))?;
    let limit = guc::max_input_bytes().saturating_mul(MOST_IN_ALL);
    let total: usize = texts.iter().map(|text| text.len().max(LEAST_OF_ONE)).sum();
    if total <= limit {
        return Ok(());
    }
    Err(too_long(
        format!("{} texts count as {total} bytes, more than {limit}", texts.len()),
        format!(
            "Each counts as at least {LEAST_OF_ONE} bytes. Embed them in several calls; a superuser can raise rag.max_input_bytes, of which {MOST_IN_ALL} times is the limit of an array."
        ),
    ))
}

fn too_long(message: String, hint: impl Into<String>) -> Error {
    Error::new(PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message, hint)
}
