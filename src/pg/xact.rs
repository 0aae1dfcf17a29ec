//! Transactions: those of a worker, and the state of the current one.

use super::lock;
use crate::error::Error;
use pgrx::pg_sys::panic::{CaughtError, ErrorReportWithLevel};
use pgrx::{PgSqlErrorCode, pg_sys};
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

unsafe extern "C-unwind" {
    // PostgreSQL's utils/timeout.h, which pgrx does not bind. Neither raises an error for a registered timeout, as
    // STATEMENT_TIMEOUT is in every process connected to a database.
    fn enable_timeout_after(id: c_int, delay_ms: c_int);
    fn disable_timeout(id: c_int, keep_indicator: bool);
    // Raises FATAL when there is no number left, of the ten there are for all extensions.
    fn RegisterTimeout(id: c_int, handler: unsafe extern "C-unwind" fn()) -> c_int;
}
/// Any number from USER_TIMEOUT on asks for a new one; it is 12 in PostgreSQL 15 and 13 in 18.
const NEW_TIMEOUT: c_int = 15;
/// `TimeoutId`: the same number in PostgreSQL 15 to 18.
const STATEMENT_TIMEOUT: c_int = 3;

/// A worker's transaction over its own tables is cancelled after this long.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(600);
/// How much longer a transaction may take that was cancelled, before the process ends itself: code can catch a cancel.
const GRACE: Duration = Duration::from_secs(2);

static OVERTIME: AtomicBool = AtomicBool::new(false);

thread_local! {
    static WATCHDOG: Cell<Option<c_int>> = const { Cell::new(None) };
}

/// Whether this process ends because a transaction went on after it was cancelled.
pub fn was_overtime() -> bool {
    OVERTIME.load(Ordering::Relaxed)
}

/// # Safety
/// Called by PostgreSQL's handler of SIGALRM. It does what that of SIGTERM does: the process ends at the next check for
/// interrupts, by a FATAL error, which no code can catch, and which does no harm to other processes.
unsafe extern "C-unwind" fn end_process() {
    OVERTIME.store(true, Ordering::Relaxed);
    // SAFETY: flags that signal handlers set, and the latch of this process.
    unsafe {
        pg_sys::ProcDiePending = 1;
        pg_sys::InterruptPending = 1;
        pg_sys::SetLatch(pg_sys::MyLatch);
    }
}

/// The number of the timeout that ends the process.
fn watchdog() -> c_int {
    WATCHDOG.get().unwrap_or_else(|| {
        // SAFETY: once a process that is connected to a database, and so has its timeouts initialised.
        let id = unsafe { RegisterTimeout(NEW_TIMEOUT, end_process) };
        WATCHDOG.set(Some(id));
        id
    })
}

/// Whether an error speaks of the values at hand (data exception, constraint violation, size limits, an exception raised by a
/// table's own code, corrupt data) rather than of the state of the database.
pub fn is_about_data(e: &Error) -> bool {
    let state = sqlstate(e.code);
    ["21", "22", "23", "38", "39", "54", "P0", "XX001"].iter().any(|class| state.starts_with(class))
}

/// An SQLSTATE as its five characters.
pub fn sqlstate(code: PgSqlErrorCode) -> String {
    // SAFETY: the result is a static buffer of five characters and a NUL, copied before anything can change it.
    unsafe { std::ffi::CStr::from_ptr(pg_sys::unpack_sql_state(code as i32)) }.to_string_lossy().into_owned()
}

/// Runs `f` in a transaction of its own, for a worker. An SQL error rolls it back and is returned; a terminate
/// request ends the process as usual. For the extension's own tables; see [`limited_transaction`].
pub fn transaction<R>(f: impl FnOnce() -> R) -> Result<R, Error> {
    transaction_within(LONGEST_TRANSACTION, f)
}

/// Why a transaction with a limit came to nothing.
#[derive(Debug)]
pub struct Undone {
    /// What it says.
    pub error: Error,
    /// It was cancelled because it took too long.
    pub was_too_long: bool,
}

/// As [`transaction`], for one in which code of a table's owner can run: it is cancelled after `limit`, and where it goes on
/// all the same, the process ends.
///
/// # Errors
/// Those of SQL.
pub fn limited_transaction<R>(limit: Duration, f: impl FnOnce() -> R) -> Result<R, Undone> {
    let watchdog = watchdog();
    let begin = Instant::now();
    // SAFETY: a registered timeout; it is disabled below, and does nothing but end this process.
    unsafe { enable_timeout_after(watchdog, milliseconds(limit + GRACE)) };
    let result = transaction_within(limit, f);
    let took = begin.elapsed();
    // SAFETY: as above.
    unsafe { disable_timeout(watchdog, false) };
    // Locks of the session outlive the transaction, also one that was rolled back.
    if let Err(e) = transaction(lock::release_left) {
        pgrx::warning!("pg_ragent worker: {e}");
    }
    result.map_err(|error| {
        let was_cancelled = error.code == PgSqlErrorCode::ERRCODE_QUERY_CANCELED;
        Undone { error, was_too_long: was_cancelled && took >= limit }
    })
}

fn milliseconds(duration: Duration) -> c_int {
    c_int::try_from(duration.as_millis()).unwrap_or(c_int::MAX)
}

fn transaction_within<R>(limit: Duration, f: impl FnOnce() -> R) -> Result<R, Error> {
    // SAFETY: no transaction is open when a worker calls this. Each path below ends the one started here.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        enable_timeout_after(STATEMENT_TIMEOUT, milliseconds(limit));
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
    }
    let mut result = None;
    let mut error = None;
    {
        let slot = std::panic::AssertUnwindSafe(&mut result);
        let failure = std::panic::AssertUnwindSafe(&mut error);
        let f = std::panic::AssertUnwindSafe(f);
        let outcome = std::panic::catch_unwind(move || {
            // The wrappers are named so that the closure captures them whole.
            let (slot, f) = (slot, f);
            *slot.0 = Some((f.0)());
            // SAFETY: the snapshot pushed above is the active one again, and the transaction is open.
            unsafe {
                pg_sys::PopActiveSnapshot();
                disable_timeout(STATEMENT_TIMEOUT, false);
                pg_sys::CommitTransactionCommand();
            }
        });
        if let Err(payload) = outcome {
            *failure.0 = Some(describe(payload));
        }
    }
    match error {
        None => Ok(result.expect("set when nothing failed")),
        Some(error) => {
            // SAFETY: rolls back whatever is left, from any state. Interrupts are held as in PostgreSQL's own loops.
            unsafe {
                disable_timeout(STATEMENT_TIMEOUT, false);
                pg_sys::AbortOutOfAnyTransaction();
            }
            Err(error)
        }
    }
}

/// Lets the commit of this transaction return before it is on disk: after a crash of the server it may not have happened,
/// but then nothing after it has either.
pub fn commit_without_flush() {
    super::role::set_for_transaction("synchronous_commit", "off");
}

/// Takes [`commit_without_flush`] back: what this transaction does is there after a crash of the server.
pub fn commit_with_flush() {
    super::role::set_for_transaction("synchronous_commit", "local");
}

/// Runs `f`, which needs no transaction, and gives back what it panicked with, if it did.
pub fn catching<R>(f: impl FnOnce() -> R) -> Result<R, Error> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).map_err(describe)
}

/// Runs `f` in a subtransaction, inside somebody's statement. An SQL error rolls it back and is returned; those that speak of
/// the statement or the server as a whole (cancel, timeout, out of memory or disk, serialization) go on as they came. Works
/// on a standby and where the transaction may not write.
pub fn attempt<R>(f: impl FnOnce() -> R) -> Result<R, Error> {
    // SAFETY: reads statics; they are put back after the subtransaction, as PL/pgSQL does it.
    let (memory, owner) = unsafe { (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner) };
    let restore = || {
        // SAFETY: both outlive the subtransaction, which was begun inside them.
        unsafe {
            pg_sys::MemoryContextSwitchTo(memory);
            pg_sys::CurrentResourceOwner = owner;
        }
    };
    // SAFETY: inside a transaction; each path below ends the subtransaction that is begun here.
    unsafe {
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(memory);
    }
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(result) => {
            // SAFETY: the subtransaction is the current one again.
            unsafe { pg_sys::ReleaseCurrentSubTransaction() };
            restore();
            Ok(result)
        }
        Err(payload) => {
            // SAFETY: rolls back what `f` left, from any state; its error is in `payload`.
            unsafe { pg_sys::RollbackAndReleaseCurrentSubTransaction() };
            restore();
            if ends_the_statement(payload.as_ref()) {
                std::panic::resume_unwind(payload);
            }
            Err(describe(payload))
        }
    }
}

/// Whether an error concerns more than what was attempted: 53 (out of memory, disk, connections), 57 (cancel, timeout,
/// shutdown), 40 (serialization; a deadlock is over with the locks that are given up).
fn ends_the_statement(payload: &(dyn std::any::Any + Send)) -> bool {
    let code = match payload.downcast_ref::<CaughtError>() {
        Some(CaughtError::PostgresError(e) | CaughtError::ErrorReport(e)) => Some(e.sql_error_code()),
        Some(CaughtError::RustPanic { ereport, .. }) => Some(ereport.sql_error_code()),
        None => payload.downcast_ref::<ErrorReportWithLevel>().map(ErrorReportWithLevel::sql_error_code),
    };
    code.is_some_and(|code| {
        let state = sqlstate(code);
        ["53", "57"].iter().any(|class| state.starts_with(class)) || (state.starts_with("40") && state != "40P01")
    })
}

/// When the client's statement began, as PostgreSQL counts time: the same for all that one statement does.
pub fn statement_start() -> i64 {
    // SAFETY: reads this process's own state.
    unsafe { pg_sys::GetCurrentStatementStartTimestamp() }
}

/// When the transaction began, as PostgreSQL counts time.
pub fn transaction_start() -> i64 {
    // SAFETY: reads this process's own state.
    unsafe { pg_sys::GetCurrentTransactionStartTimestamp() }
}

fn describe(payload: Box<dyn std::any::Any + Send>) -> Error {
    let internal = |message: String| Error::new(PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, message, "");
    match payload.downcast::<CaughtError>() {
        Ok(caught) => match *caught {
            CaughtError::PostgresError(e) | CaughtError::ErrorReport(e) => described(&e),
            CaughtError::RustPanic { ereport, .. } => described(&ereport),
        },
        Err(payload) => match payload.downcast::<ErrorReportWithLevel>() {
            Ok(report) => described(&report),
            Err(payload) => internal(
                payload
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                    .unwrap_or_else(|| "an internal error".to_owned()),
            ),
        },
    }
}

fn described(report: &ErrorReportWithLevel) -> Error {
    Error {
        code: report.sql_error_code(),
        message: report.message().to_owned(),
        detail: report.detail().map(str::to_owned),
        hint: report.hint().unwrap_or_default().to_owned(),
    }
}

/// Whether a transaction id is this transaction's own, or one of its subtransactions'.
pub fn is_current(xid: pg_sys::TransactionId) -> bool {
    // SAFETY: reads this process's own transaction state.
    unsafe { pg_sys::TransactionIdIsCurrentTransactionId(xid) }
}

/// Whether this transaction may write: not on a standby, not `READ ONLY`.
pub fn may_write() -> bool {
    // SAFETY: reads statics and shared state.
    unsafe { !pg_sys::XactReadOnly && !pg_sys::RecoveryInProgress() }
}

/// Whether the transaction's snapshot stays the same for all its statements.
pub fn has_fixed_snapshot() -> bool {
    // SAFETY: reads a static.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}
