//! What the connections of one provider share.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::control::{Control, Endpoint, Fault, FaultKind, ScriptedReply};
use super::counters::Counters;
use super::embeddings::Asked;

/// The shared state; every change of it wakes those who wait for a condition.
pub struct State {
    /// Where the provider listens.
    pub address: SocketAddr,
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
    released: watch::Sender<()>,
}

#[derive(Default)]
struct Inner {
    latency: Duration,
    faults: VecDeque<Fault>,
    replies: VecDeque<ScriptedReply>,
    counters: Counters,
    chat_requests: Vec<Value>,
}

impl State {
    pub fn new(address: SocketAddr) -> State {
        State { address, inner: Mutex::default(), changed: watch::Sender::new(()), released: watch::Sender::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while the provider's state is locked")
    }

    pub fn apply(&self, control: Control) {
        let mut inner = self.lock();
        if let Some(ms) = control.latency_ms {
            inner.latency = Duration::from_millis(ms);
        }
        inner.faults.extend(control.faults);
        inner.replies.extend(control.replies);
    }

    pub fn heal(&self) {
        let mut inner = self.lock();
        inner.latency = Duration::ZERO;
        inner.faults.clear();
    }

    /// Forgets everything but what is in flight.
    pub fn reset(&self) {
        self.heal();
        self.lock().replies.clear();
        self.forget();
        self.release();
    }

    pub fn forget(&self) {
        self.count(|c| {
            let (in_flight, stalled) = (c.in_flight, c.stalled);
            *c = Counters { in_flight, stalled, max_in_flight: in_flight, ..Counters::default() };
        });
        self.lock().chat_requests.clear();
    }

    pub fn latency(&self) -> Duration {
        self.lock().latency
    }

    /// The fault that strikes this request, if any; it is used up once.
    pub fn take_fault(&self, endpoint: Endpoint, asked: Option<&Asked>) -> Option<FaultKind> {
        let mut inner = self.lock();
        let strikes = |fault: &Fault| {
            fault.endpoint.covers(endpoint)
                && match &fault.kind {
                    FaultKind::RejectTextContaining { text } => {
                        asked.is_some_and(|a| a.inputs.iter().any(|input| input.contains(text)))
                    }
                    FaultKind::TooManyTexts { limit } => asked.is_some_and(|a| a.inputs.len() > *limit),
                    FaultKind::UnknownModel { model } => asked.is_some_and(|a| a.model == *model),
                    _ => true,
                }
        };
        let position = inner.faults.iter().position(strikes)?;
        let fault = &mut inner.faults[position];
        let kind = fault.kind.clone();
        fault.times = fault.times.saturating_sub(1);
        if fault.times == 0 {
            inner.faults.remove(position);
        }
        Some(kind)
    }

    pub fn take_reply(&self) -> Option<ScriptedReply> {
        self.lock().replies.pop_front()
    }

    pub fn record_chat_request(&self, body: Value) {
        self.lock().chat_requests.push(body);
    }

    pub fn chat_requests(&self) -> Vec<Value> {
        self.lock().chat_requests.clone()
    }

    pub fn counters(&self) -> Counters {
        self.lock().counters.clone()
    }

    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.lock().counters);
        self.changed.send_replace(());
    }

    /// The counters as soon as they satisfy the condition, or `None` after the limit.
    pub async fn wait_until(&self, limit: Duration, condition: impl Fn(&Counters) -> bool) -> Option<Counters> {
        let mut changes = self.changed.subscribe();
        let satisfied = async {
            loop {
                let counters = self.counters();
                if condition(&counters) {
                    return counters;
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(limit, satisfied).await.ok()
    }

    pub fn release(&self) {
        self.released.send_replace(());
    }

    /// Counts the request as stalled until it is released or abandoned.
    pub fn stall(self: &Arc<State>) -> Stall {
        let release = self.released.subscribe();
        self.count(|c| {
            c.stalled += 1;
            c.stalls += 1;
        });
        Stall { state: Arc::clone(self), release }
    }
}

/// A request that hangs.
pub struct Stall {
    state: Arc<State>,
    release: watch::Receiver<()>,
}

impl Stall {
    /// Ends when somebody calls [`State::release`].
    pub async fn released(&mut self) {
        if self.release.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.state.count(|c| c.stalled -= 1);
    }
}

/// A request being answered.
pub struct InFlight(Arc<State>);

impl InFlight {
    pub fn enter(state: &Arc<State>) -> InFlight {
        state.count(|c| {
            c.in_flight += 1;
            c.max_in_flight = c.max_in_flight.max(c.in_flight);
        });
        InFlight(Arc::clone(state))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.count(|c| c.in_flight -= 1);
    }
}
