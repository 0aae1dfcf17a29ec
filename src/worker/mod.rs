//! The database's worker: takes what capture queued, has it embedded, stores the chunks.
//!
//! It holds no transaction, snapshot or lock while a model works: a job is read in one transaction, embedded outside
//! any, and stored in another. There is one worker in a database, so what is under way is remembered in memory.

#[allow(clippy::result_large_err)]
mod api;
pub mod launcher;
pub mod make_way;

use crate::ingest::duty::Worker;
use crate::pg::interrupt;
use crate::pg::worker as process;
use crate::pg::xact;
use pgrx::pg_sys;

/// Main function of a database's worker, called by PostgreSQL in a new process.
pub fn main(database: pg_sys::Oid) {
    process::connect(Some(database));
    process::settle_settings();
    if process::is_upgrading() || !extension_exists() || !process::become_the_worker() {
        return;
    }
    let mut worker = Worker::default();
    loop {
        interrupt::check();
        process::reload_if_asked();
        if !crate::guc::WORKER.get() {
            process::report_idle();
            interrupt::wait(None, None);
        } else if worker.turn() {
            continue;
        }
        if !extension_exists() {
            pgrx::log!("pg_ragent worker: the extension is gone from this database, ending");
            return;
        }
        if !process::is_still_the_worker() {
            pgrx::log!("pg_ragent worker: another one serves this database, ending");
            return;
        }
    }
}

fn extension_exists() -> bool {
    xact::transaction(crate::provider::statements::extension_exists).unwrap_or(false)
}
