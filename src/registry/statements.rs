//! All SQL text of the room: reading what is registered.
//!
//! It is read with the superuser's rights, since the tables are nobody's to read, and under a snapshot taken now, as
//! PostgreSQL reads its catalogs: what the process keeps must not depend on how old a transaction's snapshot is.

use super::{Collection, facts};
use crate::error::Error;
use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Arg, Snapshot, arg};
use crate::pg::xact;
use pgrx::pg_sys;

/// The collection of that number.
pub fn by_id(id: i32) -> Option<Collection> {
    const SQL: &str = "SELECT * FROM rag_internal.collection_facts($1)";
    one(SQL, arg(id))
}

/// The collection of that name.
pub fn by_name(name: &str) -> Option<Collection> {
    const SQL: &str = "SELECT f.* FROM rag_internal.collection c
        CROSS JOIN LATERAL rag_internal.collection_facts(c.id) f
        WHERE c.name OPERATOR(pg_catalog.=) $1";
    one(SQL, arg(name.to_owned()))
}

/// The number of the collection that is served by a chunk table.
pub fn id_by_chunk_table(table: pg_sys::Oid) -> Option<i32> {
    const SQL: &str = "SELECT g.collection FROM rag_internal.generation g
        WHERE g.chunk_table OPERATOR(pg_catalog.=) $1::pg_catalog.regclass
          AND g.state OPERATOR(pg_catalog.=) 'serving'::pg_catalog.text";
    let _acting = ActingAs::superuser();
    spi::with_latest_snapshot(|| spi::connect(|s| s.query(Snapshot::Active, SQL, &[arg(table)]).one()))
}

fn one(sql: &str, key: Arg<'_>) -> Option<Collection> {
    let _acting = ActingAs::superuser();
    spi::with_latest_snapshot(|| {
        spi::connect(|s| s.query(Snapshot::Active, sql, &[key]).first().map(|row| facts::read(&row)))
    })
}

/// Whether a collection's tables lack their keys or its capture triggers.
pub fn awaits_restore(id: i32) -> bool {
    const SQL: &str = "SELECT rag_internal.awaits_restore($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::New, SQL, &[arg(id)]).one().unwrap_or(false))
}

/// The numbers of all collections with their sources, by name.
pub fn ids() -> Vec<(i32, pg_sys::Oid)> {
    const SQL: &str = "SELECT c.id, c.source::pg_catalog.oid FROM rag_internal.collection c ORDER BY c.name";
    let _acting = ActingAs::superuser();
    spi::with_latest_snapshot(|| {
        spi::connect(|s| s.query(Snapshot::Active, SQL, &[]).iter().map(|row| (row.need(1), row.need(2))).collect())
    })
}

/// `alias.column` for each column, separated by commas.
pub fn columns(alias: &str, names: &[String]) -> String {
    names.iter().map(|n| format!("{alias}.{}", spi::quote(n))).collect::<Vec<_>>().join(", ")
}

/// A function takes no more arguments than this (`FUNC_MAX_ARGS`).
pub const MAX_ARGUMENTS: usize = 100;

/// A 64-bit hash of texts, which are SQL expressions.
pub fn hash_of_texts(texts: &[String]) -> String {
    let concat = |arguments: &[String]| format!("pg_catalog.concat({})", arguments.join(", "));
    let mut arguments: Vec<String> = Vec::new();
    for text in texts {
        if !arguments.is_empty() {
            arguments.push("E'\\x1f'".to_owned());
        }
        arguments.push(text.clone());
    }
    // Of many, pieces are put together first: the text is the same.
    while arguments.len() > MAX_ARGUMENTS {
        arguments = arguments.chunks(MAX_ARGUMENTS).map(concat).collect();
    }
    format!("pg_catalog.hashtextextended({} COLLATE pg_catalog.\"C\", 0)", concat(&arguments))
}

/// Notes why the worker could not go on with a collection, or (None) that it went on.
pub fn note_error(id: i32, error: Option<&Error>) {
    const SQL: &str = "UPDATE rag_internal.collection
        SET last_error = $2, last_error_hint = $3, last_error_sqlstate = $4,
            last_error_at = CASE WHEN $2 IS NULL THEN NULL ELSE pg_catalog.clock_timestamp() END
        WHERE id OPERATOR(pg_catalog.=) $1
          AND ROW(last_error, last_error_hint)::pg_catalog.record OPERATOR(pg_catalog.*<>) ROW($2, $3)::pg_catalog.record";
    let [message, hint, sqlstate] = error_columns(error);
    spi::connect(|s| s.run(SQL, &[arg(id), message, hint, sqlstate]));
}

/// Message, hint (NULL when there is none) and SQLSTATE of an error, as tables have them; NULLs of none.
pub fn error_columns(e: Option<&Error>) -> [Arg<'static>; 3] {
    let hint = e.map(|e| e.hint.clone()).filter(|hint| !hint.is_empty());
    [arg(e.map(|e| e.message.clone())), arg(hint), arg(e.map(|e| xact::sqlstate(e.code)))]
}
