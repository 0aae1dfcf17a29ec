//! All SQL text of the room: the extension and the workers, as the catalogs show them.

use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Snapshot, arg};
use crate::pg::worker::WORKER_TYPE;
use pgrx::pg_sys;

/// Whether the extension is in this database.
pub fn extension_exists() -> bool {
    const SQL: &str =
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'pg_ragent')";
    spi::connect(|s| s.query(Snapshot::Active, SQL, &[]).one().unwrap_or(false))
}

/// Asks the workers of a database to end, if the role may do to it what they are in the way of; how many there are.
pub fn end_workers(database: &str, role: pg_sys::Oid) -> i64 {
    const SQL: &str = "SELECT pg_catalog.count(pg_catalog.pg_terminate_backend(a.pid))
        FROM pg_catalog.pg_stat_activity a JOIN pg_catalog.pg_database d ON d.oid = a.datid
        WHERE a.backend_type = $3 AND d.datname = $1
          AND (d.datistemplate OR pg_catalog.pg_has_role($2, d.datdba, 'USAGE'))";
    // Statistics are cached for the transaction, unless asked anew.
    const ANEW: &str = "SELECT pg_catalog.pg_stat_clear_snapshot()";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        s.query(Snapshot::Active, ANEW, &[]);
        let args = [arg(database.to_owned()), arg(role), arg(WORKER_TYPE.to_owned())];
        s.query(Snapshot::Active, SQL, &args).one().unwrap_or(0)
    })
}
