//! The time by which everything that somebody waits for must be over, in a backend.

use crate::error::{Error, Result};
use pgrx::PgSqlErrorCode;
use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static CURRENT: Cell<Option<Limit>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Limit {
    end: Instant,
    /// From the beginning, for the message.
    whole: Duration,
}

/// Holds while it lives, also when it is left by an error. Within another, the earlier of the two counts.
pub struct Deadline {
    outer: Option<Limit>,
}

impl Deadline {
    /// Begins now and ends after `limit`; `None`: never.
    pub fn begin(limit: Option<Duration>) -> Self {
        let outer = CURRENT.get();
        let own = limit.and_then(|whole| Some(Limit { end: Instant::now().checked_add(whole)?, whole }));
        CURRENT.set(outer.into_iter().chain(own).min_by_key(|limit| limit.end));
        Self { outer }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
    }
}

/// The time that is left; `None` where there is no limit.
pub fn left() -> Option<Duration> {
    CURRENT.get().map(|limit| limit.end.saturating_duration_since(Instant::now()))
}

/// Whether there is time left.
///
/// # Errors
/// 57014 when the time is over.
pub fn check() -> Result<()> {
    match CURRENT.get() {
        Some(limit) if limit.end <= Instant::now() => Err(Error::new(
            PgSqlErrorCode::ERRCODE_QUERY_CANCELED,
            format!("the question was not answered within {} s", limit.whole.as_secs_f64()),
            "Raise the setting rag.ask_timeout, or ask a model that answers faster.",
        )),
        _ => Ok(()),
    }
}
