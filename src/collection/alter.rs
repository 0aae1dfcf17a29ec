//! `rag.alter_collection`.

use super::create::check_description;
use super::statements;
use crate::error::Result;
use crate::registry;

/// Changes what is given of a collection. Backends hear of it when the transaction commits, and statements that began before
/// go on as they were.
///
/// # Errors
/// 42704 there is none, 42501 the role does not own its source, 54000 the description is too long.
pub fn alter(name: &str, description: Option<String>, serve_stale: Option<bool>) -> Result<()> {
    let c = registry::existing(name)?;
    registry::must_own(&c)?;
    check_description(description.as_deref())?;
    if description.is_some() || serve_stale.is_some() {
        statements::alter(c.id, description, serve_stale);
    }
    Ok(())
}
