//! Which collection is served next, how many of its rows, and what has to wait for how long.
//!
//! A worker's memory between its turns. It is a matter of pace only: what is under way is written in the queue, and a worker
//! that begins with an empty schedule does the same work.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::provider::backoff;

/// For how long a worker claims rows; it renews its claim while it is at work on them.
pub const LEASE: Duration = Duration::from_secs(120);
/// How often that is.
pub const RENEW_EVERY: Duration = Duration::from_secs(40);
/// Most rows of one job.
pub const MAX_ROWS: usize = 1000;

/// After so many jobs of changes of few rows, the oldest entries have a turn: a bulk change must come to its end while small ones
/// keep coming.
const SMALL_JOBS: u32 = 3;
/// Rows of a collection's first job, before it is known how many chunks its rows have.
const FIRST_ROWS: usize = 16;
/// So many times in a row a collection cannot be worked on before the log tells of it.
const TOLD_AFTER: u32 = 3;
/// Shortest wait for a postponed entry.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
/// Where transactions can be prepared, rows may come without a commit that wakes anybody.
const LOOK_FOR_PREPARED: Duration = Duration::from_secs(1);
/// While something is in the queue that cannot be done now, its state is looked at so often at least.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// What an owner's tables may cost at a time before others come first.
const NO_COST: Duration = Duration::from_millis(300);
/// How many times as long as its tables held the worker an owner waits.
const TIMES_THE_COST: u32 = 10;
/// Longest wait of an owner.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// A server that so often in a row asked for patience is out of order.
const BUSY_IS_OUTAGE: u32 = 3;
/// An owner whose tables held the worker so long ago begins again.
const FORGOTTEN: Duration = Duration::from_secs(900);

/// Which entries of a collection a job takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Those of changes of few rows, if there are any: nobody waits for somebody else's rewrite of a whole table.
    SmallFirst,
    /// The oldest.
    OldestFirst,
}

/// A server and the role (its OID) it is asked as: limits and failures of one key are not another's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    /// Name of the server.
    pub server: String,
    /// OID of the role.
    pub role: u32,
}

/// What the worker leaves alone for a while.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// A server that fails.
    Server(Account),
    /// A collection that cannot be worked on, by its number.
    Collection(i32),
    /// The collections of an owner (the role's OID), but for those that work.
    Owner(u32),
}

/// A server's pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// How long it is.
    pub length: Duration,
    /// Whether it is longer than one that was on already.
    pub is_new: bool,
    /// Whether people are to be told that an outage begins.
    pub begins_outage: bool,
}

/// What a look at the queue showed when nothing could be started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outlook {
    /// When the first postponed entry is due.
    pub retry: Option<Duration>,
    /// Entries are left: for a server or a collection that pauses, or claimed by another worker.
    pub left: bool,
    /// Whether transactions can be prepared in this server.
    pub prepared: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Schedule {
    collections: HashMap<i32, Collection>,
    accounts: HashMap<Account, Server>,
    /// By OID of the role.
    owners: HashMap<u32, Owner>,
    last_served: i32,
}

/// How an owner's tables fare.
#[derive(Debug, Default)]
struct Owner {
    /// Others that have something to do come first.
    yields_until: Option<Instant>,
    /// The collection that held the worker last, and when.
    last_held: Option<(i32, Instant)>,
    /// How often another one did than the time before.
    times: u32,
    /// Collections wait, but for those that work.
    pause: Wait,
}

/// A time until which something is left alone.
#[derive(Debug, Default, Clone, Copy)]
struct Wait {
    until: Option<Instant>,
    /// Whether it is written where others see it, and end it by taking it away.
    is_written: bool,
}

impl Wait {
    fn begin(&mut self, until: Instant) {
        *self = Self { until: Some(until), is_written: false };
    }

    fn is_on(self, now: Instant) -> bool {
        is_on(self.until, now)
    }
}

/// How to take a collection's rows.
#[derive(Debug)]
struct Collection {
    /// Rows for the next job.
    rows: usize,
    /// So many rows are taken one at a time, because one of them spoilt a job.
    singly: usize,
    /// Consecutive failures that were not a row's.
    failures: u32,
    pause: Wait,
    /// The server it asks, once a job was read.
    account: Option<Account>,
    /// OID of the role that owns its source, once that is known.
    owner: Option<u32>,
    /// A job was stored since it last held the worker.
    works: bool,
    /// Jobs of changes of few rows since the oldest entries had a turn.
    small_jobs: u32,
}

impl Default for Collection {
    fn default() -> Self {
        Self {
            rows: FIRST_ROWS,
            singly: 0,
            failures: 0,
            pause: Wait::default(),
            account: None,
            owner: None,
            works: false,
            small_jobs: 0,
        }
    }
}

/// How a server fares that is asked as one role.
#[derive(Debug, Default)]
struct Server {
    max_in_flight: usize,
    failures: u32,
    /// Consecutive replies that were no replies.
    garbage: u32,
    pause: Wait,
    /// When it first failed, if it has not answered since.
    fails_since: Option<Instant>,
    /// Whether people were told of that.
    is_told: bool,
}

impl Schedule {
    /// Collections with entries, in the order to serve them: one job each, beginning after the one served last, so that a
    /// long queue does not keep a short one waiting. Those whose owner took much of the worker's time are left out while
    /// others have something to do. `ready` is in ascending order.
    pub fn order(&self, mut ready: Vec<i32>, now: Instant) -> Vec<i32> {
        let begin = ready.partition_point(|c| *c <= self.last_served);
        ready.rotate_left(begin);
        let (yielding, first): (Vec<i32>, Vec<i32>) =
            ready.into_iter().partition(|c| self.owner_of(*c).is_some_and(|o| is_on(o.yields_until, now)));
        if first.is_empty() { yielding } else { first }
    }

    fn owner_of(&self, collection: i32) -> Option<&Owner> {
        self.owners.get(&self.collections.get(&collection)?.owner?)
    }

    /// Notes whose a collection is.
    pub fn belongs(&mut self, collection: i32, owner: u32) {
        self.collections.entry(collection).or_default().owner = Some(owner);
    }

    /// A transaction over a collection's tables took so long.
    pub fn took(&mut self, collection: i32, cost: Duration, now: Instant) {
        let owner = self.collections.get(&collection).and_then(|c| c.owner);
        if let Some(owner) = owner.filter(|_| cost > NO_COST) {
            self.owners.entry(owner).or_default().yields_until = Some(now + cost);
        }
    }

    /// Code or locks of a collection's owner held the worker for so long, and came to nothing. With the second collection of
    /// which that is so (`others`: others of the same owner pause for it), all those of that owner wait that are not known to
    /// work, longer each time: one after the other they would keep everybody else waiting.
    pub fn held(&mut self, collection: i32, cost: Duration, others: bool, now: Instant) {
        self.took(collection, cost, now);
        let c = self.collections.entry(collection).or_default();
        c.works = false;
        let Some(owner) = c.owner else { return };
        let owner = self.owners.entry(owner).or_default();
        if owner.last_held.is_some_and(|(_, at)| now.saturating_duration_since(at) > FORGOTTEN) {
            *owner = Owner { yields_until: owner.yields_until, ..Owner::default() };
        }
        let is_another = owner.last_held.is_some_and(|(last, _)| last != collection);
        owner.last_held = Some((collection, now));
        // Those that worked until now are tried while the others wait already: that makes nothing worse.
        if (others || is_another) && !owner.pause.is_on(now) {
            let wait = cost.saturating_mul(TIMES_THE_COST << owner.times.min(16)).min(LONGEST_WAIT);
            owner.times += 1;
            owner.pause.begin(now + wait);
        }
    }

    /// What waits and is not written down yet, for how long from now, and which time in a row that is.
    pub fn unwritten(&self, now: Instant) -> Vec<(Waiting, Duration, u32)> {
        let collections = self.collections.iter().map(|(id, c)| (Waiting::Collection(*id), c.pause, c.failures));
        let owners = self.owners.iter().map(|(role, o)| (Waiting::Owner(*role), o.pause, o.times));
        let new = collections.chain(owners).filter(|(_, pause, _)| !pause.is_written && pause.is_on(now));
        new.filter_map(|(what, pause, times)| Some((what, pause.until?.saturating_duration_since(now), times)))
            .collect()
    }

    /// It is written down that something waits: who takes that away ends the wait.
    pub fn written(&mut self, what: &Waiting) {
        if let Some(pause) = self.pause_of(what) {
            pause.is_written = true;
        }
    }

    /// What was written down and is no more has been mended, perhaps: it is tried again at once.
    pub fn end_but(&mut self, written: &HashSet<Waiting>) {
        for (account, server) in &mut self.accounts {
            if server.pause.is_written && !written.contains(&Waiting::Server(account.clone())) {
                server.pause = Wait::default();
                server.failures = 0;
            }
        }
        for (id, c) in &mut self.collections {
            if c.pause.is_written && !written.contains(&Waiting::Collection(*id)) {
                c.pause = Wait::default();
                c.failures = 0;
            }
        }
        for (role, owner) in &mut self.owners {
            if owner.pause.is_written && !written.contains(&Waiting::Owner(*role)) {
                owner.pause = Wait::default();
            }
        }
    }

    fn pause_of(&mut self, what: &Waiting) -> Option<&mut Wait> {
        match what {
            Waiting::Server(account) => self.accounts.get_mut(account).map(|s| &mut s.pause),
            Waiting::Collection(id) => self.collections.get_mut(id).map(|c| &mut c.pause),
            Waiting::Owner(role) => self.owners.get_mut(role).map(|o| &mut o.pause),
        }
    }

    /// Whether a collection waits because others of its owner held the worker.
    pub fn waits_for_owner(&self, collection: i32, now: Instant) -> bool {
        let works = self.collections.get(&collection).is_some_and(|c| c.works);
        !works && self.owner_of(collection).is_some_and(|o| o.pause.is_on(now))
    }

    /// How many rows of a collection to take now; `None`: none, since it pauses or its server does or has no room.
    /// `under_way` says how many requests of an account are.
    pub fn rows(&self, collection: i32, under_way: impl Fn(&Account) -> usize, now: Instant) -> Option<usize> {
        let Some(c) = self.collections.get(&collection) else { return Some(FIRST_ROWS) };
        let account = c.account.as_ref();
        if c.pause.is_on(now) || self.waits_for_owner(collection, now) {
            return None;
        }
        if account.is_some_and(|a| !self.has_room(a, under_way(a), now)) {
            return None;
        }
        Some(if c.singly > 0 { 1 } else { c.rows })
    }

    /// Which entries of a collection the next job takes.
    pub fn entries(&self, collection: i32) -> Order {
        let small_jobs = self.collections.get(&collection).map_or(0, |c| c.small_jobs);
        if small_jobs < SMALL_JOBS { Order::SmallFirst } else { Order::OldestFirst }
    }

    /// A job took entries, all of them of changes of few rows or not.
    pub fn took_entries(&mut self, collection: i32, order: Order, are_small: bool) {
        let c = self.collections.entry(collection).or_default();
        c.small_jobs = if are_small && order == Order::SmallFirst { c.small_jobs + 1 } else { 0 };
    }

    /// Notes which server a collection asks, and how many requests it takes at a time.
    pub fn asks(&mut self, collection: i32, account: &Account, max_in_flight: usize) {
        self.collections.entry(collection).or_default().account = Some(account.clone());
        self.accounts.entry(account.clone()).or_default().max_in_flight = max_in_flight;
    }

    /// Whether a server may be asked now, besides `under_way` requests.
    pub fn has_room(&self, account: &Account, under_way: usize, now: Instant) -> bool {
        self.accounts.get(account).is_none_or(|s| !s.pause.is_on(now) && under_way < s.max_in_flight)
    }

    /// A job of a long row was made.
    pub fn served(&mut self, collection: i32) {
        self.last_served = collection;
    }

    /// A job was made of so many rows and chunks: takes more or fewer rows next time, so that a job has about `target` chunks.
    pub fn started(&mut self, collection: i32, rows: usize, chunks: usize, target: usize) {
        self.last_served = collection;
        let c = self.collections.entry(collection).or_default();
        c.singly = c.singly.saturating_sub(rows);
        if c.singly > 0 {
            return;
        }
        c.rows = match (rows * target).checked_div(chunks) {
            Some(rows) => rows.clamp(1, MAX_ROWS).min(c.rows * 2),
            None => (c.rows * 2).min(MAX_ROWS),
        };
    }

    /// A job was stored.
    pub fn stored(&mut self, collection: i32) {
        let c = self.collections.entry(collection).or_default();
        c.failures = 0;
        c.works = true;
    }

    /// A job of so many rows failed, one of which is to blame: they are taken one at a time.
    pub fn split(&mut self, collection: i32, rows: usize) {
        self.collections.entry(collection).or_default().singly = rows;
    }

    /// A collection waits, longer each time. True if that is worth a warning: what is missing may come a moment later, as in a
    /// restore.
    pub fn block(&mut self, collection: i32, now: Instant) -> bool {
        let c = self.collections.entry(collection).or_default();
        c.failures += 1;
        c.pause.begin(now + backoff(c.failures, collection as u64));
        c.failures == TOLD_AFTER
    }

    /// A server gave vectors. How long the outage was that this ends, if people were told of one.
    pub fn answered(&mut self, account: &Account, now: Instant) -> Option<Duration> {
        let server = self.accounts.entry(account.clone()).or_default();
        server.failures = 0;
        server.garbage = 0;
        let since = server.fails_since.take().filter(|_| server.is_told);
        server.is_told = false;
        since.map(|since| now.saturating_duration_since(since))
    }

    /// A server sent a reply that was none; how many it had sent in a row before.
    pub fn sent_garbage(&mut self, account: &Account) -> u32 {
        let server = self.accounts.entry(account.clone()).or_default();
        server.garbage += 1;
        server.garbage - 1
    }

    /// A server failed and is asked nothing for a while: as long as it wishes, else longer each time. What was sent to it before
    /// that and fails, too, makes it no longer. `is_busy`: it asks for patience, which is no outage unless it goes on. `seed` spreads
    /// workers.
    pub fn pause(
        &mut self,
        account: &Account,
        wish: Option<Duration>,
        is_busy: bool,
        seed: u64,
        now: Instant,
    ) -> Pause {
        let server = self.accounts.entry(account.clone()).or_default();
        server.fails_since.get_or_insert(now);
        let rest = server.pause.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        if rest.is_zero() {
            server.failures += 1;
        }
        let length = wish.unwrap_or_else(|| backoff(server.failures, seed)).max(rest);
        if length > rest {
            server.pause.begin(now + length);
        }
        let begins_outage = !server.is_told && (!is_busy || server.failures >= BUSY_IS_OUTAGE);
        server.is_told |= begins_outage;
        Pause { length, is_new: length > rest, begins_outage }
    }

    /// How long nothing can happen by itself; `None`: until somebody commits something.
    pub fn wait(&self, outlook: Outlook, now: Instant) -> Option<Duration> {
        let servers = self.accounts.values().map(|s| s.pause.until);
        let collections = self.collections.values().map(|c| c.pause.until);
        let owners = self.owners.values().flat_map(|o| [o.yields_until, o.pause.until]);
        let pauses = servers
            .chain(collections)
            .chain(owners)
            .flatten()
            .map(|until| until.saturating_duration_since(now))
            .filter(|rest| !rest.is_zero());
        // A pause concerns nobody while nothing is left.
        let pauses = pauses.filter(|_| outlook.left);
        let retry = outlook.retry.map(|r| r.max(SHORTEST_WAIT));
        let prepared = outlook.prepared.then_some(LOOK_FOR_PREPARED);
        let again = outlook.left.then_some(LOOK_AGAIN);
        pauses.chain(retry).chain(prepared).chain(again).min()
    }
}

fn is_on(pause: Option<Instant>, now: Instant) -> bool {
    pause.is_some_and(|until| until > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(server: &str) -> Account {
        Account { server: server.to_owned(), role: 10 }
    }

    fn none(_: &Account) -> usize {
        0
    }

    #[test]
    fn collections_take_turns() {
        let mut schedule = Schedule::default();
        for (served, order) in [(0, [1, 4, 9]), (4, [9, 1, 4]), (9, [1, 4, 9]), (5, [9, 1, 4])] {
            schedule.started(served, 1, 1, 1);
            assert_eq!(schedule.order(vec![1, 4, 9], Instant::now()), order, "after {served}");
        }
    }

    #[test]
    fn jobs_grow_until_they_fill_a_request_and_shrink_at_once() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        assert_eq!(schedule.rows(1, none, now), Some(FIRST_ROWS));
        for (rows, chunks, next) in [(16, 16, 32), (32, 32, 64), (64, 128, 50), (50, 5000, 1), (1, 0, 2), (2, 2, 4)] {
            schedule.started(1, rows, chunks, 100);
            assert_eq!(schedule.rows(1, none, now), Some(next), "after {rows} rows of {chunks} chunks");
        }
        for _ in 0..20 {
            schedule.started(1, 1000, 0, 100);
        }
        assert_eq!(schedule.rows(1, none, now), Some(MAX_ROWS));
        assert_eq!(schedule.rows(2, none, now), Some(FIRST_ROWS), "another collection");
    }

    #[test]
    fn small_changes_come_first_and_starve_nobody() {
        let mut schedule = Schedule::default();
        let mut served = Vec::new();
        for _ in 0..8 {
            let order = schedule.entries(1);
            schedule.took_entries(1, order, order == Order::SmallFirst);
            served.push(order);
        }
        use Order::*;
        let turn = [SmallFirst, SmallFirst, SmallFirst, OldestFirst];
        assert_eq!(served, [turn, turn].concat());
        // While there is no small one, the next that comes is first.
        for _ in 0..8 {
            assert_eq!(schedule.entries(2), SmallFirst);
            schedule.took_entries(2, SmallFirst, false);
        }
    }

    #[test]
    fn rows_of_a_spoilt_job_are_taken_one_at_a_time() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.split(1, 3);
        for _ in 0..3 {
            assert_eq!(schedule.rows(1, none, now), Some(1));
            schedule.started(1, 1, 1, 100);
        }
        assert_eq!(schedule.rows(1, none, now), Some(32));
    }

    #[test]
    fn a_server_is_asked_so_much_at_a_time() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.asks(1, &account("a"), 2);
        for (under_way, rows) in [(0, Some(16)), (1, Some(16)), (2, None), (3, None)] {
            assert_eq!(schedule.rows(1, |_| under_way, now), rows);
            assert_eq!(schedule.has_room(&account("a"), under_way, now), rows.is_some());
        }
        assert!(schedule.has_room(&account("unknown"), 99, now));
    }

    #[test]
    fn a_pause_concerns_its_server_only_and_ends() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for (collection, server) in [(1, "a"), (2, "a"), (3, "b")] {
            schedule.asks(collection, &account(server), 4);
        }
        let wish = Duration::from_secs(7);
        assert_eq!(schedule.pause(&account("a"), Some(wish), false, 0, now).length, wish);
        for (collection, later, rows) in [(1, 0, None), (2, 6, None), (3, 0, Some(16)), (1, 7, Some(16))] {
            assert_eq!(schedule.rows(collection, none, now + Duration::from_secs(later)), rows);
        }
        let mut later = now;
        let mut pause = |schedule: &mut Schedule| {
            let length = schedule.pause(&account("b"), None, false, 1, later).length;
            later += length;
            length
        };
        let pauses: Vec<Duration> = (0..4).map(|_| pause(&mut schedule)).collect();
        assert!(pauses.windows(2).all(|p| p[1] > p[0]), "{pauses:?}");
        schedule.answered(&account("b"), now);
        assert_eq!(pause(&mut schedule), pauses[0]);
    }

    #[test]
    fn what_fails_together_makes_one_pause() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        let first = schedule.pause(&account("a"), None, false, 1, now).length;
        for _ in 0..9 {
            assert_eq!(schedule.pause(&account("a"), None, false, 1, now).length, first);
        }
        let wish = Duration::from_secs(60);
        assert_eq!(schedule.pause(&account("a"), Some(wish), false, 1, now).length, wish);
        assert_eq!(schedule.pause(&account("a"), None, false, 1, now).length, wish);
    }

    #[test]
    fn an_outage_is_told_when_it_begins_and_when_it_ends() {
        let now = Instant::now();
        let s = Duration::from_secs;
        let mut schedule = Schedule::default();
        assert_eq!(schedule.answered(&account("a"), now), None);
        let told: Vec<bool> = (0..4)
            .map(|n| schedule.pause(&account("a"), Some(s(9)), false, 0, now + s(10 * n)).begins_outage)
            .collect();
        assert_eq!(told, [true, false, false, false]);
        assert_eq!(schedule.answered(&account("a"), now + s(50)), Some(s(50)));
        assert_eq!(schedule.answered(&account("a"), now + s(51)), None);
        // Being asked for patience is not an outage, until it happens again and again.
        let told: Vec<bool> = (0..4)
            .map(|n| schedule.pause(&account("a"), Some(s(9)), true, 0, now + s(100 + 10 * n)).begins_outage)
            .collect();
        assert_eq!(told, [false, false, true, false]);
        assert_eq!(schedule.answered(&account("a"), now + s(200)), Some(s(100)));
        schedule.pause(&account("a"), None, true, 0, now + s(300));
        assert_eq!(schedule.answered(&account("a"), now + s(301)), None, "nobody was told of it");
    }

    #[test]
    fn who_takes_away_what_is_written_ends_the_wait() {
        let now = Instant::now();
        let s = Duration::from_secs;
        let mut schedule = Schedule::default();
        for collection in [1, 2, 3] {
            schedule.belongs(collection, 10);
        }
        schedule.asks(1, &account("a"), 4);
        schedule.pause(&account("a"), Some(s(60)), false, 0, now);
        schedule.block(2, now);
        schedule.held(2, s(2), true, now);
        let all = [Waiting::Server(account("a")), Waiting::Collection(2), Waiting::Owner(10)];
        let mut unwritten: Vec<Waiting> = schedule.unwritten(now).into_iter().map(|(what, ..)| what).collect();
        unwritten.sort_by_key(|what| matches!(what, Waiting::Owner(_)));
        assert_eq!(unwritten, all[1..], "a server's is written with its error");
        // What could not be written is not ended by not being there.
        schedule.end_but(&HashSet::new());
        assert_eq!([1, 2, 3].map(|c| schedule.rows(c, none, now)), [None; 3]);
        all.iter().for_each(|what| schedule.written(what));
        assert_eq!(schedule.unwritten(now), []);
        schedule.end_but(&all.iter().cloned().collect());
        assert_eq!([1, 2, 3].map(|c| schedule.rows(c, none, now)), [None; 3]);
        schedule.end_but(&all[..2].iter().cloned().collect());
        assert_eq!([1, 2, 3].map(|c| schedule.rows(c, none, now)), [None, None, Some(FIRST_ROWS)]);
        schedule.end_but(&all[..1].iter().cloned().collect());
        assert_eq!([1, 2, 3].map(|c| schedule.rows(c, none, now)), [None, Some(FIRST_ROWS), Some(FIRST_ROWS)]);
        schedule.end_but(&HashSet::new());
        assert!(schedule.has_room(&account("a"), 0, now));
        assert_eq!([(); 3].map(|()| schedule.block(2, now)), [false, false, true], "it is told of again");
    }

    #[test]
    fn useless_replies_are_counted_until_a_good_one() {
        let mut schedule = Schedule::default();
        let counts: Vec<u32> = (0..3).map(|_| schedule.sent_garbage(&account("a"))).collect();
        assert_eq!(counts, [0, 1, 2]);
        schedule.answered(&account("a"), Instant::now());
        assert_eq!(schedule.sent_garbage(&account("a")), 0);
    }

    #[test]
    fn a_blocked_collection_waits_and_is_told_of_once() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        let told = |schedule: &mut Schedule| [(); 5].map(|()| schedule.block(1, now));
        assert_eq!(told(&mut schedule), [false, false, true, false, false]);
        assert_eq!(schedule.rows(1, none, now), None);
        assert_eq!(schedule.rows(1, none, now + Duration::from_secs(60)), Some(FIRST_ROWS));
        schedule.stored(1);
        assert_eq!(told(&mut schedule), [false, false, true, false, false]);
    }

    #[test]
    fn who_takes_much_time_comes_after_others() {
        let now = Instant::now();
        let s = Duration::from_secs;
        let mut schedule = Schedule::default();
        for (collection, owner) in [(1, 10), (2, 10), (3, 20)] {
            schedule.belongs(collection, owner);
        }
        schedule.took(1, Duration::from_millis(100), now);
        assert_eq!(schedule.order(vec![1, 2, 3], now), [1, 2, 3]);
        schedule.took(1, s(9), now);
        assert_eq!(schedule.order(vec![1, 2, 3], now), [3]);
        assert_eq!(schedule.order(vec![1, 2], now), [1, 2], "nobody else has anything to do");
        assert_eq!(schedule.rows(2, none, now), Some(FIRST_ROWS));
        assert_eq!(schedule.order(vec![1, 2, 3], now + s(9)), [1, 2, 3]);
    }

    #[test]
    fn an_owner_waits_whose_collections_hold_the_worker_one_after_the_other() {
        let now = Instant::now();
        let s = Duration::from_secs;
        let mut schedule = Schedule::default();
        for (collection, owner) in [(1, 10), (2, 10), (3, 10), (4, 10), (5, 20)] {
            schedule.belongs(collection, owner);
        }
        schedule.stored(4);
        for _ in 0..3 {
            schedule.held(1, s(2), false, now);
            assert_eq!(schedule.rows(3, none, now), Some(FIRST_ROWS), "one collection waits by itself");
        }
        schedule.held(2, s(2), false, now);
        for (collection, waits) in [(1, true), (2, true), (3, true), (4, false), (5, false)] {
            assert_eq!(schedule.waits_for_owner(collection, now), waits, "collection {collection}");
            assert_eq!(schedule.rows(collection, none, now).is_none(), waits, "collection {collection}");
        }
        assert_eq!(schedule.wait(Outlook { left: true, ..Outlook::default() }, now + s(2)), Some(s(18)));
        assert!(!schedule.waits_for_owner(3, now + s(20)));
        // Longer each time, and also the one that worked until then.
        schedule.held(4, s(2), false, now + s(20));
        assert!(schedule.waits_for_owner(4, now + s(59)));
        assert!(!schedule.waits_for_owner(4, now + s(60)));
        schedule.held(2, s(2), false, now + s(30));
        assert!(!schedule.waits_for_owner(3, now + s(60)), "it waited already");
        for (n, collection) in [1, 2, 1, 2, 1, 2].into_iter().enumerate() {
            schedule.held(collection, s(2), false, now + s(60 + 400 * n as u64));
        }
        let last = now + s(2060);
        assert!(schedule.waits_for_owner(3, last + LONGEST_WAIT - s(1)));
        assert!(!schedule.waits_for_owner(3, last + LONGEST_WAIT));
        // After a long time it begins again.
        let later = last + FORGOTTEN + s(1);
        schedule.held(1, s(2), false, later);
        assert!(!schedule.waits_for_owner(3, later));
        // Another worker, or the one before, told of others.
        schedule.held(1, s(2), true, later);
        assert!(schedule.waits_for_owner(3, later + s(19)) && !schedule.waits_for_owner(3, later + s(20)));
    }

    #[test]
    fn it_waits_for_the_first_thing_that_can_happen() {
        let now = Instant::now();
        let s = Duration::from_secs;
        let idle = Outlook::default();
        let mut schedule = Schedule::default();
        assert_eq!(schedule.wait(idle, now), None);
        for (outlook, wait) in [
            (Outlook { retry: Some(s(3)), ..idle }, s(3)),
            (Outlook { retry: Some(s(0)), ..idle }, SHORTEST_WAIT),
            (Outlook { prepared: true, retry: Some(s(3)), ..idle }, LOOK_FOR_PREPARED),
            (Outlook { left: true, ..idle }, LOOK_AGAIN),
        ] {
            assert_eq!(schedule.wait(outlook, now), Some(wait), "{outlook:?}");
        }
        schedule.pause(&account("a"), Some(s(9)), false, 0, now);
        assert_eq!(schedule.wait(Outlook { left: true, ..idle }, now), Some(s(9)));
        assert_eq!(schedule.wait(Outlook { left: true, ..idle }, now + s(10)), Some(LOOK_AGAIN));
        assert_eq!(schedule.wait(idle, now), None, "nothing is left to be done after the pause");
    }
}
