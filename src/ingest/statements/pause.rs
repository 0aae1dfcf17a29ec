//! `rag_internal.pause`: collections that are left alone for a while, whichever worker looks.

use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Snapshot, arg};
use std::time::Duration;

/// Of a collection `c`: it does not pause.
pub(super) const NOT_PAUSED: &str = "NOT EXISTS (SELECT FROM rag_internal.pause p
    WHERE p.collection OPERATOR(pg_catalog.=) c.id AND p.until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())";

/// Lets a collection pause, for 15 seconds and each time in a row for four times as long, up to six hours; for how long.
pub fn begin(collection: i32) -> Duration {
    const SQL: &str = "INSERT INTO rag_internal.pause AS p (collection, until)
        VALUES ($1, pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => 15))
        ON CONFLICT (collection) DO UPDATE SET times = p.times + 1,
            until = pg_catalog.clock_timestamp()
                + pg_catalog.make_interval(secs => least(15 * pg_catalog.power(4, least(p.times, 10)), 21600))
        RETURNING extract(epoch FROM p.until - pg_catalog.clock_timestamp())::pg_catalog.float8";
    spi::connect(|s| {
        let seconds: f64 = s.query(Snapshot::New, SQL, &[arg(collection)]).one().unwrap_or(15.0);
        Duration::from_secs_f64(seconds.max(0.0))
    })
}

/// Ends the pauses of collections; how many there were.
pub fn end(collections: &[i32]) -> u64 {
    const SQL: &str = "DELETE FROM rag_internal.pause WHERE collection = ANY ($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.run(SQL, &[arg(collections.to_vec())]))
}
