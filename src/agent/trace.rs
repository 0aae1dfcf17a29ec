//! `rag.trace`: a recorded run, printed for a person.

use super::statements;
use crate::error::{Error, Result};
use pgrx::Uuid;

/// The trace of a run that the current role may see.
///
/// # Errors
/// There is no such run, or it was recorded by a version whose steps this one cannot read.
pub fn of(run_id: Uuid) -> Result<String> {
    let Some(run) = statements::run(run_id)? else {
        return Err(Error::undefined(
            format!("run {run_id} does not exist"),
            "See rag.runs for yours; with rag.scope_settings, those of the present values of the settings it names. A run in a read-only transaction or with rag.record = off is not recorded, and one that failed is rolled back.",
        ));
    };
    Ok(ragent_core::trace::render(&run, &statements::steps(run_id)?))
}
