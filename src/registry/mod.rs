//! What is registered: collections, the facts about their tables, and who may read or change them.
//!
//! What is handed out was read once and is kept by the process until it changes (`cache`). Rights are asked for each time.

#[allow(clippy::result_large_err)]
mod api;
mod cache;
mod collection;
mod facts;
mod generation;
mod key;
pub mod statements;
mod unnamed;
mod vectors;

pub use cache::{all, all_readable, by_chunk_table, by_id, by_name};
pub use collection::Collection;
pub use facts::Column;
pub use generation::{Generation, Recipe};
pub use key::Key;
pub use unnamed::{Asker, Trust, attempt, attempt_quietly, attempt_watching, unnamed, warn};
pub use vectors::{Embedding, MAX_DIMENSIONS, Vectors};

use crate::error::{Error, Result};
use crate::pg::spi::quote;
use crate::pg::{catalog, role};
use std::rc::Rc;

/// The collection of that name, if the current role may read it.
///
/// # Errors
/// 42704 there is none, 55000 its source is gone, 42501 the role may not read it.
pub fn readable(name: &str) -> Result<Rc<Collection>> {
    let found = existing(name)?;
    // Nobody can be granted what is not there: that is said first.
    found.check_source()?;
    if !found.source.is_readable() {
        return Err(Error::denied(
            format!("permission denied for collection \"{name}\""),
            format!(
                "GRANT SELECT ON {} TO {}; with USAGE on its schema, that lets the role read and search its rows.",
                found.source.name,
                quote(&role::name(role::current()))
            ),
        ));
    }
    Ok(found)
}

/// The collection of that name, whoever may read it.
///
/// # Errors
/// 42704 there is none.
pub fn existing(name: &str) -> Result<Rc<Collection>> {
    by_name(name).ok_or_else(|| {
        Error::undefined(
            format!("collection \"{}\" does not exist", crate::error::excerpt(name)),
            "Create it with rag.create_collection(...), or see rag.collections.",
        )
    })
}

/// The collection as it is once its tables are locked: what is known of them stays true until the transaction ends. None:
/// it is gone.
///
/// When a transaction that alters a table commits, its rows are visible a moment before processes hear of it; the lock is
/// given up after that.
pub fn held(mut c: Rc<Collection>) -> Option<Rc<Collection>> {
    loop {
        catalog::keep_definition(c.source.table);
        catalog::keep_definition(c.vectors.table);
        let now = by_id(c.id)?;
        if (now.source.table, now.vectors.table) == (c.source.table, c.vectors.table) {
            return Some(now);
        }
        c = now;
    }
}

/// As [`held`], where nobody has to be waited for.
///
/// # Errors
/// 55P03 somebody alters one of its tables.
fn held_if_free(mut c: Rc<Collection>) -> Result<Option<Rc<Collection>>> {
    loop {
        for (table, name) in [(c.source.table, &c.source.name), (c.vectors.table, &c.vectors.table_name)] {
            if !catalog::keep_definition_if_free(table) {
                return Err(Error::new(
                    pgrx::PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
                    format!("{name} is locked by another transaction"),
                    "Ask again when that transaction is over. To wait for it, name the collection.",
                ));
            }
        }
        let Some(now) = by_id(c.id) else { return Ok(None) };
        if (now.source.table, now.vectors.table) == (c.source.table, c.vectors.table) {
            return Ok(Some(now));
        }
        c = now;
    }
}

/// Whether the current role sees all rows of a source that it may read: no policy decides, or it owns the source and so could
/// say that none does.
pub fn sees_all_rows(c: &Collection) -> bool {
    !role::is_under_row_security(c.source.table) || role::has_privileges_of(c.source.owner)
}

/// Checks that the current role owns a collection's source.
///
/// # Errors
/// 42501 it does not.
pub fn must_own(c: &Collection) -> Result<()> {
    if role::is_superuser() || role::has_privileges_of(c.source.owner) {
        return Ok(());
    }
    Err(Error::denied(
        format!("must be owner of {} to change collection \"{}\"", c.source.name, c.name),
        format!("Ask {} or a superuser.", role::name(c.source.owner)),
    ))
}
