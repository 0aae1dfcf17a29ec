//! `rag_internal.queue` and `rag_internal.failure`.

use crate::pg::role::{ActingAs, Settings};
use crate::pg::spi::{self, Mode, arg};
use crate::pg::trigger::{Event, TriggerCall};
use crate::pg::xact;
use crate::registry::Collection;
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    static CAPTURING: Cell<Option<i32>> = const { Cell::new(None) };
}

/// Whether a capture of this collection is writing to the queue right now: what the queue's policy asks.
pub fn is_capturing(collection: i32) -> bool {
    CAPTURING.get() == Some(collection)
}

/// While it lives, this process may write to the queue for one collection, whatever role it is.
struct Capturing {
    before: Option<i32>,
}

impl Capturing {
    fn begin(collection: i32) -> Self {
        Self { before: CAPTURING.replace(Some(collection)) }
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        CAPTURING.set(self.before);
    }
}

/// Queues the rows a trigger call is about, as the writer.
pub fn capture(c: &Collection, call: &TriggerCall<'_>) {
    let event = call.event();
    let _settings = Settings::for_capture();
    let _capturing = Capturing::begin(c.id);
    spi::connect(|s| {
        if c.check().is_err() {
            // Its key or its content is no longer what it was. The table must stay writable; when the collection can be
            // used again, everything is compared.
            s.run("INSERT INTO rag_internal.queue (collection, key) VALUES ($1, NULL)", &[arg(c.id)]);
        } else if call.is_for_row() {
            let (old, new) = call.rows();
            let args: Vec<_> = std::iter::once(arg(c.id)).chain(old).chain(new).collect();
            s.run_for_relation(call.relation(), &super::capture::row_sql(c, event), &args);
        } else {
            if event != Event::Truncate {
                s.register_trigger_data(call);
            }
            s.run_for_relation(call.relation(), &super::capture::statement_sql(c, event), &[arg(c.id)]);
        }
    });
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
    let sql = format!(
        "INSERT INTO rag_internal.queue (collection, key) SELECT $1, {} FROM {} s WHERE {condition}",
        c.key.object("s", &c.key.columns),
        c.source.name
    );
    let _acting = ActingAs::restricted(c.source.owner);
    let _capturing = Capturing::begin(c.id);
    spi::connect(|s| s.run(&sql, &[arg(c.id)]));
}

/// The collection a trigger of `relation` belongs to, if it is `relation`'s or a parent's.
pub fn belongs_to(c: &Collection, relation: pgrx::pg_sys::Oid) -> bool {
    const SQL: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_partition_ancestors($2::pg_catalog.regclass) a (relid)
        WHERE a.relid = $1::pg_catalog.regclass)";
    c.source.table == relation
        || spi::connect(|s| s.query(Mode::Read, SQL, &[arg(c.source.table), arg(relation)]).one().unwrap_or(false))
}

/// One entry of the queue.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its number.
    pub id: i64,
    /// The row's key as JSON text; `None`: compare all.
    pub key: Option<String>,
    /// Failed attempts so far.
    pub attempts: i32,
}

/// How long until the first postponed entry may be tried again, and the collections with entries that may be processed
/// now, looked for last.
pub fn look() -> (Option<Duration>, Vec<i32>) {
    (next_retry(), ready_collections())
}

fn ready_collections() -> Vec<i32> {
    const SQL: &str = "SELECT c.id FROM rag_internal.collection c
        WHERE EXISTS (SELECT FROM rag_internal.queue q WHERE q.collection = c.id
                      AND (q.retry_at IS NULL OR q.retry_at <= pg_catalog.clock_timestamp()))
        ORDER BY c.id";
    spi::connect(|s| s.query(Mode::Write, SQL, &[]).iter().map(|row| row.need(1)).collect())
}

fn next_retry() -> Option<Duration> {
    const SQL: &str =
        "SELECT extract(epoch FROM pg_catalog.min(q.retry_at) - pg_catalog.clock_timestamp())::pg_catalog.float8
        FROM rag_internal.queue q JOIN rag_internal.collection c ON c.id = q.collection WHERE q.retry_at IS NOT NULL";
    let seconds: Option<f64> = spi::connect(|s| s.query(Mode::Write, SQL, &[]).one());
    seconds.map(|s| Duration::from_secs_f64(s.max(0.0)))
}

/// The first entries that may be processed now and are not under way.
///
/// "Compare all" waits until nothing of the collection is under way, which could store rows that are gone by then.
pub fn claim(collection: i32, limit: usize, busy_ids: &[i64], busy_keys: &[String]) -> Vec<Entry> {
    const SQL: &str = "SELECT id, key::pg_catalog.text, attempts FROM rag_internal.queue
        WHERE collection = $1 AND (retry_at IS NULL OR retry_at <= pg_catalog.clock_timestamp())
          AND id <> ALL ($2)
          AND CASE WHEN key IS NULL THEN pg_catalog.cardinality($2) = 0 ELSE key <> ALL ($3::pg_catalog.jsonb[]) END
        ORDER BY id LIMIT $4";
    spi::connect(|s| {
        let rows = s.query(
            Mode::Write,
            SQL,
            &[arg(collection), arg(busy_ids.to_vec()), arg(busy_keys.to_vec()), arg(limit as i64)],
        );
        rows.iter().map(|row| Entry { id: row.need(1), key: row.get(2), attempts: row.need(3) }).collect()
    })
}

/// Removes entries that are done.
pub fn finish(collection: i32, ids: &[i64]) {
    const SQL: &str = "DELETE FROM rag_internal.queue WHERE collection = $1 AND id = ANY ($2)";
    spi::connect(|s| s.run(SQL, &[arg(collection), arg(ids.to_vec())]));
}

/// Forgets earlier failures of rows that are embedded now.
pub fn forget_failures(collection: i32, keys: &[String]) {
    const SQL: &str = "DELETE FROM rag_internal.failure WHERE collection = $1 AND key = ANY ($2::pg_catalog.jsonb[])";
    spi::connect(|s| s.run(SQL, &[arg(collection), arg(keys.to_vec())]));
}

/// Notes a failed attempt and when the entries may be tried again.
pub fn postpone(collection: i32, ids: &[i64], delay: Duration, error: &str) {
    const SQL: &str = "UPDATE rag_internal.queue SET attempts = attempts + 1, error = $4,
            retry_at = pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $3)
        WHERE collection = $1 AND id = ANY ($2)";
    spi::connect(|s| {
        s.run(SQL, &[arg(collection), arg(ids.to_vec()), arg(delay.as_secs_f64()), arg(error.to_owned())])
    });
}

/// Gives a row up: from the queue to the failures.
pub fn give_up(collection: i32, ids: &[i64], key: &str, attempts: i32, error: &str) {
    const SQL: &str = "INSERT INTO rag_internal.failure (collection, key, attempts, error)
        VALUES ($1, $2::pg_catalog.jsonb, $3, $4)
        ON CONFLICT (collection, pg_catalog.md5(key::pg_catalog.text)) DO UPDATE
        SET attempts = EXCLUDED.attempts, error = EXCLUDED.error, failed_at = pg_catalog.now()";
    spi::connect(|s| s.run(SQL, &[arg(collection), arg(key.to_owned()), arg(attempts), arg(error.to_owned())]));
    finish(collection, ids);
}

/// Queues the failed rows of collections again; how many.
pub fn retry_failures(collections: &[i32]) -> i64 {
    const SQL: &str =
        "WITH gone AS (DELETE FROM rag_internal.failure WHERE collection = ANY ($1) RETURNING collection, key)
        INSERT INTO rag_internal.queue (collection, key) SELECT collection, key FROM gone";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.run(SQL, &[arg(collections.to_vec())])) as i64
}

/// The last queue number there is, of collections, and whether a "compare all" is among the entries, which may queue
/// more.
pub fn last_id(collections: &[i32]) -> (i64, bool) {
    const SQL: &str = "SELECT coalesce(pg_catalog.max(id), 0), coalesce(pg_catalog.bool_or(key IS NULL), false)
        FROM rag_internal.queue WHERE collection = ANY ($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Mode::Read, SQL, &[arg(collections.to_vec())]);
        rows.first().map_or((0, false), |row| (row.need(1), row.need(2)))
    })
}

/// How many entries up to a number are left, and whether any of them was queued by this very transaction.
pub fn left(collections: &[i32], up_to: i64) -> (i64, bool) {
    const COUNT: &str = "SELECT pg_catalog.count(*) FROM rag_internal.queue WHERE collection = ANY ($1) AND id <= $2";
    // This transaction's own rows, if there are any, are the last that are left.
    const LAST: &str =
        "SELECT xmin FROM rag_internal.queue WHERE collection = ANY ($1) AND id <= $2 ORDER BY id DESC LIMIT 100";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let args = || [arg(collections.to_vec()), arg(up_to)];
        let left: i64 = s.query(Mode::Read, COUNT, &args()).one().unwrap_or(0);
        let own = left > 0 && s.query(Mode::Read, LAST, &args()).iter().any(|row| xact::is_current(row.need(1)));
        (left, own)
    })
}

/// How many failed rows collections have.
pub fn failed(collections: &[i32]) -> i64 {
    const SQL: &str = "SELECT pg_catalog.count(*) FROM rag_internal.failure WHERE collection = ANY ($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Mode::Read, SQL, &[arg(collections.to_vec())]).one().unwrap_or(0))
}

/// Asks the workers of a database to end, if the role may do to it what they are in the way of; how many there are.
pub fn end_workers(database: &str, role: pgrx::pg_sys::Oid) -> i64 {
    const SQL: &str = "SELECT pg_catalog.count(pg_catalog.pg_terminate_backend(a.pid))
        FROM pg_catalog.pg_stat_activity a JOIN pg_catalog.pg_database d ON d.oid = a.datid
        WHERE a.backend_type = 'pg_ragent worker' AND d.datname = $1
          AND (d.datistemplate OR pg_catalog.pg_has_role($2, d.datdba, 'USAGE'))";
    // Statistics are cached for the transaction, unless asked anew.
    const ANEW: &str = "SELECT pg_catalog.pg_stat_clear_snapshot()";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        s.query(Mode::Read, ANEW, &[]);
        s.query(Mode::Read, SQL, &[arg(database.to_owned()), arg(role)]).one().unwrap_or(0)
    })
}
