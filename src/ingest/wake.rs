//! Who wakes and starts the workers: whoever commits something to embed.

use crate::guc;
use crate::pg::lock::Lock;
use crate::pg::{wake, worker};

/// Wakes this database's workers once the current transaction has committed; starts those that are missing then.
/// Cheap to call often: a transaction does it once.
pub fn at_commit() {
    if !wake::is_due() {
        wake::at_commit(if worker::is_this_process() { 0 } else { missing_workers(None) });
    }
}

/// How many workers are to be started, in a process that has the place `own` itself or none. Runs in a transaction.
pub fn missing_workers(own: Option<u32>) -> u32 {
    if !may_start() {
        return 0;
    }
    let free = |slot: &u32| Some(*slot) != own && !Lock::worker(*slot).is_taken();
    (0..guc::workers()).filter(free).count() as u32
}

/// Whether any worker serves this database. Runs in a transaction.
pub fn is_served() -> bool {
    (0..guc::workers()).any(|slot| Lock::worker(slot).is_taken())
}

/// Whether workers may run: in this server at all, and by the setting.
pub fn may_start() -> bool {
    guc::WORKER.get() && worker::can_run()
}
