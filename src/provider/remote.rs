//! Providers reached over HTTP: requests, and retries while somebody waits.

use super::{Failure, Provider, deadline};
use crate::error::{Error, Result};
use crate::pg::http::{self, HttpError, InFlight, Request, Response};
use crate::pg::interrupt;
use pgrx::PgSqlErrorCode;
use ragent_core::ingest::chunk::approximate_tokens;
use ragent_core::model::{ChatReply, ChatRequest, Message};
use ragent_core::provider::{
    BatchLimits, Call, Embeddings, FailureKind, HttpWire, Redactor, ReplyError, Transport, halves, pause_before_retry,
    retry_after,
};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

thread_local! {
    // What this process learned of how much servers take at a time.
    static LIMITS: RefCell<BatchLimits> = RefCell::default();
    // Address and model of those that refuse the fields which they wrote themselves.
    static FORGETFUL: RefCell<HashSet<(String, String)>> = RefCell::default();
}

/// Embeds `texts` in as few requests as the server's limits allow, several under way at a time.
///
/// # Errors
/// 0A000 when the server's API has no embeddings, 08P01 for vectors of different lengths, else the error of a
/// [`Failure`] that cannot pass or did not.
pub fn embed(provider: &Provider, model: &str, texts: &[&str], dimensions: Option<usize>) -> Result<Vec<Vec<f32>>> {
    let mut waiting: Vec<(Range<usize>, u32)> = batches(provider, model, texts).into_iter().map(|b| (b, 0)).collect();
    waiting.reverse();
    let mut vectors: Vec<Vec<f32>> = vec![Vec::new(); texts.len()];
    let mut under_way: HashMap<usize, (Range<usize>, u32)> = HashMap::new();
    let mut in_flight = InFlight::default();
    let mut next_tag = 0;
    while !under_way.is_empty() || !waiting.is_empty() {
        while under_way.len() < provider.settings.max_in_flight {
            let Some((batch, attempts)) = waiting.pop() else { break };
            if let Some([first, second]) = too_many(provider, model, &batch) {
                waiting.extend([(second, 0), (first, 0)]);
                continue;
            }
            deadline::check()?;
            let request = embedding_request(provider, model, &texts[batch.clone()], dimensions)?;
            in_flight.submit(next_tag, request).map_err(|e| Failure::of_http(provider, &e).error)?;
            under_way.insert(next_tag, (batch, attempts));
            next_tag += 1;
        }
        let (tag, result) = in_flight.wait();
        let Some((batch, attempts)) = under_way.remove(&tag) else { continue };
        match embeddings(provider, model, result, batch.len(), dimensions) {
            Ok(embedded) => {
                for (place, vector) in batch.zip(embedded) {
                    vectors[place] = vector;
                }
            }
            Err(failure) => match halves(&batch).filter(|_| failure.kind == FailureKind::TooLarge) {
                Some([first, second]) => waiting.extend([(second, 0), (first, 0)]),
                None => {
                    wait_before_retry(provider, failure, attempts + 1)?;
                    waiting.push((batch, attempts + 1));
                }
            },
        }
    }
    if let Some(odd) = vectors.iter().find(|v| v.len() != vectors[0].len()) {
        let why = format!("vectors of {} and of {} dimensions", vectors[0].len(), odd.len());
        return Err(Failure::unusable(provider, &why).error);
    }
    Ok(vectors)
}

/// One turn of a chat model.
///
/// # Errors
/// 0A000 when the server's API has no chat, else the error of a [`Failure`] that cannot pass or did not.
pub fn chat(provider: &Provider, wire: &dyn HttpWire, model: &str, chat: &ChatRequest) -> Result<ChatReply> {
    let offered = wire.chat().ok_or_else(|| not_offered(provider, "chat"))?;
    let is_forgetful = (provider.settings.base_url.clone(), model.to_owned());
    let mut chat = Cow::Borrowed(chat);
    if FORGETFUL.with_borrow(|forgetful| forgetful.contains(&is_forgetful)) {
        forget_own_fields(&mut chat);
    }
    let (mut attempt, mut forgot) = (0, false);
    loop {
        deadline::check()?;
        let result = http::post(request(provider, wire, offered.request(&provider.settings, model, &chat)));
        // A provider, or something before it, may say the key in a reply like any other.
        let reply = |body: &[u8]| match without_whole_key(provider, body) {
            Some(clean) => offered.reply(&clean),
            None => offered.reply(body),
        };
        match read(provider, wire, result, reply) {
            Ok(reply) => {
                if forgot {
                    FORGETFUL.with_borrow_mut(|forgetful| forgetful.insert(is_forgetful));
                }
                return Ok(reply);
            }
            // A provider that does not take back what it wrote itself gets the request without it.
            Err(failure) if failure.kind == FailureKind::BadRequest && forget_own_fields(&mut chat) => forgot = true,
            Err(failure) => {
                attempt += 1;
                wait_before_retry(provider, failure, attempt)?;
            }
        }
    }
}

/// Leaves out what only the provider knows that wrote it; whether there was any.
fn forget_own_fields(chat: &mut Cow<'_, ChatRequest>) -> bool {
    let any = chat.messages.iter().any(Message::has_own_fields);
    if any {
        chat.to_mut().messages.iter_mut().for_each(Message::forget_own_fields);
    }
    any
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

/// The vectors of one batch of `texts` texts, or why there are none. What the server takes at a time is noted.
pub fn embeddings(
    provider: &Provider,
    model: &str,
    result: Result<Response, HttpError>,
    texts: usize,
    dimensions: Option<usize>,
) -> Result<Vec<Vec<f32>>, Failure> {
    let (wire, embeddings) =
        embedding_wire(provider).map_err(|error| Failure::of_error(FailureKind::NotFound, error))?;
    let embedded = read(provider, wire, result, |body| embeddings.reply(body, texts, dimensions));
    let url = &provider.settings.base_url;
    LIMITS.with_borrow_mut(|limits| match &embedded {
        Ok(_) => limits.taken(url, model, texts),
        Err(failure) if failure.kind == FailureKind::TooLarge => limits.refused(url, model, texts),
        Err(_) => {}
    });
    embedded.map(|e| e.vectors)
}

/// Cuts texts into runs that the server takes in one request, as far as is known.
pub fn batches(provider: &Provider, model: &str, texts: &[&str]) -> Vec<Range<usize>> {
    let tokens: Vec<usize> = texts.iter().map(|text| approximate_tokens(text)).collect();
    ragent_core::provider::batches(&tokens, max_items(provider, model), provider.settings.max_batch_tokens)
}

/// The halves of a batch that is larger than the server takes, as far as is known by now.
pub fn too_many(provider: &Provider, model: &str, batch: &Range<usize>) -> Option<[Range<usize>; 2]> {
    halves(batch).filter(|_| batch.len() > max_items(provider, model))
}

fn max_items(provider: &Provider, model: &str) -> usize {
    let settings = &provider.settings;
    LIMITS.with_borrow(|limits| limits.items(&settings.base_url, model, settings.max_batch_items))
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
        headers: wire.headers(settings, provider.key.as_deref()),
        body: call.body,
        timeout: deadline::left().map_or(settings.timeout, |left| left.min(settings.timeout)),
        connect_timeout: settings.connect_timeout,
        max_response_bytes: settings.max_response_bytes,
    }
}

/// Waits before another attempt, or gives the failure back as an error when there is to be none.
fn wait_before_retry(provider: &Provider, failure: Failure, attempt: u32) -> Result<()> {
    deadline::check()?;
    if !failure.again {
        return Err(failure.error);
    }
    let seed = u64::from(std::process::id());
    let retries = provider.settings.max_retries;
    let pause = pause_before_retry(failure.retry_after, attempt, retries, deadline::left(), seed);
    interrupt::sleep(pause.ok_or(failure.error)?);
    Ok(())
}

/// What a reply says, or why it says nothing of use.
fn read<T>(
    provider: &Provider,
    wire: &dyn HttpWire,
    result: Result<Response, HttpError>,
    read: impl Fn(&[u8]) -> Result<T, ReplyError>,
) -> Result<T, Failure> {
    let Response { status, retry_after: header, body } = result.map_err(|e| Failure::of_http(provider, &e))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
    let pause = header.as_deref().and_then(|header| retry_after(header, now));
    if (200..300).contains(&status) {
        return read(&body).map_err(|error| {
            // What is said of the body is an excerpt: read again without the key, so that no cut leaves a part of it.
            let error = match without_key(provider, &body) {
                Some(clean) => read(&clean).err().unwrap_or(error),
                None => error,
            };
            Failure::of_reply(provider, &error, pause)
        });
    }
    let (kind, words) = wire.failure(status, without_key(provider, &body).as_deref().unwrap_or(&body));
    Err(Failure::of_status(provider, status, kind, &words, pause))
}

/// A body without the key, if that stands in it.
fn without_whole_key(provider: &Provider, body: &[u8]) -> Option<Vec<u8>> {
    let key = provider.key.as_deref()?;
    Redactor::redact_whole(key, std::str::from_utf8(body).ok()?).map(String::into_bytes)
}

/// A body without the key, where there is one.
fn without_key(provider: &Provider, body: &[u8]) -> Option<Vec<u8>> {
    let key = provider.key.as_deref()?;
    Some(Redactor::new(key).redact(&String::from_utf8_lossy(body)).into_bytes())
}
