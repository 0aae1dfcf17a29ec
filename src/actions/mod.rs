//! What the functions of the SQL surface do, one file each: `api` parses, these act, `store` and `provider` carry out.

pub mod ask;
pub mod create_collection;
pub mod make_way;
pub mod search;
pub mod wait;

use crate::error::{Error, Result};
use crate::pg::role;
use crate::store::collection::{self, Collection};

/// The collection of that name, if the current role may read it.
pub fn readable_collection(name: &str) -> Result<Collection> {
    let found = existing_collection(name)?;
    if !found.may_read {
        return Err(Error::denied(
            format!("permission denied for collection \"{name}\""),
            format!(
                "GRANT SELECT ON {} TO {}; lets the role read and search its rows.",
                found.source_name,
                crate::store::quote(&role::name(role::current()))
            ),
        ));
    }
    Ok(found)
}

/// The collection of that name, whoever may read it.
pub fn existing_collection(name: &str) -> Result<Collection> {
    collection::by_name(name, role::current()).ok_or_else(|| {
        Error::undefined(
            format!("collection \"{}\" does not exist", crate::provider::excerpt(name)),
            "Create it with rag.create_collection(...), or see rag.collections.",
        )
    })
}

/// The named collection, or all the current role may read.
pub fn readable_collections(name: Option<&str>) -> Result<Vec<Collection>> {
    match name {
        Some(name) => Ok(vec![readable_collection(name)?]),
        None => Ok(collection::all(role::current()).into_iter().filter(|c| c.may_read).collect()),
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
