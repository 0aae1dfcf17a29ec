//! Equal texts of a chunk table. One chunk of a text, its original, is in the index of the embeddings; the others are copies.
//!
//! A text that has chunks has an original. Who makes a copy, or takes away a chunk that may have copies, sees to that at the
//! end of its transaction, one worker of a collection after the other ([`Lock::copies`]): whoever comes later sees what those
//! before have done. So two workers may give a text two originals, which costs an entry in the index, but never none.

use super::chunks::{NewChunk, by_index};
use crate::error::Error;
use crate::pg::lock::Lock;
use crate::pg::role::{ActingAs, Settings};
use crate::pg::spi::{self, Snapshot, arg};
use crate::registry::Collection;
use pgrx::PgSqlErrorCode;
use std::collections::{HashMap, HashSet};

/// Beyond so many texts, all of the table are looked at.
const MOST_TEXTS: usize = 10_000;
/// How long to wait for another worker that is at the same, in milliseconds. Each takes some of them.
const PATIENCE_MS: &str = "5000";
/// Of a chunk: the hash of its text, of which only ours have as many bytes.
const HASH: &str = "pg_catalog.\"substring\"(c.content_hash, 1, 64)";

/// Texts that lost chunks, by their hashes.
#[derive(Debug, Default)]
pub struct Lost(HashSet<Vec<u8>>);

impl Lost {
    /// Adds some.
    pub fn add(&mut self, hashes: impl IntoIterator<Item = Vec<u8>>) {
        self.0.extend(hashes);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A statement that takes chunks away, as one that gives the hashes of their texts: all of them, or more than [`MOST_TEXTS`].
pub fn returning_lost(delete: &str) -> String {
    format!(
        "WITH gone AS ({delete} RETURNING {HASH} AS hash)
         SELECT DISTINCT g.hash FROM gone g LIMIT {}",
        MOST_TEXTS + 1
    )
}

/// The vectors of these texts, as far as they are stored; at most so many.
pub fn vectors(c: &Collection, hashes: Vec<Vec<u8>>, most: usize) -> HashMap<Vec<u8>, Vec<f32>> {
    let sql = format!(
        "SELECT {HASH} AS hash, c.embedding::pg_catalog.float4[] AS embedding FROM {table} c
         WHERE c.content_hash OPERATOR(pg_catalog.=) ANY ($1) AND NOT c.is_copy LIMIT $2",
        table = c.vectors.table_name
    );
    let _acting = ActingAs::restricted(c.source.owner);
    by_index(|s| {
        let rows = s.query(Snapshot::New, &sql, &[arg(hashes), arg(i64::try_from(most).unwrap_or(i64::MAX))]);
        rows.iter().map(|row| (row.need_named("hash"), row.need_named("embedding"))).collect()
    })
}

/// What is stored under the numbers of chunks that are to be written: the numbers of these chunks, and the hashes of their
/// texts.
pub fn replaced(c: &Collection, chunks: &[NewChunk]) -> (HashSet<i64>, Vec<Vec<u8>>) {
    let sql = format!(
        "SELECT c.chunk_id, {HASH} AS hash
         FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.int4[])) AS u (key, chunk)
              CROSS JOIN LATERAL {record}
              JOIN {table} c ON {join} AND c.chunk OPERATOR(pg_catalog.=) u.chunk",
        table = c.vectors.table_name,
        record = c.key.record("u.key::pg_catalog.jsonb", "k"),
        join = c.key.join("c", &c.vectors.key_columns, "k", &c.key.columns),
    );
    let (keys, numbers): (Vec<_>, Vec<_>) = chunks.iter().map(|chunk| (chunk.key.clone(), chunk.number)).unzip();
    let _acting = ActingAs::restricted(c.source.owner);
    by_index(|s| {
        let rows = s.query(Snapshot::New, &sql, &[arg(keys), arg(numbers)]);
        rows.iter().map(|row| (row.need_named::<i64>("chunk_id"), row.need_named::<Vec<u8>>("hash"))).unzip()
    })
}

/// Which of these texts have an original, but for the chunks of these numbers.
pub fn with_original(c: &Collection, chunks: &[NewChunk], without: &HashSet<i64>) -> HashSet<Vec<u8>> {
    let sql = format!(
        "SELECT c.chunk_id, {HASH} AS hash FROM {table} c
         WHERE c.content_hash OPERATOR(pg_catalog.=) ANY ($1) AND NOT c.is_copy",
        table = c.vectors.table_name
    );
    let hashes: HashSet<&Vec<u8>> = chunks.iter().map(|chunk| &chunk.hash).collect();
    let hashes: Vec<Vec<u8>> = hashes.into_iter().cloned().collect();
    let _acting = ActingAs::restricted(c.source.owner);
    by_index(|s| {
        let rows = s.query(Snapshot::New, &sql, &[arg(hashes)]);
        let others = rows.iter().filter(|row| !without.contains(&row.need_named("chunk_id")));
        others.map(|row| row.need_named("hash")).collect()
    })
}

/// From here to the end of the transaction no other worker makes copies in this collection, or takes chunks away for good.
pub fn hold(c: &Collection) {
    let settings = Settings::new();
    settings.set("lock_timeout", PATIENCE_MS);
    Lock::copies(c.id).hold();
}

/// Gives each of these texts that has copies and no original one of them as original. To be called under [`hold`].
///
/// Copies that another worker is changing are passed over: it waits for this one. Where a text has no others, this transaction
/// fails as in a deadlock, and can be repeated.
pub fn promote_lost(c: &Collection, lost: Lost) {
    if lost.is_empty() {
        return;
    }
    if lost.0.len() > MOST_TEXTS {
        return promote_all(c);
    }
    let table = &c.vectors.table_name;
    let find = format!(
        "WITH bereft AS MATERIALIZED (
             SELECT DISTINCT h.hash FROM pg_catalog.unnest($1::pg_catalog.bytea[]) AS h (hash)
             WHERE EXISTS (SELECT FROM {table} c WHERE c.content_hash OPERATOR(pg_catalog.=) h.hash AND c.is_copy)
               AND NOT EXISTS (SELECT FROM {table} c WHERE c.content_hash OPERATOR(pg_catalog.=) h.hash AND NOT c.is_copy))
         SELECT n.chunk_id FROM bereft b LEFT JOIN LATERAL (
             SELECT c.chunk_id FROM {table} c
             WHERE c.content_hash OPERATOR(pg_catalog.=) b.hash AND c.is_copy
             ORDER BY c.chunk_id LIMIT 1 FOR UPDATE SKIP LOCKED) n ON true"
    );
    let promote = format!("UPDATE {table} SET is_copy = false WHERE chunk_id OPERATOR(pg_catalog.=) ANY ($1)");
    let _acting = ActingAs::restricted(c.source.owner);
    by_index(|s| {
        let rows = s.query(Snapshot::New, &find, &[arg(lost.0.into_iter().collect::<Vec<_>>())]);
        let found: Vec<Option<i64>> = rows.iter().map(|row| row.named("chunk_id")).collect();
        let numbers: Vec<i64> = found.iter().copied().flatten().collect();
        if numbers.len() < found.len() {
            busy(c).raise();
        }
        if !numbers.is_empty() {
            s.run(&promote, &[arg(numbers)]);
        }
    });
}

fn busy(c: &Collection) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED,
        format!("somebody else is changing all chunks of a text in {}", c.vectors.table_name),
        "It is tried again.",
    )
}

/// Sees to it that each text of the chunk table has one original, whatever was done to the table. It may take as long as
/// reading the table, and is to be the last that its transaction does.
pub fn promote(c: &Collection) {
    hold(c);
    promote_all(c);
}

fn promote_all(c: &Collection) {
    let table = &c.vectors.table_name;
    let demote = format!(
        "UPDATE {table} t SET is_copy = true
         FROM (SELECT c.content_hash, pg_catalog.min(c.chunk_id) FROM {table} c WHERE NOT c.is_copy
               GROUP BY c.content_hash HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 1) AS first (hash, chunk_id)
         WHERE t.content_hash OPERATOR(pg_catalog.=) first.hash AND NOT t.is_copy
           AND t.chunk_id OPERATOR(pg_catalog.<>) first.chunk_id"
    );
    let promote = format!(
        "UPDATE {table} t SET is_copy = false
         FROM (SELECT pg_catalog.min(c.chunk_id) FROM {table} c
               GROUP BY c.content_hash HAVING pg_catalog.bool_and(c.is_copy)) AS first (chunk_id)
         WHERE t.chunk_id OPERATOR(pg_catalog.=) first.chunk_id"
    );
    let _acting = ActingAs::restricted(c.source.owner);
    spi::connect(|s| {
        s.run(&demote, &[]);
        s.run(&promote, &[]);
    });
}
