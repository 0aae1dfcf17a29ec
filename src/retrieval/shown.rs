//! Which chunks a chunk table shows to those who read it directly: what its policy asks of each of them.

use super::statements;
use crate::error::{Error, Result};
use crate::pg::spi::Arg;
use crate::registry::{self, Collection};
use pgrx::{PgSqlErrorCode, pg_sys};
use std::cell::RefCell;

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

/// Whether the current role may SELECT the row that a chunk was made of, now, with the title and content it was made of. A
/// chunk table of no collection shows nothing.
///
/// # Errors
/// 55000 the collection cannot be used, 22023 the key has other types than the collection's, 42P17 recursion; and those of
/// reading the source, among them 42501 for who may not.
pub fn shows_row(chunk_table: pg_sys::Oid, hash: i64, key: Vec<Arg<'_>>) -> Result<bool> {
    let Some(c) = registry::by_chunk_table(chunk_table).and_then(registry::held) else { return Ok(false) };
    c.check()?;
    if !key.iter().map(Arg::oid).eq(c.key.oids.iter().copied()) {
        return Err(Error::bad_argument(
            format!("the key of collection \"{}\" is ({})", c.name, c.key.columns.join(", ")),
            "Give a value of each of these columns, of its type.",
        ));
    }
    let _asking = Asking::begin(&c)?;
    Ok(statements::shows_row(&c, hash, key))
}
