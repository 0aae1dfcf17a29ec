//! Transactions: those of a worker, and callbacks at the end of a backend's.

use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use std::ffi::c_int;
use std::panic::{RefUnwindSafe, UnwindSafe};

unsafe extern "C-unwind" {
    // PostgreSQL's utils/timeout.h, which pgrx does not bind. Neither raises an error for a registered timeout, as
    // STATEMENT_TIMEOUT is in every process connected to a database.
    fn enable_timeout_after(id: c_int, delay_ms: c_int);
    fn disable_timeout(id: c_int, keep_indicator: bool);
}
/// `TimeoutId`: the same number in PostgreSQL 15 to 18.
const STATEMENT_TIMEOUT: c_int = 3;

/// A worker's transaction is cancelled after this long: table owners' own code must not hold it for ever.
const LONGEST_TRANSACTION_MS: i32 = 600_000;

/// An SQL error a worker's transaction ended with.
#[derive(Debug, Clone)]
pub struct SqlError {
    /// SQLSTATE, as in errcodes.
    pub code: pgrx::PgSqlErrorCode,
    /// The message.
    pub message: String,
}

impl SqlError {
    /// The same, counted as the fault of the values at hand.
    pub fn of_data(self) -> Self {
        Self { code: pgrx::PgSqlErrorCode::ERRCODE_DATA_EXCEPTION, ..self }
    }

    /// Whether it speaks of the values at hand (data exception, constraint violation, size limits, an exception raised by
    /// a table's own code, corrupt data) rather than of the state of the database.
    pub fn is_about_data(&self) -> bool {
        // SAFETY: the result is a static buffer of five characters and a NUL, copied before anything can change it.
        let state = unsafe {
            let text = pg_sys::unpack_sql_state(self.code as i32);
            std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned()
        };
        ["21", "22", "23", "38", "39", "54", "P0", "XX001"].iter().any(|class| state.starts_with(class))
    }
}

/// Runs `f` in a transaction of its own, for a worker. An SQL error rolls it back and is returned; a terminate
/// request ends the process as usual.
pub fn transaction<R>(f: impl FnOnce() -> R) -> Result<R, SqlError> {
    // SAFETY: no transaction is open when a worker calls this. Each path below ends the one started here.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        enable_timeout_after(STATEMENT_TIMEOUT, LONGEST_TRANSACTION_MS);
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

/// Runs `f`, which needs no transaction, and gives back what it panicked with, if it did.
pub fn catching<R>(f: impl FnOnce() -> R) -> Result<R, SqlError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).map_err(describe)
}

fn describe(payload: Box<dyn std::any::Any + Send>) -> SqlError {
    let internal = |message: String| SqlError { code: pgrx::PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, message };
    match payload.downcast::<CaughtError>() {
        Ok(caught) => match *caught {
            CaughtError::PostgresError(e) | CaughtError::ErrorReport(e) => {
                SqlError { code: e.sql_error_code(), message: e.message().to_owned() }
            }
            CaughtError::RustPanic { ereport, .. } => internal(ereport.message().to_owned()),
        },
        Err(payload) => match payload.downcast::<pgrx::pg_sys::panic::ErrorReportWithLevel>() {
            Ok(report) => SqlError { code: report.sql_error_code(), message: report.message().to_owned() },
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

/// Calls `f` after the current transaction committed. It must neither raise an error nor panic.
pub fn on_commit(f: impl FnOnce() + UnwindSafe + RefUnwindSafe + 'static) {
    pgrx::register_xact_callback(pgrx::PgXactCallbackEvent::Commit, f);
}

/// Calls `f` after the current transaction aborted. It must neither raise an error nor panic.
pub fn on_abort(f: impl FnOnce() + UnwindSafe + RefUnwindSafe + 'static) {
    pgrx::register_xact_callback(pgrx::PgXactCallbackEvent::Abort, f);
}

/// Calls `f` when the current transaction is prepared for two-phase commit. It must neither raise an error nor panic.
pub fn on_prepare(f: impl FnOnce() + UnwindSafe + RefUnwindSafe + 'static) {
    pgrx::register_xact_callback(pgrx::PgXactCallbackEvent::Prepare, f);
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
