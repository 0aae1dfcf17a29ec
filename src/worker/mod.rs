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
use crate::pg::lock::Lock;
use crate::pg::{http, interrupt, worker as process, xact};
use pgrx::pg_sys;
use std::time::Duration;

/// How often a place is asked for before the process gives up: others look at the locks by taking them for a moment, and a
/// predecessor may just be leaving.
const ATTEMPTS: u32 = 30;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);
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
    process::apply_settings();
    if process::is_upgrading() || !xact::transaction(statements::extension_exists).unwrap_or(false) {
        return;
    }
    let Some(slot) = take_slot() else { return };
    let mut duties = duties::all();
    for duty in &mut duties {
        if let Err(e) = duty.begin() {
            pgrx::warning!("pg_ragent worker: {}: {e}", duty.name());
        }
    }
    start_others(slot);
    let why = serve(&mut duties, slot);
    pgrx::log!("pg_ragent worker: {why}, ending");
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

/// The worker of the first place starts those that the setting asks for besides.
fn start_others(slot: u32) {
    if slot != 0 {
        return;
    }
    let missing = xact::transaction(|| wake::missing_workers(Some(slot))).unwrap_or(0);
    for _ in 0..missing {
        process::start_for_this_database();
    }
}

/// Works until there is a reason to end, which it returns.
fn serve(duties: &mut [Box<dyn Duty>], slot: u32) -> &'static str {
    loop {
        interrupt::check();
        if process::reload_if_asked() {
            start_others(slot);
        }
        if slot >= guc::workers() {
            duties.iter_mut().for_each(|duty| duty.end());
            return "rag.workers asks for fewer";
        }
        let wait = match guc::WORKER.get() {
            true => match turn(duties) {
                Turn::Worked => continue,
                Turn::Idle(wait) => wait,
                Turn::Failed => Some(AFTER_FAILURE),
            },
            false => None,
        };
        // A lock may have been given up by code of a table's owner.
        let state = xact::transaction(|| (statements::extension_exists(), Lock::worker(slot).keep()));
        match state {
            Ok((true, true)) => {}
            Ok((false, _)) => return "the extension is gone from this database",
            Ok((true, false)) => {
                duties.iter_mut().for_each(|duty| duty.end());
                return "another one has its place";
            }
            Err(e) => pgrx::warning!("pg_ragent worker: {e}"),
        }
        process::report_idle();
        http::wait_for_event(wait);
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
