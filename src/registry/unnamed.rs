//! Collections that a statement does not name: which of them it looks at, and that what goes wrong in one stays there.
//!
//! Code of a table's owner (policies, expressions of indexes) is part of reading the table. Whoever names a collection asks
//! for that; whoever names none gets those of owners that he trusts, and those that run nobody's code.

use super::{Collection, all_readable, held_if_free};
use crate::error::{Error, Result};
use crate::guc;
use crate::pg::role::{self, Settings};
use crate::pg::{catalog, xact};
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// PostgreSQL's predefined role `pg_database_owner`, whose only member is the owner of the database.
const PG_DATABASE_OWNER: pg_sys::Oid = pg_sys::Oid::from_u32(6171);

/// Why a collection that was not named is looked at all the same, the best reason first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// It is the asker's own.
    Own,
    /// The asker trusts its owner.
    OfOwner,
    /// Reading it runs no code but PostgreSQL's own.
    Harmless,
}

/// Who asks, and whom they trust.
pub struct Asker {
    role: pg_sys::Oid,
    trusted: Vec<pg_sys::Oid>,
}

impl Asker {
    /// The current role, with the settings as they are.
    pub fn now() -> Self {
        let mut trusted: Vec<pg_sys::Oid> = guc::trusted_owners().iter().filter_map(|name| role::named(name)).collect();
        trusted.extend([catalog::database_owner(), PG_DATABASE_OWNER]);
        Self { role: role::current(), trusted }
    }

    /// Why a collection is looked at that was not named; `None` where it must be named. A superuser has everybody's privileges
    /// and trusts nobody for it: a member of the owner's role counts, as everybody else.
    pub fn trust(&self, c: &Collection) -> Option<Trust> {
        let owner = c.source.owner;
        if owner == self.role {
            return Some(Trust::Own);
        }
        if self.trusted.contains(&owner) || role::is_superuser_role(owner) || role::is_member_of(owner) {
            return Some(Trust::OfOwner);
        }
        (c.reading_runs_no_code && !role::is_under_row_security(c.source.table)).then_some(Trust::Harmless)
    }
}

/// All collections the current role may read.
pub struct Unnamed {
    /// Those that are looked at where none is named: the role's own first, then those of trusted owners, each by name.
    pub trusted: Vec<(Trust, Rc<Collection>)>,
    /// Those that must be named. Of those that were not trusted but harmless, the ones that are too many.
    pub left_out: Vec<Rc<Collection>>,
}

/// Of strangers' collections no more than this are looked at: making many of them must not cost everybody time.
const MOST_STRANGERS: usize = 64;

/// What a statement that names no collection looks at.
pub fn unnamed() -> Unnamed {
    let asker = Asker::now();
    let mut found = Unnamed { trusted: Vec::new(), left_out: Vec::new() };
    for c in all_readable() {
        match asker.trust(&c) {
            Some(trust) => found.trusted.push((trust, c)),
            None => found.left_out.push(c),
        }
    }
    found.trusted.sort_by_key(|(trust, _)| *trust);
    let strangers = found.trusted.partition_point(|(trust, _)| *trust != Trust::Harmless);
    let most = (strangers + MOST_STRANGERS).min(found.trusted.len());
    found.left_out.extend(found.trusted.split_off(most).into_iter().map(|(_, c)| c));
    found
}

/// For how long a statement waits for locks in collections it did not name, in milliseconds, all of them together.
const PATIENCE_MS: u64 = 100;

thread_local! {
    /// When the statement began, and how long it has waited in vain by now.
    static WAITED: Cell<(i64, u64)> = const { Cell::new((0, 0)) };
}

fn waited() -> u64 {
    let (statement, waited) = WAITED.get();
    if statement == xact::statement_start() { waited } else { 0 }
}

/// Runs `f` over a collection that was not named, as it is now. Its tables are kept from being altered meanwhile; where
/// somebody alters them right now, nobody waits for that. An error is a warning about the collection, which then has no
/// result, nor has one that is gone or is nothing to look at any more.
pub fn attempt<R>(c: &Rc<Collection>, f: impl FnOnce(&Collection) -> R) -> Option<R> {
    attempt_quietly(c, f).unwrap_or_else(|e| {
        warn(&c.name, &e);
        None
    })
}

/// As [`attempt`], without the warning.
///
/// # Errors
/// What went wrong.
pub fn attempt_quietly<R>(c: &Rc<Collection>, f: impl FnOnce(&Collection) -> R) -> Result<Option<R>> {
    patiently(c, |c| c.source.is_readable() && Asker::now().trust(c).is_some(), f)
}

/// As [`attempt_quietly`], for those who watch the server and need not be able to read the collection: `f` may run nobody's code.
/// None also where it failed.
pub fn attempt_watching<R>(c: &Rc<Collection>, f: impl FnOnce(&Collection) -> R) -> Option<R> {
    patiently(c, |_| true, f).ok().flatten()
}

fn patiently<R>(
    c: &Rc<Collection>,
    is_wanted: impl FnOnce(&Collection) -> bool,
    f: impl FnOnce(&Collection) -> R,
) -> Result<Option<R>> {
    let began = Instant::now();
    let attempted = xact::attempt(|| -> Result<Option<R>> {
        // What is locked besides the tables, their indexes and partitions, is found out by waiting.
        let _patience = Settings::with_lock_timeout(PATIENCE_MS.saturating_sub(waited()).max(1));
        let Some(c) = held_if_free(c.clone())? else { return Ok(None) };
        c.check()?;
        if !is_wanted(&c) {
            return Ok(None);
        }
        Ok(Some(f(&c)))
    });
    attempted.and_then(|result| result).inspect_err(|e| {
        if e.code == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE {
            WAITED.set((xact::statement_start(), waited() + began.elapsed().as_millis() as u64));
        }
    })
}

/// Says what is wrong with a collection that is left out for it.
pub fn warn(collection: &str, e: &Error) {
    let about = format!("collection \"{collection}\"");
    let message =
        if e.message.starts_with(&about) { e.message.clone() } else { format!("{about} is left out: {}", e.message) };
    Error::new(e.code, message, e.hint.clone()).tell(PgLogLevel::WARNING);
}
