//! `rag_internal.pause`: collections that are left alone for a while, whichever worker looks.

use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Snapshot, arg};
use std::time::Duration;

/// Of a collection `c`: it does not pause.
pub(super) const NOT_PAUSED: &str = "NOT EXISTS (SELECT FROM rag_internal.pause p
    WHERE p.collection OPERATOR(pg_catalog.=) c.id AND p.until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())";

/// So many pauses in a row can be ended by the owner, who may be the one that does harm.
pub const ENDED_BY_OWNER: i32 = 3;

/// A pause that was begun.
pub struct Pause {
    /// For how long.
    pub length: Duration,
    /// Which one in a row.
    pub times: i32,
    /// Who owns the collection's source; 0 if that is gone.
    pub owner: u32,
    /// Whether others of the same owner pause.
    pub others: bool,
}

/// Lets a collection pause, for 15 seconds and each time for four times as long, up to six hours. An hour without one is as if there had been none.
pub fn begin(collection: i32) -> Pause {
    const SQL: &str = "INSERT INTO rag_internal.pause AS p (collection, until)
        VALUES ($1, pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => 15))
        ON CONFLICT (collection) DO UPDATE SET (times, until) = (
            SELECT n.times, pg_catalog.clock_timestamp() + pg_catalog.make_interval(
                secs => least(15 * pg_catalog.power(4, least(n.times - 1, 10)), 21600))
            FROM (SELECT CASE WHEN p.until < pg_catalog.clock_timestamp() - interval '1 hour' THEN 1
                              ELSE p.times + 1 END) n (times))
        RETURNING extract(epoch FROM p.until - pg_catalog.clock_timestamp())::pg_catalog.float8 AS seconds, p.times";
    const OWNER: &str = "SELECT r.relowner AS owner, EXISTS (
            SELECT FROM rag_internal.pause p
            JOIN rag_internal.collection o ON o.id = p.collection JOIN pg_catalog.pg_class s ON s.oid = o.source
            WHERE s.relowner = r.relowner AND o.id <> c.id AND p.until > pg_catalog.clock_timestamp()) AS others
        FROM rag_internal.collection c JOIN pg_catalog.pg_class r ON r.oid = c.source WHERE c.id = $1";
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, SQL, &[arg(collection)]);
        let row = rows.first().expect("an INSERT that does nothing else returns a row");
        let owners = s.query(Snapshot::New, OWNER, &[arg(collection)]);
        let owner = owners.first();
        Pause {
            length: Duration::from_secs_f64(row.need_named::<f64>("seconds").max(0.0)),
            times: row.need_named("times"),
            owner: owner.as_ref().map_or(0, |o| o.need_named::<pgrx::pg_sys::Oid>("owner").to_u32()),
            others: owner.as_ref().is_some_and(|o| o.need_named("others")),
        }
    })
}

/// Ends the pauses of collections, as far as their owner may, or all if `all`; how many there were.
pub fn end(collections: &[i32], all: bool) -> u64 {
    // What another transaction ends, it ends.
    const SQL: &str =
        "UPDATE rag_internal.pause SET until = pg_catalog.clock_timestamp() WHERE collection = ANY (ARRAY(
        SELECT p.collection FROM rag_internal.pause p
        WHERE p.collection = ANY ($1) AND p.until > pg_catalog.clock_timestamp() AND (p.times <= $2 OR $3)
        FOR UPDATE SKIP LOCKED))";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.run(SQL, &[arg(collections.to_vec()), arg(ENDED_BY_OWNER), arg(all)]))
}
