//! `rag_internal.queue`: what is added to it, and what there is.

use super::capture::insert_of_source;
use super::pause::NOT_PAUSED;
use super::waiting;
use crate::ingest::permit::Permit;
use crate::pg::role::{ActingAs, Settings};
use crate::pg::spi::{self, Snapshot, Spi, arg};
use crate::pg::xact;
use crate::registry::Collection;
use ragent_core::ingest::schedule::Waiting;
use std::collections::HashSet;
use std::time::Duration;

/// Queues a comparison of everything a collection has.
pub fn compare_all(s: &Spi<'_>, collection: i32) {
    s.run("INSERT INTO rag_internal.queue (collection, key) VALUES ($1, NULL)", &[arg(collection)]);
}

/// Queues such a comparison, unless one waits already.
pub fn compare_all_once(collection: i32) {
    const IS_QUEUED: &str = "SELECT EXISTS (SELECT FROM rag_internal.queue q
        WHERE q.collection = $1 AND q.key IS NULL AND q.keys IS NULL AND q.claimed_by IS NULL)";
    over_queue(|s| {
        if s.query(Snapshot::New, IS_QUEUED, &[arg(collection)]).one() != Some(true) {
            compare_all(s, collection);
        }
    });
}

/// Queues every row of a collection's source, as its owner.
pub fn queue_all(c: &Collection) {
    let sql = insert_of_source(c);
    let _acting = ActingAs::restricted(c.source.owner);
    let _permit = Permit::give(c.id);
    spi::connect(|s| s.run(&sql, &[arg(c.id)]));
}

/// What is in the queue.
#[derive(Debug)]
pub struct Look {
    /// Collections with entries that are due and not claimed, in ascending order, and whose they are (0: the source is gone).
    pub ready: Vec<(i32, u32)>,
    /// How long until the first postponed entry is due.
    pub retry: Option<Duration>,
    /// Whether there are entries at all.
    pub is_empty: bool,
    /// What workers leave alone for a while.
    pub waiting: HashSet<Waiting>,
}

/// The keys of an entry `q` of many, each with its place among them, from 1: a query of both.
pub const UNFOLDED: &str = "SELECT value.place, pg_catalog.jsonb_object_agg(part.name, value.value)
    FROM pg_catalog.jsonb_each(q.keys) AS part (name, list)
    CROSS JOIN LATERAL pg_catalog.jsonb_array_elements(part.list) WITH ORDINALITY AS value (value, place)
    GROUP BY value.place";

/// Of an entry: it is due, and nobody is at work on it.
pub(super) const READY: &str = "(q.retry_at IS NULL OR q.retry_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp())
    AND (q.claimed_by IS NULL OR q.claimed_until OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp())";

/// Runs statements over the queue. They are planned to go by its indexes: a plan that is kept while the queue is empty must
/// do when it is long.
pub(super) fn over_queue<R>(f: impl FnOnce(&Spi<'_>) -> R) -> R {
    let settings = Settings::new();
    settings.set("enable_seqscan", "off");
    spi::connect(f)
}

/// Looks what there is to do.
pub fn look() -> Look {
    let ready = format!(
        "SELECT c.id, coalesce(r.relowner, 0) AS owner
         FROM rag_internal.collection c LEFT JOIN pg_catalog.pg_class r ON r.oid = c.source
         WHERE EXISTS (SELECT FROM rag_internal.queue q WHERE q.collection = c.id AND {READY}) AND {NOT_PAUSED}
           AND NOT rag_internal.awaits_restore(c.id)
         ORDER BY c.id"
    );
    const STATE: &str = "SELECT
        extract(epoch FROM least(
            (SELECT pg_catalog.min(q.retry_at) FROM rag_internal.queue q
             JOIN rag_internal.collection c ON c.id = q.collection WHERE q.retry_at IS NOT NULL),
            (SELECT pg_catalog.min(p.until) FROM rag_internal.pause p
             WHERE p.until > pg_catalog.clock_timestamp())) - pg_catalog.clock_timestamp())::pg_catalog.float8 AS seconds,
        NOT EXISTS (SELECT FROM rag_internal.collection c
                    WHERE EXISTS (SELECT FROM rag_internal.queue q WHERE q.collection = c.id)) AS is_empty";
    over_queue(|s| {
        let rows = s.query(Snapshot::New, &ready, &[]);
        let owner = |oid: pgrx::pg_sys::Oid| oid.to_u32();
        let ready = rows.iter().map(|row| (row.need_named("id"), owner(row.need_named("owner")))).collect();
        let rows = s.query(Snapshot::New, STATE, &[]);
        let state = rows.first().expect("a SELECT without FROM gives a row");
        let seconds: Option<f64> = state.named("seconds");
        Look {
            ready,
            retry: seconds.map(|s| Duration::from_secs_f64(s.max(0.0))),
            is_empty: state.need_named("is_empty"),
            waiting: waiting::all(s),
        }
    })
}

/// The last number that an entry of these collections has or will give to a row of its, and whether a comparison is among
/// them, which may queue more.
pub fn last_id(collections: &[i32]) -> (i64, bool) {
    // An entry of many keys gives the numbers after its own to its rows.
    const SQL: &str = "SELECT coalesce(pg_catalog.max(id + CASE WHEN keys IS NULL THEN 0 ELSE rows END), 0) AS id,
               coalesce(pg_catalog.bool_or(key IS NULL AND keys IS NULL), false) AS is_comparing
        FROM rag_internal.queue WHERE collection = ANY ($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, SQL, &[arg(collections.to_vec())]);
        rows.first().map_or((0, false), |row| (row.need_named("id"), row.need_named("is_comparing")))
    })
}

/// Whether entries up to a number are left, and whether any of them was queued by this very transaction.
pub fn left(collections: &[i32], up_to: i64) -> (bool, bool) {
    // This transaction's own rows, if there are any, are the last that are left.
    const LAST: &str =
        "SELECT xmin FROM rag_internal.queue WHERE collection = ANY ($1) AND id <= $2 ORDER BY id DESC LIMIT 100";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, LAST, &[arg(collections.to_vec()), arg(up_to)]);
        let own = rows.iter().any(|row| xact::is_current(row.need_named("xmin")));
        (rows.first().is_some(), own)
    })
}

/// How many rows entries up to a number stand for.
pub fn count_left(collections: &[i32], up_to: i64) -> i64 {
    const SQL: &str = "SELECT coalesce(pg_catalog.sum(rows), 0)::pg_catalog.int8
        FROM rag_internal.queue WHERE collection = ANY ($1) AND id <= $2";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::Active, SQL, &[arg(collections.to_vec()), arg(up_to)]).one().unwrap_or(0))
}
