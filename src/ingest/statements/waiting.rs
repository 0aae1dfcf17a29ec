//! `rag_internal.waiting`: what workers leave alone for a while, where others see it. Whoever takes a row away ends the wait.

use super::pause::ENDED_BY_OWNER;
use crate::error::Error;
use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Arg, Snapshot, Spi, arg};
use crate::pg::xact;
use crate::registry::statements::error_columns;
use ragent_core::ingest::schedule::{Account, Waiting};
use std::collections::HashSet;
use std::time::Duration;

/// Of a wait `w` and a collection's serving generation `g` and source `r`: the wait is of the collection's server, asked as its owner.
const OF_SERVER: &str = "w.server <> '' AND w.role = r.relowner AND pg_catalog.starts_with(g.model, w.server || '/')";

/// Collection, server and role, as the table has them.
fn key(what: &Waiting) -> [Arg<'static>; 3] {
    let (collection, server, role) = match what {
        Waiting::Collection(id) => (*id, "", 0),
        Waiting::Server(account) => (0, account.server.as_str(), account.role),
        Waiting::Owner(role) => (0, "", *role),
    };
    [arg(collection), arg(server.to_owned()), arg(i64::from(role))]
}

/// Notes that something waits for so long from now, which time in a row that is, and why.
pub fn note(what: &Waiting, length: Duration, times: u32, e: Option<&Error>) {
    const SQL: &str = "INSERT INTO rag_internal.waiting AS w
            (collection, server, role, until, times, error, error_hint, error_sqlstate)
        VALUES ($1, $2, $3::pg_catalog.oid, pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => $4), $5, $6, $7, $8)
        ON CONFLICT (collection, server, role) DO UPDATE
        SET until = EXCLUDED.until, times = EXCLUDED.times, noted_at = EXCLUDED.noted_at, error = EXCLUDED.error,
            error_hint = EXCLUDED.error_hint, error_sqlstate = EXCLUDED.error_sqlstate";
    xact::commit_without_flush();
    let [collection, server, role] = key(what);
    let [message, hint, sqlstate] = error_columns(e);
    let args = [
        collection,
        server,
        role,
        arg(length.as_secs_f64()),
        arg(i32::try_from(times).unwrap_or(i32::MAX)),
        message,
        hint,
        sqlstate,
    ];
    spi::connect(|s| s.run(SQL, &args));
}

/// Everything that waits.
pub(super) fn all(s: &Spi<'_>) -> HashSet<Waiting> {
    const SQL: &str = "SELECT collection, server, role FROM rag_internal.waiting";
    let rows = s.query(Snapshot::New, SQL, &[]);
    rows.iter()
        .map(|row| {
            let role = row.need_named::<pgrx::pg_sys::Oid>("role").to_u32();
            let server: String = row.need_named("server");
            match row.need_named("collection") {
                0 if server.is_empty() => Waiting::Owner(role),
                0 => Waiting::Server(Account { server, role }),
                collection => Waiting::Collection(collection),
            }
        })
        .collect()
}

/// It waits no more. What another transaction is about to take away, it takes away: nobody waits for that.
pub fn end(what: &Waiting) {
    const SQL: &str = "DELETE FROM rag_internal.waiting WHERE ctid = ANY (ARRAY(
        SELECT w.ctid FROM rag_internal.waiting w
        WHERE w.collection = $1 AND w.server = $2 AND w.role = $3::pg_catalog.oid
        FOR UPDATE SKIP LOCKED))";
    spi::connect(|s| s.run(SQL, &key(what)));
}

/// Ends what keeps collections waiting: themselves, their servers, postponed entries, and what their owner may end of its own
/// wait, or all if `all`. What another transaction has in hand is left to it: one owner does not hold up who asks for all.
pub fn end_of(collections: &[i32], all: bool) {
    let sql = format!(
        "DELETE FROM rag_internal.waiting WHERE ctid = ANY (ARRAY(
             SELECT w.ctid FROM rag_internal.waiting w
             WHERE EXISTS (
                 SELECT FROM rag_internal.collection c
                 JOIN rag_internal.generation g ON g.collection = c.id AND g.state = 'serving'
                 JOIN pg_catalog.pg_class r ON r.oid = c.source
                 WHERE c.id = ANY ($1)
                   AND (w.collection = c.id OR {OF_SERVER}
                        OR w.collection = 0 AND w.server = '' AND w.role = r.relowner AND (w.times <= $2 OR $3)))
             FOR UPDATE SKIP LOCKED))"
    );
    const POSTPONED: &str = "UPDATE rag_internal.queue SET retry_at = NULL WHERE ctid = ANY (ARRAY(
        SELECT q.ctid FROM rag_internal.queue q
        WHERE q.collection = ANY ($1) AND q.retry_at IS NOT NULL AND q.claimed_by IS NULL
        FOR UPDATE SKIP LOCKED))";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        s.run(&sql, &[arg(collections.to_vec()), arg(ENDED_BY_OWNER), arg(all)]);
        s.run(POSTPONED, &[arg(collections.to_vec())]);
    });
}

/// Forgets what nobody waits for any more: of collections that are gone, or long over.
pub(super) fn sweep(s: &Spi<'_>) {
    const SQL: &str = "DELETE FROM rag_internal.waiting w
        WHERE w.until < pg_catalog.clock_timestamp() - interval '1 hour'
           OR w.collection <> 0 AND NOT EXISTS (SELECT FROM rag_internal.collection c WHERE c.id = w.collection)";
    s.run(SQL, &[]);
}
