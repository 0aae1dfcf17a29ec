//! Source tables: what is known of them when a collection is made, and their rows.

use crate::pg::role::{self, ActingAs};
use crate::pg::spi::{self, Mode, arg};
use crate::registry::statements::Collection;
use pgrx::pg_sys;

/// A table that may become a source.
pub struct Source {
    /// Its OID.
    pub oid: pg_sys::Oid,
    /// Its schema.
    pub schema: String,
    /// Schema and name, quoted.
    pub qualified_name: String,
    /// `pg_class.relkind`.
    pub kind: char,
    /// Whether it is temporary.
    pub is_temporary: bool,
    /// Whether it is partitioned.
    pub is_partitioned: bool,
    /// Whether it belongs to a system schema or an extension.
    pub is_system: bool,
    /// Its owner.
    pub owner: pg_sys::Oid,
    /// Whether rows of it can come and go through a parent, or through children: a partition, or inheritance.
    pub shares_rows: bool,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its primary key, in the key's order.
    pub key: Vec<KeyColumn>,
}

/// One column of a source.
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_oid: pg_sys::Oid,
}

/// One column of a primary key.
pub struct KeyColumn {
    /// Its name.
    pub name: String,
    /// Its type, as SQL, qualified.
    pub sql_type: String,
    /// ` COLLATE schema.name`, where it is not the type's own.
    pub collation: String,
    /// `OPERATOR(schema.=)` of the key's index.
    pub equality: String,
    /// Whether its type is a row type, or an array of one.
    pub is_composite: bool,
}

/// Reads a table's facts.
pub fn source(oid: pg_sys::Oid) -> Option<Source> {
    const TABLE: &str = "SELECT n.nspname::pg_catalog.text,
            pg_catalog.format('%I.%I', n.nspname, r.relname), r.relkind::pg_catalog.text, r.relpersistence = 't',
            n.nspname IN ('pg_catalog', 'information_schema', 'rag', 'pg_toast'), r.relowner,
            r.relispartition OR EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = r.oid)
            OR r.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = r.oid)
        FROM pg_catalog.pg_class r JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace WHERE r.oid = $1";
    const COLUMNS: &str = "SELECT a.attname::pg_catalog.text, a.atttypid
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
    const KEY: &str = "SELECT a.attname::pg_catalog.text, pg_catalog.format_type(a.atttypid, a.atttypmod),
            pg_catalog.format('OPERATOR(%I.%s)', opn.nspname, op.oprname),
            'c' IN (t.typtype, (SELECT e.typtype FROM pg_catalog.pg_type e WHERE e.oid = t.typelem)),
            CASE WHEN a.attcollation <> t.typcollation
                 THEN (SELECT pg_catalog.format(' COLLATE %I.%I', cn.nspname, co.collname)
                       FROM pg_catalog.pg_collation co JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace
                       WHERE co.oid = a.attcollation)
                 ELSE '' END
        FROM pg_catalog.pg_index i
        JOIN LATERAL ROWS FROM (pg_catalog.unnest(i.indkey::pg_catalog.int2[]), pg_catalog.unnest(i.indclass::pg_catalog.oid[]))
             WITH ORDINALITY AS k (attnum, opclass, place) ON true
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        JOIN pg_catalog.pg_opclass oc ON oc.oid = k.opclass
        JOIN pg_catalog.pg_amop ao ON ao.amopfamily = oc.opcfamily AND ao.amopstrategy = 3
             AND ao.amoplefttype = oc.opcintype AND ao.amoprighttype = oc.opcintype
        JOIN pg_catalog.pg_operator op ON op.oid = ao.amopopr
        JOIN pg_catalog.pg_namespace opn ON opn.oid = op.oprnamespace
        WHERE i.indrelid = $1 AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place";
    // With a search_path of pg_catalog alone, format_type qualifies every type that is not built in.
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let columns = s
            .query(Mode::Write, COLUMNS, &[arg(oid)])
            .iter()
            .map(|row| Column { name: row.need(1), type_oid: row.need(2) })
            .collect();
        let key = s
            .query(Mode::Write, KEY, &[arg(oid)])
            .iter()
            .map(|row| KeyColumn {
                name: row.need(1),
                sql_type: row.need(2),
                equality: row.need(3),
                is_composite: row.get(4).unwrap_or(false),
                collation: row.get(5).unwrap_or_default(),
            })
            .collect();
        let rows = s.query(Mode::Write, TABLE, &[arg(oid)]);
        rows.first().map(|row| {
            let kind = row.need::<String>(3).chars().next().unwrap_or(' ');
            Source {
                oid,
                schema: row.need(1),
                qualified_name: row.need(2),
                kind,
                is_temporary: row.need(4),
                is_partitioned: kind == 'p',
                is_system: row.need(5),
                owner: row.need(6),
                shares_rows: row.need(7),
                columns,
                key,
            }
        })
    })
}

/// Whether a relation of that name exists in the schema.
pub fn relation_exists(schema: &str, name: &str) -> bool {
    const SQL: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class r
        JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace WHERE n.nspname = $1 AND r.relname = $2)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Mode::Write, SQL, &[arg(schema.to_owned()), arg(name.to_owned())]).one().unwrap_or(false))
}

/// A schema's name and whether a role may create in it, if it exists.
pub fn may_create_in(schema: &str, role: pg_sys::Oid) -> Option<bool> {
    const SQL: &str = "SELECT pg_catalog.has_schema_privilege($2, n.oid, 'CREATE')
        FROM pg_catalog.pg_namespace n WHERE n.nspname = $1";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Mode::Write, SQL, &[arg(schema.to_owned()), arg(role)]).one())
}

/// The parts of a possibly qualified, possibly quoted name. Raises PostgreSQL's own error for one that is malformed.
pub fn parse_name(text: &str) -> Vec<String> {
    const SQL: &str = "SELECT pg_catalog.parse_ident($1)";
    spi::connect(|s| s.query(Mode::Write, SQL, &[arg(text.to_owned())]).one().unwrap_or_default())
}

/// Rows of a collection's source and chunks, as far as the current role may see them: counted up to a bound, estimated
/// above it. None without the right to read.
pub fn row_counts(c: &Collection) -> Option<(i64, i64)> {
    if !c.may_read || c.check().is_err() {
        return None;
    }
    // Where policies decide, they are asked on the role's behalf; else everything counts, and no code runs as the role.
    let _acting =
        if role::is_under_row_security(c.source) { ActingAs::guarded_self() } else { ActingAs::restricted(c.owner) };
    Some((count(c.source, &c.source_name), count(c.chunk_oid, &c.chunk_table)))
}

/// Tables beyond this size are not counted.
const COUNTED_BYTES: &str = "268435456";

fn count(oid: pg_sys::Oid, name: &str) -> i64 {
    let facts = format!(
        "SELECT reltuples::pg_catalog.int8, pg_catalog.pg_relation_size(oid) OPERATOR(pg_catalog.>) {COUNTED_BYTES}
         FROM pg_catalog.pg_class WHERE oid OPERATOR(pg_catalog.=) $1"
    );
    spi::connect(|s| {
        let rows = s.query(Mode::Read, &facts, &[arg(oid)]);
        let estimate = rows.first().map(|row| (row.need::<i64>(1), row.get(2).unwrap_or(false)));
        match estimate {
            Some((n, true)) if n >= 0 => n,
            _ => s.query(Mode::Read, &format!("SELECT pg_catalog.count(*) FROM {name}"), &[]).one().unwrap_or(0),
        }
    })
}
