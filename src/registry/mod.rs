//! What is registered: collections, and who may read or change them.

pub mod statements;

use self::statements::Collection;
use crate::error::{Error, Result};
use crate::pg::role;

/// The collection of that name, if the current role may read it.
pub fn readable_collection(name: &str) -> Result<Collection> {
    let found = existing_collection(name)?;
    if !found.may_read {
        return Err(Error::denied(
            format!("permission denied for collection \"{name}\""),
            format!(
                "GRANT SELECT ON {} TO {}; lets the role read and search its rows.",
                found.source_name,
                crate::pg::spi::quote(&role::name(role::current()))
            ),
        ));
    }
    Ok(found)
}

/// The collection of that name, whoever may read it.
pub fn existing_collection(name: &str) -> Result<Collection> {
    statements::by_name(name, role::current()).ok_or_else(|| {
        Error::undefined(
            format!("collection \"{}\" does not exist", crate::error::excerpt(name)),
            "Create it with rag.create_collection(...), or see rag.collections.",
        )
    })
}

/// The named collection, or all the current role may read.
pub fn readable_collections(name: Option<&str>) -> Result<Vec<Collection>> {
    match name {
        Some(name) => Ok(vec![readable_collection(name)?]),
        None => Ok(statements::all(role::current()).into_iter().filter(|c| c.may_read).collect()),
    }
}

/// The error for somebody who is not a collection's owner.
pub fn must_own(c: &Collection) -> Result<()> {
    if role::is_superuser() || role::has_privileges_of(c.owner) {
        return Ok(());
    }
    Err(Error::denied(
        format!("must be owner of {} to change collection \"{}\"", c.source_name, c.name),
        format!("Ask {} or a superuser.", role::name(c.owner)),
    ))
}
