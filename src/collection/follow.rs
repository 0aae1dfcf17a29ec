//! Following what happens to tables: grants, and tables that were dropped.

use super::statements::{self, grants};
use crate::error::{Error, Result};
use crate::pg::catalog::{TableLock, lock_politely};
use crate::pg::lock::Lock;
use crate::pg::xact;
use pgrx::PgSqlErrorCode;
use std::time::Duration;

/// For how long a lock is asked for, in somebody else's DROP.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes the grants of a collection's chunk table those of its source. Waits for nobody: another session may be altering the
/// table, or granting.
///
/// # Errors
/// 55P03 somebody is, 42501 the owner may not; others are raised.
pub fn grants(collection: i32) -> Result<()> {
    if !Lock::grants().hold_if_free() {
        return Err(in_use("another process is at work on grants".to_owned()));
    }
    for grant in grants::to_sync(Some(collection)) {
        if !lock_politely(&grant.tables, TableLock::Definition, Duration::ZERO) {
            return Err(in_use("the chunk table is being altered".to_owned()));
        }
        grant.run();
    }
    grants::succeeded(collection);
    Ok(())
}

fn in_use(message: String) -> Error {
    Error::new(PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE, message, "It is tried again by itself.")
}

/// After a table was dropped: what is left of its collection goes, too. Whoever drops a table must succeed: what is in use for
/// longer stays, with a warning.
pub fn drops() {
    for leftover in statements::forget_dropped() {
        let attempted = xact::attempt(|| {
            let is_free = lock_politely(&leftover.tables, TableLock::All, PATIENCE);
            if is_free {
                leftover.run();
            }
            is_free
        });
        let problem = match attempted {
            Ok(true) => continue,
            Ok(false) => in_use("the table is in use".to_owned()),
            Err(e) => e,
        };
        pgrx::warning!("this is left to do for a dropped collection: {}: {problem}", leftover.text());
    }
}
