//! HTTP requests a backend can leave at any moment.
//!
//! Requests run on the I/O thread; the backend waits on its latch. Dropping [`InFlight`] — also by the error that a
//! cancel raises in [`InFlight::wait`] — aborts what is under way and closes its connections.

use super::interrupt::{self, Woken};
use super::io_thread::IoThread;
use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// One POST of a JSON body.
#[derive(Clone)]
pub struct Request {
    /// Where to.
    pub url: String,
    /// Header names and values besides content type; values are marked sensitive.
    pub headers: Vec<(&'static str, String)>,
    /// The JSON body.
    pub body: Vec<u8>,
    /// For the whole exchange, from connecting to the last byte.
    pub timeout: Duration,
    /// For connecting, TLS included.
    pub connect_timeout: Duration,
    /// A longer response body is refused, unread; of an error's body no more than [`MAX_ERROR_BODY`] is read.
    pub max_response_bytes: usize,
}

/// So much of the body is read of a response whose status is no success, in bytes.
pub const MAX_ERROR_BODY: usize = 64 << 10;

/// What came back.
#[derive(Debug)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// The `Retry-After` header.
    pub retry_after: Option<String>,
    /// The body, complete.
    pub body: Vec<u8>,
}

/// Why nothing usable came back.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No connection: name look-up, refused, TLS.
    #[error("could not connect: {0}")]
    Connect(String),
    /// Timeout of connecting, in seconds.
    #[error("no connection within {0} s")]
    ConnectTimeout(f64),
    /// Timeout of the whole exchange, in seconds.
    #[error("no answer within {0} s")]
    Timeout(f64),
    /// Body longer than the cap, in bytes.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    /// The server answered with a redirect; these are refused, since they could carry the key elsewhere.
    #[error("the server answered with a redirect (status {0}), which is refused")]
    Redirect(u16),
    /// The connection broke before a byte of the response came.
    #[error("the connection broke before an answer came: {0}")]
    Unanswered(String),
    /// The connection broke within the response.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The request could not be sent at all.
    #[error("{0}")]
    Request(String),
}

impl HttpError {
    /// Whether the connection failed before a byte was answered, so that the request may be sent again.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, HttpError::Connect(_) | HttpError::ConnectTimeout(_) | HttpError::Unanswered(_))
    }
}

/// A set of requests under way together, each with a tag of the caller's.
pub struct InFlight {
    sender: Sender<(usize, Result<Response, HttpError>)>,
    finished: Receiver<(usize, Result<Response, HttpError>)>,
    aborts: HashMap<usize, oneshot::Sender<()>>,
}

impl Default for InFlight {
    fn default() -> Self {
        let (sender, finished) = channel();
        Self { sender, finished, aborts: HashMap::new() }
    }
}

impl InFlight {
    /// Starts a request. `tag` comes back with its result.
    pub fn submit(&mut self, tag: usize, request: Request) -> Result<(), HttpError> {
        let io = IoThread::get().map_err(|e| HttpError::Request(format!("could not start the I/O thread: {e}")))?;
        let client = client(request.connect_timeout)?;
        let (abort, aborted) = oneshot::channel();
        let sender = self.sender.clone();
        let bell = io.bell().clone();
        self.aborts.insert(tag, abort);
        io.spawn(async move {
            let result = tokio::select! {
                result = exchange(client, request) => result,
                // Sent or dropped: either way nobody wants the answer. The future is dropped, its connection closed.
                _ = aborted => return,
            };
            let _ = sender.send((tag, result));
            bell.ring();
        });
        Ok(())
    }

    /// A finished request, if there is one now.
    pub fn poll(&mut self) -> Option<(usize, Result<Response, HttpError>)> {
        let (tag, result) = self.finished.try_recv().ok()?;
        self.aborts.remove(&tag);
        Some((tag, result))
    }

    /// Waits until a request finishes. Leaves by a PostgreSQL error when the backend is cancelled or terminated.
    pub fn wait(&mut self) -> (usize, Result<Response, HttpError>) {
        loop {
            if let Some(finished) = self.poll() {
                return finished;
            }
            wait_for_event(None);
        }
    }
}

/// Waits until something may have happened: a request of this process finished, the latch was set, `timeout` is over.
pub fn wait_for_event(timeout: Option<Duration>) -> Woken {
    waiting(interrupt::wait, timeout)
}

/// As [`wait_for_event`], for a process that ends by itself when it is asked to ([`interrupt::rest`]).
pub fn rest(timeout: Option<Duration>) -> Woken {
    waiting(interrupt::rest, timeout)
}

fn waiting(wait: impl FnOnce(Option<RawFd>, Option<Duration>) -> Woken, timeout: Option<Duration>) -> Woken {
    match IoThread::running() {
        Some(io) => {
            let woken = wait(Some(io.bell().fd()), timeout);
            if woken == Woken::Readable {
                io.bell().silence();
            }
            woken
        }
        None => wait(None, timeout),
    }
}

/// One request, waited for.
pub fn post(request: Request) -> Result<Response, HttpError> {
    let mut in_flight = InFlight::default();
    in_flight.submit(0, request)?;
    in_flight.wait().1
}

thread_local! {
    // A client holds a connection pool, so there is one for each connect timeout in use, for the life of the process.
    static CLIENTS: ManuallyDrop<RefCell<HashMap<Duration, reqwest::Client>>> = ManuallyDrop::new(RefCell::default());
}

fn client(connect_timeout: Duration) -> Result<reqwest::Client, HttpError> {
    CLIENTS.with(|clients| {
        let mut clients = clients.borrow_mut();
        if let Some(client) = clients.get(&connect_timeout) {
            return Ok(client.clone());
        }
        // An error means that another caller in this process installed one: as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("pg_ragent/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| HttpError::Request(format!("could not set up HTTP: {}", causes(&e))))?;
        clients.insert(connect_timeout, client.clone());
        Ok(client)
    })
}

async fn exchange(client: reqwest::Client, request: Request) -> Result<Response, HttpError> {
    let started = Instant::now();
    let (timeout, connect_timeout) = (request.timeout, request.connect_timeout);
    match tokio::time::timeout(timeout, send(client, request)).await {
        Ok(Err(HttpError::ConnectTimeout(_))) => {
            Err(HttpError::ConnectTimeout(started.elapsed().min(connect_timeout).as_secs_f64()))
        }
        Ok(result) => result,
        Err(_) => Err(HttpError::Timeout(timeout.as_secs_f64())),
    }
}

async fn send(client: reqwest::Client, request: Request) -> Result<Response, HttpError> {
    let mut builder = client.post(&request.url).header("content-type", "application/json");
    for (name, value) in &request.headers {
        let mut value = reqwest::header::HeaderValue::from_str(value).map_err(|_| {
            HttpError::Request(format!("the value of header {name} has characters HTTP does not allow"))
        })?;
        value.set_sensitive(true);
        builder = builder.header(*name, value);
    }
    let mut response = builder.body(request.body).send().await.map_err(|e| failure(&e, false))?;
    let status = response.status();
    if status.is_redirection() {
        return Err(HttpError::Redirect(status.as_u16()));
    }
    let retry_after = response.headers().get("retry-after").and_then(|v| v.to_str().ok()).map(str::to_owned);
    if !status.is_success() {
        let mut body = Vec::new();
        // An error is an error also when its body breaks off.
        while let Ok(Some(piece)) = response.chunk().await {
            body.extend_from_slice(&piece[..piece.len().min(MAX_ERROR_BODY - body.len())]);
            if body.len() == MAX_ERROR_BODY {
                break;
            }
        }
        return Ok(Response { status: status.as_u16(), retry_after, body });
    }
    let limit = request.max_response_bytes;
    if response.content_length().is_some_and(|n| n > limit as u64) {
        return Err(HttpError::TooLarge(limit));
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|e| failure(&e, true))? {
        if body.len() + piece.len() > limit {
            return Err(HttpError::TooLarge(limit));
        }
        body.extend_from_slice(&piece);
    }
    Ok(Response { status: status.as_u16(), retry_after, body })
}

fn failure(e: &reqwest::Error, is_answered: bool) -> HttpError {
    if e.is_timeout() {
        // The only timeout that the client itself has.
        HttpError::ConnectTimeout(0.0)
    } else if e.is_connect() {
        HttpError::Connect(causes(e))
    } else if e.is_builder() {
        HttpError::Request(causes(e))
    } else if is_answered {
        HttpError::Broken(causes(e))
    } else {
        HttpError::Unanswered(causes(e))
    }
}

/// The innermost causes of an error, without its URL (which the caller names, cleaned).
fn causes(e: &dyn std::error::Error) -> String {
    let mut source = e.source();
    let mut text = String::new();
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    if text.is_empty() { e.to_string() } else { text }
}
