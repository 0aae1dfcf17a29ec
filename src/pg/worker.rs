//! Background workers: registering, connecting, signals, the one-per-database lock.

use super::{interrupt, xact};
use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::{IntoDatum, pg_sys};
use std::cell::Cell;
use std::ffi::CString;
use std::time::Duration;

/// What pg_stat_activity shows as `backend_type` of a database's worker.
pub const WORKER_TYPE: &str = "pg_ragent worker";
/// The same for the launcher.
pub const LAUNCHER_TYPE: &str = "pg_ragent launcher";

/// A worker that ended by an error is started again after this long.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// The lock a database's worker holds: an advisory one ("rag\0", "wrkr" in ASCII) of a kind that no SQL function can
/// take (those have 1 or 2 in the fourth field).
const LOCK_CLASS: u32 = 0x7261_6700;
const LOCK_OBJECT: u32 = 0x7772_6b72;
const LOCK_KIND: u16 = 0x7261;

/// Registers the launcher. Only while the library is being preloaded.
pub fn register_launcher() {
    BackgroundWorkerBuilder::new(LAUNCHER_TYPE)
        .set_type(LAUNCHER_TYPE)
        .set_library("pg_ragent")
        .set_function("pg_ragent_launcher_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(Duration::from_secs(5)))
        .load();
}

/// Asks the postmaster to start a worker for a database. False: there is no free slot (`max_worker_processes`).
pub fn start(database: pg_sys::Oid) -> bool {
    BackgroundWorkerBuilder::new(WORKER_TYPE)
        .set_type(WORKER_TYPE)
        .set_library("pg_ragent")
        .set_function("pg_ragent_worker_main")
        .set_argument(database.into_datum())
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(RESTART_AFTER))
        .load_dynamic()
        .is_ok()
}

/// As [`start`], for the database this process is connected to.
pub fn start_for_this_database() -> bool {
    // SAFETY: reads a static.
    start(unsafe { pg_sys::MyDatabaseId })
}

/// Whether this server may run workers: not during pg_upgrade, not on a standby.
pub fn may_start() -> bool {
    // SAFETY: reads statics and shared state.
    unsafe { !pg_sys::RecoveryInProgress() && !is_upgrading() && crate::guc::WORKER.get() }
}

fn lock_tag() -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        // SAFETY: reads a static.
        locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
        locktag_field2: LOCK_CLASS,
        locktag_field3: LOCK_OBJECT,
        locktag_field4: LOCK_KIND,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

/// Whether a worker of this database runs: whether its lock is taken.
pub fn is_running() -> bool {
    let tag = lock_tag();
    let mode = pg_sys::ShareLock as i32;
    // SAFETY: inside a transaction; a lock that was granted is released at once.
    unsafe {
        match pg_sys::LockAcquire(&tag, mode, false, true) {
            pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL => true,
            _ => {
                pg_sys::LockRelease(&tag, mode, false);
                false
            }
        }
    }
}

/// Takes the lock that makes this process the worker of its database, for its life. False: another one is.
///
/// Tries for a while: others look at the lock by taking it for a moment, and a predecessor may just be leaving.
pub fn become_the_worker() -> bool {
    let tag = lock_tag();
    for _ in 0..30 {
        let taken = xact::transaction(|| {
            // SAFETY: inside a transaction; a session lock, released by the end of the process.
            let result = unsafe { pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as i32, true, true) };
            result != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
        });
        if taken.unwrap_or(false) {
            return true;
        }
        interrupt::sleep(Duration::from_millis(100));
    }
    false
}

/// Whether this process still holds the lock, taking it again if a table owner's code made the process give it up.
pub fn is_still_the_worker() -> bool {
    let tag = lock_tag();
    let held = xact::transaction(|| {
        let mode = pg_sys::ExclusiveLock as i32;
        // SAFETY: inside a transaction. A lock that was held already is counted twice, so one count is given back.
        unsafe {
            match pg_sys::LockAcquire(&tag, mode, true, true) {
                pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL => false,
                pg_sys::LockAcquireResult::LOCKACQUIRE_OK => true,
                _ => {
                    pg_sys::LockRelease(&tag, mode, true);
                    true
                }
            }
        }
    });
    held.unwrap_or(false)
}

/// Whether transactions can be prepared in this server, so that rows may come without a commit that wakes the worker.
pub fn may_have_prepared_transactions() -> bool {
    super::role::setting("max_prepared_transactions").is_some_and(|n| n != "0")
}

thread_local! {
    static CONNECTED: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C-unwind" {
    // PostgreSQL's own signal handlers, as C functions: pgrx wraps its bindings in Rust ones, which no handler can be.
    fn die(signal: std::ffi::c_int);
    fn SignalHandlerForConfigReload(signal: std::ffi::c_int);
}

/// Sets up a background process: signals as a backend's (so that terminate works also inside SQL), then connects to
/// `database`, or to none.
///
/// A worker that cannot connect, because its database is gone by now, ends with exit code 0, so that the postmaster
/// forgets it rather than trying for ever.
pub fn connect(database: Option<pg_sys::Oid>) {
    // SAFETY: the first calls of a background process, in the order PostgreSQL documents; handlers are PostgreSQL's
    // own. The exit callback only reads a thread-local.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        {
            pg_sys::pqsignal(libc::SIGTERM, Some(die));
            pg_sys::pqsignal(libc::SIGHUP, Some(SignalHandlerForConfigReload));
        }
        #[cfg(feature = "pg18")]
        {
            pg_sys::pqsignal_be(libc::SIGTERM, Some(die));
            pg_sys::pqsignal_be(libc::SIGHUP, Some(SignalHandlerForConfigReload));
        }
        pg_sys::BackgroundWorkerUnblockSignals();
        match database {
            Some(oid) => {
                pg_sys::on_proc_exit(Some(forget_if_never_connected), pg_sys::Datum::from(0usize));
                pg_sys::BackgroundWorkerInitializeConnectionByOid(oid, pg_sys::InvalidOid, 0);
                CONNECTED.set(true);
            }
            None => {
                pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0);
            }
        }
    }
}

/// # Safety
/// Called by PostgreSQL while the process exits.
unsafe extern "C-unwind" fn forget_if_never_connected(code: i32, _arg: pg_sys::Datum) {
    if code != 0 && !CONNECTED.get() {
        // SAFETY: proc_exit may be called again from an exit callback: the callbacks that are left run, then the
        // process ends with the new code.
        unsafe { pg_sys::proc_exit(0) };
    }
}

/// Settings the worker's statements rely on, whatever the database's or the superuser's defaults are.
pub fn settle_settings() {
    for (name, value) in [
        (c"search_path", c"pg_catalog, pg_temp"),
        (c"default_transaction_read_only", c"off"),
        (c"default_transaction_isolation", c"read committed"),
        // A lock on one table must not hold up the others: the collection is tried again later. Less than deadlock_timeout
        // usually is, so that in a deadlock the worker gives way and not somebody's session.
        (c"lock_timeout", c"500"),
        (c"row_security", c"on"),
        (c"DateStyle", c"ISO"),
        (c"IntervalStyle", c"postgres"),
        (c"extra_float_digits", c"1"),
        (c"bytea_output", c"hex"),
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        (c"transaction_timeout", c"0"),
    ] {
        // SAFETY: NUL-terminated constants; SetConfigOption copies them. The values are valid, so it raises nothing.
        unsafe {
            pg_sys::SetConfigOption(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_SUSET,
                pg_sys::GucSource::PGC_S_OVERRIDE,
            );
        }
    }
}

/// Rereads the configuration files if the server was told to.
pub fn reload_if_asked() {
    // SAFETY: as in every PostgreSQL main loop; the flag is set by the SIGHUP handler.
    unsafe {
        if pg_sys::ConfigReloadPending != 0 {
            pg_sys::ConfigReloadPending = 0;
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
    }
}

/// What pg_stat_activity shows as this process's query: what it is doing.
pub fn report_activity(what: &str) {
    let Ok(text) = CString::new(what) else { return };
    // SAFETY: the string is copied into shared memory.
    unsafe { pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, text.as_ptr()) };
}

/// Shows this process as idle.
pub fn report_idle() {
    // SAFETY: NULL text leaves the last one. Statistics are sent so that autovacuum learns of the queue's dead rows.
    unsafe {
        pg_sys::pgstat_report_stat(true);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
    }
}

/// Whether pg_upgrade runs this server.
pub fn is_upgrading() -> bool {
    // SAFETY: reads a static.
    unsafe { pg_sys::IsBinaryUpgrade }
}

/// Whether the postmaster is loading shared_preload_libraries right now.
pub fn is_preloading() -> bool {
    // SAFETY: reads a static.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// The database in a worker's argument, as [`start`] put it there.
pub fn database_argument(argument: pg_sys::Datum) -> pg_sys::Oid {
    pg_sys::Oid::from_u32(argument.value() as u32)
}
