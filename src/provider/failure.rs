//! Requests that failed, as errors a person can act on.

use super::Provider;
use crate::error::Error;
use crate::pg::http::HttpError;
use crate::pg::spi::quote;
use pgrx::PgSqlErrorCode;
use ragent_core::provider::{FailureKind, InvalidModelName, ReplyError, classify_words, may_send_again, redact};
use std::time::Duration;

/// Why a request gave nothing, and what that means for trying again.
#[derive(Debug, Clone)]
pub struct Failure {
    /// For those who treat kinds differently.
    pub kind: FailureKind,
    /// The pause the provider asked for.
    pub retry_after: Option<Duration>,
    /// Whether the same request may be sent again while somebody waits.
    pub again: bool,
    /// For people; free of secrets.
    pub error: Error,
}

impl Failure {
    /// A reply whose HTTP status is no success; `words` are the provider's own.
    pub fn of_status(
        provider: &Provider,
        status: u16,
        kind: FailureKind,
        words: &str,
        retry_after: Option<Duration>,
    ) -> Self {
        let (code, hint) = status_advice(provider, kind);
        let message = format!("server \"{}\" answered with status {status}: {words}", provider.name);
        let error = without_key(provider, Error::new(code, message, hint));
        Self { kind, retry_after, again: may_send_again(status), error }
    }

    /// A reply with a success status that is an error, or cannot be used.
    pub fn of_reply(provider: &Provider, why: &ReplyError, retry_after: Option<Duration>) -> Self {
        match why {
            ReplyError::Reported { status: Some(status), words } => {
                Self::of_status(provider, *status, classify_words(*status, words), words, retry_after)
            }
            _ => Self::unusable(provider, &why.to_string()),
        }
    }

    /// A reply that cannot be used.
    pub fn unusable(provider: &Provider, why: &str) -> Self {
        let error = Error::new(
            PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION,
            format!("server \"{}\" sent a reply that cannot be used: {why}", provider.name),
            format!(
                "Check that base_url is that of {} and that the model is of the right kind (embedding or chat).",
                provider.wire.description()
            ),
        );
        Self::of_error(FailureKind::Protocol, without_key(provider, error))
    }

    /// An error that another attempt now would meet again.
    pub fn of_error(kind: FailureKind, error: Error) -> Self {
        Self { kind, retry_after: None, again: false, error }
    }

    /// Whether the provider refuses this request as it stands, so that a part of it may be to blame.
    pub fn is_about_the_request(&self) -> bool {
        matches!(self.kind, FailureKind::BadRequest | FailureKind::TooLarge)
    }

    /// No complete reply.
    pub fn of_http(provider: &Provider, e: &HttpError) -> Self {
        let (kind, code, hint) = http_advice(e);
        let message = format!("request to server \"{}\" failed: {e}", provider.name);
        let error = without_key(provider, Error::new(code, message, hint));
        Self { again: e.is_unanswered(), ..Self::of_error(kind, error) }
    }
}

/// SQLSTATE and hint for a reply whose status says no.
fn status_advice(provider: &Provider, kind: FailureKind) -> (PgSqlErrorCode, String) {
    let name = quote(&provider.name);
    match kind {
        FailureKind::Auth => (
            PgSqlErrorCode::ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION,
            format!(
                "Check the key: CREATE or ALTER USER MAPPING FOR CURRENT_USER SERVER {name} OPTIONS (... api_key '...'), or the server's api_key_env or api_key_file."
            ),
        ),
        FailureKind::RateLimited => (
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            "The provider limits how much it is asked. Try again later, lower max_in_flight or max_batch_items, or raise the limit with the provider.".to_owned(),
        ),
        FailureKind::NotFound => (
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            format!("Check the model's name and the base_url of server {name}."),
        ),
        FailureKind::BadRequest => (
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "The provider refuses this request as it stands; its message says why.".to_owned(),
        ),
        FailureKind::TooLarge => (
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            format!(
                "The model takes less text than that at a time. Lower max_batch_items or max_batch_tokens of server {name} or the collection's chunk_tokens; for a question, ask a model that reads more."
            ),
        ),
        FailureKind::Unavailable => (
            PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION,
            "The provider failed. Try again later, and see its status page.".to_owned(),
        ),
        FailureKind::Protocol => (
            PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION,
            format!(
                "Check that the base_url of server {name} is that of {}, version included.",
                provider.wire.description()
            ),
        ),
    }
}

/// Kind, SQLSTATE and hint for a request without a complete reply.
fn http_advice(e: &HttpError) -> (FailureKind, PgSqlErrorCode, &'static str) {
    match e {
        HttpError::Connect(_) => (
            FailureKind::Unavailable,
            PgSqlErrorCode::ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
            "Check that the provider runs and that its base_url is right, as seen from the database server.",
        ),
        HttpError::Timeout(_) | HttpError::ConnectTimeout(_) => (
            FailureKind::Unavailable,
            PgSqlErrorCode::ERRCODE_CONNECTION_FAILURE,
            "Try again, or raise the server's options timeout or connect_timeout (seconds).",
        ),
        HttpError::Broken(_) | HttpError::Unanswered(_) => (
            FailureKind::Unavailable,
            PgSqlErrorCode::ERRCODE_CONNECTION_FAILURE,
            "The provider or something between closed the connection. Try again.",
        ),
        HttpError::TooLarge(_) => (
            FailureKind::Protocol,
            PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION,
            "No reply is meant to be that long. If yours is, raise the server's option max_response_bytes or lower max_batch_items.",
        ),
        HttpError::Redirect(_) => (
            FailureKind::Protocol,
            PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION,
            "Set base_url to the address the provider really answers at.",
        ),
        HttpError::Request(_) => (
            FailureKind::BadRequest,
            PgSqlErrorCode::ERRCODE_EXTERNAL_ROUTINE_EXCEPTION,
            "Check the server's options, and that the machine's certificate store is in place.",
        ),
    }
}

/// Shorter keys may be words of ours.
const SHORTEST_UNLIKE_WORDS: usize = 8;

/// Takes the key out of everything a person could read. What a provider said comes here without it; this is for what was
/// overlooked.
fn without_key(provider: &Provider, mut error: Error) -> Error {
    if let Some(key) = provider.key.as_ref().filter(|key| key.len() >= SHORTEST_UNLIKE_WORDS) {
        error.message = redact(&error.message, key);
        error.detail = error.detail.map(|d| redact(&d, key));
    }
    error
}

impl From<InvalidModelName> for Error {
    fn from(e: InvalidModelName) -> Self {
        Error::bad_argument(
            e.to_string(),
            "Write it as 'server/model', for example 'local/all-MiniLM-L6-v2' to embed or 'local/extractive' to answer; servers are those of CREATE SERVER ... FOREIGN DATA WRAPPER rag_provider.",
        )
    }
}
