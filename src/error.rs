//! The one error type of the shell: SQLSTATE, message with the values in it, and a HINT that says what to do.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

/// An error to show to a person. Messages are lower-case without a full stop, as PostgreSQL's own.
#[derive(Debug, Clone)]
pub struct Error {
    /// SQLSTATE.
    pub code: PgSqlErrorCode,
    /// What is wrong, with the values.
    pub message: String,
    /// More about it, if there is more.
    pub detail: Option<String>,
    /// What to do.
    pub hint: String,
}

/// What functions of the shell return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with its three parts.
    pub fn new(code: PgSqlErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: None, hint: hint.into() }
    }

    /// SQLSTATE 22023: an argument nobody can work with.
    pub fn bad_argument(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message, hint)
    }

    /// SQLSTATE 42704: something named does not exist.
    pub fn undefined(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, message, hint)
    }

    /// SQLSTATE 42501.
    pub fn denied(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE, message, hint)
    }

    /// More about it.
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// Tells of it without raising it: a WARNING, a NOTICE. An empty hint is none.
    pub fn tell(mut self, level: PgLogLevel) {
        let hint = std::mem::take(&mut self.hint);
        let report = self.without_hint();
        if hint.is_empty() { report } else { report.set_hint(hint) }.report(level);
    }

    fn without_hint(self) -> ErrorReport {
        let report = ErrorReport::new(self.code, self.message, "pg_ragent");
        match self.detail {
            Some(detail) => report.set_detail(detail),
            None => report,
        }
    }

    /// Raises it as a PostgreSQL ERROR.
    pub fn raise(self) -> ! {
        ErrorReport::from(self).report(PgLogLevel::ERROR);
        unreachable!("an ERROR does not return")
    }
}

impl From<Error> for ErrorReport {
    fn from(mut e: Error) -> Self {
        let hint = std::mem::take(&mut e.hint);
        e.without_hint().set_hint(hint)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The beginning of a text that somebody gave us, for an error message: at most 80 characters.
pub fn excerpt(text: &str) -> String {
    ragent_core::text::shorten(text, 80)
}

/// An argument that must not be NULL.
pub fn required<T>(value: Option<T>, name: &str) -> Result<T> {
    value.ok_or_else(|| {
        Error::new(
            PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            format!("{name} must not be null"),
            format!("Give a value for {name}."),
        )
    })
}
