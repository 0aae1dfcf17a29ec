//! Following what happens to tables: grants, types of columns, and tables that were dropped.

use super::statements::{self, grants};
use crate::error::{Error, Result};
use crate::pg::catalog::{self, TableLock, lock_politely};
use crate::pg::lock::Lock;
use crate::pg::role::Settings;
use crate::pg::xact;
use crate::registry::{self, Collection};
use pgrx::{PgLogLevel, PgSqlErrorCode};
use std::time::{Duration, Instant};

/// For how long a lock is asked for, in somebody else's DROP.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes the grants of a collection's chunk table those of its source. Waits for nobody: another session may be altering the
/// table, or granting.
///
/// # Errors
/// 55P03 somebody is, 42501 the owner may not; others are raised.
pub fn grants(collection: i32) -> Result<()> {
    if !Lock::grants(collection).hold_if_free() {
        return Err(in_use("another transaction is at work on the grants".to_owned()));
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

/// For how long a change of a key's type waits for those who read the chunk table, in milliseconds. They may be waiting for the
/// source, which is locked by then: longer would be a deadlock.
const CONVERSION_PATIENCE_MS: u64 = 900;
/// For how long one command waits in vain, of however many collections it is about, in milliseconds: a type may be used in as many
/// tables of somebody else as they like.
const WHOLE_PATIENCE_MS: u64 = 3 * CONVERSION_PATIENCE_MS;

/// What is left of a command's patience.
struct Patience(u64);

impl Patience {
    /// Runs `f` under what is left, if it waits for a lock; who waited in vain has less.
    fn attempt(&mut self, f: impl FnOnce()) -> Result<()> {
        let (began, most) = (Instant::now(), self.0.clamp(1, CONVERSION_PATIENCE_MS));
        let attempted = xact::attempt(|| {
            let _patience = Settings::with_lock_timeout(most);
            f();
        });
        attempted.inspect_err(|e| {
            if e.code == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE {
                self.0 = self.0.saturating_sub(began.elapsed().as_millis() as u64);
            }
        })
    }
}

/// After columns or types were altered: chunk tables follow, and comparisons find what that made of the rows. What goes wrong is
/// a warning: it is somebody else's statement. The collection then says what to do.
pub fn types() {
    let altered = match xact::attempt(statements::altered_collections) {
        Ok(altered) => altered,
        Err(e) => return pgrx::warning!("pg_ragent did not look which collections use what was altered: {e}"),
    };
    let mut patience = Patience(WHOLE_PATIENCE_MS);
    for id in altered {
        let attempted = xact::attempt(|| {
            if let Some(c) = registry::by_id(id) {
                statements::queue_comparison(&c);
            }
        })
        .map(|()| hold_comparison(id, &mut patience))
        .and_then(|()| registry::by_id(id).map_or(Ok(()), |c| convert(&c, &mut patience)));
        if let Err(e) = attempted {
            let name = registry::by_id(id).map_or_else(String::new, |c| c.name.clone());
            Error::new(
                e.code,
                format!("the chunk table of collection \"{name}\" does not follow: {e}"),
                format!("To try again: SELECT rag.refresh({});", pgrx::spi::quote_literal(&name)),
            )
            .tell(PgLogLevel::WARNING);
        }
    }
}

/// A type that is altered leaves the source unlocked: the worker would compare before it hears of the new type. It waits for who
/// alters the source.
fn hold_comparison(id: i32, patience: &mut Patience) {
    let Some(c) = registry::by_id(id) else { return };
    if let Err(e) = patience.attempt(|| catalog::hold_alterations(c.source.table)) {
        pgrx::debug1!("collection \"{}\" may be compared too early: {e}", c.name);
    }
}

/// Gives the key of a chunk table the types that the source's has, if it has others; what is embedded stays.
///
/// # Errors
/// Those of altering the table, which then is as it was.
pub fn convert_key(c: &Collection) -> Result<()> {
    convert(c, &mut Patience(CONVERSION_PATIENCE_MS))
}

fn convert(c: &Collection, patience: &mut Patience) -> Result<()> {
    // Of a key that is not there, or of a former owner's table, there is nothing to be made.
    let has_key = c.key.types.len() == c.key.columns.len();
    if !has_key || c.vectors.is_adopted || c.vectors.table_kind != "r" || c.check_owner().is_err() {
        return Ok(());
    }
    patience.attempt(|| statements::convert_key(c))
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
