//! Foreign servers and user mappings, and the extensions that stand below.

use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Snapshot, arg};
use pgrx::pg_sys;
use ragent_core::provider::{Options, split_options};

/// A foreign server as one role sees it.
pub struct ProviderRow {
    /// Whether it is of the wrapper `rag_provider`.
    pub is_provider: bool,
    /// Whether the role has USAGE on it.
    pub may_use: bool,
    /// The server's options.
    pub options: Options,
    /// Options of the role's user mapping, or of PUBLIC's.
    pub mapping: Options,
}

/// Reads a server and the user mapping that holds for `role`.
pub fn provider(name: &str, role: pg_sys::Oid) -> Option<ProviderRow> {
    const SQL: &str = "SELECT w.fdwname = 'rag_provider' AS is_provider,
            pg_catalog.has_server_privilege($2, s.oid, 'USAGE') AS may_use,
            coalesce(s.srvoptions, '{}') AS options,
            coalesce((SELECT m.umoptions FROM pg_catalog.pg_user_mapping m
                      WHERE m.umserver = s.oid AND m.umuser IN ($2, 0) ORDER BY m.umuser DESC LIMIT 1), '{}') AS mapping
     FROM pg_catalog.pg_foreign_server s
     JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = s.srvfdw
     WHERE s.srvname = $1";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, SQL, &[arg(name.to_owned()), arg(role)]);
        rows.first().map(|row| ProviderRow {
            is_provider: row.need_named("is_provider"),
            may_use: row.need_named("may_use"),
            options: split_options(row.need_named::<Vec<String>>("options")),
            mapping: split_options(row.need_named::<Vec<String>>("mapping")),
        })
    })
}

/// Whether a server the role owns, or the role's own user mapping, has this option with this value.
pub fn has_option(role: pg_sys::Oid, name: &str, value: &str) -> bool {
    const SQL: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_foreign_server s
               WHERE pg_catalog.pg_has_role($1, s.srvowner, 'USAGE') AND $2 = ANY (s.srvoptions))
        OR EXISTS (SELECT FROM pg_catalog.pg_user_mapping m WHERE m.umuser = $1 AND $2 = ANY (m.umoptions))";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        s.query(Snapshot::Active, SQL, &[arg(role), arg(format!("{name}={value}"))]).one().unwrap_or(false)
    })
}
