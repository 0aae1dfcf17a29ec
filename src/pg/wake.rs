//! Finding the workers of this database, and waking them, at once or when the transaction commits.

use super::{launcher_call, worker};
use pgrx::{pg_guard, pg_sys};
use std::cell::Cell;

thread_local! {
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
    static AT_COMMIT: Cell<Option<AtCommit>> = const { Cell::new(None) };
    static LAUNCHER_AT_COMMIT: Cell<bool> = const { Cell::new(false) };
}

#[derive(Clone, Copy)]
struct AtCommit {
    /// Workers to start.
    start: u32,
}

/// Whether this transaction will wake the workers already.
pub fn is_due() -> bool {
    AT_COMMIT.get().is_some()
}

/// Wakes the workers once the current transaction has committed, and starts `start` more then.
pub fn at_commit(start: u32) {
    register();
    AT_COMMIT.set(Some(AtCommit { start }));
}

/// Wakes the launcher once the current transaction has committed.
pub fn launcher_at_commit() {
    register();
    LAUNCHER_AT_COMMIT.set(true);
}

fn register() {
    if !REGISTERED.replace(true) {
        // SAFETY: once a process; the callback lives as long as the library, which is never unloaded.
        unsafe { pg_sys::RegisterXactCallback(Some(at_end_of_transaction), std::ptr::null_mut()) };
    }
}

/// # Safety
/// Called by PostgreSQL at the end of each transaction of a process that registered it.
#[pg_guard]
unsafe extern "C-unwind" fn at_end_of_transaction(event: pg_sys::XactEvent::Type, _argument: *mut std::ffi::c_void) {
    match event {
        pg_sys::XactEvent::XACT_EVENT_COMMIT => {
            if LAUNCHER_AT_COMMIT.take() {
                launcher();
            }
            let Some(due) = AT_COMMIT.take() else { return };
            now();
            if !(0..due.start).all(|_| worker::start_for_this_database()) {
                launcher_call::ask();
                worker::warn_of_no_slot();
            }
        }
        // What a transaction leaves to COMMIT PREPARED comes then, perhaps in another session: the workers look for such
        // rows by themselves.
        pg_sys::XactEvent::XACT_EVENT_ABORT | pg_sys::XactEvent::XACT_EVENT_PREPARE => {
            AT_COMMIT.set(None);
            LAUNCHER_AT_COMMIT.set(false);
        }
        _ => {}
    }
}

/// Sets the latch of every background process connected to this database.
///
/// Without preloading there is no shared memory to keep the workers' numbers in, and looking for the holders of their locks
/// would cost more than a handful of spurious wake-ups, which every latch loop tolerates.
pub fn now() {
    // SAFETY: reads a static.
    wake_all(unsafe { pg_sys::MyDatabaseId });
}

/// Sets the latch of the launcher, and of whatever other background process is connected to no database.
pub fn launcher() {
    wake_all(pg_sys::InvalidOid);
}

fn wake_all(database: pg_sys::Oid) {
    background_processes(database, |process| {
        // SAFETY: the process array lives in shared memory for the life of the server. SetLatch on a process that is just
        // leaving does nothing.
        unsafe { pg_sys::SetLatch(&raw mut (*process).procLatch) };
    });
}

/// Process numbers of this database's workers.
pub fn running_workers() -> Vec<i32> {
    let mut found = Vec::new();
    // SAFETY: reads a static.
    background_processes(unsafe { pg_sys::MyDatabaseId }, |process| {
        // SAFETY: as above; the type's name is a static string in shared memory or NULL.
        unsafe {
            let pid = (*process).pid;
            let name = pg_sys::GetBackgroundWorkerTypeByPid(pid);
            if !name.is_null() && std::ffi::CStr::from_ptr(name).to_bytes() == worker::WORKER_TYPE.as_bytes() {
                found.push(pid);
            }
        }
    });
    found
}

fn background_processes(database: pg_sys::Oid, mut f: impl FnMut(*mut pg_sys::PGPROC)) {
    // SAFETY: ProcGlobal and its array live in shared memory for the life of the server. The fields read are plain
    // words, for which a stale value is harmless.
    unsafe {
        let global = pg_sys::ProcGlobal;
        for i in 0..(*global).allProcCount as usize {
            let process = (*global).allProcs.add(i);
            if (*process).databaseId == database && (*process).pid != 0 && is_background(process) {
                f(process);
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
