//! A restore of this database.

use crate::pg::spi::{self, Snapshot, arg};

/// What a restore that can be parallel calls itself.
pub const PROGRAM: &str = "pg_restore";

/// Whether a superuser's `pg_restore` is connected to this database. It brings tables, keys, triggers and grants in any order,
/// and several at a time: what is missing may just not be there yet.
pub fn is_under_way() -> bool {
    const SQL: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
        JOIN pg_catalog.pg_roles r ON r.oid = a.usesysid AND r.rolsuper
        WHERE a.datname = pg_catalog.current_database() AND a.application_name = $1)";
    spi::connect(|s| s.query(Snapshot::New, SQL, &[arg(PROGRAM.to_owned())]).one().unwrap_or(false))
}
