//! What the worker remembers between turns: jobs under way, pauses, how many rows to take at a time.

use super::job::{self, Account, Job, NoJob};
use super::statements;
use crate::pg::http::{HttpError, InFlight, Response};
use crate::pg::xact::{self, SqlError};
use crate::pg::{interrupt, worker as process};
use crate::provider;
use crate::provider::remote::{self, Failure};
use crate::registry::statements as registry;
use ragent_core::provider::{FailureKind, backoff};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The worker's memory.
#[derive(Default)]
pub struct Worker {
    collections: HashMap<i32, CollectionState>,
    accounts: HashMap<Account, AccountState>,
    jobs: HashMap<usize, Job>,
    /// Requests under way: tag → job and its texts.
    requests: HashMap<usize, (usize, Range<usize>)>,
    /// Requests of jobs under way that their server has no room for yet.
    waiting: VecDeque<(usize, Range<usize>)>,
    in_flight: InFlight,
    next_number: usize,
    /// The collection that was served last: the others come first.
    last_served: i32,
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
    /// The server it asks, once a job was read.
    account: Option<Account>,
}

impl Default for CollectionState {
    fn default() -> Self {
        Self { rows: FIRST_ROWS, singly: 0, failures: 0, paused_until: None, account: None }
    }
}

/// How a server fares that is asked as one role.
#[derive(Default)]
struct AccountState {
    max_in_flight: usize,
    failures: u32,
    /// Consecutive replies that were no replies.
    garbage: u32,
    paused_until: Option<Instant>,
}

/// What came of trying to start a job.
#[derive(PartialEq, Eq)]
enum Started {
    /// Nothing is to be done, or nothing can be for now.
    Nothing,
    /// Something was done.
    Something,
}

/// Rows of a collection's first job, before it is known how many chunks its rows have.
const FIRST_ROWS: usize = 16;
/// Shortest wait for a postponed entry.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
/// Where transactions can be prepared, rows may come without a commit that wakes anybody.
const LOOK_FOR_PREPARED: Duration = Duration::from_secs(1);
/// While something is held up, its state is looked at so often at least.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Most rows of one job.
const MAX_ROWS: usize = 1000;
/// Chunks a job of a local model aims for: about a second's work.
const LOCAL_CHUNKS: usize = 64;
/// A row whose own content cannot be embedded is given up after so many attempts.
const MAX_ATTEMPTS: i32 = 4;
/// So many useless replies in a row are the server's fault rather than a row's.
const MAX_GARBAGE: u32 = 3;

impl Worker {
    /// One turn: take finished requests, start new jobs, wait if there is nothing else to do.
    /// False: the tables could not be read.
    pub fn turn(&mut self) -> bool {
        while let Some((tag, result)) = self.in_flight.poll() {
            self.finished(tag, result);
        }
        let mut worked = self.send_waiting();
        let Ok((retry, mut ready)) = xact::transaction(statements::queue::look) else {
            interrupt::sleep(Duration::from_millis(200));
            return false;
        };
        // One job each, beginning after the one served last: a long queue does not keep a short one waiting.
        let begin = ready.partition_point(|c| *c <= self.last_served);
        ready.rotate_left(begin);
        let blocked = !ready.is_empty();
        for collection in ready {
            if self.start_job(collection) == Started::Something {
                self.last_served = collection;
                worked = true;
            }
        }
        if worked {
            return true;
        }
        self.wait(retry, blocked);
        // Woken for nothing that is in the queue, it may be that the extension was dropped.
        xact::transaction(crate::provider::statements::extension_exists).unwrap_or(false)
    }

    /// Waits for a request, a commit, or the end of a pause.
    ///
    /// `retry`: when the first postponed entry is due. `blocked`: entries are due that could not be started now.
    fn wait(&mut self, retry: Option<Duration>, blocked: bool) {
        process::report_idle();
        let now = Instant::now();
        let accounts = self.accounts.values().map(|a| a.paused_until);
        let collections = self.collections.values().map(|c| c.paused_until);
        let pauses = accounts
            .chain(collections)
            .flatten()
            .map(|until| until.saturating_duration_since(now))
            .filter(|left| !left.is_zero());
        let prepared = process::may_have_prepared_transactions().then_some(LOOK_FOR_PREPARED);
        // An entry that is due already waits for its server or its collection: no reason to spin.
        let look_again = blocked.then_some(LOOK_AGAIN);
        let retry = retry.map(|r| r.max(SHORTEST_WAIT));
        let timeout = pauses.chain(retry).chain(prepared).chain(look_again).min();
        self.in_flight.wait_for_event(timeout);
    }

    fn start_job(&mut self, collection: i32) -> Started {
        let state = self.collections.entry(collection).or_default();
        if is_paused(&mut state.paused_until) {
            return Started::Nothing;
        }
        if let Some(account) = state.account.clone()
            && !self.has_room(&account)
        {
            return Started::Nothing;
        }
        let state = self.collections.entry(collection).or_default();
        let limit = if state.singly > 0 { 1 } else { state.rows };
        let (busy_ids, busy_keys) = self.busy(collection);
        let read = xact::transaction(|| job::read(collection, limit, &busy_ids, &busy_keys));
        let input = match read {
            Ok(Ok(input)) => input,
            Ok(Err(NoJob::Nothing)) => return Started::Nothing,
            Ok(Err(NoJob::Blocked(e))) => {
                self.block(collection, &e.message);
                return Started::Nothing;
            }
            Err(e) => {
                self.failed_sql(collection, limit, &e, None);
                return Started::Something;
            }
        };
        let account = input.account();
        self.accounts.entry(account.clone()).or_default().max_in_flight = input.max_in_flight();
        if let Some(state) = self.collections.get_mut(&collection) {
            state.account = Some(account.clone());
        }
        if !self.has_room(&account) {
            return Started::Nothing;
        }
        match xact::catching(|| input.plan()) {
            Ok(Ok(job)) => {
                self.adapt(collection, &job);
                self.begin(job);
                Started::Something
            }
            Ok(Err(e)) => {
                self.block(collection, &e.message);
                Started::Nothing
            }
            Err(e) => {
                self.failed_sql(collection, limit, &e.of_data(), None);
                Started::Something
            }
        }
    }

    /// What this process is working on already, of one collection.
    fn busy(&self, collection: i32) -> (Vec<i64>, Vec<String>) {
        let rows = || self.jobs.values().filter(|j| j.collection.id == collection).flat_map(|j| &j.rows);
        let ids = rows().flat_map(|r| r.ids.iter().copied()).collect();
        let keys = rows().flat_map(|r| r.queued_keys.iter().chain([&r.key]).cloned()).collect();
        (ids, keys)
    }

    /// Whether a server may be asked now. What its limit is, is known once a job was read.
    fn has_room(&mut self, account: &Account) -> bool {
        let of = |job: &usize| self.jobs.get(job).is_some_and(|j| j.account() == *account);
        let under_way = self.requests.values().filter(|(job, _)| of(job)).count()
            + self.waiting.iter().filter(|(job, _)| of(job)).count();
        self.account_has_room(account, under_way)
    }

    fn account_has_room(&mut self, account: &Account, under_way: usize) -> bool {
        match self.accounts.get_mut(account) {
            Some(state) => !is_paused(&mut state.paused_until) && under_way < state.max_in_flight,
            None => true,
        }
    }

    /// Takes more or fewer rows next time, so that a job fills one request.
    fn adapt(&mut self, collection: i32, job: &Job) {
        let state = self.collections.entry(collection).or_default();
        state.singly = state.singly.saturating_sub(job.rows.len());
        let chunks: usize = job.rows.iter().map(|r| r.chunks.len()).sum();
        if state.singly > 0 {
            return;
        }
        let target = if job.is_local() { LOCAL_CHUNKS } else { job.provider.max_batch_items };
        state.rows = match (job.rows.len() * target).checked_div(chunks) {
            Some(rows) => rows.clamp(1, MAX_ROWS).min(state.rows * 2),
            None => (state.rows * 2).min(MAX_ROWS),
        };
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
        } else {
            let number = self.number();
            let n = job.texts().len();
            if job.is_local() {
                let parts = (0..n).step_by(LOCAL_CHUNKS).map(|i| (number, i..(i + LOCAL_CHUNKS).min(n)));
                self.waiting.extend(parts);
            } else {
                let parts = remote::batches(&job.provider, &job.texts());
                self.waiting.extend(parts.into_iter().map(|range| (number, range)));
            }
            self.jobs.insert(number, job);
            self.send_waiting();
        }
    }

    /// Embeds some texts of a job in this process.
    fn embed_here(&mut self, number: usize, range: Range<usize>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let embedded = xact::catching(|| provider::local::embed(&job.model.model, &job.texts()[range.clone()]));
        let received = embedded.map(|e| e.and_then(|vectors| job.receive(range, vectors)));
        match received {
            Ok(Ok(())) if !job.is_complete() => {}
            Ok(Ok(())) => {
                if let Some(job) = self.abandon(number) {
                    self.store(job);
                }
            }
            Ok(Err(e)) => {
                if let Some(job) = self.abandon(number) {
                    self.block(job.collection.id, &e.message);
                }
            }
            Err(e) => {
                if let Some(job) = self.abandon(number) {
                    self.failed_sql(job.collection.id, job.rows.len(), &e.of_data(), Some(&job));
                }
            }
        }
    }

    /// Sends the requests there is room for, and embeds one part here; whether it did the latter, which takes its time.
    fn send_waiting(&mut self) -> bool {
        for _ in 0..self.waiting.len() {
            let Some((number, range)) = self.waiting.pop_front() else { break };
            // A job that failed meanwhile needs no more answers.
            let Some(job) = self.jobs.get(&number) else { continue };
            if job.is_local() {
                self.embed_here(number, range);
                return true;
            }
            let account = job.account();
            let same = |j: &usize| self.jobs.get(j).is_some_and(|j| j.account() == account);
            let under_way = self.requests.values().filter(|(j, _)| same(j)).count();
            if !self.account_has_room(&account, under_way) {
                self.waiting.push_back((number, range));
                continue;
            }
            self.send(number, range);
        }
        false
    }

    fn send(&mut self, number: usize, range: Range<usize>) {
        let tag = self.number();
        let Some(job) = self.jobs.get(&number) else { return };
        let request = remote::embedding_request(
            &job.provider,
            &job.model.model,
            &job.texts()[range.clone()],
            Some(job.collection.vectors.embedding.dimensions as usize),
        );
        match self.in_flight.submit(tag, request) {
            Ok(()) => {
                self.requests.insert(tag, (number, range));
            }
            Err(e) => {
                if let Some(job) = self.abandon(number) {
                    self.block(job.collection.id, &e.to_string());
                }
            }
        }
    }

    /// Takes a job out, with what is under way for it.
    fn abandon(&mut self, number: usize) -> Option<Job> {
        self.requests.retain(|_, (j, _)| *j != number);
        self.waiting.retain(|(j, _)| *j != number);
        self.jobs.remove(&number)
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
        let dimensions = Some(job.collection.vectors.embedding.dimensions as usize);
        let vectors = remote::embeddings(&job.provider, result, range.len(), dimensions);
        let received = vectors.and_then(|v| {
            job.receive(range, v).map_err(|error| Failure { kind: FailureKind::Protocol, retry_after: None, error })
        });
        match received {
            Ok(()) => {
                if let Some(state) = self.accounts.get_mut(&job.account()) {
                    state.failures = 0;
                    state.garbage = 0;
                }
                if job.is_complete()
                    && let Some(job) = self.abandon(number)
                {
                    self.store(job);
                }
            }
            Err(failure) => {
                if let Some(job) = self.abandon(number) {
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
        match failure.kind {
            FailureKind::BadRequest | FailureKind::TooLarge | FailureKind::Protocol => {
                self.failed_content(job, failure.kind, message);
            }
            // The key or the model's name is wrong: a matter of this collection.
            FailureKind::Auth | FailureKind::NotFound => self.block(job.collection.id, message),
            FailureKind::RateLimited | FailureKind::Unavailable => {
                let pause = self.pause(&job.account(), failure.retry_after);
                let (id, ids) = (job.collection.id, job.ids());
                self.note(id, xact::transaction(|| statements::queue::postpone(id, &ids, pause, message)));
            }
        }
    }

    /// The reply speaks of what was sent, or is none. One of several rows may be to blame: each gets a job of its own.
    fn failed_content(&mut self, job: &Job, kind: FailureKind, message: &str) {
        if job.rows.len() > 1 {
            self.collections.entry(job.collection.id).or_default().singly = job.rows.len();
            return;
        }
        if kind == FailureKind::Protocol {
            let account = self.accounts.entry(job.account()).or_default();
            account.garbage += 1;
            if account.garbage > MAX_GARBAGE {
                self.pause(&job.account(), None);
            }
        }
        self.failed_row(job, message);
    }

    fn pause(&mut self, account: &Account, retry_after: Option<Duration>) -> Duration {
        let state = self.accounts.entry(account.clone()).or_default();
        state.failures += 1;
        let pause = retry_after.unwrap_or_else(|| backoff(state.failures, u64::from(std::process::id())));
        state.paused_until = Some(Instant::now() + pause);
        pause
    }

    /// The only row of a job cannot be embedded: it is tried again later, or given up.
    fn failed_row(&mut self, job: &Job, message: &str) {
        let Some(row) = job.rows.first() else { return };
        let id = job.collection.id;
        pgrx::log!("collection \"{}\": row {}: {message}", job.collection.name, provider::excerpt(&row.key));
        self.fail(id, &row.ids, &row.key, row.attempts + 1, message);
    }

    fn fail(&mut self, collection: i32, ids: &[i64], key: &str, attempts: i32, message: &str) {
        let done = xact::transaction(|| {
            if attempts >= MAX_ATTEMPTS {
                statements::queue::give_up(collection, ids, key, attempts, message);
            } else {
                let delay = backoff(attempts as u32, ids.first().copied().unwrap_or(0) as u64);
                statements::queue::postpone(collection, ids, delay, message);
            }
        });
        self.note(collection, done);
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
        let claimed = xact::transaction(|| statements::queue::claim(collection, 1, &busy_ids, &busy_keys));
        for entry in claimed.unwrap_or_default() {
            match &entry.key {
                Some(key) => self.fail(collection, &[entry.id], key, entry.attempts + 1, message),
                None => self.block(collection, message),
            }
        }
    }

    /// The collection cannot be worked on for now; `rag.status` says why.
    fn block(&mut self, collection: i32, message: &str) {
        let state = self.collections.entry(collection).or_default();
        state.failures += 1;
        state.paused_until = Some(Instant::now() + backoff(state.failures, collection as u64));
        if state.failures == 1 {
            pgrx::warning!("collection {collection}: {message}");
        }
        let noted = xact::transaction(|| registry::note_error(collection, Some(message)));
        if let Err(e) = noted {
            pgrx::warning!("pg_ragent worker: {}", e.message);
        }
    }

    /// Book-keeping that failed: the entries are still in the queue and are tried again, but not at once.
    fn note(&mut self, collection: i32, result: Result<(), SqlError>) {
        if let Err(e) = result {
            self.block(collection, &e.message);
        }
    }
}

/// Whether a pause is still on; ends it when it is over.
fn is_paused(until: &mut Option<Instant>) -> bool {
    if until.is_some_and(|u| u <= Instant::now()) {
        *until = None;
    }
    until.is_some()
}
