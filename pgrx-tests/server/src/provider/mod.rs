//! A fake OpenAI-compatible provider.
//!
//! It speaks HTTP/1.1 over plain sockets, written here by hand, because its purpose is to be wrong on the wire: to hang
//! between two bytes, to cut a body, to drip. It runs on a thread of its own, so a test may block.
//!
//! | request | what it does |
//! |---|---|
//! | `POST /v1/embeddings` | hashed bags of words ([`embeddings`]); the dimension is in the model's name: `embed-384` |
//! | `POST /v1/chat/completions` | a small deterministic tool-calling model ([`chat`]), or queued replies |
//! | `POST /control` | sets latency, faults and queued replies ([`control`]) |
//! | `POST /release` | lets every stalled request go on |
//! | `POST /reset` | forgets faults, replies and counters |
//! | `GET /counters` | what happened so far ([`counters`]); `?texts=1` adds how often each text was embedded |
//! | `GET /wait?in_flight=1` | answers when that many requests are in flight (or `stalled=`, `aborted=`) |

pub mod blackhole;
pub mod chat;
pub mod control;
pub mod counters;
pub mod embeddings;
pub mod http;
mod respond;
mod state;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use control::{Control, Endpoint, Fault, FaultKind, ScriptedReply};
use counters::Counters;
use state::State;

/// A running provider; it ends when this is dropped.
pub struct FakeProvider {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeProvider {
    /// Starts a provider on a free port of the loopback interface.
    pub fn start() -> FakeProvider {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port on loopback");
        FakeProvider::start_on(listener)
    }

    /// Starts a provider on a socket that listens already.
    pub fn start_on(listener: std::net::TcpListener) -> FakeProvider {
        let address = listener.local_addr().expect("a bound socket has an address");
        listener.set_nonblocking(true).expect("sockets can be non-blocking");
        let state = Arc::new(State::new(address));
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("fake-provider".into())
            .spawn(move || serve_until(listener, serving, stopped))
            .expect("a thread for the provider");
        FakeProvider { address, state, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What `base_url` of a foreign server should be.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Applies a control message, as `POST /control` does.
    pub fn control(&self, control: Control) {
        self.state.apply(control);
    }

    /// Delays every answer by this much.
    pub fn set_latency(&self, latency: Duration) {
        self.control(Control { latency_ms: Some(latency.as_millis() as u64), ..Control::default() });
    }

    /// The next `times` requests to any endpoint go wrong in this way.
    pub fn fail(&self, kind: FaultKind, times: u64) {
        self.fail_at(Endpoint::Any, kind, times);
    }

    /// The next `times` requests to this endpoint go wrong in this way.
    pub fn fail_at(&self, endpoint: Endpoint, kind: FaultKind, times: u64) {
        self.control(Control { faults: vec![Fault { endpoint, kind, times }], ..Control::default() });
    }

    /// Every request goes wrong in this way, until [`FakeProvider::heal`].
    pub fn break_down(&self, kind: FaultKind) {
        self.fail(kind, u64::MAX);
    }

    /// Ends all faults and latency; lets stalled requests go on.
    pub fn heal(&self) {
        self.state.heal();
        self.state.release();
    }

    /// Queues replies of the chat endpoint, used before the model's own policy.
    pub fn script(&self, replies: Vec<ScriptedReply>) {
        self.control(Control { replies, ..Control::default() });
    }

    /// Lets every stalled request go on as if nothing had happened.
    pub fn release(&self) {
        self.state.release();
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.state.counters()
    }

    /// Sets all counters to zero; what is in flight stays counted.
    pub fn forget(&self) {
        self.state.forget();
    }

    /// The bodies of the chat requests so far, oldest first.
    pub fn chat_requests(&self) -> Vec<Value> {
        self.state.chat_requests()
    }

    /// Waits until the counters satisfy `condition`; panics after `limit`, naming `what`.
    pub async fn wait_until(&self, what: &str, limit: Duration, condition: impl Fn(&Counters) -> bool) -> Counters {
        match self.state.wait_until(limit, condition).await {
            Some(counters) => counters,
            None => panic!("waited {limit:?} in vain for the provider: {what}; counters: {:?}", self.counters()),
        }
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread has ended by itself if nobody listens.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve_until(listener: std::net::TcpListener, state: Arc<State>, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    runtime.block_on(async move {
        let listener = TcpListener::from_std(listener).expect("a listening socket");
        tokio::select! {
            () = serve(listener, state) => {}
            _ = stopped => {}
        }
    });
}

/// Answers connections for ever.
async fn serve(listener: TcpListener, state: Arc<State>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(respond::converse(stream, Arc::clone(&state)));
            }
            // Out of descriptors, most likely: others may close some.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
