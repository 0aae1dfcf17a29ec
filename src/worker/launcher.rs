//! The launcher: where the library is preloaded, it starts a worker in every database that may need one, and stays to start those
//! again that end, and those of databases that come later.

use crate::guc;
use crate::pg::lock::{self, DatabaseIs, Lock};
use crate::pg::{catalog, interrupt, launcher_call, worker as process, xact};
use ragent_core::ingest::roster::Roster;
use std::time::{Duration, Instant};

/// So often it looks for databases although nobody woke it.
const LOOK: Duration = Duration::from_secs(60);

/// Main function of the launcher. A worker in a database without the extension ends at once and frees its slot.
pub fn main() {
    process::connect(None);
    let mut roster = Roster::default();
    while !process::is_asked_to_end() {
        process::reload_if_asked();
        // Turned off, workers end; what they ask for then waits until they are turned on.
        let wait = guc::WORKER.get().then(|| {
            if let Err(e) = xact::transaction(|| start_due(&mut roster)) {
                pgrx::warning!("pg_ragent launcher: {e}");
            }
            roster.wait(Instant::now())
        });
        interrupt::rest(None, Some(wait.flatten().unwrap_or(LOOK).min(LOOK)));
    }
    process::leave();
}

fn start_due(roster: &mut Roster) {
    let now = Instant::now();
    let databases: Vec<u32> = catalog::connectable_databases().into_iter().map(|(oid, _)| oid.to_u32()).collect();
    roster.see(&databases, &launcher_call::take(), now);
    for database in roster.due(|database| Lock::worker(0).is_taken_in(database), now) {
        if lock::database_is(DatabaseIs::Used, database) {
            roster.postpone(database, now);
        } else if process::start(database.into()) {
            roster.started(database, now);
        } else {
            process::warn_of_no_slot();
            break;
        }
    }
}
