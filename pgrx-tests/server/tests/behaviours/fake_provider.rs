//! The fake provider does what it is told, on the wire.

use std::time::{Duration, Instant};

use ragent_server_tests::provider::FakeProvider;
use ragent_server_tests::provider::blackhole::Blackhole;
use ragent_server_tests::provider::control::{Endpoint, FaultKind};
use ragent_server_tests::provider::http::call;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(10);

async fn post(provider: &FakeProvider, path: &str, body: Value) -> (u16, Value) {
    let (status, body) = call(provider.address(), "POST", path, &body.to_string()).await.expect("a response");
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

async fn embed(provider: &FakeProvider) -> (u16, Value) {
    post(provider, "/v1/embeddings", json!({"model": "embed-8", "input": ["one", "two"]})).await
}

fn lengths(body: &Value) -> Vec<usize> {
    let data = body["data"].as_array().cloned().unwrap_or_default();
    data.iter().map(|d| d["embedding"].as_array().map_or(0, Vec::len)).collect()
}

#[tokio::test]
async fn it_embeds_and_counts() {
    let provider = FakeProvider::start();
    let (status, body) = embed(&provider).await;
    assert_eq!((status, lengths(&body)), (200, vec![8, 8]));
    let counters = provider.counters();
    assert_eq!((counters.connections, counters.embedding_requests()), (1, 1));
    assert_eq!((counters.items.as_slice(), counters.texts.get("two")), (&[2][..], Some(&1)));
    assert!(counters.last_authorization.is_some());
    let (status, counted) = call(provider.address(), "GET", "/counters?texts=1", "").await.expect("a response");
    let counted: Value = serde_json::from_slice(&counted).expect("JSON");
    assert_eq!((status, &counted["texts"]["one"], &counted["connections"]), (200, &json!(1), &json!(1)));
}

#[tokio::test]
async fn faults_strike_in_order_and_as_often_as_told() {
    let provider = FakeProvider::start();
    let control = json!({"faults": [
        {"kind": "status_429", "retry_after": "7", "endpoint": "embeddings"},
        {"kind": "status_401", "times": 1}, {"kind": "wrong_dimension"}, {"kind": "mixed_dimension"},
        {"kind": "wrong_count"}, {"kind": "reject_text_containing", "text": "tw"}]});
    assert_eq!(post(&provider, "/control", control).await.0, 200);
    assert_eq!(embed(&provider).await.0, 429);
    let (status, body) = embed(&provider).await;
    assert!(status == 401 && body["error"]["message"].as_str().is_some_and(|m| m.contains("test")), "{body}");
    assert_eq!(lengths(&embed(&provider).await.1), [9, 9]);
    assert_eq!(lengths(&embed(&provider).await.1), [8, 7]);
    assert_eq!(lengths(&embed(&provider).await.1), [8]);
    assert_eq!(embed(&provider).await.0, 400);
    assert_eq!(embed(&provider).await.0, 200);
    let (status, error) = post(&provider, "/control", json!({"faults": [{"kind": "no_such"}]})).await;
    assert!(status == 400 && error["error"]["message"].as_str().is_some_and(|m| m.contains("no_such")), "{error}");
}

#[tokio::test]
async fn a_stalled_request_goes_on_when_released() {
    for kind in [FaultKind::HangBeforeHeaders, FaultKind::HangMidBody, FaultKind::SlowDrip { interval_ms: 1000 }] {
        let provider = FakeProvider::start();
        provider.fail_at(Endpoint::Embeddings, kind.clone(), 1);
        let request = embed(&provider);
        let release = async {
            provider.wait_until("a stalled request", LIMIT, |c| c.stalled == 1).await;
            provider.release();
        };
        let ((status, body), ()) = tokio::join!(request, release);
        assert_eq!((status, lengths(&body)), (200, vec![8, 8]), "{kind:?}");
        assert_eq!(provider.counters().aborted, 0);
    }
}

#[tokio::test]
async fn an_abandoned_request_is_counted_as_aborted() {
    let provider = FakeProvider::start();
    provider.break_down(FaultKind::HangMidBody);
    let mut stream = TcpStream::connect(provider.address()).await.expect("a connection");
    let body = r#"{"model": "embed-8", "input": "x"}"#;
    let request = format!("POST /v1/embeddings HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.expect("the request is sent");
    let counters = provider.wait_until("a stalled request", LIMIT, |c| c.stalled == 1).await;
    assert_eq!((counters.in_flight, counters.aborted), (1, 0));
    let mut some = [0; 12];
    stream.read_exact(&mut some).await.expect("the head has come");
    assert_eq!(&some, b"HTTP/1.1 200");
    drop(stream);
    let counters = provider.wait_until("the abortion to be seen", LIMIT, |c| c.aborted == 1).await;
    assert_eq!((counters.in_flight, counters.stalled, counters.texts_embedded()), (0, 0, 0));
}

#[tokio::test]
async fn a_body_of_20_mib_comes_with_and_without_a_declared_length() {
    for declared in [true, false] {
        let provider = FakeProvider::start();
        provider.fail(FaultKind::Body20Mb { declared }, 1);
        let (status, body) =
            call(provider.address(), "POST", "/v1/embeddings", r#"{"model":"embed-8","input":"x"}"#).await.expect("it");
        assert_eq!((status, body.len()), (200, 20 * 1024 * 1024));
    }
}

#[tokio::test]
async fn latency_delays_and_concurrent_requests_are_counted() {
    let provider = FakeProvider::start();
    // Long enough for all three to be under way together on a busy machine.
    provider.set_latency(Duration::from_millis(2000));
    let started = Instant::now();
    tokio::join!(embed(&provider), embed(&provider), embed(&provider));
    assert!(started.elapsed() >= Duration::from_millis(2000));
    let counters = provider.wait_until("all to be over", LIMIT, |c| c.in_flight == 0).await;
    assert_eq!((counters.max_in_flight, counters.in_flight, counters.connections), (3, 0, 3));
}

#[tokio::test]
async fn nobody_can_connect_to_a_blackhole_until_it_becomes_a_provider() {
    let hole = Blackhole::open().await;
    let address: std::net::SocketAddr =
        hole.base_url().trim_start_matches("http://").trim_end_matches("/v1").parse().expect("an address");
    let attempt = tokio::spawn(TcpStream::connect(address));
    let early = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await;
    assert!(early.is_err(), "a connection to a blackhole came about");
    let provider = hole.become_provider();
    let connected = tokio::time::timeout(LIMIT, attempt).await.expect("the kernel tries again");
    assert!(connected.expect("no panic").is_ok());
    assert_eq!(embed(&provider).await.0, 200);
}
