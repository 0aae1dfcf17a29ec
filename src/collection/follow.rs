//! Following what happens to tables: what the event triggers of `sql/collection.sql` have done.

use super::statements;
use crate::error::Result;
use crate::pg::catalog;
use crate::pg::role::Settings;
use crate::pg::xact;
use crate::registry::{self, Collection};
use pgrx::PgLogLevel;
use pgrx::pg_sys::panic::ErrorReport;
use std::cell::Cell;

/// For how long a GRANT waits for locks on somebody's chunk table, in milliseconds.
const PATIENCE_MS: u64 = 100;

thread_local! {
    static IS_FOLLOWING: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, what this process grants is not followed: those are our own grants, and one would lead to the next.
struct Following;

impl Following {
    fn begin() -> Option<Self> {
        (!IS_FOLLOWING.replace(true)).then_some(Self)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        IS_FOLLOWING.set(false);
    }
}

/// After GRANT and REVOKE: chunk tables follow their sources. What goes wrong with one is a warning: a GRANT on another table
/// must not fail for it, and the chunk table's policy asks for the right to read the source anyway.
pub fn grants() {
    let Some(_following) = Following::begin() else { return };
    for grant in statements::grants_to_sync(None) {
        let attempted = xact::attempt(|| {
            let _patience = Settings::with_lock_timeout(PATIENCE_MS);
            grant.run();
        });
        if let Err(e) = attempted {
            pgrx::warning!("grants on the chunk table of collection \"{}\" are not up to date: {e}", grant.collection);
        }
    }
}

/// For how long a change of a key's type waits for those who read the chunk table, in milliseconds. They may be waiting for the
/// source, which is locked by then: longer would be a deadlock.
const CONVERSION_PATIENCE_MS: u64 = 900;

/// After columns or types were altered: chunk tables follow, and comparisons find what that made of the rows. What goes wrong is
/// a warning: it is somebody else's statement. The collection then says what to do.
pub fn types() {
    let altered = match xact::attempt(statements::altered_collections) {
        Ok(altered) => altered,
        Err(e) => return pgrx::warning!("pg_ragent did not look which collections use what was altered: {e}"),
    };
    for id in altered {
        let attempted = xact::attempt(|| {
            if let Some(c) = registry::by_id(id) {
                statements::queue_comparison(&c);
            }
        })
        .map(|()| hold_comparison(id))
        .and_then(|()| registry::by_id(id).map_or(Ok(()), |c| convert_key(&c)));
        if let Err(e) = attempted {
            let name = registry::by_id(id).map_or_else(String::new, |c| c.name.clone());
            let mut report = ErrorReport::new(
                e.code,
                format!("the chunk table of collection \"{name}\" does not follow: {e}"),
                "pg_ragent",
            );
            report = report.set_hint(format!("To try again: SELECT rag.refresh({});", pgrx::spi::quote_literal(&name)));
            report.report(PgLogLevel::WARNING);
        }
    }
}

/// A type that is altered leaves the source unlocked: the worker would compare before it hears of the new type. It waits for who
/// alters the source.
fn hold_comparison(id: i32) {
    let Some(c) = registry::by_id(id) else { return };
    let held = xact::attempt(|| {
        let _patience = Settings::with_lock_timeout(CONVERSION_PATIENCE_MS);
        catalog::hold_alterations(c.source.table);
    });
    if let Err(e) = held {
        pgrx::debug1!("collection \"{}\" may be compared too early: {e}", c.name);
    }
}

/// Gives the key of a chunk table the types that the source's has, if it has others; what is embedded stays.
///
/// # Errors
/// Those of altering the table, which then is as it was.
pub fn convert_key(c: &Collection) -> Result<()> {
    // Of a key that is not there, or of a former owner's table, there is nothing to be made.
    let has_key = c.key.types.len() == c.key.columns.len();
    if !has_key || c.vectors.is_adopted || c.vectors.table_kind != "r" || c.check_owner().is_err() {
        return Ok(());
    }
    xact::attempt(|| {
        let _patience = Settings::with_lock_timeout(CONVERSION_PATIENCE_MS);
        statements::convert_key(c);
    })
}

/// After a table was dropped: what is left of its collection goes, too.
pub fn drops() {
    for leftover in statements::forget_dropped() {
        leftover.run();
    }
}
