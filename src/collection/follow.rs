//! Following what happens to tables: what the event triggers of `sql/collection.sql` have done.

use super::statements;
use crate::pg::role::Settings;
use crate::pg::xact;
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

/// After a table was dropped: what is left of its collection goes, too.
pub fn drops() {
    for leftover in statements::forget_dropped() {
        leftover.run();
    }
}
