//! The workers of a database: background processes that serve the duties of the rooms below.
//!
//! They hold no transaction, snapshot or lock while something slow is under way. Each has a place, which is a lock it holds for
//! its life; what they are at work on is written in tables, so that they share it and need not know of each other.

#[allow(clippy::result_large_err)]
mod api;
mod duties;
pub mod launcher;
pub mod make_way;
mod statements;

use crate::duty::Duty;
use crate::guc;
use crate::ingest::wake;
use crate::pg::lock::{self, DatabaseIs, Lock};
use crate::pg::{http, interrupt, launcher_call, worker as process, xact};
use pgrx::pg_sys;
use std::time::{Duration, Instant};

/// How often a place is asked for before the process gives up: others look at the locks by taking them for a moment, and a
/// predecessor may just be leaving.
const ATTEMPTS: u32 = 30;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);
/// How often a free slot is looked for, where workers are missing.
const FOR_A_SLOT: Duration = Duration::from_secs(10);
/// The pause after the tables could not be read.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// What a turn came to.
enum Turn {
    /// Something was done: there may be more to do.
    Worked,
    /// Nothing is to be done now; for how long, if nobody commits anything.
    Idle(Option<Duration>),
    /// The tables of a duty could not be read.
    Failed,
}

/// Main function of a worker, called by PostgreSQL in a new process.
pub fn main(database: pg_sys::Oid) {
    process::connect(Some(database));
    launcher_call::ask_at_end();
    process::apply_settings();
    let Some((slot, mut duties)) = process::deferring_end(begin) else {
        if guc::WORKER.get() {
            launcher_call::end_for_good();
        }
        return;
    };
    let end = serve(&mut duties, slot);
    pgrx::log!("pg_ragent worker: {}, ending", end.reason());
    match end {
        // On again, it is started where there is a launcher, else by the next write.
        End::TurnedOff => {}
        End::AskedTo if may_be_started_again(database) => process::leave(),
        End::AskedTo => {}
        End::ExtensionGone | End::TooMany | End::Replaced => launcher_call::end_for_good(),
    }
}

/// Takes a place and begins with the duties; none where no worker is needed.
fn begin() -> Option<(u32, Vec<Box<dyn Duty>>)> {
    if process::is_upgrading()
        || !guc::WORKER.get()
        || !xact::transaction(statements::extension_exists).unwrap_or(false)
    {
        return None;
    }
    let slot = take_slot()?;
    let mut duties = duties::all();
    for duty in &mut duties {
        if let Err(e) = duty.begin() {
            pgrx::warning!("pg_ragent worker: {}: {e}", duty.name());
        }
    }
    Some((slot, duties))
}

/// Why a worker ends.
enum End {
    AskedTo,
    TurnedOff,
    ExtensionGone,
    TooMany,
    Replaced,
}

impl End {
    fn reason(&self) -> &'static str {
        match self {
            End::AskedTo => "it was asked to end",
            End::TurnedOff => "rag.worker is off",
            End::ExtensionGone => "the extension is gone from this database",
            End::TooMany => "rag.workers asks for fewer",
            End::Replaced => "another one has its place",
        }
    }
}

/// Whether a worker that was asked to end is needed again: not where its database is being dropped or renamed. PostgreSQL would
/// say that it is not there.
fn may_be_started_again(database: pg_sys::Oid) -> bool {
    let is_altered = xact::transaction(|| lock::database_is(DatabaseIs::Altered, database.to_u32()));
    process::has_launcher() || !is_altered.unwrap_or(true)
}

/// Takes the first place that is free.
fn take_slot() -> Option<u32> {
    for _ in 0..ATTEMPTS {
        let taken = xact::transaction(|| (0..guc::workers()).find(|slot| Lock::worker(*slot).keep()));
        if let Ok(Some(slot)) = taken {
            return Some(slot);
        }
        interrupt::sleep(BETWEEN_ATTEMPTS);
    }
    None
}

/// The worker of the first place starts those that the setting asks for besides; whether it could.
fn start_others(slot: u32) -> bool {
    if slot != 0 {
        return true;
    }
    let missing = xact::transaction(|| wake::missing_workers(Some(slot))).unwrap_or(0);
    let is_complete = (0..missing).all(|_| process::start_for_this_database());
    if !is_complete {
        process::warn_of_no_slot();
    }
    is_complete
}

/// Works until there is a reason to end, which it returns.
fn serve(duties: &mut [Box<dyn Duty>], slot: u32) -> End {
    let mut has_others = start_others(slot);
    let mut looked = Instant::now();
    loop {
        if process::is_asked_to_end() {
            // From here on it ends by itself; also a line in the log would end it with an error.
            process::note_asked_to_end();
            return End::AskedTo;
        }
        interrupt::check();
        if process::reload_if_asked() || !has_others && looked.elapsed() >= FOR_A_SLOT {
            looked = Instant::now();
            has_others = start_others(slot);
        }
        if !guc::WORKER.get() {
            duties.iter_mut().for_each(|duty| duty.end());
            return End::TurnedOff;
        }
        if slot >= guc::workers() {
            duties.iter_mut().for_each(|duty| duty.end());
            return End::TooMany;
        }
        let wait = match turn(duties) {
            Turn::Worked => continue,
            Turn::Idle(wait) => wait,
            Turn::Failed => Some(AFTER_FAILURE),
        };
        let wait = wait.into_iter().chain((!has_others).then_some(FOR_A_SLOT)).min();
        // A lock may have been given up by code of a table's owner.
        let look = || (statements::extension_exists(), Lock::worker(slot).keep());
        let state = process::deferring_end(|| xact::transaction(look));
        match state {
            Ok((true, true)) => {}
            Ok((false, _)) => return End::ExtensionGone,
            Ok((true, false)) => {
                duties.iter_mut().for_each(|duty| duty.end());
                return End::Replaced;
            }
            Err(e) => pgrx::warning!("pg_ragent worker: {e}"),
        }
        process::report_idle();
        http::rest(wait);
    }
}

fn turn(duties: &mut [Box<dyn Duty>]) -> Turn {
    let mut worked = false;
    let mut failed = false;
    for duty in duties.iter_mut() {
        worked |= duty.finish();
        match duty.start() {
            Ok(started) => worked |= started,
            // While the extension is being dropped, its tables are not there.
            Err(_) => failed = true,
        }
    }
    match (worked, failed) {
        (true, _) => Turn::Worked,
        (false, true) => Turn::Failed,
        (false, false) => Turn::Idle(duties.iter().filter_map(|duty| duty.wait()).min()),
    }
}
