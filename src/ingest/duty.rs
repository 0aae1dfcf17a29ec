//! Ingest as background work: claims what capture queued, has it embedded, stores the chunks.
//!
//! A job claims its rows in one transaction, reads them in another, is embedded outside any, and is stored in a third.
//! When to do what, and what a failure means, is decided in `ragent_core::ingest`.

use super::job::{self, Job, JobRow, LOCAL_CHUNKS};
use super::statements::claim::{self, Claim};
use super::statements::{failure, queue};
use crate::duty::Duty;
use crate::error::{Error, Result, excerpt};
use crate::pg::http::{HttpError, InFlight, Response};
use crate::pg::{worker, xact};
use crate::provider::{self, Failure, remote};
use crate::registry;
use pgrx::PgSqlErrorCode;
use ragent_core::ingest::schedule::{Account, Outlook, RENEW_EVERY, Schedule};
use ragent_core::ingest::verdict::{Failed, Fault, Verdict, judge};
use ragent_core::provider::{FailureKind, backoff, halves};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

/// See the module.
#[derive(Default)]
pub struct Ingest {
    schedule: Schedule,
    jobs: HashMap<usize, Job>,
    /// Requests under way: tag → job and its texts.
    requests: HashMap<usize, (usize, Range<usize>)>,
    /// Requests of jobs under way that their server has no room for yet.
    waiting: VecDeque<(usize, Range<usize>)>,
    in_flight: InFlight,
    next_number: usize,
    outlook: Outlook,
    /// When the claims of the jobs under way were last renewed.
    renewed: Option<Instant>,
}

impl Duty for Ingest {
    fn name(&self) -> &'static str {
        "ingest"
    }

    fn begin(&mut self) -> Result<()> {
        // Another process may have had this one's number.
        xact::transaction(|| {
            claim::release_own();
            claim::release_lost();
        })
    }

    fn finish(&mut self) -> bool {
        let mut did = false;
        while let Some((tag, result)) = self.in_flight.poll() {
            self.finished(tag, result);
            did = true;
        }
        did
    }

    fn start(&mut self) -> Result<bool> {
        self.renew_claims();
        let mut did = self.send_waiting();
        let look = xact::transaction(queue::look)?;
        for collection in self.schedule.order(look.ready) {
            did |= self.start_job(collection);
        }
        self.outlook =
            Outlook { retry: look.retry, left: !look.is_empty, prepared: worker::may_have_prepared_transactions() };
        // What is left may be claimed by a worker that is gone.
        if !did && !look.is_empty {
            did = xact::transaction(claim::release_lost)? > 0;
        }
        Ok(did)
    }

    fn wait(&self) -> Option<Duration> {
        let now = Instant::now();
        let renewal = self.renewed.filter(|_| !self.jobs.is_empty());
        let renewal = renewal.map(|at| (at + RENEW_EVERY).saturating_duration_since(now));
        self.schedule.wait(self.outlook, now).into_iter().chain(renewal).min()
    }

    fn end(&mut self) {
        if let Err(e) = xact::transaction(claim::release_own) {
            pgrx::warning!("pg_ragent worker: {e}");
        }
    }
}

impl Ingest {
    fn renew_claims(&mut self) {
        if self.jobs.is_empty() {
            self.renewed = None;
            return;
        }
        let last = *self.renewed.get_or_insert_with(Instant::now);
        if last.elapsed() >= RENEW_EVERY {
            self.renewed = Some(Instant::now());
            if let Err(e) = xact::transaction(claim::renew) {
                pgrx::warning!("pg_ragent worker: {e}");
            }
        }
    }

    /// Starts a job of a collection, if there is room for one; whether anything was done.
    fn start_job(&mut self, collection: i32) -> bool {
        let Some(limit) = self.schedule.rows(collection, |a| self.parts_of(a), Instant::now()) else { return false };
        let entries = match xact::transaction(|| claim::claim(collection, limit)) {
            Ok(Claim::Rows(entries)) if entries.is_empty() => return false,
            Ok(Claim::Rows(entries)) => entries,
            Ok(Claim::Comparison(entries)) => return self.compare(collection, &entries),
            // Another worker is claiming for longer than usual: it goes on with the collection.
            Err(e) if e.code == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE => return false,
            Err(e) => {
                self.block(collection, &e);
                return false;
            }
        };
        let claimed = job::rows(entries.clone());
        let input = match xact::transaction(|| job::read(collection, job::rows(entries))) {
            Ok(Ok(Some(input))) if !input.rows.is_empty() => input,
            Ok(Ok(_)) => {
                self.release(collection, &claimed);
                return false;
            }
            Ok(Err(e)) => {
                self.release(collection, &claimed);
                self.block(collection, &e);
                return false;
            }
            Err(e) => {
                self.failed(collection, None, &claimed, &Trouble::of_sql(e));
                return true;
            }
        };
        let account = input.account();
        self.schedule.asks(collection, &account, input.max_in_flight());
        if !self.schedule.has_room(&account, self.parts_of(&account), Instant::now()) {
            self.release(collection, &claimed);
            return false;
        }
        match xact::catching(|| input.plan()) {
            Ok(Ok(job)) => {
                let chunks = job.rows.iter().map(|r| r.chunks.len()).sum();
                self.schedule.started(collection, job.rows.len(), chunks, job.target());
                self.begin_job(job);
                true
            }
            Ok(Err(e)) => {
                self.release(collection, &claimed);
                self.block(collection, &e);
                false
            }
            Err(e) => {
                self.failed(collection, Some(&account), &claimed, &Trouble::new(Fault::Data, e));
                true
            }
        }
    }

    /// Compares everything of a collection; whether that was done.
    fn compare(&mut self, collection: i32, entries: &[i64]) -> bool {
        let compared = xact::transaction(|| job::compare(collection, entries));
        match compared.and_then(|done| done) {
            Ok(()) => {
                self.schedule.stored(collection);
                true
            }
            Err(e) => {
                self.noted(collection, xact::transaction(|| claim::release(collection, entries)));
                self.block(collection, &e);
                false
            }
        }
    }

    /// How many parts of jobs a server has to answer yet.
    fn parts_of(&self, account: &Account) -> usize {
        self.requests_of(account) + self.waiting.iter().filter(|(job, _)| self.is_of(*job, account)).count()
    }

    /// How many requests to a server are under way.
    fn requests_of(&self, account: &Account) -> usize {
        self.requests.values().filter(|(job, _)| self.is_of(*job, account)).count()
    }

    fn is_of(&self, job: usize, account: &Account) -> bool {
        self.jobs.get(&job).is_some_and(|j| j.account() == *account)
    }

    fn begin_job(&mut self, job: Job) {
        worker::report_activity(&format!(
            "embedding {} texts of collection {} with {}",
            job.texts().len(),
            job.collection.name,
            job.model
        ));
        let n = job.texts().len();
        if n == 0 {
            self.store(job);
            return;
        }
        let number = self.number();
        let parts: Vec<Range<usize>> = if job.is_local() {
            (0..n).step_by(LOCAL_CHUNKS).map(|i| i..(i + LOCAL_CHUNKS).min(n)).collect()
        } else {
            remote::batches(&job.provider, &job.model.model, &job.texts())
        };
        self.waiting.extend(parts.into_iter().map(|range| (number, range)));
        self.jobs.insert(number, job);
        self.send_waiting();
    }

    /// Embeds some texts of a job in this process.
    fn embed_here(&mut self, number: usize, range: Range<usize>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let embedded = xact::catching(|| provider::local::embed(&job.model.model, &job.texts()[range.clone()]));
        let received = embedded.map(|e| e.and_then(|vectors| job.receive(range, vectors)));
        if matches!(received, Ok(Ok(()))) && !job.is_complete() {
            return;
        }
        let Some(job) = self.take(number) else { return };
        match received {
            Ok(Ok(())) => self.store(job),
            Ok(Err(e)) => self.failed_job(&job, &Trouble::new(Fault::State, e)),
            Err(e) => self.failed_job(&job, &Trouble::new(Fault::Data, e)),
        }
    }

    /// Sends the requests there is room for, and embeds one part here; whether it did the latter, which takes its time.
    fn send_waiting(&mut self) -> bool {
        let mut looks = self.waiting.len();
        while looks > 0 {
            looks -= 1;
            let Some((number, range)) = self.waiting.pop_front() else { break };
            // A job that failed meanwhile needs no more answers.
            let Some(job) = self.jobs.get(&number).filter(|job| job.needs(&range)) else { continue };
            if job.is_local() {
                self.embed_here(number, range);
                return true;
            }
            if let Some([first, second]) = remote::too_many(&job.provider, &job.model.model, &range) {
                self.waiting.push_front((number, second));
                self.waiting.push_front((number, first));
                looks += 2;
                continue;
            }
            let account = job.account();
            if self.schedule.has_room(&account, self.requests_of(&account), Instant::now()) {
                self.send(number, range);
            } else {
                self.waiting.push_back((number, range));
            }
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
        let submitted = request.and_then(|request| {
            self.in_flight.submit(tag, request).map_err(|e| Failure::of_http(&job.provider, &e).error)
        });
        match submitted {
            Ok(()) => {
                self.requests.insert(tag, (number, range));
            }
            Err(e) => {
                if let Some(job) = self.take(number) {
                    self.failed_job(&job, &Trouble::new(Fault::State, e));
                }
            }
        }
    }

    /// Takes a job out, with what is under way for it.
    fn take(&mut self, number: usize) -> Option<Job> {
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
        let vectors = remote::embeddings(&job.provider, &job.model.model, result, range.len(), dimensions);
        let received = vectors.and_then(|v| {
            job.receive(range.clone(), v).map_err(|error| Failure::of_error(FailureKind::Protocol, error))
        });
        match received {
            Ok(()) => self.schedule.answered(&job.account()),
            Err(failure) if failure.is_about_the_request() => match halves(&range) {
                // One of the texts, or that they are so many: it shows when fewer are sent.
                Some([first, second]) => {
                    self.waiting.push_front((number, second));
                    self.waiting.push_front((number, first));
                }
                None => job.refuse(range.start, failure),
            },
            Err(failure) => {
                if let Some(job) = self.take(number) {
                    self.failed_job(&job, &Trouble::of_failure(failure));
                }
                return;
            }
        }
        if self.jobs.get(&number).is_some_and(Job::is_complete)
            && let Some(job) = self.take(number)
        {
            self.store(job);
        }
    }

    fn store(&mut self, job: Job) {
        let stored = xact::transaction(|| job.store());
        let (collection, account) = (job.collection.id, job.account());
        let (sound, refused) = job.into_rows();
        match stored {
            Ok(()) => self.schedule.stored(collection),
            Err(e) => self.failed(collection, Some(&account), &sound, &Trouble::of_sql(e)),
        }
        for (row, failure) in refused {
            self.failed(collection, Some(&account), &[row], &Trouble::of_failure(failure));
        }
    }

    fn failed_job(&mut self, job: &Job, trouble: &Trouble) {
        self.failed(job.collection.id, Some(&job.account()), &job.rows, trouble);
    }

    /// A job of claimed rows failed: does what the verdict is.
    fn failed(&mut self, collection: i32, account: Option<&Account>, rows: &[JobRow], trouble: &Trouble) {
        let Trouble { fault, retry_after, error } = trouble;
        let is_garbage = *fault == Fault::Provider(FailureKind::Protocol) && rows.len() == 1;
        let garbage = account.filter(|_| is_garbage).map_or(0, |a| self.schedule.sent_garbage(a));
        let attempts = rows.first().map_or(0, |row| row.attempts);
        let verdict = judge(&Failed { fault: *fault, rows: rows.len(), attempts, garbage });
        let pauses =
            matches!(verdict, Verdict::Pause | Verdict::Postpone { pause: true } | Verdict::GiveUp { pause: true });
        let pause = account
            .filter(|_| pauses)
            .map(|a| self.schedule.pause(a, *retry_after, worker::own_pid() as u64, Instant::now()));
        match (verdict, rows) {
            (Verdict::Split, _) => {
                self.schedule.split(collection, rows.len());
                self.release(collection, rows);
            }
            (Verdict::Pause, _) => self.postpone(collection, &job::ids(rows), pause.unwrap_or_default(), error),
            (Verdict::Postpone { .. }, [row, ..]) => {
                log_row(collection, row, error);
                let seed = row.ids.first().copied().unwrap_or(0) as u64;
                self.postpone(collection, &row.ids, backoff(row.attempts + 1, seed), error);
            }
            (Verdict::GiveUp { .. }, [row, ..]) => {
                log_row(collection, row, error);
                let give_up = || failure::give_up(collection, &row.ids, &row.key, row.attempts + 1, error);
                self.noted(collection, xact::transaction(give_up));
            }
            (Verdict::Block | Verdict::Postpone { .. } | Verdict::GiveUp { .. }, _) => {
                self.release(collection, rows);
                self.block(collection, error);
            }
        }
    }

    fn postpone(&mut self, collection: i32, ids: &[i64], delay: Duration, e: &Error) {
        self.noted(collection, xact::transaction(|| claim::postpone(collection, ids, delay, e)));
    }

    fn release(&mut self, collection: i32, rows: &[JobRow]) {
        self.noted(collection, xact::transaction(|| claim::release(collection, &job::ids(rows))));
    }

    /// The collection cannot be worked on for now; `rag.status` says why.
    fn block(&mut self, collection: i32, e: &Error) {
        if self.schedule.block(collection, Instant::now()) {
            pgrx::warning!("collection {collection}: {e}");
        }
        if let Err(e) = xact::transaction(|| registry::statements::note_error(collection, Some(e))) {
            pgrx::warning!("pg_ragent worker: {e}");
        }
    }

    /// Book-keeping that failed: the entries are still in the queue and are tried again, but not at once.
    fn noted(&mut self, collection: i32, result: Result<()>) {
        if let Err(e) = result {
            self.block(collection, &e);
        }
    }
}

/// Why a job failed.
struct Trouble {
    fault: Fault,
    /// The provider asks for a pause of this length.
    retry_after: Option<Duration>,
    error: Error,
}

impl Trouble {
    fn new(fault: Fault, error: Error) -> Self {
        Self { fault, retry_after: None, error }
    }

    fn of_failure(failure: Failure) -> Self {
        let Failure { kind, retry_after, error, .. } = failure;
        Self { fault: Fault::Provider(kind), retry_after, error }
    }

    /// A transaction failed, by the data of a row or by the state of the database.
    fn of_sql(error: Error) -> Self {
        Self::new(if xact::is_about_data(&error) { Fault::Data } else { Fault::State }, error)
    }
}

fn log_row(collection: i32, row: &JobRow, e: &Error) {
    pgrx::log!("collection {collection}: row {}: {e}", excerpt(&row.key));
}
