//! Chunk tables: reading what a row has and writing what it should have, as the source's owner.

use super::copies::{self, Lost};
use crate::pg::role::{ActingAs, Settings};
use crate::pg::spi::{self, Row, Snapshot, Spi, arg, quote};
use crate::pg::vector::Vector;
use crate::pg::xact;
use crate::registry::Collection;
use crate::registry::statements::columns;
use pgrx::pg_sys::TransactionId;
use ragent_core::ingest::copies::{Standing, standings};
use ragent_core::ingest::plan::{RowText, StoredChunk};
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

pub use super::copies::promote;

/// A source row that exists.
#[derive(Debug, Clone)]
pub struct SourceRow {
    /// Its text.
    pub text: RowText,
    /// The row's own key as JSON text: keys can be equal and yet written differently.
    pub key: String,
    /// Which version of the row it is.
    pub version: Version,
}

/// A version of a source row.
#[derive(Debug, Clone, Copy)]
pub struct Version {
    /// Its xmin.
    pub xmin: TransactionId,
    /// Hash of its content.
    pub hash: i64,
}

/// A chunk to store.
#[derive(Debug, Clone)]
pub struct NewChunk {
    /// The row's key as JSON text.
    pub key: String,
    /// Number within the row, from 1.
    pub number: i32,
    /// Text of the chunk.
    pub content: String,
    /// [`ragent_core::ingest::recipe::Recipe::hash`] of it.
    pub hash: Vec<u8>,
    /// Version of the row it was made of.
    pub version: Version,
    /// Embedding.
    pub embedding: Vec<f32>,
}

/// Runs statements that find few rows of a large table, by its keys: by index at any cost. Without statistics, which a table
/// that was just filled has not, PostgreSQL would read all of it each time.
pub(super) fn by_index<R>(f: impl FnOnce(&Spi<'_>) -> R) -> R {
    let settings = Settings::new();
    for other in ["enable_seqscan", "enable_hashjoin", "enable_mergejoin"] {
        settings.set(other, "off");
    }
    spi::connect(f)
}

/// `unnest($n::text[]) WITH ORDINALITY`, each key taken apart into typed columns as `k`.
fn keys(c: &Collection) -> String {
    format!(
        "pg_catalog.unnest($1::pg_catalog.text[]) WITH ORDINALITY AS u (key, place)
         CROSS JOIN LATERAL {}",
        c.key.record("u.key::pg_catalog.jsonb", "k")
    )
}

/// Reads keys as the key columns' types, and nothing else; an error where that cannot be done.
pub fn read_keys(c: &Collection, wanted: &[String]) {
    let values = columns("k", &c.key.columns);
    let sql = format!("SELECT pg_catalog.count(ROW({values})) FROM {}", keys(c));
    let _acting = ActingAs::restricted(c.source.owner);
    spi::connect(|s| s.run(&sql, &[arg(wanted.to_vec())]));
}

/// Of these keys, those that can be read as the key columns' types, wherever that cannot be done with all of them together.
pub fn readable_keys(c: &Collection, mut keys: Vec<String>) -> Vec<String> {
    if keys.is_empty() || xact::attempt(|| read_keys(c, &keys)).is_ok() {
        return keys;
    }
    if keys.len() == 1 {
        return Vec::new();
    }
    let others = keys.split_off(keys.len() / 2);
    let mut readable = readable_keys(c, keys);
    readable.extend(readable_keys(c, others));
    readable
}

/// How many bytes of text these rows have, in their content and title, in order; 0 for a row that is gone.
pub fn sizes(c: &Collection, wanted: &[String]) -> Vec<i64> {
    let sizes: Vec<String> = c
        .embedded_as_text("s")
        .iter()
        .map(|text| format!("coalesce(pg_catalog.octet_length({text}), 0)::pg_catalog.int8"))
        .collect();
    let sql = format!(
        "SELECT u.place::pg_catalog.int4 AS place, {size} AS size FROM {keys} JOIN {source} s ON {join}",
        size = sizes.join(" OPERATOR(pg_catalog.+) "),
        keys = keys(c),
        source = c.source.name,
        join = c.key.join("s", &c.key.columns, "k", &c.key.columns),
    );
    let mut found = vec![0; wanted.len()];
    let _acting = ActingAs::restricted(c.source.owner);
    by_index(|s| {
        for row in s.query(Snapshot::New, &sql, &[arg(wanted.to_vec())]).iter() {
            found[row.need_named::<i32>("place") as usize - 1] = row.need_named("size");
        }
    });
    found
}

/// Reads source rows by key; the result has one entry for each key, in order: `None` for a row that is gone.
pub fn source_rows(c: &Collection, wanted: &[String]) -> Vec<Option<SourceRow>> {
    let title = match &c.title {
        Some(column) => column.as_text("s"),
        None => "NULL::pg_catalog.text".to_owned(),
    };
    let sql = format!(
        "SELECT u.place::pg_catalog.int4 AS place, {key}::pg_catalog.text AS key, s.xmin AS xmin, {hash} AS hash,
                ARRAY[{content}] AS content, {title} AS title
         FROM {keys} JOIN {source} s ON {join}",
        key = c.key.object("s", &c.key.columns),
        hash = c.content_hash("s"),
        content = c.content_as_text("s").join(", "),
        keys = keys(c),
        source = c.source.name,
        join = c.key.join("s", &c.key.columns, "k", &c.key.columns),
    );
    let mut found = vec![None; wanted.len()];
    let _acting = ActingAs::restricted(c.source.owner);
    by_index(|s| {
        for row in s.query(Snapshot::New, &sql, &[arg(wanted.to_vec())]).iter() {
            found[row.need_named::<i32>("place") as usize - 1] = Some(SourceRow {
                text: RowText { content: row.need_named("content"), title: row.named("title") },
                key: row.need_named("key"),
                version: Version { xmin: row.need_named("xmin"), hash: row.need_named("hash") },
            });
        }
    });
    found
}

/// Vectors of a row's or a job's chunks that are read to be used again, in bytes; what is beyond is embedded anew.
const MAX_VECTORS: usize = 64 << 20;

/// How many vectors that is.
fn most_vectors(c: &Collection) -> usize {
    MAX_VECTORS / (c.vectors.embedding.dimensions.max(1) as usize * size_of::<f32>())
}

/// The vectors of texts that any row has already, by their hashes.
pub fn vectors(c: &Collection, hashes: Vec<Vec<u8>>) -> HashMap<Vec<u8>, Vec<f32>> {
    copies::vectors(c, hashes, most_vectors(c))
}

/// Reads the chunks stored for rows by key, each with the place of its row among the keys; not those of another model.
pub fn stored(c: &Collection, wanted: &[String]) -> Vec<(usize, StoredChunk)> {
    let with_vector = most_vectors(c);
    let sql = format!(
        "SELECT u.place::pg_catalog.int4 AS place, c.chunk AS number, pg_catalog.\"substring\"(c.content_hash, 1, 64) AS hash,
                CASE WHEN c.chunk OPERATOR(pg_catalog.<=) $2 THEN c.embedding::pg_catalog.float4[] END AS embedding
         FROM {keys} JOIN {table} c ON {join} AND c.model OPERATOR(pg_catalog.=) $3",
        keys = keys(c),
        table = c.vectors.table_name,
        join = c.key.join("c", &c.vectors.key_columns, "k", &c.key.columns),
    );
    let _acting = ActingAs::restricted(c.source.owner);
    by_index(|s| {
        let args = [arg(wanted.to_vec()), arg(with_vector as i32), arg(c.generation.model.clone())];
        let rows = s.query(Snapshot::New, &sql, &args);
        let chunk = |row: Row<'_>| StoredChunk {
            number: row.need_named("number"),
            hash: row.need_named("hash"),
            embedding: row.named("embedding").unwrap_or_default(),
        };
        rows.iter().map(|row| (row.need_named::<i32>("place") as usize - 1, chunk(row))).collect()
    })
}

/// Removes the chunks of rows numbered above `keep`, one bound for each key; 0 removes all of a row's. What texts they had.
pub fn remove_above(c: &Collection, rows: &[String], keep: &[i32]) -> Lost {
    let sql = copies::returning_lost(&format!(
        "DELETE FROM {table} c USING
            ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.int4[])) AS u (key, keep)
            CROSS JOIN LATERAL {record}
         WHERE {join} AND c.chunk OPERATOR(pg_catalog.>) u.keep",
        table = c.vectors.table_name,
        record = c.key.record("u.key::pg_catalog.jsonb", "k"),
        join = c.key.join("c", &c.vectors.key_columns, "k", &c.key.columns),
    ));
    let _acting = ActingAs::restricted(c.source.owner);
    let mut lost = Lost::default();
    by_index(|s| {
        let rows = s.query(Snapshot::New, &sql, &[arg(rows.to_vec()), arg(keep.to_vec())]);
        lost.add(rows.iter().map(|row| row.need_named("hash")));
    });
    lost
}

/// Stores chunks, in bulk, after texts lost some. The chunks come one for each number of a row.
///
/// What goes into the index, which takes the most time, is written first, where other workers need not wait for it.
pub fn write(c: &Collection, model: &str, chunks: Vec<NewChunk>, mut lost: Lost) {
    let (mut replaced, mut new, mut copies_of_stored) = (HashSet::new(), Vec::new(), Vec::new());
    if !chunks.is_empty() {
        let (numbers, hashes) = copies::replaced(c, &chunks);
        lost.add(hashes);
        replaced = numbers;
        for (chunk, standing) in with_standings(c, chunks, &replaced) {
            match standing {
                Standing::Original => new.push((chunk, false)),
                Standing::CopyOfNew => new.push((chunk, true)),
                Standing::CopyOfStored => copies_of_stored.push(chunk),
            }
        }
    }
    insert(c, model, new);
    if copies_of_stored.is_empty() && lost.is_empty() {
        return;
    }
    copies::hold(c);
    // Some of their originals may be gone by now.
    let others = with_standings(c, copies_of_stored, &replaced);
    insert(c, model, others.into_iter().map(|(chunk, standing)| (chunk, standing != Standing::Original)).collect());
    copies::promote_lost(c, lost);
}

/// Chunks with what they are among those of the same text. Chunks of the numbers in `replaced` do not count.
fn with_standings(c: &Collection, chunks: Vec<NewChunk>, replaced: &HashSet<i64>) -> Vec<(NewChunk, Standing)> {
    if chunks.is_empty() {
        return vec![];
    }
    let stored = copies::with_original(c, &chunks, replaced);
    let standings = standings(chunks.iter().map(|chunk| chunk.hash.as_slice()), &stored);
    chunks.into_iter().zip(standings).collect()
}

/// Writes chunks, each with whether it is a copy.
fn insert(c: &Collection, model: &str, chunks: Vec<(NewChunk, bool)>) {
    if chunks.is_empty() {
        return;
    }
    let key_names = c.vectors.key_columns.iter().map(|n| quote(n)).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "INSERT INTO {table} ({key_names}, chunk, chunk_id, content, content_hash, model, source_xmin, source_hash, embedding,
                              is_copy)
         SELECT {key_values}, u.chunk, u.id, u.content, u.hash, $2, u.source_xmin, u.source_hash, u.embedding::{vector},
                u.is_copy
         FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($3::pg_catalog.int4[]),
                         pg_catalog.unnest($4::pg_catalog.text[]), pg_catalog.unnest($5::pg_catalog.bytea[]),
                         pg_catalog.unnest($6), pg_catalog.unnest($7::pg_catalog.xid[]),
                         pg_catalog.unnest($8::pg_catalog.int8[]), pg_catalog.unnest($9::pg_catalog.int8[]),
                         pg_catalog.unnest($10::pg_catalog.bool[]))
              AS u (key, chunk, content, hash, embedding, source_xmin, source_hash, id, is_copy)
         CROSS JOIN LATERAL {record}
         ON CONFLICT ({key_names}, chunk) DO UPDATE
         SET content = EXCLUDED.content, content_hash = EXCLUDED.content_hash,
             model = EXCLUDED.model, embedding = EXCLUDED.embedding,
             source_xmin = EXCLUDED.source_xmin, source_hash = EXCLUDED.source_hash, is_copy = EXCLUDED.is_copy",
        table = c.vectors.table_name,
        key_values = columns("k", &c.key.columns),
        vector = c.vectors.embedding.sql_type(),
        record = c.key.record("u.key::pg_catalog.jsonb", "k"),
    );
    let mut parts = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut versions = (Vec::new(), Vec::new());
    let mut are_copies = Vec::new();
    for (chunk, is_copy) in chunks {
        are_copies.push(is_copy);
        parts.0.push(chunk.key);
        parts.1.push(chunk.number);
        parts.2.push(chunk.content);
        parts.3.push(chunk.hash);
        parts.4.push(Vector(chunk.embedding));
        versions.0.push(chunk.version.xmin);
        versions.1.push(chunk.version.hash);
    }
    let ids = new_ids(parts.0.len());
    let args = [
        arg(parts.0),
        arg(model.to_owned()),
        arg(parts.1),
        arg(parts.2),
        arg(parts.3),
        arg(parts.4),
        arg(versions.0),
        arg(versions.1),
        arg(ids),
        arg(are_copies),
    ];
    let _acting = ActingAs::restricted(c.source.owner);
    spi::connect(|s| s.run(&sql, &args));
}

/// Numbers for new chunks. Those of chunks that exist already under their key are not used.
pub fn new_ids(count: usize) -> Vec<i64> {
    const SQL: &str = "SELECT pg_catalog.nextval('rag_internal.chunk_id_seq'::pg_catalog.regclass)
        FROM pg_catalog.generate_series(1, $1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::New, SQL, &[arg(count as i32)]).iter().map(|row| row.need(1)).collect())
}

/// Waits until DDL that queued a comparison has come to its end. At commit its queue entry is visible a moment before other
/// processes learn that the table has other partitions; its lock is given up after that.
pub fn wait_for_ddl(c: &Collection) {
    let _acting = ActingAs::restricted(c.source.owner);
    spi::connect(|s| s.utility(&format!("LOCK TABLE ONLY {} IN SHARE UPDATE EXCLUSIVE MODE", c.source.name)));
}

/// How large a collection's tables are, long values included, in bytes.
pub fn table_bytes(c: &Collection) -> u64 {
    // The leaves of a partitioned table; a table of its own is its only leaf.
    const SQL: &str = "SELECT coalesce(pg_catalog.sum(pg_catalog.pg_table_size(t.relid)), 0)::pg_catalog.int8
        FROM pg_catalog.unnest(ARRAY[$1, $2]) AS r (oid)
        CROSS JOIN LATERAL (SELECT p.relid FROM pg_catalog.pg_partition_tree(r.oid::pg_catalog.regclass) p
                            UNION SELECT r.oid) AS t (relid)";
    let args = [arg(c.source.table), arg(c.vectors.table)];
    spi::connect(|s| s.query(Snapshot::New, SQL, &args).one::<i64>().unwrap_or(0)).unsigned_abs()
}

/// Removes the chunks whose row is gone.
pub fn remove_orphans(c: &Collection) {
    let sql = format!(
        "DELETE FROM {table} c WHERE NOT EXISTS (SELECT FROM {source} s WHERE {join})",
        table = c.vectors.table_name,
        source = c.source.name,
        join = c.key.join("s", &c.key.columns, "c", &c.vectors.key_columns),
    );
    let _acting = ActingAs::restricted(c.source.owner);
    spi::connect(|s| s.run(&sql, &[]));
}

/// Notes the row version that unchanged chunks were found to belong to, of chunks with these numbers.
pub fn confirm(c: &Collection, rows: &[(String, Version)], numbers: RangeInclusive<i32>) {
    if rows.is_empty() {
        return;
    }
    let sql = format!(
        "UPDATE {table} c SET source_xmin = u.source_xmin, source_hash = u.source_hash
         FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.xid[]),
                         pg_catalog.unnest($3::pg_catalog.int8[])) AS u (key, source_xmin, source_hash)
              CROSS JOIN LATERAL {record}
         WHERE {join} AND c.source_hash OPERATOR(pg_catalog.<>) u.source_hash
           AND c.chunk OPERATOR(pg_catalog.>=) $4 AND c.chunk OPERATOR(pg_catalog.<=) $5",
        table = c.vectors.table_name,
        record = c.key.record("u.key::pg_catalog.jsonb", "k"),
        join = c.key.join("c", &c.vectors.key_columns, "k", &c.key.columns),
    );
    let (mut keys, mut versions, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
    for (key, version) in rows {
        keys.push(key.clone());
        versions.push(version.xmin);
        hashes.push(version.hash);
    }
    let _acting = ActingAs::restricted(c.source.owner);
    by_index(|s| s.run(&sql, &[arg(keys), arg(versions), arg(hashes), arg(*numbers.start()), arg(*numbers.end())]));
}
