//! What the worker remembers between turns: jobs under way, pauses, how many rows to take at a time.

use super::job::{self, Job, NoJob};
use crate::pg::http::{HttpError, InFlight, Response};
use crate::pg::xact::{self, SqlError};
use crate::pg::{interrupt, worker as process};
use crate::provider::remote::{self, Failure};
use crate::provider;
use crate::store;
use ragent_core::provider::{FailureKind, backoff};
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The worker's memory.
#[derive(Default)]
pub struct Worker {
    collections: HashMap<i32, CollectionState>,
    providers: HashMap<String, ProviderState>,
    jobs: HashMap<usize, Job>,
    /// Requests under way: tag → job and its texts.
    requests: HashMap<usize, (usize, Range<usize>)>,
    in_flight: InFlight,
    next_number: usize,
}

/// How to take a collection's rows.
struct CollectionState {
    /// Rows for the next job.
    rows: usize,
    /// So many rows are taken one at a time, because one of them spoilt a job.
    singly: usize,
    /// Consecutive failures that were not a row's.
    failures: u32,
    paused_until: Option<Instant>,
    /// Its server, once a job was read.
    provider: Option<String>,
}

impl Default for CollectionState {
    fn default() -> Self {
        Self { rows: FIRST_ROWS, singly: 0, failures: 0, paused_until: None, provider: None }
    }
}

/// How a server fares.
#[derive(Default)]
struct ProviderState {
    max_in_flight: usize,
    failures: u32,
    paused_until: Option<Instant>,
}

/// Rows of a collection's first job, before it is known how many chunks its rows have.
const FIRST_ROWS: usize = 16;
/// Shortest wait for a postponed entry.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
/// Most rows of one job.
const MAX_ROWS: usize = 1000;
/// Chunks a job of a local model aims for: about a second's work.
const LOCAL_CHUNKS: usize = 64;
/// A row whose own content cannot be embedded is given up after so many attempts.
const MAX_ATTEMPTS: i32 = 4;

impl Worker {
    /// One turn: take finished requests, start new jobs, wait if there is nothing else to do.
    /// False: the tables could not be read.
    pub fn turn(&mut self) -> bool {
        while let Some((tag, result)) = self.in_flight.poll() {
            self.finished(tag, result);
        }
        let Ok(ready) = xact::transaction(store::queue::ready_collections) else {
            interrupt::sleep(Duration::from_millis(200));
            return false;
        };
        let mut worked = false;
        for collection in ready {
            worked |= self.start_jobs(collection);
        }
        if !worked {
            // Woken for nothing that is in the queue, it may be that the extension is being dropped.
            self.wait();
            return xact::transaction(store::catalog::extension_exists).unwrap_or(false);
        }
        true
    }

    /// Waits for a request, a commit, or the end of a pause.
    fn wait(&mut self) {
        process::report_idle();
        let retry = xact::transaction(store::queue::next_retry).ok().flatten();
        let now = Instant::now();
        let pauses = self
            .providers
            .values()
            .map(|p| p.paused_until)
            .chain(self.collections.values().map(|c| c.paused_until))
            .flatten()
            .map(|until| until.saturating_duration_since(now))
            .filter(|left| !left.is_zero());
        // An entry that is due already waits for its provider or its collection: no reason to spin.
        let timeout = pauses.chain(retry.map(|r| r.max(SHORTEST_WAIT))).min();
        self.in_flight.wait_for_event(timeout);
    }

    /// Starts what can be started for a collection; whether anything was.
    fn start_jobs(&mut self, collection: i32) -> bool {
        let mut started = false;
        while let Some(outcome) = self.start_job(collection) {
            started = true;
            if !outcome {
                break;
            }
        }
        started
    }

    /// None: nothing was done. Some(more): something was, and there may be `more` at once.
    fn start_job(&mut self, collection: i32) -> Option<bool> {
        let state = self.collections.entry(collection).or_default();
        if is_paused(&mut state.paused_until) {
            return None;
        }
        if let Some(provider) = state.provider.clone()
            && !self.has_room(&provider)
        {
            return None;
        }
        let state = self.collections.entry(collection).or_default();
        let limit = if state.singly > 0 { 1 } else { state.rows };
        let (busy_ids, busy_keys) = self.busy(collection);
        let read = xact::transaction(|| job::read(collection, limit, &busy_ids, &busy_keys));
        let input = match read {
            Ok(Ok(input)) => input,
            Ok(Err(NoJob::Nothing)) => return None,
            Ok(Err(NoJob::Blocked(e))) => {
                self.block(collection, &e.message);
                return None;
            }
            Err(e) => {
                self.failed_sql(collection, limit, &e, None);
                return None;
            }
        };
        let provider = input.provider_name().to_owned();
        self.providers.entry(provider.clone()).or_default().max_in_flight = input.max_in_flight();
        if let Some(state) = self.collections.get_mut(&collection) {
            state.provider = Some(provider.clone());
        }
        if !self.has_room(&provider) {
            return None;
        }
        match input.plan() {
            Ok(job) => {
                self.adapt(collection, &job);
                // A local job keeps this process busy: others come before the next.
                let more = !job.is_local();
                self.begin(job);
                Some(more)
            }
            Err(e) => {
                self.block(collection, &e.message);
                None
            }
        }
    }

    /// What this process is working on already, of one collection.
    fn busy(&self, collection: i32) -> (Vec<i64>, Vec<String>) {
        let rows = || self.jobs.values().filter(|j| j.collection.id == collection).flat_map(|j| &j.rows);
        (rows().flat_map(|r| r.ids.iter().copied()).collect(), rows().map(|r| r.key.clone()).collect())
    }

    /// Whether a server may be asked now. What its limit is, is known once a job was read.
    fn has_room(&mut self, provider: &str) -> bool {
        let under_way = self.requests_to(provider);
        match self.providers.get_mut(provider) {
            Some(state) => !is_paused(&mut state.paused_until) && under_way < state.max_in_flight,
            None => true,
        }
    }

    fn requests_to(&self, provider: &str) -> usize {
        self.requests
            .values()
            .filter(|(job, _)| self.jobs.get(job).is_some_and(|j| j.provider.name == provider))
            .count()
    }

    /// Takes more or fewer rows next time, so that a job fills one request.
    fn adapt(&mut self, collection: i32, job: &Job) {
        let state = self.collections.entry(collection).or_default();
        state.singly = state.singly.saturating_sub(job.rows.len());
        let chunks: usize = job.rows.iter().map(|r| r.chunks.len()).sum();
        if state.singly == 0 && chunks > 0 {
            let target = if job.is_local() { LOCAL_CHUNKS } else { job.provider.max_batch_items };
            state.rows = (job.rows.len() * target / chunks).clamp(1, MAX_ROWS).min(state.rows * 2);
        } else if chunks == 0 {
            state.rows = (state.rows * 2).min(MAX_ROWS);
        }
    }

    fn begin(&mut self, job: Job) {
        process::report_activity(&format!(
            "embedding {} texts of collection {} with {}",
            job.texts().len(),
            job.collection.name,
            job.model
        ));
        if job.texts().is_empty() {
            self.store(job);
        } else if job.is_local() {
            self.embed_here(job);
        } else {
            self.send(job);
        }
    }

    fn embed_here(&mut self, mut job: Job) {
        let embedded = provider::local::embed(&job.model.model, &job.texts());
        let n = job.texts().len();
        match embedded.and_then(|vectors| job.receive(0..n, vectors)) {
            Ok(()) => self.store(job),
            Err(e) => self.block(job.collection.id, &e.message),
        }
    }

    fn send(&mut self, job: Job) {
        let number = self.number();
        let texts = job.texts();
        for range in remote::batches(&job.provider, &texts) {
            let tag = self.number();
            let request = remote::embedding_request(
                &job.provider,
                &job.model.model,
                &texts[range.clone()],
                Some(job.collection.dimensions as usize),
            );
            if let Err(e) = self.in_flight.submit(tag, request) {
                self.block(job.collection.id, &e.to_string());
                return;
            }
            self.requests.insert(tag, (number, range));
        }
        self.jobs.insert(number, job);
    }

    fn number(&mut self) -> usize {
        self.next_number += 1;
        self.next_number
    }

    /// A request came back.
    fn finished(&mut self, tag: usize, result: Result<Response, HttpError>) {
        // A request of a job that failed meanwhile is of no interest.
        let Some((number, range)) = self.requests.remove(&tag) else { return };
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let dimensions = Some(job.collection.dimensions as usize);
        let vectors = remote::embeddings(&job.provider, result, range.len(), dimensions);
        let received = vectors.and_then(|v| {
            job.receive(range, v).map_err(|error| Failure {
                kind: FailureKind::Protocol,
                retry_after: None,
                error,
            })
        });
        match received {
            Ok(()) => {
                if let Some(state) = self.providers.get_mut(&job.provider.name) {
                    state.failures = 0;
                }
                if job.is_complete()
                    && let Some(job) = self.jobs.remove(&number)
                {
                    self.store(job);
                }
            }
            Err(failure) => {
                if let Some(job) = self.jobs.remove(&number) {
                    self.requests.retain(|_, (j, _)| *j != number);
                    self.failed_request(&job, &failure);
                }
            }
        }
    }

    fn store(&mut self, mut job: Job) {
        let collection = job.collection.id;
        match xact::transaction(|| job.store()) {
            Ok(()) => self.collections.entry(collection).or_default().failures = 0,
            Err(e) => self.failed_sql(collection, job.rows.len(), &e, Some(&job)),
        }
    }

    /// The provider did not give vectors.
    fn failed_request(&mut self, job: &Job, failure: &Failure) {
        let message = failure.error.message.as_str();
        let of_a_row = matches!(
            failure.kind,
            FailureKind::BadRequest | FailureKind::TooLarge | FailureKind::Protocol
        );
        if of_a_row && job.rows.len() > 1 {
            // One of these rows may be to blame: each gets a job of its own.
            self.collections.entry(job.collection.id).or_default().singly = job.rows.len();
            return;
        }
        let provider = self.providers.entry(job.provider.name.clone()).or_default();
        provider.failures += 1;
        let pause = failure
            .retry_after
            .unwrap_or_else(|| backoff(provider.failures, u64::from(std::process::id())));
        if !of_a_row || provider.failures > 3 {
            provider.paused_until = Some(Instant::now() + pause);
        }
        if of_a_row {
            self.failed_row(job, message);
        } else {
            let (id, ids) = (job.collection.id, job.ids());
            note(xact::transaction(|| store::queue::postpone(id, &ids, pause, message)));
        }
    }

    /// The only row of a job cannot be embedded: it is tried again later, or given up.
    fn failed_row(&mut self, job: &Job, message: &str) {
        let Some(row) = job.rows.first() else { return };
        let (id, ids, key, attempts) = (job.collection.id, &row.ids, &row.key, row.attempts + 1);
        pgrx::warning!("collection \"{}\": row {key}: {message}", job.collection.name);
        note(xact::transaction(|| {
            if attempts >= MAX_ATTEMPTS {
                store::queue::give_up(id, ids, key, attempts, message);
            } else {
                let delay = backoff(attempts as u32, ids[0] as u64);
                store::queue::postpone(id, ids, delay, message);
            }
        }));
    }

    /// A transaction failed, by the data of a row or by the state of the database.
    fn failed_sql(&mut self, collection: i32, rows: usize, e: &SqlError, job: Option<&Job>) {
        if !e.is_about_data() {
            self.block(collection, &e.message);
        } else if rows > 1 {
            self.collections.entry(collection).or_default().singly = rows;
        } else if let Some(job) = job {
            self.failed_row(job, &e.message);
        } else {
            self.failed_entry(collection, &e.message);
        }
    }

    /// Not even reading one row works (a key that no longer fits its column's type): its entry is failed by itself.
    fn failed_entry(&mut self, collection: i32, message: &str) {
        let (busy_ids, busy_keys) = self.busy(collection);
        let state = self.collections.entry(collection).or_default();
        state.singly = state.singly.saturating_sub(1);
        note(xact::transaction(|| {
            for entry in store::queue::claim(collection, 1, &busy_ids, &busy_keys) {
                let attempts = entry.attempts + 1;
                match &entry.key {
                    Some(key) if attempts >= MAX_ATTEMPTS => {
                        store::queue::give_up(collection, &[entry.id], key, attempts, message);
                    }
                    _ => {
                        let delay = backoff(attempts as u32, entry.id as u64);
                        store::queue::postpone(collection, &[entry.id], delay, message);
                    }
                }
            }
        }));
    }

    /// The collection cannot be worked on for now; `rag.status` says why.
    fn block(&mut self, collection: i32, message: &str) {
        let state = self.collections.entry(collection).or_default();
        state.failures += 1;
        state.paused_until = Some(Instant::now() + backoff(state.failures, collection as u64));
        if state.failures == 1 {
            pgrx::warning!("collection {collection}: {message}");
        }
        note(xact::transaction(|| store::collection::note_error(collection, Some(message))));
    }
}

/// Whether a pause is still on; ends it when it is over.
fn is_paused(until: &mut Option<Instant>) -> bool {
    if until.is_some_and(|u| u <= Instant::now()) {
        *until = None;
    }
    until.is_some()
}

/// Book-keeping that failed is logged; the entries are still in the queue and will be tried again.
fn note(result: Result<(), SqlError>) {
    if let Err(e) = result {
        pgrx::warning!("pg_ragent worker: {}", e.message);
    }
}
