//! Background workers: registering, connecting, signals.

use crate::error::Error;
use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::{IntoDatum, PgLogLevel, PgSqlErrorCode, pg_sys};
use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What pg_stat_activity shows as `backend_type` of a database's worker; in SQL, rag_internal.worker_pids says it.
pub const WORKER_TYPE: &str = "pg_ragent worker";
/// The same for the launcher.
pub const LAUNCHER_TYPE: &str = "pg_ragent launcher";

/// A worker that ended by an error is started again after this long.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Whether the library was preloaded, so that there is a launcher. Every process has it from the postmaster.
static HAS_LAUNCHER: AtomicBool = AtomicBool::new(false);

/// See above.
pub fn has_launcher() -> bool {
    HAS_LAUNCHER.load(Ordering::Relaxed)
}

/// Registers the launcher. Only while the library is being preloaded.
pub fn register_launcher() {
    HAS_LAUNCHER.store(true, Ordering::Relaxed);
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
    // One that ended is started again by the launcher, where there is one: it knows whether the database is still there.
    let restart = (!has_launcher()).then_some(RESTART_AFTER);
    BackgroundWorkerBuilder::new(WORKER_TYPE)
        .set_type(WORKER_TYPE)
        .set_library("pg_ragent")
        .set_function("pg_ragent_worker_main")
        .set_argument(database.into_datum())
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(restart)
        .load_dynamic()
        .is_ok()
}

/// As [`start`], for the database this process is connected to.
pub fn start_for_this_database() -> bool {
    // SAFETY: reads a static.
    start(unsafe { pg_sys::MyDatabaseId })
}

/// Says that no worker could be started, and what to do about it; once a minute at most in a process.
pub fn warn_of_no_slot() {
    thread_local! {
        static TOLD: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    if TOLD.get().is_some_and(|at| at.elapsed() < Duration::from_secs(60)) {
        return;
    }
    TOLD.set(Some(Instant::now()));
    // SAFETY: reads a static.
    let slots = unsafe { pg_sys::max_worker_processes };
    let again = if has_launcher() { "It is started once one is free." } else { "The next write tries again." };
    Error::new(
        PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
        format!("no pg_ragent worker could be started: none of the {slots} slots of max_worker_processes is free"),
        format!("{again} Raise max_worker_processes, which takes a restart of the server."),
    )
    .tell(PgLogLevel::WARNING);
}

/// Whether CREATE EXTENSION is running its script: what it makes is not there for others yet.
pub fn is_creating_extension() -> bool {
    // SAFETY: reads a static.
    unsafe { pg_sys::creating_extension }
}

/// Whether this process was asked to end (by pg_terminate_backend, a shutdown), and has not ended yet.
pub fn is_asked_to_end() -> bool {
    // SAFETY: reads a flag that the handler of SIGTERM sets.
    unsafe { pg_sys::ProcDiePending != 0 }
}

/// Takes note of being asked to end: what is to be done before that is not interrupted by it any more.
pub fn note_asked_to_end() {
    // SAFETY: writes the flag that the handler of SIGTERM sets.
    unsafe { pg_sys::ProcDiePending = 0 };
}

/// Ends this process as one that is to be started again.
pub fn leave() -> ! {
    // SAFETY: PostgreSQL's own way to end a process; nothing of ours is needed after it.
    #[allow(unreachable_code, clippy::diverging_sub_expression)]
    unsafe {
        pg_sys::proc_exit(1);
        unreachable!("the process has ended")
    }
}

/// Whether workers can run in this server: not during pg_upgrade, not on a standby.
pub fn can_run() -> bool {
    // SAFETY: reads shared state.
    unsafe { !pg_sys::RecoveryInProgress() && !is_upgrading() }
}

/// Whether this process is a database's worker.
pub fn is_this_process() -> bool {
    CONNECTED.get()
}

/// The number of this process.
pub fn own_pid() -> i32 {
    // SAFETY: reads a static.
    unsafe { pg_sys::MyProcPid }
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

/// While this is true, being asked to end is noted and nothing is interrupted for it.
static DEFERS_END: AtomicBool = AtomicBool::new(false);
static IS_END_DEFERRED: AtomicBool = AtomicBool::new(false);

/// # Safety
/// The handler of SIGTERM.
unsafe extern "C-unwind" fn on_terminate(signal: std::ffi::c_int) {
    if !DEFERS_END.load(Ordering::Relaxed) {
        // SAFETY: as PostgreSQL would call it.
        unsafe { die(signal) };
        return;
    }
    IS_END_DEFERRED.store(true, Ordering::Relaxed);
    // SAFETY: what PostgreSQL's own handlers do.
    unsafe { pg_sys::SetLatch(pg_sys::MyLatch) };
}

/// Runs `f`, which is short and runs nobody's code: asked to end meanwhile, this process finishes it, so that it can leave in
/// good order rather than by an error.
pub fn deferring_end<R>(f: impl FnOnce() -> R) -> R {
    let _deferring = Deferring::begin();
    f()
}

/// Until it is dropped, also by an error's unwinding, the end of this process is deferred.
struct Deferring;

impl Deferring {
    fn begin() -> Self {
        DEFERS_END.store(true, Ordering::Relaxed);
        // SAFETY: the flag that the handler of SIGTERM sets, which from here on sets another one.
        unsafe {
            if pg_sys::ProcDiePending != 0 {
                pg_sys::ProcDiePending = 0;
                IS_END_DEFERRED.store(true, Ordering::Relaxed);
            }
        }
        Self
    }
}

impl Drop for Deferring {
    fn drop(&mut self) {
        DEFERS_END.store(false, Ordering::Relaxed);
        if IS_END_DEFERRED.swap(false, Ordering::Relaxed) {
            // SAFETY: the flags that the handler of SIGTERM sets.
            unsafe {
                pg_sys::ProcDiePending = 1;
                pg_sys::InterruptPending = 1;
            }
        }
    }
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
            pg_sys::pqsignal(libc::SIGTERM, Some(on_terminate));
            pg_sys::pqsignal(libc::SIGHUP, Some(SignalHandlerForConfigReload));
        }
        #[cfg(feature = "pg18")]
        {
            pg_sys::pqsignal_be(libc::SIGTERM, Some(on_terminate));
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

/// Sets what the worker's statements rely on, whatever the database's or the superuser's defaults are.
pub fn apply_settings() {
    for (name, value) in [
        (c"search_path", c"pg_catalog, pg_temp"),
        (c"default_transaction_read_only", c"off"),
        (c"default_transaction_isolation", c"read committed"),
        // A lock on one table must not hold up the others: the collection is tried again later. Less than deadlock_timeout
        // usually is, so that in a deadlock the worker gives way and not somebody's session.
        (c"lock_timeout", c"500"),
        (c"row_security", c"on"),
        // Its statements are short, and planned to go by indexes at any cost.
        (c"jit", c"off"),
        (c"DateStyle", c"ISO"),
        (c"IntervalStyle", c"postgres"),
        (c"extra_float_digits", c"1"),
        (c"bytea_output", c"hex"),
        (c"TimeZone", c"UTC"),
        (c"lc_monetary", c"C"),
        (c"quote_all_identifiers", c"off"),
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

/// Rereads the configuration files if the server was told to; whether it did.
pub fn reload_if_asked() -> bool {
    // SAFETY: as in every PostgreSQL main loop; the flag is set by the SIGHUP handler.
    unsafe {
        let asked = pg_sys::ConfigReloadPending != 0;
        if asked {
            pg_sys::ConfigReloadPending = 0;
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
        asked
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
