//! Providers reached over HTTP: requests, retries, and failures as errors a person can act on.

use super::Provider;
use crate::error::{Error, Result};
use crate::pg::http::{self, HttpError, InFlight, Request, Response};
use crate::pg::interrupt;
use pgrx::PgSqlErrorCode;
use ragent_core::ingest::chunk::approximate_tokens;
use ragent_core::model::{ChatReply, ChatRequest};
use ragent_core::provider::{FailureKind, backoff, classify, openai, redact, retry_after};
use std::ops::Range;
use std::time::Duration;

/// Why a request gave nothing, and what that means for trying again.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The kind, for those who treat kinds differently.
    pub kind: FailureKind,
    /// The provider asked for a pause of this length.
    pub retry_after: Option<Duration>,
    /// For people; free of secrets.
    pub error: Error,
}

/// Embeds `texts` in as few requests as the server's limits allow, several under way at a time.
pub fn embed(provider: &Provider, model: &str, texts: &[&str], dimensions: Option<usize>) -> Result<Vec<Vec<f32>>> {
    let batches = batches(provider, texts);
    let mut results: Vec<Option<Vec<Vec<f32>>>> = vec![None; batches.len()];
    let mut attempts = vec![0u32; batches.len()];
    let mut waiting: Vec<usize> = (0..batches.len()).rev().collect();
    let mut in_flight = InFlight::default();
    while in_flight.len() > 0 || !waiting.is_empty() {
        while in_flight.len() < provider.max_in_flight {
            let Some(i) = waiting.pop() else { break };
            let request = embedding_request(provider, model, &texts[batches[i].clone()], dimensions);
            in_flight.submit(i, request).map_err(|e| failure(provider, e).error)?;
        }
        let (i, result) = in_flight.wait();
        match embeddings(provider, result, batches[i].len(), dimensions) {
            Ok(vectors) => results[i] = Some(vectors),
            Err(f) => {
                attempts[i] += 1;
                pause_before_retry(provider, &f, attempts[i])?;
                waiting.push(i);
            }
        }
    }
    let vectors: Vec<Vec<f32>> = results.into_iter().flatten().flatten().collect();
    if let Some(odd) = vectors.iter().find(|v| v.len() != vectors[0].len()) {
        return Err(reply_error(provider, &format!("vectors of {} and of {} dimensions", vectors[0].len(), odd.len())));
    }
    Ok(vectors)
}

/// One turn of a chat model.
pub fn chat(provider: &Provider, model: &str, chat: &ChatRequest) -> Result<ChatReply> {
    let url = openai::chat_url(&provider.base_url);
    let body = openai::chat_body(model, chat);
    let mut attempt = 0;
    loop {
        let result = http::post(request(provider, url.clone(), body.clone()));
        let reply = success(provider, result)
            .and_then(|body| openai::parse_chat(&body).map_err(|e| protocol_failure(provider, &e.to_string())));
        match reply {
            Ok(reply) => return Ok(reply),
            Err(f) => {
                attempt += 1;
                pause_before_retry(provider, &f, attempt)?;
            }
        }
    }
}

/// The request for one batch of texts.
pub fn embedding_request(provider: &Provider, model: &str, texts: &[&str], dimensions: Option<usize>) -> Request {
    let sent = dimensions.filter(|_| provider.send_dimensions);
    request(provider, openai::embeddings_url(&provider.base_url), openai::embeddings_body(model, texts, sent))
}

/// The vectors of one batch, or why there are none.
pub fn embeddings(
    provider: &Provider,
    result: Result<Response, HttpError>,
    items: usize,
    dimensions: Option<usize>,
) -> Result<Vec<Vec<f32>>, Failure> {
    let body = success(provider, result)?;
    openai::parse_embeddings(&body, items, dimensions)
        .map(|(vectors, _)| vectors)
        .map_err(|e| protocol_failure(provider, &e.to_string()))
}

/// Cuts texts into runs that the server takes in one request.
pub fn batches(provider: &Provider, texts: &[&str]) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let (mut start, mut tokens) = (0, 0);
    for (i, text) in texts.iter().enumerate() {
        let n = approximate_tokens(text);
        let full = i - start >= provider.max_batch_items || tokens + n > provider.max_batch_tokens;
        if i > start && full {
            batches.push(start..i);
            (start, tokens) = (i, 0);
        }
        tokens += n;
    }
    if start < texts.len() {
        batches.push(start..texts.len());
    }
    batches
}

fn request(provider: &Provider, url: String, body: Vec<u8>) -> Request {
    let headers = provider.key.iter().map(|key| ("authorization", format!("Bearer {key}"))).collect();
    Request {
        url,
        headers,
        body,
        timeout: provider.timeout,
        connect_timeout: provider.connect_timeout.min(provider.timeout),
        max_response_bytes: provider.max_response_bytes,
    }
}

/// Waits before another attempt, or gives the failure back as an error when there is to be none.
fn pause_before_retry(provider: &Provider, failure: &Failure, attempt: u32) -> Result<()> {
    /// A person waits for this; a provider that wants a longer pause gets to say so in the error.
    const LONGEST_PAUSE: Duration = Duration::from_secs(20);
    let pause = failure.retry_after.unwrap_or_else(|| backoff(attempt, u64::from(std::process::id())));
    if !failure.kind.is_transient() || attempt > provider.max_retries || pause > LONGEST_PAUSE {
        return Err(failure.error.clone());
    }
    interrupt::sleep(pause);
    Ok(())
}

fn success(provider: &Provider, result: Result<Response, HttpError>) -> Result<Vec<u8>, Failure> {
    let response = result.map_err(|e| failure(provider, e))?;
    if (200..300).contains(&response.status) {
        return Ok(response.body);
    }
    let kind = classify(response.status);
    let retry_after = response.retry_after.as_deref().and_then(|header| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        retry_after(header, now)
    });
    let words = openai::error_message(&response.body);
    let message = format!("server \"{}\" answered with status {}: {words}", provider.name, response.status);
    let name = crate::pg::spi::quote(&provider.name);
    let (code, hint) = match kind {
        FailureKind::Auth => (
            PgSqlErrorCode::ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION,
            format!("Check the key: CREATE or ALTER USER MAPPING FOR CURRENT_USER SERVER {name} OPTIONS (... api_key '...'), or the server's api_key_env or api_key_file."),
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
            format!("Lower max_batch_items or max_batch_tokens of server {name}, or the collection's chunk_tokens."),
        ),
        FailureKind::Unavailable => (
            PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION,
            "The provider failed. Try again later, and see its status page.".to_owned(),
        ),
        FailureKind::Protocol => (
            PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION,
            format!("Check that the base_url of server {name} is that of an OpenAI-compatible API, version included."),
        ),
    };
    Err(Failure { kind, retry_after, error: clean(provider, Error::new(code, message, hint)) })
}

/// A request that could not be made, or brought no reply.
pub fn failure(provider: &Provider, e: HttpError) -> Failure {
    let name = &provider.name;
    let (kind, code, hint) = match &e {
        HttpError::Connect(_) => (
            FailureKind::Unavailable,
            PgSqlErrorCode::ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
            "Check that the provider runs and that its base_url is right, as seen from the database server.",
        ),
        HttpError::Timeout(_) => (
            FailureKind::Unavailable,
            PgSqlErrorCode::ERRCODE_CONNECTION_FAILURE,
            "Try again, or raise the server's options timeout or connect_timeout (seconds).",
        ),
        HttpError::Broken(_) => (
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
    };
    let error = Error::new(code, format!("request to server \"{name}\" failed: {e}"), hint);
    Failure { kind, retry_after: None, error: clean(provider, error) }
}

fn protocol_failure(provider: &Provider, why: &str) -> Failure {
    Failure { kind: FailureKind::Protocol, retry_after: None, error: reply_error(provider, why) }
}

fn reply_error(provider: &Provider, why: &str) -> Error {
    let name = &provider.name;
    clean(
        provider,
        Error::new(
            PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION,
            format!("server \"{name}\" sent a reply that cannot be used: {why}"),
            "Check that base_url is that of an OpenAI-compatible API and that the model is of the right kind (embedding or chat).",
        ),
    )
}

/// Takes the key out of everything a person could read.
fn clean(provider: &Provider, mut error: Error) -> Error {
    if let Some(key) = &provider.key {
        error.message = redact(&error.message, key);
        error.detail = error.detail.map(|d| redact(&d, key));
    }
    error
}
