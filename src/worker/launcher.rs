//! The launcher: at server start, when the library is preloaded, starts a worker in every database that may need one.

use crate::pg::{catalog, interrupt, worker as process, xact};
use std::time::Duration;

/// How long a free slot for a background worker is waited for.
const PATIENCE: u32 = 60;

/// Main function of the launcher. A worker in a database without the extension ends at once and frees its slot.
pub fn main() {
    process::connect(None);
    let databases = xact::transaction(catalog::connectable_databases).unwrap_or_default();
    let mut patience = PATIENCE;
    for (oid, name) in databases {
        while !process::start(oid) {
            patience = patience.saturating_sub(1);
            if patience == 0 {
                pgrx::warning!(
                    "pg_ragent launcher: no free slot for a worker in database \"{name}\"; raise max_worker_processes"
                );
                return;
            }
            interrupt::sleep(Duration::from_millis(500));
        }
    }
}
