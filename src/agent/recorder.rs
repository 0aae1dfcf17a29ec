//! The recorder: what a run is and does, for `rag.runs` and `rag.steps`.
//!
//! A driver begins it, appends after every step of the run, and finishes it. The driver in a backend works in its caller's
//! transaction, where nobody could see an unfinished run or go on with it. So all of it is written at the end: while a model
//! works, the transaction has written nothing and has no transaction id. Where the transaction may not write, nothing is.
//!
//! How much is recorded, and in what scope, is settled when the run begins: what is asked meanwhile, such as a policy, may not
//! hand the run to somebody else.

use super::statements;
use crate::guc::{self, Record};
use crate::pg::role::{self, Settings};
use crate::pg::xact;
use crate::scope;
use pgrx::{PgSqlErrorCode, Uuid};
use ragent_core::agent::{Answer, Run, Step};
use ragent_core::scope::Scope;
use std::time::Instant;

/// For how long an answer waits for a lock on the tables of runs, in milliseconds: everybody may delete from them, and so may
/// lock them.
const PATIENCE_MS: u64 = 2000;

/// Writes a row of the record, with its texts or without.
type Write<'a> = &'a dyn Fn(bool);

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
    record: Record,
    scope: Scope,
    started: Instant,
    steps: Vec<Step>,
}

impl<'a> Recorder<'a> {
    /// Gives the run an identifier.
    pub fn begin(new: NewRun<'a>) -> Self {
        let id = Uuid::from_bytes(*uuid::Uuid::now_v7().as_bytes());
        let (record, scope) = (guc::record(), scope::current());
        Self { id, new, record, scope, started: Instant::now(), steps: Vec::new() }
    }

    /// Takes the steps that the run made since this was last called.
    pub fn append(&mut self, run: &mut Run) {
        self.steps.extend(run.take_steps());
    }

    /// Records who asked what, the steps, and how the run ended. Its identifier, unless it is not recorded, and the milliseconds it
    /// took.
    pub fn finish(self, answer: &Answer) -> (Option<Uuid>, f64) {
        let latency_ms = self.started.elapsed().as_secs_f64() * 1000.0;
        let has_texts = match self.record {
            Record::On => true,
            Record::Metadata => false,
            Record::Off => return (None, latency_ms),
        };
        if !xact::may_write() {
            return (None, latency_ms);
        }
        let Self { id, new, scope, steps, .. } = self;
        let scope = scope.to_json();
        let _patience = Settings::with_lock_timeout(PATIENCE_MS);
        let record = |write: &dyn Fn(Write<'_>)| {
            write(&|has_texts| statements::begin(id, role::current(), &new, has_texts, scope.as_ref(), latency_ms));
            for (step, number) in steps.iter().zip(1..) {
                write(&|has_texts| statements::append(id, number, step, has_texts, scope.as_ref()));
            }
            write(&|has_texts| statements::finish(id, answer, has_texts, latency_ms));
        };
        let recorded = xact::attempt(|| record(&|write| write(has_texts))).or_else(|e| {
            if !has_texts || e.code == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE {
                return Err(e);
            }
            // One text that cannot be stored costs that text, and neither the others nor the run.
            let without_it = |write: Write<'_>| xact::attempt(|| write(true)).unwrap_or_else(|_| write(false));
            xact::attempt(|| record(&without_it))
                .inspect(|()| pgrx::warning!("a text of this run is not recorded: {e}"))
        });
        // The answer is there and paid for.
        if let Err(e) = recorded {
            pgrx::warning!("this run is not recorded: {e}");
            return (None, latency_ms);
        }
        (Some(id), latency_ms)
    }
}
