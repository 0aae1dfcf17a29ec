//! `rag.start_worker`.

use crate::pg::{wake, worker};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(sql = false)]
fn start_worker() -> Result<bool, ErrorReport> {
    if worker::is_running() || !worker::may_start() {
        return Ok(false);
    }
    wake::at_commit();
    Ok(true)
}
