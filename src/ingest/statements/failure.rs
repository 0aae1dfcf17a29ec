//! `rag_internal.failure`: rows given up.

use super::claim;
use crate::error::Error;
use crate::ingest::capture::MOST_SINGLE_ROWS;
use crate::pg::jsonb::Jsonb;
use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Snapshot, arg};
use crate::registry::statements::error_columns;

/// Gives a row up: from the queue to the failures, if this worker still has the claim. Whether that is so, and it was not among
/// them already.
pub fn give_up(collection: i32, ids: &[i64], key: &str, attempts: u32, e: &Error) -> bool {
    const KNOWN: &str = "SELECT EXISTS (SELECT FROM rag_internal.failure
        WHERE collection = $1 AND pg_catalog.md5(key::pg_catalog.text) = pg_catalog.md5($2::pg_catalog.jsonb::pg_catalog.text))";
    const SQL: &str = "INSERT INTO rag_internal.failure (collection, key, attempts, error, error_hint, error_sqlstate)
        VALUES ($1, $2::pg_catalog.jsonb, $3, $4, $5, $6)
        ON CONFLICT (collection, pg_catalog.md5(key::pg_catalog.text)) DO UPDATE
        SET attempts = EXCLUDED.attempts, error = EXCLUDED.error, error_hint = EXCLUDED.error_hint,
            error_sqlstate = EXCLUDED.error_sqlstate, failed_at = pg_catalog.now()";
    if claim::finish(collection, ids).is_empty() {
        return false;
    }
    let [message, hint, sqlstate] = error_columns(Some(e));
    let args = [arg(collection), arg(key.to_owned()), arg(attempts as i32), message, hint, sqlstate];
    spi::connect(|s| {
        let is_known = s.query(Snapshot::New, KNOWN, &[arg(collection), arg(key.to_owned())]).one().unwrap_or(false);
        s.run(SQL, &args);
        !is_known
    })
}

/// Forgets earlier failures of rows that are embedded now.
pub fn forget(collection: i32, keys: &[String]) {
    const SQL: &str = "DELETE FROM rag_internal.failure WHERE collection = $1 AND key = ANY ($2::pg_catalog.jsonb[])";
    spi::connect(|s| s.run(SQL, &[arg(collection), arg(keys.to_vec())]));
}

/// Queues the failed rows of collections again; how many. Those that another transaction queues are left to it.
pub fn queue_again(collections: &[i32]) -> i64 {
    const SQL: &str = "WITH gone AS (
             DELETE FROM rag_internal.failure WHERE ctid = ANY (ARRAY(
                 SELECT f.ctid FROM rag_internal.failure f WHERE f.collection = ANY ($1) FOR UPDATE SKIP LOCKED))
             RETURNING collection, key)
        INSERT INTO rag_internal.queue (collection, key, is_bulk)
        SELECT collection, key, (SELECT pg_catalog.count(*) FROM gone) > $2 FROM gone";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.run(SQL, &[arg(collections.to_vec()), arg(MOST_SINGLE_ROWS as i64)])) as i64
}

/// How many failed rows collections have.
pub fn count(collections: &[i32]) -> i64 {
    const SQL: &str = "SELECT pg_catalog.count(*) FROM rag_internal.failure WHERE collection = ANY ($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::Active, SQL, &[arg(collections.to_vec())]).one().unwrap_or(0))
}

/// The keys of a collection's failed rows, as JSON text.
pub fn keys(collection: i32) -> Vec<String> {
    const SQL: &str = "SELECT key::pg_catalog.text AS key FROM rag_internal.failure WHERE collection = $1";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        s.query(Snapshot::Active, SQL, &[arg(collection)]).iter().map(|row| row.need_named("key")).collect()
    })
}

/// The row of a collection that failed last, and why.
pub fn last(collection: i32) -> Option<(Jsonb, String)> {
    const SQL: &str =
        "SELECT key, error FROM rag_internal.failure WHERE collection = $1 ORDER BY failed_at DESC LIMIT 1";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, SQL, &[arg(collection)]);
        rows.first().map(|row| (row.need_named("key"), row.need_named("error")))
    })
}
