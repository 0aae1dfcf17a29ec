//! Rows that a worker was at work on when it died.

use super::claim;
use super::failure;
use crate::error::Error;
use crate::pg::spi::{self, Snapshot, arg};
use crate::pg::worker;
use pgrx::PgSqlErrorCode;

/// Notes that a worker died at work on entries of a collection. A row with which that happened twice while nothing else was at
/// hand is given up. Whether one of the entries asks for a comparison.
pub fn note(collection: i32, entries: &[i64]) -> bool {
    // One row, which may have several entries, is to blame for certain. Of several, each is tried alone from now on.
    const SQL: &str = "WITH alone AS (
            SELECT pg_catalog.count(DISTINCT key) < 2 AS is_alone FROM rag_internal.queue
            WHERE collection = $1 AND id = ANY ($2))
        UPDATE rag_internal.queue q
        SET deaths = CASE WHEN is_alone THEN deaths + 2 ELSE greatest(deaths, 1) END,
            retry_at = CASE WHEN is_alone THEN pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => 2) END,
            claimed_by = $3, claimed_until = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => 60)
        FROM alone WHERE collection = $1 AND id = ANY ($2)
        RETURNING q.id, q.key::pg_catalog.text AS key, q.attempts, q.deaths";
    let args = [arg(collection), arg(entries.to_vec()), arg(worker::own_pid())];
    let mut is_comparison = false;
    spi::connect(|s| {
        let mut others = Vec::new();
        for row in s.query(Snapshot::New, SQL, &args).iter() {
            let id: i64 = row.need_named("id");
            let key: Option<String> = row.named("key");
            let deaths: i32 = row.need_named("deaths");
            is_comparison |= key.is_none();
            match key {
                Some(key) if deaths >= GIVEN_UP_AT => {
                    let attempts: i32 = row.need_named("attempts");
                    failure::give_up(collection, &[id], &key, attempts.unsigned_abs() + 2, &deadly());
                }
                _ => others.push(id),
            }
        }
        claim::release(collection, &others);
    });
    is_comparison
}

/// Two deaths of a worker that had nothing else at hand.
const GIVEN_UP_AT: i32 = 4;

fn deadly() -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_CRASH_SHUTDOWN,
        "the worker died twice while it processed this row",
        "The server's log has the reason: often the machine had no memory left. Once that is mended, SELECT rag.retry_failures().",
    )
}
