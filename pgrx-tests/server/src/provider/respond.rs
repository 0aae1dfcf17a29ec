//! One connection: requests in, responses out, and whatever shall go wrong on the way.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::chat;
use super::control::{Control, Endpoint, FaultKind};
use super::counters::{Counters, fingerprint};
use super::embeddings::Asked;
use super::http::{Request, Response};
use super::state::{InFlight, State};

const TWENTY_MIB: usize = 20 * 1024 * 1024;
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Whether the connection can take another request.
#[derive(PartialEq)]
enum Then {
    KeepOpen,
    Close,
}

/// Answers a connection's requests until one side closes it.
pub async fn converse(stream: TcpStream, state: Arc<State>) {
    // Without this a drip would be gathered into fewer, larger packets.
    let _ = stream.set_nodelay(true);
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut counted = false;
    while let Ok(Some(request)) = Request::read(&mut reader).await {
        let for_provider = request.path.starts_with("/v1/") || request.path == REDIRECTED;
        if for_provider && !counted {
            state.count(|c| c.connections += 1);
            counted = true;
        }
        let outcome = tokio::select! {
            outcome = answer(&request, &mut writer, &state) => outcome,
            () = gone(&mut reader) => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        match outcome {
            Ok(Then::KeepOpen) => {}
            Ok(Then::Close) => return,
            Err(_) => {
                state.count(|c| c.aborted += 1);
                return;
            }
        }
    }
}

/// Ends when the client closes its side; bytes of a next request are left where they are.
async fn gone(reader: &mut BufReader<OwnedReadHalf>) {
    match reader.fill_buf().await {
        Ok(bytes) if !bytes.is_empty() => std::future::pending().await,
        _ => {}
    }
}

/// Where a redirect leads: nobody should ever come.
const REDIRECTED: &str = "/followed-a-redirect";

async fn answer(request: &Request, writer: &mut OwnedWriteHalf, state: &Arc<State>) -> io::Result<Then> {
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/v1/embeddings") => answer_model(request, Endpoint::Embeddings, writer, state).await,
        ("POST", "/v1/chat/completions") => answer_model(request, Endpoint::Chat, writer, state).await,
        (_, path) => {
            if path.starts_with("/v1/") || path == REDIRECTED {
                state.count(|c| *c.requests.entry(path.to_owned()).or_default() += 1);
            }
            let response = answer_control(request, state).await;
            send(writer, &response).await?;
            Ok(Then::KeepOpen)
        }
    }
}

async fn answer_control(request: &Request, state: &Arc<State>) -> Response {
    let done = || Response::json(200, &json!({"ok": true}));
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/control") => match serde_json::from_slice::<Control>(&request.body) {
            Ok(control) => {
                state.apply(control);
                done()
            }
            Err(error) => Response::error(400, &error.to_string()),
        },
        ("POST", "/release") => {
            state.release();
            done()
        }
        ("POST", "/reset") => {
            state.reset();
            done()
        }
        ("GET", "/counters") => {
            let counters = state.counters();
            Response::json(200, &counters.to_json(request.parameter("texts").is_some()))
        }
        ("GET", "/wait") => wait(request, state).await,
        (method, path) => Response::error(404, &format!("{method} {path} is nothing this provider knows")),
    }
}

async fn wait(request: &Request, state: &Arc<State>) -> Response {
    let at_least = |name| request.parameter(name).map_or(0, |v| v.parse::<u64>().unwrap_or(u64::MAX));
    let (in_flight, stalled, aborted) = (at_least("in_flight"), at_least("stalled"), at_least("aborted"));
    let reached = |c: &Counters| c.in_flight >= in_flight && c.stalled >= stalled && c.aborted >= aborted;
    match state.wait_until(WAIT_LIMIT, reached).await {
        Some(counters) => Response::json(200, &counters.to_json(false)),
        None => Response::error(408, "the condition was not reached in 60 s"),
    }
}

/// What a response is about, for the faults and the counters that look into it.
enum Subject {
    Embeddings(Asked),
    Chat,
}

async fn answer_model(
    request: &Request,
    endpoint: Endpoint,
    writer: &mut OwnedWriteHalf,
    state: &Arc<State>,
) -> io::Result<Then> {
    let _in_flight = InFlight::enter(state);
    let authorization = request.header("authorization").unwrap_or("");
    state.count(|c| {
        *c.requests.entry(request.path.clone()).or_default() += 1;
        c.last_query.clone_from(&request.query);
        c.last_api_key = request.header("api-key").map(fingerprint);
        c.last_authorization = (!authorization.is_empty()).then(|| fingerprint(authorization));
    });
    let (subject, response) = match understand(request, endpoint, state) {
        Ok(understood) => understood,
        Err(message) => {
            send(writer, &Response::error(400, &message)).await?;
            return Ok(Then::KeepOpen);
        }
    };
    let asked = match &subject {
        Subject::Embeddings(asked) => Some(asked),
        Subject::Chat => None,
    };
    let fault = state.take_fault(endpoint, asked);
    tokio::time::sleep(state.latency()).await;
    let Some(kind) = fault else {
        // Before the last byte, so that whoever has the response finds it counted.
        count_texts(subject, state);
        send(writer, &response).await?;
        return Ok(Then::KeepOpen);
    };
    let keeps_vectors = kind == FaultKind::WithoutIndex;
    let (how, response) = spoil(kind, &subject, response, authorization, state);
    let is_good_in_the_end = matches!(how, How::Hanging | How::HangingMidBody | How::Dripping(_)) || keeps_vectors;
    let then = send_badly(how, &response, writer, state).await?;
    if is_good_in_the_end {
        count_texts(subject, state);
    }
    Ok(then)
}

fn count_texts(subject: Subject, state: &State) {
    if let Subject::Embeddings(asked) = subject {
        state.count(|c| asked.inputs.into_iter().for_each(|text| *c.texts.entry(text).or_default() += 1));
    }
}

/// The good response to a request, before faults.
fn understand(request: &Request, endpoint: Endpoint, state: &Arc<State>) -> Result<(Subject, Response), String> {
    let body: Value = serde_json::from_slice(&request.body).map_err(|e| format!("the body is not JSON: {e}"))?;
    if endpoint == Endpoint::Chat {
        let answer = chat::respond(&body, state.take_reply())?;
        state.record_chat_request(body);
        return Ok((Subject::Chat, Response::json(200, &answer)));
    }
    let asked = Asked::read(&body)?;
    state.count(|c| c.items.push(asked.inputs.len()));
    let answer = asked.response(&asked.vectors());
    Ok((Subject::Embeddings(asked), Response::json(200, &answer)))
}

/// How a response goes onto the wire when not simply sent.
enum How {
    Whole,
    InChunks,
    Cut,
    Not,
    Hanging,
    HangingMidBody,
    Dripping(Duration),
}

/// What a fault makes of a response, and how it is sent.
fn spoil(kind: FaultKind, subject: &Subject, good: Response, authorization: &str, state: &State) -> (How, Response) {
    let page = b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>".to_vec();
    match kind {
        FaultKind::Status429 { retry_after } => {
            let mut response = Response::error(429, "Rate limit reached for requests");
            response.headers.extend(retry_after.map(|value| ("retry-after", value)));
            (How::Whole, response)
        }
        FaultKind::Status500 => (How::Whole, Response::error(500, "The server had an error while processing")),
        FaultKind::Status401 => {
            let key = authorization.strip_prefix("Bearer ").unwrap_or(authorization);
            (How::Whole, Response::error(401, &format!("Incorrect API key provided: {key}.")))
        }
        FaultKind::EchoKey { status, body } => {
            let key = authorization.strip_prefix("Bearer ").unwrap_or(authorization);
            let body = body
                .replace("KEY_JSON", json!(key).to_string().trim_matches('"'))
                .replace("KEY_URL", &percent_encoded(key))
                .replace("KEY_UPPER", &key.to_uppercase())
                .replace("KEY", key);
            (How::Whole, Response { status, body: body.into_bytes(), ..good })
        }
        FaultKind::Status404 => (How::Whole, Response::error(404, "The model does not exist")),
        FaultKind::UnknownModel { model } => {
            (How::Whole, Response::error(404, &format!("The model {model:?} does not exist")))
        }
        FaultKind::HangBeforeHeaders => (How::Hanging, good),
        FaultKind::HangMidBody => (How::HangingMidBody, good),
        FaultKind::SlowDrip { interval_ms } => (How::Dripping(Duration::from_millis(interval_ms)), good),
        FaultKind::CutBody => (How::Cut, good),
        FaultKind::CloseBeforeHeaders => (How::Not, good),
        FaultKind::Html => (How::Whole, Response { content_type: "text/html", body: page, ..good }),
        FaultKind::EmptyBody => (How::Whole, Response { body: Vec::new(), ..good }),
        FaultKind::Body20Mb { declared } => {
            let how = if declared { How::Whole } else { How::InChunks };
            (how, Response { body: vec![b' '; TWENTY_MIB], ..good })
        }
        FaultKind::Redirect => {
            let to = format!("http://{}{REDIRECTED}", state.address);
            let headers = vec![("location", to)];
            (How::Whole, Response { status: 302, headers, body: Vec::new(), ..good })
        }
        FaultKind::RejectTextContaining { text } => {
            (How::Whole, Response::error(400, &format!("this provider does not embed {text:?}")))
        }
        FaultKind::Answer { status, body } => (How::Whole, Response { status, body: body.into_bytes(), ..good }),
        FaultKind::TooManyTexts { limit } => {
            let words = format!("batch size is invalid, it should not be larger than {limit}");
            (How::Whole, Response::error(400, &words))
        }
        FaultKind::WithoutIndex
        | FaultKind::WrongDimension
        | FaultKind::MixedDimension
        | FaultKind::WrongCount
        | FaultKind::Nan
        | FaultKind::NullElement => (How::Whole, spoil_vectors(&kind, subject, good)),
    }
}

/// As a URL carries it.
fn percent_encoded(text: &str) -> String {
    let byte = |b: u8| match b {
        b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Faults inside the vectors; a chat response has none and becomes an empty object.
fn spoil_vectors(kind: &FaultKind, subject: &Subject, good: Response) -> Response {
    let Subject::Embeddings(asked) = subject else {
        return Response::json(200, &json!({}));
    };
    let mut vectors = asked.vectors();
    match kind {
        FaultKind::WithoutIndex => {
            let mut body = asked.response(&vectors);
            for item in body["data"].as_array_mut().into_iter().flatten() {
                item.as_object_mut().map(|item| item.remove("index"));
            }
            return Response::json(200, &body);
        }
        FaultKind::WrongDimension => vectors.iter_mut().for_each(|v| v.push(0.5)),
        FaultKind::MixedDimension => {
            vectors.last_mut().and_then(Vec::pop);
        }
        FaultKind::WrongCount => {
            vectors.pop();
        }
        _ => {
            let mut body = asked.response(&vectors);
            body["data"][0]["embedding"][0] = json!(null);
            let mut text = body.to_string();
            if *kind == FaultKind::Nan {
                text = text.replacen("null", "NaN", 1);
            }
            return Response { body: text.into_bytes(), ..good };
        }
    }
    Response::json(200, &asked.response(&vectors))
}

async fn send(writer: &mut OwnedWriteHalf, response: &Response) -> io::Result<()> {
    let mut bytes = response.head();
    bytes.extend_from_slice(&response.body);
    writer.write_all(&bytes).await
}

async fn send_badly(
    how: How,
    response: &Response,
    writer: &mut OwnedWriteHalf,
    state: &Arc<State>,
) -> io::Result<Then> {
    let half = response.body.len() / 2;
    match how {
        How::Whole => send(writer, response).await?,
        How::InChunks => send_in_chunks(writer, response).await?,
        How::Cut => {
            writer.write_all(&response.head()).await?;
            writer.write_all(&response.body[..half]).await?;
            return Ok(Then::Close);
        }
        How::Not => return Ok(Then::Close),
        How::Hanging => {
            state.stall().released().await;
            send(writer, response).await?;
        }
        How::HangingMidBody => {
            writer.write_all(&response.head()).await?;
            writer.write_all(&response.body[..half]).await?;
            state.stall().released().await;
            writer.write_all(&response.body[half..]).await?;
        }
        How::Dripping(interval) => {
            writer.write_all(&response.head()).await?;
            drip(&response.body, interval, writer, state).await?;
        }
    }
    Ok(Then::KeepOpen)
}

async fn send_in_chunks(writer: &mut OwnedWriteHalf, response: &Response) -> io::Result<()> {
    writer.write_all(&response.head_with("transfer-encoding: chunked\r\n")).await?;
    for chunk in response.body.chunks(64 * 1024) {
        writer.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await?;
        writer.write_all(chunk).await?;
        writer.write_all(b"\r\n").await?;
    }
    writer.write_all(b"0\r\n\r\n").await
}

async fn drip(body: &[u8], interval: Duration, writer: &mut OwnedWriteHalf, state: &Arc<State>) -> io::Result<()> {
    let mut stall = state.stall();
    for (sent, byte) in body.iter().enumerate() {
        writer.write_all(&[*byte]).await?;
        let wait = tokio::time::timeout(interval, stall.released());
        if wait.await.is_ok() {
            return writer.write_all(&body[sent + 1..]).await;
        }
    }
    Ok(())
}
