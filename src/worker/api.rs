//! `rag.start_worker`.

use crate::ingest::wake;
use crate::pg::{launcher_call, worker as process};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(sql = false)]
fn start_worker() -> Result<bool, ErrorReport> {
    let missing = wake::missing_workers(None);
    if missing > 0 && process::is_creating_extension() {
        wake::at_commit();
        return Ok(true);
    }
    let started = (0..missing).take_while(|_| process::start_for_this_database()).count();
    if started < missing as usize {
        launcher_call::ask();
        process::warn_of_no_slot();
    }
    Ok(started > 0)
}
