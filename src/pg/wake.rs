//! Waking the database's worker when work is committed, and starting one when none runs.

use super::{worker, xact};
use pgrx::pg_sys;
use std::cell::Cell;

thread_local! {
    static PENDING: Cell<bool> = const { Cell::new(false) };
}

/// Wakes the worker of this database once the current transaction has committed; starts one if none runs then.
/// Cheap to call often: a transaction does it once.
pub fn at_commit() {
    if PENDING.get() {
        return;
    }
    let start = !worker::is_running() && worker::may_start();
    PENDING.set(true);
    xact::on_abort(|| PENDING.set(false));
    // The rows come with COMMIT PREPARED, perhaps in another session: the worker looks for such by itself.
    xact::on_prepare(|| PENDING.set(false));
    xact::on_commit(move || {
        PENDING.set(false);
        workers_of_this_database();
        if start {
            worker::start_for_this_database();
        }
    });
}

/// Wakes the worker of this database now.
pub fn now() {
    workers_of_this_database();
}

/// Sets the latch of every background process connected to this database.
///
/// Without preloading there is no shared memory to keep a worker's number in, and looking for the holder of its lock
/// would cost more than a handful of spurious wake-ups, which every latch loop tolerates.
fn workers_of_this_database() {
    // SAFETY: ProcGlobal and its array live in shared memory for the life of the server. The fields read are plain
    // words, for which a stale value is harmless: SetLatch on a process that is just leaving does nothing.
    unsafe {
        let global = pg_sys::ProcGlobal;
        for i in 0..(*global).allProcCount as usize {
            let process = (*global).allProcs.add(i);
            if (*process).databaseId == pg_sys::MyDatabaseId && (*process).pid != 0 && is_background(process) {
                pg_sys::SetLatch(&raw mut (*process).procLatch);
            }
        }
    }
}

/// # Safety
/// `process` must point into the shared array of processes.
unsafe fn is_background(process: *const pg_sys::PGPROC) -> bool {
    // SAFETY: by the caller's promise.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return (*process).isBackgroundWorker;
        #[cfg(feature = "pg18")]
        return !(*process).isRegularBackend;
    }
}
