//! Grants on chunk tables: what is to be granted, `rag_internal.grants_due` and `rag_internal.grant_failure`.

use super::OwnersStatement;
use crate::error::Error;
use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Snapshot, arg};
use crate::pg::xact;
use crate::registry::statements::error_columns;
use std::time::Duration;

/// What is to be granted and revoked on the chunk tables of a collection, or of all.
pub fn to_sync(collection: Option<i32>) -> Vec<OwnersStatement> {
    const SQL: &str = "SELECT owner, statement, tables FROM rag_internal.grants_to_sync($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, SQL, &[arg(collection)]);
        rows.iter().map(|row| OwnersStatement::read(&row)).collect()
    })
}

/// What there is to follow.
pub struct Look {
    /// How many signs there are, and the number of the newest.
    pub signs: (i64, i64),
    /// Collections whose grants failed and are to be tried again now.
    pub due: Vec<i32>,
    /// How long until the next ones are.
    pub retry: Option<Duration>,
}

/// Looks what there is to follow.
pub fn look() -> Look {
    const SQL: &str = "SELECT
        (SELECT pg_catalog.count(*) FROM rag_internal.grants_due) AS signs,
        coalesce((SELECT pg_catalog.max(id) FROM rag_internal.grants_due), 0) AS newest,
        ARRAY(SELECT f.collection FROM rag_internal.grant_failure f WHERE f.retry_at <= pg_catalog.clock_timestamp()) AS due,
        extract(epoch FROM (SELECT pg_catalog.min(f.retry_at) FROM rag_internal.grant_failure f
                            WHERE f.retry_at > pg_catalog.clock_timestamp())
                           - pg_catalog.clock_timestamp())::pg_catalog.float8 AS seconds";
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, SQL, &[]);
        let row = rows.first().expect("a SELECT without FROM gives a row");
        let seconds: Option<f64> = row.named("seconds");
        Look {
            signs: (row.need_named("signs"), row.need_named("newest")),
            due: row.need_named("due"),
            retry: seconds.map(|s| Duration::from_secs_f64(s.max(0.01))),
        }
    })
}

/// Removes the signs; the collections whose chunk tables have other grants than they should. Failures of
/// collections that are gone go, too.
pub fn take() -> Vec<i32> {
    const REMOVE: &str = "DELETE FROM rag_internal.grants_due";
    const SWEEP: &str = "DELETE FROM rag_internal.grant_failure f
        WHERE NOT EXISTS (SELECT FROM rag_internal.collection c WHERE c.id = f.collection)";
    const SQL: &str = "SELECT DISTINCT collection FROM rag_internal.grants_to_sync()";
    xact::commit_without_flush();
    spi::connect(|s| {
        s.run(REMOVE, &[]);
        s.run(SWEEP, &[]);
        s.query(Snapshot::New, SQL, &[]).iter().map(|row| row.need(1)).collect()
    })
}

/// The grants of a collection's chunk table are as they should be.
pub fn succeeded(collection: i32) {
    const SQL: &str = "DELETE FROM rag_internal.grant_failure WHERE collection OPERATOR(pg_catalog.=) $1";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.run(SQL, &[arg(collection)]));
}

/// How often in a row a collection's grants failed.
pub fn attempts(collection: i32) -> i32 {
    const SQL: &str = "SELECT attempts FROM rag_internal.grant_failure WHERE collection = $1";
    spi::connect(|s| s.query(Snapshot::New, SQL, &[arg(collection)]).one().unwrap_or(0))
}

/// Notes that a collection's grants failed, and when they may be tried again.
pub fn postpone(collection: i32, attempts: i32, delay: Duration, e: &Error) {
    const SQL: &str =
        "INSERT INTO rag_internal.grant_failure (collection, attempts, retry_at, error, error_hint, error_sqlstate)
        VALUES ($1, $2, pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $3), $4, $5, $6)
        ON CONFLICT (collection) DO UPDATE SET attempts = EXCLUDED.attempts, retry_at = EXCLUDED.retry_at,
            error = EXCLUDED.error, error_hint = EXCLUDED.error_hint, error_sqlstate = EXCLUDED.error_sqlstate,
            failed_at = EXCLUDED.failed_at";
    let [message, hint, sqlstate] = error_columns(Some(e));
    let args = [arg(collection), arg(attempts), arg(delay.as_secs_f64()), message, hint, sqlstate];
    spi::connect(|s| s.run(SQL, &args));
}
