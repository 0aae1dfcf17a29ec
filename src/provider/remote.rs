//! Providers reached over HTTP: requests, and retries while somebody waits.

use super::{Failure, Provider};
use crate::error::{Error, Result};
use crate::pg::http::{self, HttpError, InFlight, Request, Response};
use crate::pg::interrupt;
use pgrx::PgSqlErrorCode;
use ragent_core::ingest::chunk::approximate_tokens;
use ragent_core::model::{ChatReply, ChatRequest};
use ragent_core::provider::{Call, Embeddings, FailureKind, HttpWire, Transport, pause_before_retry, retry_after};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// Embeds `texts` in as few requests as the server's limits allow, several under way at a time.
///
/// # Errors
/// 0A000 when the server's API has no embeddings, 08P01 for vectors of different lengths, else the error of a
/// [`Failure`] that cannot pass or did not.
pub fn embed(provider: &Provider, model: &str, texts: &[&str], dimensions: Option<usize>) -> Result<Vec<Vec<f32>>> {
    let batches = batches(provider, texts);
    let mut results: Vec<Option<Vec<Vec<f32>>>> = vec![None; batches.len()];
    let mut attempts = vec![0u32; batches.len()];
    let mut waiting: Vec<usize> = (0..batches.len()).rev().collect();
    let mut in_flight = InFlight::default();
    while in_flight.len() > 0 || !waiting.is_empty() {
        while in_flight.len() < provider.settings.max_in_flight {
            let Some(i) = waiting.pop() else { break };
            let request = embedding_request(provider, model, &texts[batches[i].clone()], dimensions)?;
            in_flight.submit(i, request).map_err(|e| Failure::of_http(provider, &e).error)?;
        }
        let (i, result) = in_flight.wait();
        match embeddings(provider, result, batches[i].len(), dimensions) {
            Ok(vectors) => results[i] = Some(vectors),
            Err(failure) => {
                attempts[i] += 1;
                wait_before_retry(provider, failure, attempts[i])?;
                waiting.push(i);
            }
        }
    }
    let vectors: Vec<Vec<f32>> = results.into_iter().flatten().flatten().collect();
    if let Some(odd) = vectors.iter().find(|v| v.len() != vectors[0].len()) {
        let why = format!("vectors of {} and of {} dimensions", vectors[0].len(), odd.len());
        return Err(Failure::of_reply(provider, &why).error);
    }
    Ok(vectors)
}

/// One turn of a chat model.
///
/// # Errors
/// 0A000 when the server's API has no chat, else the error of a [`Failure`] that cannot pass or did not.
pub fn chat(provider: &Provider, wire: &dyn HttpWire, model: &str, chat: &ChatRequest) -> Result<ChatReply> {
    let offered = wire.chat().ok_or_else(|| not_offered(provider, "chat"))?;
    let request = request(provider, wire, offered.request(&provider.settings, model, chat));
    let mut attempt = 0;
    loop {
        let reply = success(provider, wire, http::post(request.clone()))
            .and_then(|body| offered.reply(&body).map_err(|e| Failure::of_reply(provider, &e.to_string())));
        match reply {
            Ok(reply) => return Ok(reply),
            Err(failure) => {
                attempt += 1;
                wait_before_retry(provider, failure, attempt)?;
            }
        }
    }
}

/// The request for one batch of texts.
///
/// # Errors
/// 0A000 when the server's API has no embeddings.
pub fn embedding_request(
    provider: &Provider,
    model: &str,
    texts: &[&str],
    dimensions: Option<usize>,
) -> Result<Request> {
    let (wire, embeddings) = embedding_wire(provider)?;
    Ok(request(provider, wire, embeddings.request(&provider.settings, model, texts, dimensions)))
}

/// The vectors of one batch of `texts` texts, or why there are none.
pub fn embeddings(
    provider: &Provider,
    result: Result<Response, HttpError>,
    texts: usize,
    dimensions: Option<usize>,
) -> Result<Vec<Vec<f32>>, Failure> {
    let (wire, embeddings) =
        embedding_wire(provider).map_err(|error| Failure { kind: FailureKind::NotFound, retry_after: None, error })?;
    let body = success(provider, wire, result)?;
    let embedded = embeddings.reply(&body, texts, dimensions);
    embedded.map(|e| e.vectors).map_err(|e| Failure::of_reply(provider, &e.to_string()))
}

/// Cuts texts into runs that the server takes in one request.
pub fn batches(provider: &Provider, texts: &[&str]) -> Vec<Range<usize>> {
    let tokens: Vec<usize> = texts.iter().map(|text| approximate_tokens(text)).collect();
    let settings = &provider.settings;
    ragent_core::provider::batches(&tokens, settings.max_batch_items, settings.max_batch_tokens)
}

fn embedding_wire(provider: &Provider) -> Result<(&'static dyn HttpWire, &'static dyn Embeddings)> {
    let offered = match provider.wire.transport() {
        Transport::Http(wire) => wire.embeddings().map(|embeddings| (wire, embeddings)),
        Transport::InProcess => None,
    };
    offered.ok_or_else(|| not_offered(provider, "embedding"))
}

fn not_offered(provider: &Provider, kind: &str) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
        format!("server \"{}\" has no {kind} models: it speaks api '{}'", provider.name, provider.wire.name()),
        format!("Name {kind} models of another server."),
    )
}

fn request(provider: &Provider, wire: &dyn HttpWire, call: Call) -> Request {
    let settings = &provider.settings;
    Request {
        url: call.url,
        headers: wire.headers(provider.key.as_deref()),
        body: call.body,
        timeout: settings.timeout,
        connect_timeout: settings.connect_timeout,
        max_response_bytes: settings.max_response_bytes,
    }
}

/// Waits before another attempt, or gives the failure back as an error when there is to be none.
fn wait_before_retry(provider: &Provider, failure: Failure, attempt: u32) -> Result<()> {
    let seed = u64::from(std::process::id());
    let pause = pause_before_retry(failure.kind, failure.retry_after, attempt, provider.settings.max_retries, seed);
    interrupt::sleep(pause.ok_or(failure.error)?);
    Ok(())
}

/// The body of a reply with a success status.
fn success(provider: &Provider, wire: &dyn HttpWire, result: Result<Response, HttpError>) -> Result<Vec<u8>, Failure> {
    let response = result.map_err(|e| Failure::of_http(provider, &e))?;
    if (200..300).contains(&response.status) {
        return Ok(response.body);
    }
    let (kind, words) = wire.failure(response.status, &response.body);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
    let pause = response.retry_after.as_deref().and_then(|header| retry_after(header, now));
    Err(Failure::of_status(provider, response.status, kind, &words, pause))
}
