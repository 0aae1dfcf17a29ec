//! Which chunks a chunk table shows to those who read it directly: what its policy asks of each of them.

use super::statements;
use crate::error::{Error, Result};
use crate::pg::call::{self, Image};
use crate::pg::catalog;
use crate::pg::role;
use crate::pg::spi::Arg;
use crate::registry::{self, Collection};
use pgrx::{PgSqlErrorCode, pg_sys};
use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    /// Collections whose sources are being asked, the innermost last.
    static ASKED: RefCell<Vec<i32>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, a source is being asked. Dropped, also by an error's unwinding, it is not.
struct Asking;

impl Asking {
    /// # Errors
    /// 42P17 the source is being asked already: one of its policies reads the chunk table.
    fn begin(c: &Collection) -> Result<Self> {
        ASKED.with(|asked| {
            let mut asked = asked.borrow_mut();
            if asked.contains(&c.id) {
                return Err(Error::new(
                    PgSqlErrorCode::ERRCODE_INVALID_OBJECT_DEFINITION,
                    format!("infinite recursion detected in policy for relation {}", c.vectors.table_name),
                    format!("A policy of {} reads its chunk table, which asks that policy.", c.source.name),
                ));
            }
            asked.push(c.id);
            Ok(Self)
        })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKED.with(|asked| asked.borrow_mut().pop());
    }
}

/// Rows are asked for one by one, until so many were asked for, ...
const FEW: u64 = 64;
/// ... and one in so many of all there are: from then on, all that the role may SELECT are read once and remembered.
const ONE_IN: f64 = 16.0;
/// No more rows are remembered, of 32 bytes each.
const MOST_REMEMBERED: usize = 1 << 20;

/// What is known from one call to the next in a query.
#[derive(Default)]
pub struct Asked {
    role: Option<pg_sys::Oid>,
    table: Option<pg_sys::Oid>,
    calls: u64,
    /// All rows that the role may SELECT, where they were read.
    rows: Option<Rows>,
}

/// Rows: the hash of what each has, and its key.
pub struct Rows {
    rows: HashSet<(i64, u64)>,
    /// Whether a row is shown whatever it has by now.
    with_stale: bool,
    /// Nobody can know which keys look alike to it.
    hasher: RandomState,
}

impl Rows {
    /// None yet. `with_stale`: a row is shown whatever it has by now.
    pub fn new(with_stale: bool) -> Self {
        Self { rows: HashSet::new(), with_stale, hasher: RandomState::new() }
    }

    /// Adds one; false: there are too many.
    pub fn add(&mut self, hash: i64, key: &[Image]) -> bool {
        self.rows.insert(self.entry(hash, key));
        self.rows.len() <= MOST_REMEMBERED
    }

    fn has(&self, hash: i64, key: &[Image]) -> bool {
        self.rows.contains(&self.entry(hash, key))
    }

    fn entry(&self, hash: i64, key: &[Image]) -> (i64, u64) {
        (if self.with_stale { 0 } else { hash }, self.hasher.hash_one(key))
    }
}

/// Whether the current role may SELECT the row that a chunk was made of, now, with the title and content it was made of. A
/// chunk table of no collection shows nothing.
///
/// # Errors
/// 55000 the collection cannot be used, 22023 the key has other types than the collection's, 42P17 recursion; and those of
/// reading the source, among them 42501 for who may not.
pub fn shows_row(asked: &RefCell<Asked>, chunk_table: pg_sys::Oid, hash: i64, key: Vec<Arg<'_>>) -> Result<bool> {
    let images: Option<Vec<Image>> = key.iter().map(call::image).collect();
    let (role, table) = (Some(role::current()), Some(chunk_table));
    let calls = {
        let mut asked = asked.borrow_mut();
        // A cursor can be handed on to another role.
        if (asked.role, asked.table) != (role, table) {
            *asked = Asked { role, table, ..Asked::default() };
        }
        if let (Some(rows), Some(key)) = (&asked.rows, &images) {
            return Ok(rows.has(hash, key));
        }
        asked.calls += 1;
        asked.calls
    };
    let Some(c) = registry::by_chunk_table(chunk_table).and_then(registry::held) else { return Ok(false) };
    c.check()?;
    if !key.iter().map(Arg::oid).eq(c.key.oids.iter().copied()) {
        return Err(Error::bad_argument(
            format!("the key of collection \"{}\" is ({})", c.name, c.key.columns.join(", ")),
            "Give a value of each of these columns, of its type.",
        ));
    }
    let _asking = Asking::begin(&c)?;
    if let Some(key) = images.filter(|_| is_time_for_all(&c, calls))
        && let Some(rows) = statements::shown_rows(&c)
    {
        let shows = rows.has(hash, &key);
        asked.borrow_mut().rows = Some(rows);
        return Ok(shows);
    }
    Ok(statements::shows_row(&c, hash, key))
}

/// Whether reading all rows costs less than to go on one by one. Asked once: at the call at which it is decided.
fn is_time_for_all(c: &Collection, calls: u64) -> bool {
    if calls < FEW || !calls.is_power_of_two() {
        return false;
    }
    catalog::estimated_rows(c.source.table)
        .is_some_and(|rows| rows <= calls as f64 * ONE_IN && rows <= MOST_REMEMBERED as f64)
}
