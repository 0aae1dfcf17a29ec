//! The recorder: what a run is and does, written to `rag.runs` and `rag.steps` while it goes on.
//!
//! A driver begins it, appends after every step of the run, and finishes it. Where the transaction may not write, the same calls
//! write nothing.

use super::statements;
use crate::pg::{role, xact};
use pgrx::Uuid;
use ragent_core::agent::{Answer, Run};
use std::time::Instant;

/// What is known of a run when it begins.
pub struct NewRun<'a> {
    /// What is asked.
    pub question: &'a str,
    /// The collection it is limited to.
    pub collection: Option<&'a str>,
    /// Chat model, as `server/model-name`.
    pub model: &'a str,
}

/// Records one run.
pub struct Recorder {
    id: Uuid,
    started: Instant,
    /// Whether the transaction may write.
    writes: bool,
    /// Steps recorded so far.
    steps: i32,
}

impl Recorder {
    /// Gives the run an identifier and records that the current role began it.
    pub fn begin(new: &NewRun<'_>, run: &Run) -> Recorder {
        let id = Uuid::from_bytes(*uuid::Uuid::now_v7().as_bytes());
        let recorder = Recorder { id, started: Instant::now(), writes: xact::may_write(), steps: 0 };
        if recorder.writes {
            statements::begin(id, role::current(), new, run);
        }
        recorder
    }

    /// Records the steps that the run made since it was last called, and the state from which it could go on.
    pub fn append(&mut self, run: &mut Run) {
        let steps = run.take_steps();
        if self.writes && !steps.is_empty() {
            statements::append(self.id, self.steps, &steps, run.state());
        }
        self.steps += steps.len() as i32;
    }

    /// Records how the run ended. Its identifier, and the milliseconds it took.
    pub fn finish(self, answer: &Answer) -> (Uuid, f64) {
        let latency_ms = self.started.elapsed().as_secs_f64() * 1000.0;
        if self.writes {
            statements::finish(self.id, answer, latency_ms);
        }
        (self.id, latency_ms)
    }
}
