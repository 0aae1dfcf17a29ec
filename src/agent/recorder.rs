//! The recorder: what a run is and does, for `rag.runs` and `rag.steps`.
//!
//! A driver begins it, appends after every step of the run, and finishes it. The driver in a backend works in its caller's
//! transaction, where nobody could see an unfinished run or go on with it. So all of it is written at the end: while a model
//! works, the transaction has written nothing and has no transaction id. Where the transaction may not write, nothing is.

use super::statements;
use crate::pg::{role, xact};
use pgrx::Uuid;
use ragent_core::agent::{Answer, Run, Step};
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
pub struct Recorder<'a> {
    id: Uuid,
    new: NewRun<'a>,
    started: Instant,
    steps: Vec<Step>,
}

impl<'a> Recorder<'a> {
    /// Gives the run an identifier.
    pub fn begin(new: NewRun<'a>) -> Self {
        let id = Uuid::from_bytes(*uuid::Uuid::now_v7().as_bytes());
        Self { id, new, started: Instant::now(), steps: Vec::new() }
    }

    /// Takes the steps that the run made since this was last called.
    pub fn append(&mut self, run: &mut Run) {
        self.steps.extend(run.take_steps());
    }

    /// Records who asked what, the steps, and how the run ended. Its identifier, and the milliseconds it took.
    pub fn finish(self, answer: &Answer) -> (Uuid, f64) {
        let latency_ms = self.started.elapsed().as_secs_f64() * 1000.0;
        if xact::may_write() {
            statements::begin(self.id, role::current(), &self.new, latency_ms);
            statements::append(self.id, 0, &self.steps);
            statements::finish(self.id, answer, latency_ms);
        }
        (self.id, latency_ms)
    }
}
