//! Tables that may become sources.

use crate::collection::source::{KeyColumn, Table};
use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Snapshot, arg};
use crate::registry::{Column, Key};
use pgrx::pg_sys;

/// Reads a table's facts.
pub fn table(oid: pg_sys::Oid) -> Option<Table> {
    const TABLE: &str = "SELECT n.nspname::pg_catalog.text AS schema,
            pg_catalog.format('%I.%I', n.nspname, r.relname) AS name, r.relkind::pg_catalog.text AS kind,
            r.relpersistence = 't' AS is_temporary,
            n.nspname IN ('pg_catalog', 'information_schema', 'rag', 'rag_internal', 'pg_toast') AS is_system,
            r.relowner AS owner, rag_internal.shares_rows(r.oid) AS shares_rows
        FROM pg_catalog.pg_class r JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace WHERE r.oid = $1";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, TABLE, &[arg(oid)]);
        rows.first().map(|row| {
            let (key, key_columns) = key(s, oid);
            Table {
                oid,
                schema: row.need_named("schema"),
                name: row.need_named("name"),
                kind: row.need_named::<String>("kind").chars().next().unwrap_or(' '),
                is_temporary: row.need_named("is_temporary"),
                is_system: row.need_named("is_system"),
                owner: row.need_named("owner"),
                shares_rows: row.need_named("shares_rows"),
                columns: columns(s, oid),
                key,
                key_columns,
            }
        })
    })
}

fn columns(s: &spi::Spi<'_>, oid: pg_sys::Oid) -> Vec<Column> {
    const SQL: &str = "SELECT a.attname::pg_catalog.text AS name, a.atttypid AS type
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
    let rows = s.query(Snapshot::New, SQL, &[arg(oid)]);
    rows.iter().map(|row| Column::new(row.need_named("name"), row.need_named("type"))).collect()
}

/// The primary key, in the key's order.
fn key(s: &spi::Spi<'_>, oid: pg_sys::Oid) -> (Key, Vec<KeyColumn>) {
    const SQL: &str = "SELECT k.name, k.type, k.modifier, k.equality,
            'c' IN (t.typtype, (SELECT e.typtype FROM pg_catalog.pg_type e WHERE e.oid = t.typelem)) AS is_composite,
            CASE WHEN a.attcollation <> t.typcollation
                 THEN (SELECT pg_catalog.format(' COLLATE %I.%I', cn.nspname, co.collname)
                       FROM pg_catalog.pg_collation co JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace
                       WHERE co.oid = a.attcollation) END AS collation
        FROM rag_internal.primary_key($1) k
        JOIN pg_catalog.pg_attribute a ON a.attrelid = $1 AND a.attname = k.name
        JOIN pg_catalog.pg_type t ON t.oid = k.type
        ORDER BY k.place";
    let rows = s.query(Snapshot::New, SQL, &[arg(oid)]);
    let names: Vec<String> = rows.iter().map(|row| row.need_named("name")).collect();
    let types: Vec<(pg_sys::Oid, i32)> =
        rows.iter().map(|row| (row.need_named("type"), row.need_named("modifier"))).collect();
    let equality = rows.iter().map(|row| row.need_named("equality")).collect();
    let columns = rows
        .iter()
        .zip(&types)
        .map(|(row, (oid, modifier))| KeyColumn {
            name: row.need_named("name"),
            type_oid: *oid,
            sql_type: crate::pg::catalog::type_name(*oid, *modifier),
            collation: row.named("collation").unwrap_or_default(),
            is_composite: row.named("is_composite").unwrap_or(false),
        })
        .collect();
    (Key::new(names, &types, equality), columns)
}

/// Whether a role may create in a schema; `None` when there is no such schema.
pub fn may_create_in(schema: &str, role: pg_sys::Oid) -> Option<bool> {
    const SQL: &str = "SELECT pg_catalog.has_schema_privilege($2, n.oid, 'CREATE')
        FROM pg_catalog.pg_namespace n WHERE n.nspname = $1";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::New, SQL, &[arg(schema.to_owned()), arg(role)]).one())
}

/// The parts of a possibly qualified, possibly quoted name. Raises PostgreSQL's own error for one that is malformed.
pub fn parse_name(text: &str) -> Vec<String> {
    const SQL: &str = "SELECT pg_catalog.parse_ident($1)";
    spi::connect(|s| s.query(Snapshot::New, SQL, &[arg(text.to_owned())]).one().unwrap_or_default())
}
