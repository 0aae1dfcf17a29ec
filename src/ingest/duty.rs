//! Ingest as background work: claims what capture queued, has it embedded, stores the chunks.
//!
//! A job claims its rows in one transaction, reads them in another, is embedded outside any, and is stored in a third.
//! When to do what, and what a failure means, is decided in `ragent_core::ingest`.

use super::job::{self, Job, JobRow, Progress, Reading};
use super::statements::claim::{self, Claim};
use super::statements::{chunks, death, failure, pause, queue, restore, waiting};
use crate::duty::Duty;
use crate::error::{Error, Result, excerpt};
use crate::guc;
use crate::pg::http::{HttpError, InFlight, Response};
use crate::pg::xact::Undone;
use crate::pg::{interrupt, presence, role, worker, xact};
use crate::provider::{self, Failure, remote};
use crate::registry;
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};
use ragent_core::ingest::schedule::{Account, Order, Outlook, RENEW_EVERY, Schedule, Waiting};
use ragent_core::ingest::verdict::{Failed, Fault, Verdict, judge};
use ragent_core::provider::{FailureKind, backoff, halves};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Most jobs of long rows under way, one for each collection.
const MOST_LONG: usize = 8;
/// How much longer storing may take for each chunk.
const FOR_A_CHUNK: Duration = Duration::from_millis(20);
/// Bytes of tables for which a comparison may take a second longer.
const COMPARED_IN_A_SECOND: u64 = 50 << 20;
/// After so long others may have something to do that comes first.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Most time a comparison gets.
const LONGEST_COMPARISON: Duration = Duration::from_secs(3600);

/// See the module.
#[derive(Default)]
pub struct Ingest {
    schedule: Schedule,
    jobs: HashMap<usize, Job>,
    /// Requests under way: tag → job and its texts.
    requests: HashMap<usize, (usize, Range<usize>)>,
    /// Jobs with texts that are not asked for yet, in the order of their turns.
    waiting: VecDeque<usize>,
    /// Entries of long rows that wait for another one to be done, by collection.
    postponed: HashMap<i32, HashSet<i64>>,
    /// Whether there may be rows that a worker died of, and whether it is their turn.
    suspects: bool,
    turn_of_suspects: bool,
    in_flight: InFlight,
    next_number: usize,
    outlook: Outlook,
    /// What is known to be written of what waits, by this worker or another.
    written: HashSet<Waiting>,
    /// When the claims of the jobs under way were last renewed.
    renewed: Option<Instant>,
}

impl Duty for Ingest {
    fn name(&self) -> &'static str {
        "ingest"
    }

    fn begin(&mut self) -> Result<()> {
        // Another process may have had this one's number.
        let traces = presence::left_behind(&crate::pg::wake::running_workers());
        presence::begin();
        xact::transaction(|| {
            claim::release_own();
            claim::release_lost();
            if !restore::is_under_way() {
                claim::sweep();
            }
        })?;
        for trace in traces {
            self.learn(&trace);
        }
        Ok(())
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
        let started = self.start_due();
        self.write_waits();
        started
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
    /// As [`Duty::start`].
    fn start_due(&mut self) -> Result<bool> {
        self.renew_claims();
        let mut did = self.send_waiting();
        let look = || {
            let look = queue::look();
            let is_restoring = !look.ready.is_empty() && restore::is_under_way();
            (look, is_restoring)
        };
        let (look, is_restoring) = worker::deferring_end(|| xact::transaction(look))?;
        self.outlook =
            Outlook { retry: look.retry, left: !look.is_empty, prepared: worker::may_have_prepared_transactions() };
        self.schedule.end_but(&look.waiting);
        self.written = look.waiting;
        if is_restoring {
            // Rows and chunks that are still to come would be taken for missing ones.
            self.outlook.retry = Some(LOOK_AGAIN);
            return Ok(did);
        }
        let begin = Instant::now();
        for (collection, owner) in &look.ready {
            self.schedule.belongs(*collection, *owner);
        }
        let ready = look.ready.into_iter().map(|(collection, _)| collection).collect();
        for collection in self.schedule.order(ready, begin) {
            did |= self.start_job(collection);
            if begin.elapsed() > LOOK_AGAIN {
                return Ok(true);
            }
        }
        // What is left may be claimed by a worker that is gone.
        if !did && !look.is_empty {
            did = worker::deferring_end(|| xact::transaction(claim::release_lost))? > 0;
        }
        Ok(did)
    }

    /// Writes down what waits from now on, so that `rag.status` shows it and others can end it.
    fn write_waits(&mut self) {
        for (what, length, times) in self.schedule.unwritten(Instant::now()) {
            self.write(what, length, times, None);
        }
    }

    fn write(&mut self, what: Waiting, length: Duration, times: u32, e: Option<&Error>) {
        match xact::transaction(|| waiting::note(&what, length, times, e)) {
            Ok(()) => {
                self.schedule.written(&what);
                self.written.insert(what);
            }
            // Somebody is taking it away, and has not committed yet: that ends the wait.
            Err(e) if is_lock(&e) => self.schedule.written(&what),
            Err(e) => pgrx::warning!("pg_ragent worker: {e}"),
        }
    }

    /// It waits no more: what is written of it goes.
    fn goes_on(&mut self, what: &Waiting) {
        if self.written.remove(what)
            && let Err(e) = xact::transaction(|| waiting::end(what))
            && !is_lock(&e)
        {
            pgrx::warning!("pg_ragent worker: {e}");
        }
    }

    /// Something of a collection was stored.
    fn stored(&mut self, collection: i32) {
        self.schedule.stored(collection);
        self.goes_on(&Waiting::Collection(collection));
    }

    /// A server gave vectors.
    fn answered(&mut self, account: &Account) {
        if let Some(lasted) = self.schedule.answered(account, Instant::now()) {
            pgrx::warning!("{} answers again after {:.0} s", named(account), lasted.as_secs_f64());
        }
        self.goes_on(&Waiting::Server(account.clone()));
    }

    /// A server failed and is left alone for a while.
    fn pause(&mut self, account: &Account, trouble: &Trouble) {
        let Trouble { fault, retry_after, error } = trouble;
        let is_busy = *fault == Fault::Provider(FailureKind::RateLimited);
        let pause = self.schedule.pause(account, *retry_after, is_busy, worker::own_pid() as u64, Instant::now());
        if pause.begins_outage {
            let message =
                format!("{} fails: {error}; it is asked again in {:.1} s", named(account), pause.length.as_secs_f64());
            let hint =
                format!("{} ALTER SERVER, ALTER USER MAPPING and rag.retry_failures() end the pause.", error.hint);
            Error::new(error.code, message, hint.trim_start()).tell(PgLogLevel::WARNING);
        }
        if pause.is_new {
            self.write(Waiting::Server(account.clone()), pause.length, 1, Some(error));
        }
    }

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

    /// A worker ended while it was at work on something.
    fn learn(&mut self, trace: &presence::Trace) {
        if trace.was_held {
            let limit = guc::worker_statement_timeout();
            self.hold(trace.collection, &held(limit), limit);
            return;
        }
        self.suspects = true;
        pgrx::warning!(
            "collection {}: a worker died while it processed {} of its queue entries",
            trace.collection,
            trace.entries.len()
        );
        match xact::transaction(|| death::note(trace.collection, &trace.entries)) {
            Ok(true) => self.hold(trace.collection, &died_comparing(), Duration::ZERO),
            Ok(false) => {}
            Err(e) => pgrx::warning!("pg_ragent worker: {e}"),
        }
    }

    /// Starts a job of a collection, if there is room for one; whether anything was done.
    fn start_job(&mut self, collection: i32) -> bool {
        let Some(mut limit) = self.schedule.rows(collection, |a| self.load_of(a), Instant::now()) else { return false };
        self.turn_of_suspects = self.suspects && !self.turn_of_suspects;
        if self.turn_of_suspects {
            limit = 1;
        }
        // Of rows that a worker died of, the oldest must have its turn.
        let order = if self.turn_of_suspects { Order::OldestFirst } else { self.schedule.entries(collection) };
        let postponed: Vec<i64> = self.postponed.get(&collection).into_iter().flatten().copied().collect();
        let begin = Instant::now();
        let entries = match xact::transaction(|| claim::claim(collection, limit, order, &postponed)) {
            Ok(Claim::Rows(entries)) if entries.is_empty() => return false,
            Ok(Claim::Rows(entries)) => entries,
            Ok(Claim::Comparison(entries)) => return self.compare(collection, &entries),
            // Another worker is claiming for longer than usual and goes on with the collection, or its owner's rag.refresh is not
            // committed. Nothing is wrong with it; but others must not pay for waiting again at each turn.
            Err(e) if is_lock(&e) => {
                self.schedule.held(collection, begin.elapsed(), false, Instant::now());
                self.schedule.block(collection, Instant::now());
                return false;
            }
            Err(e) => {
                self.block(collection, &e);
                return false;
            }
        };
        self.schedule.took_entries(collection, order, !entries.iter().any(|e| e.is_bulk));
        let is_suspect = entries.iter().any(|e| e.is_suspect);
        if limit == 1 || is_suspect {
            self.suspects = is_suspect;
        }
        let claimed = job::rows(entries.clone());
        let is_free = |job: &&Job| job.is_long() && job.collection.id == collection;
        let takes_long =
            !self.jobs.values().any(|j| is_free(&j)) && self.jobs.values().filter(|j| j.is_long()).count() < MOST_LONG;
        let (read, cost) = with_owner(collection, &job::ids(&claimed), guc::worker_statement_timeout(), || {
            job::read(collection, job::rows(entries), takes_long)
        });
        self.charge(collection, cost, is_locked(&read));
        let input = match read {
            Ok(Ok(Reading { input, postponed, has_refused })) => {
                self.postponed.entry(collection).or_default().extend(postponed);
                match input {
                    Some(input) if !input.rows.is_empty() => input,
                    _ => {
                        self.release(collection, &claimed);
                        return has_refused;
                    }
                }
            }
            Ok(Err(e)) => {
                self.release(collection, &claimed);
                self.block(collection, &e);
                return false;
            }
            Err(undone) => {
                if undone.was_too_long || is_lock(&undone.error) || !self.part_unreadable(collection, &claimed) {
                    self.undone(collection, None, &claimed, undone, cost);
                }
                return true;
            }
        };
        let account = input.account();
        self.schedule.asks(collection, &account, input.max_in_flight());
        if !self.schedule.has_room(&account, self.load_of(&account), Instant::now()) {
            self.release(collection, &claimed);
            return false;
        }
        let busy = presence::busy(collection, &job::ids(&input.rows));
        let planned = xact::catching(|| interrupt::watched("plan", || input.plan()));
        drop(busy);
        match planned {
            Ok(Ok(mut job)) => {
                if let Err((undone, cost)) = self.divide(&mut job) {
                    self.undone(collection, Some(&account), &claimed, undone, cost);
                    return true;
                }
                if job.is_long() {
                    self.schedule.served(collection);
                } else {
                    let chunks = job.rows.iter().map(|r| r.chunks.len()).sum();
                    self.schedule.started(collection, job.rows.len(), chunks, job.target());
                }
                let number = self.number();
                self.begin_job(number, job);
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

    /// Has a job that was planned take the vectors that are stored already, and divides what is left into parts.
    fn divide(&mut self, job: &mut Job) -> Result<(), (Undone, Duration)> {
        if job.needs_vectors() {
            let (collection, ids) = (job.collection.id, job::ids(&job.rows));
            let (taken, cost) = with_owner(collection, &ids, guc::worker_statement_timeout(), || job.take_stored());
            self.charge(collection, cost, taken.as_ref().err().is_some_and(|undone| is_lock(&undone.error)));
            taken.map_err(|undone| (undone, cost))?;
        }
        job.divide();
        Ok(())
    }

    /// Claimed rows could not be read: finds those that are to blame, which failed, and gives the others back. False: none is.
    fn part_unreadable(&mut self, collection: i32, claimed: &[JobRow]) -> bool {
        let entries = job::ids(claimed);
        let limit = guc::worker_statement_timeout();
        let (found, cost) = with_owner(collection, &entries, limit, || job::unreadable(collection, claimed));
        self.charge(collection, cost, false);
        let found = found.unwrap_or_default();
        for (place, fault, e) in &found {
            let row = std::slice::from_ref(&claimed[*place]);
            self.failed(collection, None, row, &Trouble::new(*fault, e.clone()));
        }
        let others = claimed.iter().enumerate().filter(|(place, _)| !found.iter().any(|(bad, ..)| bad == place));
        let others: Vec<i64> = others.flat_map(|(_, row)| row.ids.iter().copied()).collect();
        if !found.is_empty() {
            self.noted(collection, xact::transaction(|| claim::release(collection, &others)));
        }
        !found.is_empty()
    }

    /// Compares everything of a collection; whether that was done.
    fn compare(&mut self, collection: i32, entries: &[i64]) -> bool {
        let bytes = xact::transaction(|| registry::by_id(collection).map_or(0, |c| chunks::table_bytes(&c)));
        let more = Duration::from_secs(bytes.unwrap_or(0) / COMPARED_IN_A_SECOND).min(LONGEST_COMPARISON);
        let limit = guc::worker_statement_timeout() + more;
        let (compared, cost) = retried(|| with_owner(collection, entries, limit, || job::compare(collection, entries)));
        self.charge(collection, cost, is_locked(&compared));
        let e = match compared {
            Ok(Ok(())) => {
                self.stored(collection);
                return true;
            }
            Ok(Err(e)) => e,
            Err(Undone { error, was_too_long: false }) => error,
            Err(Undone { was_too_long: true, .. }) => {
                self.noted(collection, xact::transaction(|| claim::release(collection, entries)));
                self.hold(collection, &held(guc::worker_statement_timeout() + more), cost);
                return true;
            }
        };
        self.noted(collection, xact::transaction(|| claim::release(collection, entries)));
        self.block(collection, &e);
        false
    }

    /// How much a server has to do: requests, under way or waiting, or, where it is this process, jobs. What long rows wait for
    /// does not count, so that others get on between their turns.
    fn load_of(&self, account: &Account) -> usize {
        let short = self.waiting.iter().filter_map(|number| self.jobs.get(number));
        let short = short.filter(|job| !job.is_long() && job.account() == *account);
        self.requests_of(account) + short.map(|job| if job.is_local() { 1 } else { job.parts.len() }).sum::<usize>()
    }

    /// How many requests to a server are under way.
    fn requests_of(&self, account: &Account) -> usize {
        self.requests.values().filter(|(job, _)| self.is_of(*job, account)).count()
    }

    fn is_of(&self, job: usize, account: &Account) -> bool {
        self.jobs.get(&job).is_some_and(|j| j.account() == *account)
    }

    /// Begins with a job that was planned, or with the next part of a long row.
    fn begin_job(&mut self, number: usize, job: Job) {
        worker::report_activity(&format!(
            "embedding {} texts of collection {} with {}",
            job.texts().len(),
            job.collection.name,
            job.model
        ));
        let is_complete = job.parts.is_empty();
        self.jobs.insert(number, job);
        if is_complete {
            self.store(number);
        } else {
            self.waiting.push_back(number);
            self.send_waiting();
        }
    }

    /// Embeds some texts of a job in this process.
    fn embed_here(&mut self, number: usize, range: Range<usize>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let busy = presence::busy(job.collection.id, &job.entries_of(range.clone()));
        let embedded = xact::catching(|| provider::local::embed(&job.model.model, &job.texts()[range.clone()]));
        drop(busy);
        let received = embedded.map(|e| e.and_then(|vectors| job.receive(range, vectors)));
        let trouble = match received {
            Ok(Ok(())) if !job.is_complete() => return,
            Ok(Ok(())) => return self.store(number),
            Ok(Err(e)) => Trouble::new(Fault::State, e),
            Err(e) => Trouble::new(Fault::Data, e),
        };
        if let Some(job) = self.take(number) {
            self.failed_job(&job, &trouble);
        }
    }

    /// Sends the requests there is room for, the jobs taking turns, and embeds one part here; whether it did the latter, which
    /// takes its time.
    fn send_waiting(&mut self) -> bool {
        let mut without_room = 0;
        while without_room < self.waiting.len() {
            let Some(number) = self.waiting.pop_front() else { break };
            // A job that failed meanwhile needs no more answers.
            let Some(job) = self.jobs.get_mut(&number) else { continue };
            let Some(range) = job.parts.front().cloned() else {
                if !job.is_complete() {
                    // What is under way for it ends it.
                    continue;
                }
                // A part of a long row of which nothing changed.
                self.store(number);
                return true;
            };
            let halves = remote::too_many(&job.provider, &job.model.model, &range).filter(|_| !job.is_local());
            if let Some([first, second]) = halves {
                job.parts.pop_front();
                job.parts.push_front(second);
                job.parts.push_front(first);
                self.waiting.push_front(number);
                continue;
            }
            let (is_local, account) = (job.is_local(), job.account());
            if !is_local && !self.schedule.has_room(&account, self.requests_of(&account), Instant::now()) {
                without_room += 1;
                self.waiting.push_back(number);
                continue;
            }
            without_room = 0;
            if let Some(job) = self.jobs.get_mut(&number) {
                job.parts.pop_front();
                if !job.parts.is_empty() {
                    self.waiting.push_back(number);
                }
            }
            if is_local {
                self.embed_here(number, range);
                return true;
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
        self.waiting.retain(|j| *j != number);
        let job = self.jobs.remove(&number)?;
        if job.is_long() {
            // The next long row may have its turn.
            self.postponed.clear();
        }
        Some(job)
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
        let vectors = interrupt::watched("reply", || {
            remote::embeddings(&job.provider, &job.model.model, result, range.len(), dimensions)
        });
        let received = vectors.and_then(|v| {
            job.receive(range.clone(), v).map_err(|error| Failure::of_error(FailureKind::Protocol, error))
        });
        match received {
            Ok(()) => {
                let account = job.account();
                self.answered(&account);
            }
            Err(failure) if failure.is_about_the_request() => match halves(&range) {
                // One of the texts, or that they are so many: it shows when fewer are sent.
                Some([first, second]) => {
                    job.parts.push_front(second);
                    job.parts.push_front(first);
                    if !self.waiting.contains(&number) {
                        self.waiting.push_front(number);
                    }
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
        if self.jobs.get(&number).is_some_and(Job::is_complete) {
            self.store(number);
        }
    }

    /// Stores a job that is complete; of a long row, goes on with the next part.
    fn store(&mut self, number: usize) {
        let Some(job) = self.jobs.get(&number) else { return };
        let collection = job.collection.id;
        if job.is_refused() {
            if let Some(job) = self.take(number) {
                let account = job.account();
                self.blame(collection, &account, job.into_rows().1);
            }
            return;
        }
        if self.schedule.waits_for_owner(collection, Instant::now()) {
            if let Some(job) = self.take(number) {
                let (mut rows, refused) = job.into_rows();
                rows.extend(refused.into_iter().map(|(row, _)| row));
                self.release(collection, &rows);
            }
            return;
        }
        let ids = job::ids(&job.rows);
        let chunks = job.rows.iter().map(|row| row.chunks.len()).sum::<usize>();
        let limit = guc::worker_statement_timeout() + FOR_A_CHUNK * u32::try_from(chunks).unwrap_or(u32::MAX);
        let (stored, cost) = retried(|| with_owner(collection, &ids, limit, || job.store()));
        let is_locked = stored.as_ref().err().is_some_and(|undone| is_lock(&undone.error));
        self.charge(collection, cost, is_locked);
        match stored {
            Ok(Progress::More) => {
                let Some(mut job) = self.jobs.remove(&number) else { return };
                let busy = presence::busy(collection, &ids);
                let planned = xact::catching(|| interrupt::watched("plan", || job.go_on()));
                drop(busy);
                let divided = planned.map(|planned| planned.map(|()| self.divide(&mut job)));
                self.jobs.insert(number, job);
                let trouble = match divided {
                    // It goes to the end of the line: others get on meanwhile.
                    Ok(Ok(Ok(()))) => return self.waiting.push_back(number),
                    Ok(Ok(Err((undone, cost)))) => {
                        if let Some(job) = self.take(number) {
                            self.undone(collection, Some(&job.account()), &job.rows, undone, cost);
                        }
                        return;
                    }
                    Ok(Err(e)) => Trouble::new(Fault::State, e),
                    Err(e) => Trouble::new(Fault::Data, e),
                };
                if let Some(job) = self.take(number) {
                    self.failed_job(&job, &trouble);
                }
            }
            Ok(progress @ (Progress::Done | Progress::Lost)) => {
                let Some(job) = self.take(number) else { return };
                self.stored(collection);
                let account = job.account();
                let (_, refused) = job.into_rows();
                if progress == Progress::Done {
                    self.blame(collection, &account, refused);
                } else {
                    refused.iter().for_each(|(row, _)| self.release(collection, std::slice::from_ref(row)));
                }
            }
            Err(undone) => {
                let Some(job) = self.take(number) else { return };
                let account = job.account();
                let (sound, refused) = job.into_rows();
                self.undone(collection, Some(&account), &sound, undone, cost);
                self.blame(collection, &account, refused);
            }
        }
    }

    /// Rows with a text that their provider refuses failed, each by itself.
    fn blame(&mut self, collection: i32, account: &Account, refused: Vec<(JobRow, Failure)>) {
        for (row, failure) in refused {
            self.failed(collection, Some(account), &[row], &Trouble::of_failure(failure));
        }
    }

    /// A transaction in which code of a table's owner can run came to nothing.
    fn undone(&mut self, collection: i32, account: Option<&Account>, rows: &[JobRow], undone: Undone, cost: Duration) {
        if undone.was_too_long {
            self.release(collection, rows);
            self.hold(collection, &held(guc::worker_statement_timeout()), cost);
        } else {
            self.failed(collection, account, rows, &Trouble::of_sql(undone.error));
        }
    }

    /// Notes what a transaction over a collection's tables cost, and whether a lock ended it.
    fn charge(&mut self, collection: i32, cost: Duration, is_locked: bool) {
        if is_locked {
            self.schedule.held(collection, cost, false, Instant::now());
        } else {
            self.schedule.took(collection, cost, Instant::now());
        }
    }

    /// The collection pauses, whichever worker looks at it, also after a restart; `rag.status` says why. It cost so much time.
    fn hold(&mut self, collection: i32, e: &Error, cost: Duration) {
        let paused = xact::transaction(|| {
            let pause = pause::begin(collection);
            let who = if pause.times <= pause::ENDED_BY_OWNER { "" } else { "a superuser's " };
            let seconds = pause.length.as_secs_f64().round();
            let hint = format!(
                "{} It is tried again in {seconds} s, or once {who}SELECT rag.retry_failures() says so.",
                e.hint
            );
            registry::statements::note_error(collection, Some(&Error { hint, ..e.clone() }));
            pause
        });
        match paused {
            Ok(pause) => {
                self.schedule.belongs(collection, pause.owner);
                self.schedule.held(collection, cost, pause.others, Instant::now());
                pgrx::warning!("collection {collection} pauses: {e}");
            }
            Err(e) => self.block(collection, &e),
        }
    }

    fn failed_job(&mut self, job: &Job, trouble: &Trouble) {
        self.failed(job.collection.id, Some(&job.account()), &job.rows, trouble);
    }

    /// A job of claimed rows failed: does what the verdict is.
    fn failed(&mut self, collection: i32, account: Option<&Account>, rows: &[JobRow], trouble: &Trouble) {
        let Trouble { fault, error, .. } = trouble;
        let is_garbage = *fault == Fault::Provider(FailureKind::Protocol) && rows.len() == 1;
        let garbage = account.filter(|_| is_garbage).map_or(0, |a| self.schedule.sent_garbage(a));
        let attempts = rows.first().map_or(0, |row| row.attempts);
        let verdict = judge(&Failed { fault: *fault, rows: rows.len(), attempts, garbage });
        let pauses =
            matches!(verdict, Verdict::Pause | Verdict::Postpone { pause: true } | Verdict::GiveUp { pause: true });
        if let Some(account) = account.filter(|_| pauses) {
            self.pause(account, trouble);
        }
        match (verdict, rows) {
            (Verdict::Split, _) => {
                self.schedule.split(collection, rows.len());
                self.release(collection, rows);
            }
            // Nothing is to be said of these rows: what they wait for is written of their server.
            (Verdict::Pause, _) => self.release(collection, rows),
            (Verdict::Postpone { .. }, [row, ..]) => {
                log_row(collection, row, error);
                let seed = row.ids.first().copied().unwrap_or(0) as u64;
                self.postpone(collection, &row.ids, backoff(row.attempts + 1, seed), error);
            }
            (Verdict::GiveUp { .. }, [row, ..]) => {
                log_row(collection, row, error);
                let give_up = || {
                    let is_new = failure::give_up(collection, &row.ids, &row.key, row.attempts + 1, error);
                    // What the entry was about is found by what the row is called now. Once: no key brings it about again.
                    if is_new && *fault == Fault::Key {
                        queue::compare_all_once(collection);
                    }
                };
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
        if is_restoring() {
            // What is missing may be on its way.
            self.schedule.block(collection, Instant::now());
            return;
        }
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

/// Runs `f` in a transaction in which code of a collection's owner can run; how long it took.
fn with_owner<R>(
    collection: i32,
    entries: &[i64],
    limit: Duration,
    f: impl FnOnce() -> R,
) -> (Result<R, Undone>, Duration) {
    let _busy = presence::busy(collection, entries);
    let begin = Instant::now();
    let result = xact::limited_transaction(limit, f);
    (result, begin.elapsed())
}

/// What two workers were in each other's way for is done by one after the other: a transaction that was ended for that is
/// repeated, some times.
fn retried<R>(mut transaction: impl FnMut() -> (Result<R, Undone>, Duration)) -> (Result<R, Undone>, Duration) {
    const TIMES: usize = 3;
    let mut cost = Duration::ZERO;
    for _ in 1..TIMES {
        let (result, took) = transaction();
        cost += took;
        match result {
            Err(undone) if undone.error.code == PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED => {}
            result => return (result, cost),
        }
    }
    let (result, took) = transaction();
    (result, cost + took)
}

/// Whether a restore is under way. One that cannot be asked for is none.
fn is_restoring() -> bool {
    worker::deferring_end(|| xact::transaction(restore::is_under_way)).unwrap_or(false)
}

/// Whether a lock that somebody has is why nothing was done.
fn is_lock(e: &Error) -> bool {
    e.code == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE
}

fn is_locked<R>(result: &Result<Result<R>, Undone>) -> bool {
    match result {
        Ok(Ok(_)) => false,
        Ok(Err(e)) => is_lock(e),
        Err(undone) => is_lock(&undone.error),
    }
}

fn held(limit: Duration) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_QUERY_CANCELED,
        format!("the collection's tables held the worker for more than {} s", limit.as_secs_f64()),
        "Look at the triggers, index expressions and policies of the source and of the chunk table; where they are right and only take long, raise rag.worker_statement_timeout.",
    )
}

fn died_comparing() -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_CRASH_SHUTDOWN,
        "a worker died while it compared the chunks with the source",
        "The server's log has the reason.",
    )
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

/// A server and whom it is asked for, as people know them.
fn named(account: &Account) -> String {
    let role = xact::transaction(|| role::name(pg_sys::Oid::from_u32(account.role)));
    format!("server \"{}\", asked for {},", account.server, role.unwrap_or_else(|_| account.role.to_string()))
}

fn log_row(collection: i32, row: &JobRow, e: &Error) {
    pgrx::log!("collection {collection}: row {}: {e}", excerpt(&row.key));
}
