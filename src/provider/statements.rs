//! Foreign servers and user mappings, and the extensions that stand below.

use crate::pg::cluster;
use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Row, Snapshot, arg};
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
    /// Those of the server's options that a superuser vouched for.
    pub vouched: Options,
    /// Whose mapping holds for the role: its own, or PUBLIC's (0).
    pub mapped: Option<pg_sys::Oid>,
    /// Options of that mapping.
    pub mapping: Options,
    /// Those of them that a superuser vouched for.
    pub mapping_vouched: Options,
}

/// What a superuser vouched for of the server `s`, or of its mapping `m`. $1 is the cluster's identifier.
fn vouched(is_mapping: bool) -> String {
    let (object, mapped) = if is_mapping { ("m.oid", "m.umuser") } else { ("s.oid", "NULL") };
    format!(
        "(SELECT v.options FROM rag_internal.vouched v
          WHERE v.is_mapping OPERATOR(pg_catalog.=) {is_mapping}
            AND CASE WHEN v.cluster OPERATOR(pg_catalog.=) $1 THEN v.object OPERATOR(pg_catalog.=) {object}
                ELSE v.server OPERATOR(pg_catalog.=) s.srvname AND v.mapped IS NOT DISTINCT FROM {mapped} END
          ORDER BY (v.cluster OPERATOR(pg_catalog.=) $1) DESC LIMIT 1)"
    )
}

fn options(row: &Row<'_>, column: &str) -> Options {
    split_options(row.named::<Vec<String>>(column).unwrap_or_default())
}

/// Reads a server and the user mapping that holds for `role`.
pub fn provider(name: &str, role: pg_sys::Oid) -> Option<ProviderRow> {
    let sql = format!(
        "SELECT w.fdwname OPERATOR(pg_catalog.=) 'rag_provider' AS is_provider,
            pg_catalog.has_server_privilege($3, s.oid, 'USAGE') AS may_use,
            s.srvoptions AS options, {server} AS vouched, m.umoptions AS mapping, m.umuser AS mapped,
            CASE WHEN m.umuser IS NOT NULL THEN {mapping} END AS mapping_vouched
         FROM pg_catalog.pg_foreign_server s
         JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid OPERATOR(pg_catalog.=) s.srvfdw
         LEFT JOIN LATERAL (
            SELECT u.oid, u.umuser, u.umoptions FROM pg_catalog.pg_user_mapping u
            WHERE u.umserver OPERATOR(pg_catalog.=) s.oid
              AND (u.umuser OPERATOR(pg_catalog.=) $3 OR u.umuser OPERATOR(pg_catalog.=) 0::pg_catalog.oid)
            ORDER BY u.umuser DESC LIMIT 1) AS m ON true
         WHERE s.srvname OPERATOR(pg_catalog.=) $2",
        server = vouched(false),
        mapping = vouched(true),
    );
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, &sql, &[arg(cluster::identifier()), arg(name.to_owned()), arg(role)]);
        rows.first().map(|row| ProviderRow {
            is_provider: row.need_named("is_provider"),
            may_use: row.need_named("may_use"),
            options: options(&row, "options"),
            vouched: options(&row, "vouched"),
            mapped: row.named("mapped"),
            mapping: options(&row, "mapping"),
            mapping_vouched: options(&row, "mapping_vouched"),
        })
    })
}

/// Whether a superuser set this option to this value on a server that the role owns, or on a mapping that it may alter.
pub fn is_vouched_somewhere(role: pg_sys::Oid, is_mapping: bool, name: &str, value: &str) -> bool {
    let mappings =
        if is_mapping { "JOIN pg_catalog.pg_user_mapping m ON m.umserver OPERATOR(pg_catalog.=) s.oid" } else { "" };
    let own = if is_mapping { "OR m.umuser OPERATOR(pg_catalog.=) $2" } else { "" };
    let sql = format!(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_foreign_server s
            JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid OPERATOR(pg_catalog.=) s.srvfdw {mappings}
            WHERE w.fdwname OPERATOR(pg_catalog.=) 'rag_provider'
              AND (pg_catalog.pg_has_role($2, s.srvowner, 'USAGE') {own})
              AND $3 OPERATOR(pg_catalog.=) ANY ({vouched}::pg_catalog.text[]))",
        vouched = vouched(is_mapping),
    );
    let args = [arg(cluster::identifier()), arg(role), arg(format!("{name}={value}"))];
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::Active, &sql, &args).one().unwrap_or(false))
}

/// A server of the wrapper `rag_provider`, or a mapping of one, as it is now.
pub struct ForeignRow {
    server: String,
    mapped: Option<pg_sys::Oid>,
    /// Its options.
    pub options: Options,
    /// Those that a superuser vouched for.
    pub vouched: Options,
}

/// Reads a server or a mapping by its OID.
pub fn foreign_object(is_mapping: bool, object: pg_sys::Oid) -> Option<ForeignRow> {
    let (from, columns) = if is_mapping {
        (
            "JOIN pg_catalog.pg_user_mapping m ON m.umserver OPERATOR(pg_catalog.=) s.oid
             WHERE m.oid OPERATOR(pg_catalog.=) $2",
            "m.umuser AS mapped, m.umoptions AS options",
        )
    } else {
        ("WHERE s.oid OPERATOR(pg_catalog.=) $2", "NULL::pg_catalog.oid AS mapped, s.srvoptions AS options")
    };
    let sql = format!(
        "SELECT s.srvname::pg_catalog.text AS server, {columns}, {vouched} AS vouched
         FROM pg_catalog.pg_foreign_server s
         JOIN pg_catalog.pg_foreign_data_wrapper w
           ON w.oid OPERATOR(pg_catalog.=) s.srvfdw AND w.fdwname OPERATOR(pg_catalog.=) 'rag_provider' {from}",
        vouched = vouched(is_mapping),
    );
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, &sql, &[arg(cluster::identifier()), arg(object)]);
        rows.first().map(|row| ForeignRow {
            server: row.need_named("server"),
            mapped: row.named("mapped"),
            options: options(&row, "options"),
            vouched: options(&row, "vouched"),
        })
    })
}

/// Notes what options of an object a superuser vouches for.
pub fn vouch(object: pg_sys::Oid, row: &ForeignRow, options: &Options) {
    const SQL: &str = "INSERT INTO rag_internal.vouched (cluster, is_mapping, object, server, mapped, options)
        VALUES ($1, $2, $3, $4::pg_catalog.name, $5, $6)
        ON CONFLICT (cluster, is_mapping, object) DO UPDATE SET server = EXCLUDED.server, options = EXCLUDED.options";
    let stored: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let _acting = ActingAs::superuser();
    let args = [
        arg(cluster::identifier()),
        arg(row.mapped.is_some()),
        arg(object),
        arg(row.server.clone()),
        arg(row.mapped),
        arg(stored),
    ];
    spi::connect(|s| s.run(SQL, &args));
}
