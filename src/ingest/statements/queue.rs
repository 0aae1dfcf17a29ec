//! `rag_internal.queue`: what is added to it, and what there is.

use super::capture::insert_of_source;
use crate::ingest::permit::Permit;
use crate::pg::role::{ActingAs, Settings};
<<<<<<< HEAD
use crate::pg::spi::{self, Mode, Spi, arg};
use crate::pg::xact;
=======
use crate::pg::spi::{self, Arg, Snapshot, Spi, arg};
use crate::pg::{wake, worker, xact};
>>>>>>> house
use crate::registry::Collection;
use std::time::Duration;

/// Queues a comparison of everything a collection has.
pub fn compare_all(s: &Spi<'_>, collection: i32) {
    s.run("INSERT INTO rag_internal.queue (collection, key) VALUES ($1, NULL)", &[arg(collection)]);
}

/// Queues every row of a collection's source, as its owner.
pub fn queue_all(c: &Collection) {
    queue_where(c, "true");
}

/// Queues the rows of a collection's source that have no chunk, as its owner.
pub fn queue_missing(c: &Collection) {
    let same = c.key.join("s", &c.key.columns, "c", &c.vectors.key_columns);
    queue_where(c, &format!("NOT EXISTS (SELECT FROM {} c WHERE {same})", c.vectors.table_name));
}

fn queue_where(c: &Collection, condition: &str) {
    let sql = insert_of_source(c, condition);
    let _acting = ActingAs::restricted(c.source.owner);
    let _permit = Permit::give(c.id);
    spi::connect(|s| s.run(&sql, &[arg(c.id)]));
}

/// What is in the queue.
#[derive(Debug)]
pub struct Look {
    /// Collections with entries that are due and not claimed, in ascending order.
    pub ready: Vec<i32>,
    /// How long until the first postponed entry is due.
    pub retry: Option<Duration>,
    /// Whether there are entries at all.
    pub is_empty: bool,
}

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
        "SELECT c.id FROM rag_internal.collection c
         WHERE EXISTS (SELECT FROM rag_internal.queue q WHERE q.collection = c.id AND {READY})
         ORDER BY c.id"
    );
    const STATE: &str = "SELECT
        (SELECT extract(epoch FROM pg_catalog.min(q.retry_at) - pg_catalog.clock_timestamp())::pg_catalog.float8
         FROM rag_internal.queue q JOIN rag_internal.collection c ON c.id = q.collection
         WHERE q.retry_at IS NOT NULL) AS seconds,
        NOT EXISTS (SELECT FROM rag_internal.collection c
                    WHERE EXISTS (SELECT FROM rag_internal.queue q WHERE q.collection = c.id)) AS is_empty";
    over_queue(|s| {
        let ready = s.query(Snapshot::New, &ready, &[]).iter().map(|row| row.need_named("id")).collect();
        let rows = s.query(Snapshot::New, STATE, &[]);
        let state = rows.first().expect("a SELECT without FROM gives a row");
        let seconds: Option<f64> = state.named("seconds");
        Look {
            ready,
            retry: seconds.map(|s| Duration::from_secs_f64(s.max(0.0))),
            is_empty: state.need_named("is_empty"),
        }
    })
}

<<<<<<< HEAD
=======
/// Claims the first entries of a collection that may be processed now, in a short transaction of its own.
///
/// A key that is under way stays with whoever has it: its later entries wait. A comparison waits until nothing of the
/// collection is under way, since that could store rows that are gone by then, and what was queued after it waits for it.
/// Entries of many keys become single ones when there are too few of those.
pub fn claim(collection: i32, limit: usize) -> Claim {
    xact::commit_without_flush();
    Lock::claims(collection).hold();
    over_queue(|s| {
        let mut entries = claim_rows(s, collection, limit);
        while entries.len() < limit && unfold(s, collection) {
            entries.extend(claim_rows(s, collection, limit - entries.len()));
        }
        if !entries.is_empty() {
            entries.sort_by_key(|e| e.id);
            return Claim::Rows(entries);
        }
        let comparison = claim_comparison(s, collection);
        if comparison.is_empty() { Claim::Rows(entries) } else { Claim::Comparison(comparison) }
    })
}

/// Of an entry of collection $1: it was queued before the first comparison, and none is under way.
const BEFORE_COMPARISON: &str = "q.id < coalesce((
        SELECT pg_catalog.min(CASE WHEN q.claimed_until > pg_catalog.clock_timestamp() THEN 0 ELSE q.id END)
        FROM rag_internal.queue q WHERE q.collection = $1 AND q.key IS NULL AND q.keys IS NULL), 9223372036854775807)";
/// Of an UPDATE: $2 is the claimer, $3 for how many seconds.
const CLAIM: &str = "claimed_by = $2, retry_at = NULL,
    claimed_until = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $3)";

fn claim_args(collection: i32) -> Vec<Arg<'static>> {
    vec![arg(collection), arg(worker::own_pid()), arg(LEASE.as_secs_f64())]
}

fn claim_rows(s: &Spi<'_>, collection: i32, limit: usize) -> Vec<Entry> {
    let sql = format!(
        "WITH next AS (
             SELECT q.id FROM rag_internal.queue q
             WHERE q.collection = $1 AND q.key IS NOT NULL AND {READY} AND {BEFORE_COMPARISON}
               AND q.key NOT IN (SELECT q.key FROM rag_internal.queue q
                                 WHERE q.collection = $1 AND q.key IS NOT NULL AND {UNDER_WAY})
             ORDER BY q.id LIMIT $4 FOR UPDATE SKIP LOCKED)
         UPDATE rag_internal.queue q SET {CLAIM} FROM next WHERE q.collection = $1 AND q.id = next.id
         RETURNING q.id, q.key::pg_catalog.text AS key, q.attempts"
    );
    let mut args = claim_args(collection);
    args.push(arg(limit as i64));
    let rows = s.query(Snapshot::New, &sql, &args);
    rows.iter()
        .map(|row| Entry {
            id: row.need_named("id"),
            key: row.need_named("key"),
            attempts: row.need_named::<i32>("attempts").unsigned_abs(),
        })
        .collect()
}

/// Makes single entries of the first one with many keys, which get the numbers after its own. False: there is none.
fn unfold(s: &Spi<'_>, collection: i32) -> bool {
    let sql = format!(
        "WITH bulk AS (
             DELETE FROM rag_internal.queue WHERE collection = $1 AND id = (
                 SELECT q.id FROM rag_internal.queue q
                 WHERE q.collection = $1 AND q.key IS NULL AND q.keys IS NOT NULL AND {READY} AND {BEFORE_COMPARISON}
                 ORDER BY q.id LIMIT 1)
             RETURNING id, keys, queued_at)
         INSERT INTO rag_internal.queue (collection, id, key, queued_at) OVERRIDING SYSTEM VALUE
         SELECT $1, bulk.id + one.place, one.key, bulk.queued_at
         FROM bulk CROSS JOIN LATERAL (
             SELECT value.place, pg_catalog.jsonb_object_agg(part.name, value.value)
             FROM pg_catalog.jsonb_each(bulk.keys) AS part (name, list)
             CROSS JOIN LATERAL pg_catalog.jsonb_array_elements(part.list) WITH ORDINALITY AS value (value, place)
             GROUP BY value.place) AS one (place, key)"
    );
    s.run(&sql, &[arg(collection)]) > 0
}

/// Claims a collection's comparisons, if nothing of it is under way.
fn claim_comparison(s: &Spi<'_>, collection: i32) -> Vec<i64> {
    // Whoever had these may still be at work on them: it must find them gone when it comes back.
    const TAKE_BACK: &str = "UPDATE rag_internal.queue SET claimed_by = NULL, claimed_until = NULL
        WHERE collection = $1 AND claimed_by IS NOT NULL AND claimed_until <= pg_catalog.clock_timestamp()";
    let sql = format!(
        "UPDATE rag_internal.queue q SET {CLAIM}
         WHERE q.collection = $1 AND q.key IS NULL AND q.keys IS NULL AND {READY}
           AND NOT EXISTS (SELECT FROM rag_internal.queue q WHERE q.collection = $1 AND {UNDER_WAY})
         RETURNING q.id"
    );
    const IS_ASKED_FOR: &str = "SELECT EXISTS (SELECT FROM rag_internal.queue q
        WHERE q.collection = $1 AND q.key IS NULL AND q.keys IS NULL)";
    if s.query(Snapshot::New, IS_ASKED_FOR, &[arg(collection)]).one() != Some(true) {
        return Vec::new();
    }
    s.run(TAKE_BACK, &[arg(collection)]);
    let rows = s.query(Snapshot::New, &sql, &claim_args(collection));
    rows.iter().map(|row| row.need_named("id")).collect()
}

/// Claims for longer what this worker has claimed.
pub fn renew() {
    const SQL: &str = "UPDATE rag_internal.queue
        SET claimed_until = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $2)
        WHERE claimed_by IS NOT NULL AND claimed_by = $1";
    xact::commit_without_flush();
    over_queue(|s| s.run(SQL, &[arg(worker::own_pid()), arg(LEASE.as_secs_f64())]));
}

/// Gives claimed entries back.
pub fn release(collection: i32, ids: &[i64]) {
    const SQL: &str = "UPDATE rag_internal.queue SET claimed_by = NULL, claimed_until = NULL
        WHERE collection = $1 AND id = ANY ($2) AND claimed_by = $3";
    if !ids.is_empty() {
        xact::commit_without_flush();
        spi::connect(|s| s.run(SQL, &[arg(collection), arg(ids.to_vec()), arg(worker::own_pid())]));
    }
}

/// Gives back everything that this worker has claimed.
pub fn release_own() {
    release_of("claimed_by = $1", arg(worker::own_pid()));
}

/// Gives back what processes claimed that are no workers of this database (any more); how many entries.
pub fn release_lost() -> u64 {
    release_of("claimed_by <> ALL ($1)", arg(wake::running_workers()))
}

fn release_of(whom: &str, argument: Arg<'_>) -> u64 {
    let sql = format!(
        "UPDATE rag_internal.queue SET claimed_by = NULL, claimed_until = NULL WHERE claimed_by IS NOT NULL AND {whom}"
    );
    xact::commit_without_flush();
    over_queue(|s| s.run(&sql, &[argument]))
}

/// Gives an entry the key as its row has it, where that is written differently, so that it is seen to be the same row. False:
/// another job is at work on that row; the entry then waits for it.
pub fn set_key(collection: i32, ids: &[i64], key: &str) -> bool {
    let sql = format!(
        "UPDATE rag_internal.queue entry SET key = $3::pg_catalog.jsonb,
                claimed_by = CASE WHEN other.is_under_way THEN NULL ELSE entry.claimed_by END
         FROM (SELECT EXISTS (SELECT FROM rag_internal.queue q WHERE q.collection = $1 AND q.key = $3::pg_catalog.jsonb
                              AND q.id <> ALL ($2) AND {UNDER_WAY}) AS is_under_way) other
         WHERE entry.collection = $1 AND entry.id = ANY ($2) AND entry.claimed_by = $4
         RETURNING entry.claimed_by IS NOT NULL AS is_claimed"
    );
    Lock::claims(collection).hold();
    over_queue(|s| {
        let args = [arg(collection), arg(ids.to_vec()), arg(key.to_owned()), arg(worker::own_pid())];
        let rows = s.query(Snapshot::New, &sql, &args);
        rows.iter().all(|row| row.need_named("is_claimed"))
    })
}

/// Removes entries that are done; the numbers of those that this worker still had the claim of.
pub fn finish(collection: i32, ids: &[i64]) -> HashSet<i64> {
    const SQL: &str =
        "DELETE FROM rag_internal.queue WHERE collection = $1 AND id = ANY ($2) AND claimed_by = $3 RETURNING id";
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, SQL, &[arg(collection), arg(ids.to_vec()), arg(worker::own_pid())]);
        rows.iter().map(|row| row.need_named("id")).collect()
    })
}

/// Forgets earlier failures of rows that are embedded now.
pub fn forget_failures(collection: i32, keys: &[String]) {
    const SQL: &str = "DELETE FROM rag_internal.failure WHERE collection = $1 AND key = ANY ($2::pg_catalog.jsonb[])";
    spi::connect(|s| s.run(SQL, &[arg(collection), arg(keys.to_vec())]));
}

/// Gives entries back with a failed attempt noted, and when they may be tried again.
pub fn postpone(collection: i32, ids: &[i64], delay: Duration, e: &Error) {
    const SQL: &str = "UPDATE rag_internal.queue SET attempts = attempts + 1, claimed_by = NULL, claimed_until = NULL,
            retry_at = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $4),
            error = $5, error_hint = $6, error_sqlstate = $7
        WHERE collection = $1 AND id = ANY ($2) AND claimed_by = $3";
    let [message, hint, sqlstate] = error_columns(e);
    let args =
        [arg(collection), arg(ids.to_vec()), arg(worker::own_pid()), arg(delay.as_secs_f64()), message, hint, sqlstate];
    spi::connect(|s| s.run(SQL, &args));
}

/// Gives a row up: from the queue to the failures, if this worker still has the claim.
pub fn give_up(collection: i32, ids: &[i64], key: &str, attempts: u32, e: &Error) {
    const SQL: &str = "INSERT INTO rag_internal.failure (collection, key, attempts, error, error_hint, error_sqlstate)
        VALUES ($1, $2::pg_catalog.jsonb, $3, $4, $5, $6)
        ON CONFLICT (collection, pg_catalog.md5(key::pg_catalog.text)) DO UPDATE
        SET attempts = EXCLUDED.attempts, error = EXCLUDED.error, error_hint = EXCLUDED.error_hint,
            error_sqlstate = EXCLUDED.error_sqlstate, failed_at = pg_catalog.now()";
    if finish(collection, ids).is_empty() {
        return;
    }
    let [message, hint, sqlstate] = error_columns(e);
    let args = [arg(collection), arg(key.to_owned()), arg(attempts as i32), message, hint, sqlstate];
    spi::connect(|s| s.run(SQL, &args));
}

/// Message, hint (NULL when there is none) and SQLSTATE.
fn error_columns(e: &Error) -> [Arg<'static>; 3] {
    let hint = (!e.hint.is_empty()).then(|| e.hint.clone());
    [arg(e.message.clone()), arg(hint), arg(xact::sqlstate(e.code))]
}

/// Queues the failed rows of collections again; how many.
pub fn retry_failures(collections: &[i32]) -> i64 {
    const SQL: &str =
        "WITH gone AS (DELETE FROM rag_internal.failure WHERE collection = ANY ($1) RETURNING collection, key)
        INSERT INTO rag_internal.queue (collection, key) SELECT collection, key FROM gone";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.run(SQL, &[arg(collections.to_vec())])) as i64
}

>>>>>>> house
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
<<<<<<< HEAD
=======

/// How many failed rows collections have.
pub fn failed(collections: &[i32]) -> i64 {
    const SQL: &str = "SELECT pg_catalog.count(*) FROM rag_internal.failure WHERE collection = ANY ($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::Active, SQL, &[arg(collections.to_vec())]).one().unwrap_or(0))
}
>>>>>>> house
