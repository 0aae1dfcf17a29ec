//! What is left of a collection that is not registered any more, or only in part: after a restore of a part of a dump, or
//! DROP EXTENSION.

use crate::error::{Error, Result};
use crate::pg::role;
use pgrx::pg_sys;

/// The chunk table of a former collection, whose chunks are taken over into a new one. The new one is made by us: whatever is
/// attached to the former one goes with it.
pub struct Former {
    /// The table.
    pub table: pg_sys::Oid,
    /// Its qualified name, quoted.
    pub name: String,
    /// Its owner, who owns the source as well.
    pub owner: pg_sys::Oid,
    /// The source's key columns as they are called in it.
    pub key_columns: Vec<String>,
}

/// A collection of which only a part is registered.
pub struct Half {
    /// Its number.
    pub id: i32,
    /// Its source, which may be gone.
    pub source: pg_sys::Oid,
    /// The source's owner.
    pub owner: Option<pg_sys::Oid>,
}

impl Half {
    /// Checks that the current role owns the source; of one that is gone, that it is a superuser.
    ///
    /// # Errors
    /// 42501 it does not.
    pub fn must_own(&self, name: &str) -> Result<()> {
        if role::is_superuser() || self.owner.is_some_and(role::has_privileges_of) {
            return Ok(());
        }
        Err(Error::denied(
            format!("must be owner of the source to change collection \"{name}\""),
            "Ask its owner or a superuser.",
        ))
    }
}
