//! `rag.start_worker`.

use crate::ingest::wake;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(sql = false)]
fn start_worker() -> Result<bool, ErrorReport> {
    let is_missing = wake::missing_workers(None) > 0;
    if is_missing {
        wake::at_commit();
    }
    Ok(is_missing)
}
