//! Chunk tables: reading what a row has and writing what it should have, as the source's owner.

use super::collection::Collection;
use super::{arg, quote};
use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Mode};
use crate::pg::vector::Vector;

/// A source row as the worker needs it.
#[derive(Debug, Clone, Default)]
pub struct SourceRow {
    /// Content columns as text, in the collection's order; empty when the row is gone.
    pub content: Vec<Option<String>>,
    /// Title as text.
    pub title: Option<String>,
    /// Whether the row exists.
    pub exists: bool,
}

/// A chunk that is stored.
#[derive(Debug, Clone)]
pub struct StoredChunk {
    /// Place of its row among the keys asked for.
    pub row: usize,
    /// Its number.
    pub chunk: i32,
    /// Its hash.
    pub hash: Vec<u8>,
    /// Its vector.
    pub embedding: Vec<f32>,
}

/// A chunk to store.
#[derive(Debug, Clone)]
pub struct NewChunk {
    /// The row's key as JSON text.
    pub key: String,
    /// Its number, from 1.
    pub chunk: i32,
    /// Its text.
    pub content: String,
    /// Its hash.
    pub hash: Vec<u8>,
    /// Its vector.
    pub embedding: Vec<f32>,
}

/// `unnest($n::text[]) WITH ORDINALITY`, each key taken apart into typed columns as `k`.
fn keys(c: &Collection) -> String {
    format!(
        "pg_catalog.unnest($1::pg_catalog.text[]) WITH ORDINALITY AS u (key, place)
         CROSS JOIN LATERAL {}",
        c.key_record("u.key::pg_catalog.jsonb", "k")
    )
}

/// Reads source rows by key; the result has one entry for each key, in order.
pub fn source_rows(c: &Collection, wanted: &[String]) -> Vec<SourceRow> {
    let content: Vec<String> = c
        .content_columns
        .iter()
        .chain(&c.title_column)
        .map(|name| format!("s.{}::pg_catalog.text", quote(name)))
        .collect();
    let sql = format!(
        "SELECT u.place::pg_catalog.int4, {content} FROM {keys} JOIN {source} s ON {join}",
        content = content.join(", "),
        keys = keys(c),
        source = c.source_name,
        join = c.key_join("s", &c.key_columns, "k", &c.key_columns),
    );
    let mut found = vec![SourceRow::default(); wanted.len()];
    let n = c.content_columns.len();
    let _acting = ActingAs::restricted(c.owner);
    spi::connect(|s| {
        for row in s.query(Mode::Write, &sql, &[arg(wanted.to_vec())]).iter() {
            let place = row.need::<i32>(1) as usize - 1;
            found[place] = SourceRow {
                content: (0..n).map(|i| row.get(i + 2)).collect(),
                title: if c.title_column.is_some() { row.get(n + 2) } else { None },
                exists: true,
            };
        }
    });
    found
}

/// Reads the chunks stored for rows by key.
pub fn stored(c: &Collection, wanted: &[String]) -> Vec<StoredChunk> {
    let sql = format!(
        "SELECT u.place::pg_catalog.int4, c.chunk, c.content_hash, c.embedding::pg_catalog.float4[]
         FROM {keys} JOIN {table} c ON {join}",
        keys = keys(c),
        table = c.chunk_table,
        join = c.key_join("c", &c.chunk_key_columns, "k", &c.key_columns),
    );
    let _acting = ActingAs::restricted(c.owner);
    spi::connect(|s| {
        s.query(Mode::Write, &sql, &[arg(wanted.to_vec())])
            .iter()
            .map(|row| StoredChunk {
                row: row.need::<i32>(1) as usize - 1,
                chunk: row.need(2),
                hash: row.need(3),
                embedding: row.need(4),
            })
            .collect()
    })
}

/// Removes the chunks of rows numbered above `keep`, one bound for each key; 0 removes all of a row's.
pub fn remove_above(c: &Collection, rows: &[String], keep: &[i32]) {
    let sql = format!(
        "DELETE FROM {table} c USING
            ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.int4[])) AS u (key, keep)
            CROSS JOIN LATERAL {record}
         WHERE {join} AND c.chunk > u.keep",
        table = c.chunk_table,
        record = c.key_record("u.key::pg_catalog.jsonb", "k"),
        join = c.key_join("c", &c.chunk_key_columns, "k", &c.key_columns),
    );
    let _acting = ActingAs::restricted(c.owner);
    spi::connect(|s| s.run(&sql, &[arg(rows.to_vec()), arg(keep.to_vec())]));
}

/// Stores chunks, in bulk.
pub fn write(c: &Collection, model: &str, chunks: Vec<NewChunk>) {
    if chunks.is_empty() {
        return;
    }
    let key_names = c.chunk_key_columns.iter().map(|n| quote(n)).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "INSERT INTO {table} ({key_names}, chunk, content, content_hash, model, embedding)
         SELECT {key_values}, u.chunk, u.content, u.hash, $2, u.embedding::{vector}
         FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($3::pg_catalog.int4[]),
                         pg_catalog.unnest($4::pg_catalog.text[]), pg_catalog.unnest($5::pg_catalog.bytea[]),
                         pg_catalog.unnest($6)) AS u (key, chunk, content, hash, embedding)
         CROSS JOIN LATERAL {record}
         ON CONFLICT ({key_names}, chunk) DO UPDATE
         SET content = EXCLUDED.content, content_hash = EXCLUDED.content_hash,
             model = EXCLUDED.model, embedding = EXCLUDED.embedding",
        table = c.chunk_table,
        key_values = super::columns("k", &c.key_columns),
        vector = c.vector_type(),
        record = c.key_record("u.key::pg_catalog.jsonb", "k"),
    );
    let mut parts = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for chunk in chunks {
        parts.0.push(chunk.key);
        parts.1.push(chunk.chunk);
        parts.2.push(chunk.content);
        parts.3.push(chunk.hash);
        parts.4.push(Vector(chunk.embedding));
    }
    let args = [
        arg(parts.0),
        arg(model.to_owned()),
        arg(parts.1),
        arg(parts.2),
        arg(parts.3),
        arg(parts.4),
    ];
    let _acting = ActingAs::restricted(c.owner);
    spi::connect(|s| s.run(&sql, &args));
}

/// Removes the chunks whose row is gone.
pub fn remove_orphans(c: &Collection) {
    let sql = format!(
        "DELETE FROM {table} c WHERE NOT EXISTS (SELECT FROM {source} s WHERE {join})",
        table = c.chunk_table,
        source = c.source_name,
        join = c.key_join("s", &c.key_columns, "c", &c.chunk_key_columns),
    );
    let _acting = ActingAs::restricted(c.owner);
    spi::connect(|s| s.run(&sql, &[]));
}
