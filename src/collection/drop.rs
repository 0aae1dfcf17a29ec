//! `rag.drop_collection`.

use super::statements::{self, leftover};
use crate::error::Result;
use crate::registry;

/// Removes a collection, also one of which only a part is registered.
///
/// # Errors
/// 42704 there is none, unless that is allowed, 42501 the role does not own the source.
pub fn drop_collection(name: &str, if_exists: bool) -> Result<()> {
    match registry::existing(name) {
        Ok(c) => {
            registry::must_own(&c)?;
            statements::drop(&c);
        }
        Err(e) => match leftover::half(name) {
            Some(half) => {
                half.must_own(name)?;
                leftover::forget(half.id);
                leftover::clean(half.source);
            }
            None if if_exists => pgrx::notice!("collection \"{name}\" does not exist, skipping"),
            None => return Err(e),
        },
    }
    Ok(())
}
