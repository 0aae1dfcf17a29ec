//! Claims on entries of `rag_internal.queue`.
//!
//! An entry that a worker is at work on is claimed: `claimed_by` is the worker's process number, and the claim holds until
//! `claimed_until`. Whoever has not the claim any more when it stores its work drops it: the entry is another's by then.

use super::queue::{READY, UNFOLDED, over_queue};
use super::waiting;
use crate::error::Error;
use crate::pg::lock::Lock;
use crate::pg::spi::{self, Arg, Snapshot, Spi, arg};
use crate::pg::{wake, worker, xact};
use crate::registry::statements::error_columns;
use ragent_core::ingest::schedule::{LEASE, Order};
use std::collections::HashSet;
use std::time::Duration;

/// Of an entry: somebody is at work on it.
const UNDER_WAY: &str =
    "q.claimed_by IS NOT NULL AND q.claimed_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()";

/// An entry for one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub id: i64,
    /// The row's key as JSON text.
    pub key: String,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Whether a worker died at work on it, so that it gets a job of its own.
    pub is_suspect: bool,
    /// Whether it is of a change of many rows.
    pub is_bulk: bool,
}

/// What a worker claimed.
#[derive(Debug)]
pub enum Claim {
    /// Rows; none when there is nothing that can be done now.
    Rows(Vec<Entry>),
    /// The numbers of entries that ask for a comparison of everything.
    Comparison(Vec<i64>),
}

/// Claims the first entries of a collection that may be processed now, in a short transaction of its own, but for `without`.
///
/// Entries that a worker died of are claimed one at a time, where only one is asked for or there are no others.
///
/// A key that is under way stays with whoever has it: its later entries wait. A comparison waits until nothing of the
/// collection is under way, since that could store rows that are gone by then, and what was queued after it waits for it.
/// Entries of many keys become single ones when there are too few of those. By [`Order::SmallFirst`] a job is of changes of few
/// rows alone while there are any, also where a bulk one was queued before: whichever entry of a row comes first finds the row
/// as it is, and the other one then finds nothing to do.
pub fn claim(collection: i32, limit: usize, order: Order, without: &[i64]) -> Claim {
    xact::commit_without_flush();
    Lock::claims(collection).hold();
    let mut has_unfolded = false;
    let claimed = over_queue(|s| {
        let suspects = limit == 1;
        let next = |limit, suspects, bulk| claim_rows(s, collection, limit, suspects, bulk, without);
        let mut entries = match order {
            Order::SmallFirst => next(limit, suspects, false),
            Order::OldestFirst => Vec::new(),
        };
        if entries.is_empty() {
            entries = next(limit, suspects, true);
            while entries.len() < limit && unfold(s, collection) {
                has_unfolded = true;
                entries.extend(next(limit - entries.len(), suspects, true));
            }
        }
        if entries.is_empty() && !suspects {
            entries = next(1, true, true);
        }
        if !entries.is_empty() {
            entries.sort_by_key(|e| e.id);
            return Claim::Rows(entries);
        }
        let comparison = claim_comparison(s, collection);
        if comparison.is_empty() { Claim::Rows(entries) } else { Claim::Comparison(comparison) }
    });
    if has_unfolded {
        // The worker may die of one of these at once. Whoever comes next can blame it only if it is there.
        xact::commit_with_flush();
    }
    claimed
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

/// `bulk`: also those of changes of many rows.
fn claim_rows(s: &Spi<'_>, collection: i32, limit: usize, suspects: bool, bulk: bool, without: &[i64]) -> Vec<Entry> {
    let sql = format!(
        "WITH next AS (
             SELECT q.id FROM rag_internal.queue q
             WHERE q.collection = $1 AND q.key IS NOT NULL AND {READY} AND {BEFORE_COMPARISON}
               AND q.key NOT IN (SELECT q.key FROM rag_internal.queue q
                                 WHERE q.collection = $1 AND q.key IS NOT NULL AND {UNDER_WAY})
               AND (q.deaths = 0 OR $5) AND q.id <> ALL ($6) AND ($7 OR NOT q.is_bulk)
             ORDER BY q.id LIMIT $4 FOR UPDATE SKIP LOCKED)
         UPDATE rag_internal.queue q SET {CLAIM} FROM next WHERE q.collection = $1 AND q.id = next.id
         RETURNING q.id, q.key::pg_catalog.text AS key, q.attempts, q.deaths > 0 AS is_suspect, q.is_bulk"
    );
    let mut args = claim_args(collection);
    args.extend([arg(limit as i64), arg(suspects), arg(without.to_vec()), arg(bulk)]);
    let rows = s.query(Snapshot::New, &sql, &args);
    rows.iter()
        .map(|row| Entry {
            id: row.need_named("id"),
            key: row.need_named("key"),
            attempts: row.need_named::<i32>("attempts").unsigned_abs(),
            is_suspect: row.need_named("is_suspect"),
            is_bulk: row.need_named("is_bulk"),
        })
        .collect()
}

/// Makes single entries of the first one with many keys, which get the numbers after its own. False: there is none.
///
/// The collection stays until the end of the transaction: whoever drops it would not see these. Where it is being dropped, this
/// does not wait, since entries that were claimed before are what the other one waits for.
fn unfold(s: &Spi<'_>, collection: i32) -> bool {
    const KEEP: &str = "SELECT true FROM rag_internal.collection WHERE id = $1 FOR KEY SHARE NOWAIT";
    let sql = format!(
        "WITH bulk AS (
             DELETE FROM rag_internal.queue WHERE collection = $1 AND id = (
                 SELECT q.id FROM rag_internal.queue q
                 WHERE q.collection = $1 AND q.key IS NULL AND q.keys IS NOT NULL AND {READY} AND {BEFORE_COMPARISON}
                 ORDER BY q.id LIMIT 1)
             RETURNING id, keys, queued_at)
         INSERT INTO rag_internal.queue (collection, id, key, queued_at, is_bulk) OVERRIDING SYSTEM VALUE
         SELECT $1, q.id + one.place, one.key, q.queued_at, true
         FROM bulk q CROSS JOIN LATERAL ({UNFOLDED}) AS one (place, key)"
    );
    if !has_many(s, collection) || s.query(Snapshot::New, KEEP, &[arg(collection)]).one() != Some(true) {
        return false;
    }
    s.run(&sql, &[arg(collection)]) > 0
}

/// Whether there is an entry with many keys.
fn has_many(s: &Spi<'_>, collection: i32) -> bool {
    const SQL: &str = "SELECT EXISTS (SELECT FROM rag_internal.queue q
        WHERE q.collection = $1 AND q.key IS NULL AND q.keys IS NOT NULL)";
    s.query(Snapshot::New, SQL, &[arg(collection)]).one() == Some(true)
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

/// Removes what is left of collections that are gone.
///
/// A restore may bring the queue before its collections, and sets the sequence of their numbers last.
pub fn sweep() {
    const SQL: &str = "WITH numbers AS (
            SELECT last_value AS last FROM rag_internal.collection_id_seq WHERE is_called),
        queued AS (DELETE FROM rag_internal.queue q USING numbers n
            WHERE q.collection <= n.last AND NOT EXISTS (SELECT FROM rag_internal.collection c WHERE c.id = q.collection)),
        gaps AS (DELETE FROM rag_internal.capture_gap g USING numbers n
            WHERE g.collection <= n.last AND NOT EXISTS (SELECT FROM rag_internal.collection c WHERE c.id = g.collection)),
        failed AS (DELETE FROM rag_internal.failure f USING numbers n
            WHERE f.collection <= n.last AND NOT EXISTS (SELECT FROM rag_internal.collection c WHERE c.id = f.collection))
        DELETE FROM rag_internal.pause p USING numbers n
        WHERE p.collection <= n.last AND NOT EXISTS (SELECT FROM rag_internal.collection c WHERE c.id = p.collection)";
    xact::commit_without_flush();
    spi::connect(|s| {
        s.run(SQL, &[]);
        waiting::sweep(s);
    });
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

/// Of these entries, those that this worker still has the claim of. They stay locked until the end of the transaction.
pub fn still_held(collection: i32, ids: &[i64]) -> HashSet<i64> {
    const SQL: &str =
        "SELECT id FROM rag_internal.queue WHERE collection = $1 AND id = ANY ($2) AND claimed_by = $3 FOR UPDATE";
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, SQL, &[arg(collection), arg(ids.to_vec()), arg(worker::own_pid())]);
        rows.iter().map(|row| row.need_named("id")).collect()
    })
}

/// Whether a row has later entries than these, and whether a comparison is asked for.
pub fn what_came_since(collection: i32, ids: &[i64], key: &str) -> (bool, bool) {
    const SQL: &str = "SELECT
        EXISTS (SELECT FROM rag_internal.queue q
                WHERE q.collection = $1 AND q.key = $3::pg_catalog.jsonb AND q.id <> ALL ($2)) AS is_changed,
        EXISTS (SELECT FROM rag_internal.queue q
                WHERE q.collection = $1 AND q.key IS NULL AND q.keys IS NULL) AS is_compared";
    over_queue(|s| {
        let rows = s.query(Snapshot::New, SQL, &[arg(collection), arg(ids.to_vec()), arg(key.to_owned())]);
        rows.first().map_or((false, false), |row| (row.need_named("is_changed"), row.need_named("is_compared")))
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

/// Gives entries back with a failed attempt noted, and when they may be tried again.
pub fn postpone(collection: i32, ids: &[i64], delay: Duration, e: &Error) {
    const SQL: &str = "UPDATE rag_internal.queue SET attempts = attempts + 1, claimed_by = NULL, claimed_until = NULL,
            retry_at = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $4),
            error = $5, error_hint = $6, error_sqlstate = $7
        WHERE collection = $1 AND id = ANY ($2) AND claimed_by = $3";
    let [message, hint, sqlstate] = error_columns(Some(e));
    let args =
        [arg(collection), arg(ids.to_vec()), arg(worker::own_pid()), arg(delay.as_secs_f64()), message, hint, sqlstate];
    spi::connect(|s| s.run(SQL, &args));
}
