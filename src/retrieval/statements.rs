//! Retrieval: candidates with the owner's rights, then what the invoking role may see of them.

use crate::pg::role::{self, ActingAs, Settings};
use crate::pg::spi::{self, Cursor, Mode, Rows, arg, quote};
use crate::pg::vector::Vector;
use crate::registry::{Collection, Column};

/// A chunk near the query, not yet checked for visibility.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its row's key as JSON text.
    pub key: String,
    /// Its number.
    pub chunk: i32,
    /// Its text.
    pub content: String,
    /// Cosine distance to the query, 0 to 2.
    pub distance: f64,
    /// Version of the row it was made of.
    pub xmin: pgrx::pg_sys::TransactionId,
    /// Hash of that version's content.
    pub source_hash: i64,
}

/// What the invoking role sees of a candidate's row.
#[derive(Debug, Clone)]
pub struct VisibleRow {
    /// Title.
    pub title: Option<String>,
    /// Link.
    pub link: Option<String>,
    /// Metadata as JSON text.
    pub metadata: Option<String>,
}

fn distance(c: &Collection) -> String {
    c.vectors.distance("c", "$1")
}

fn candidates_sql(c: &Collection, order: &str) -> String {
    format!(
        "SELECT {key}::pg_catalog.text, c.chunk, c.content, {distance}, c.source_xmin, c.source_hash
         FROM {table} c ORDER BY {order}",
        key = c.key.object("c", &c.vectors.key_columns),
        distance = distance(c),
        table = c.vectors.table_name,
    )
}

fn read(rows: &Rows<'_>) -> Vec<Candidate> {
    rows.iter()
        .map(|row| Candidate {
            key: row.need(1),
            chunk: row.need(2),
            content: row.need(3),
            // Not a number where a vector is zero: as far away as can be.
            distance: row.get::<f64>(4).filter(|d| !d.is_nan()).unwrap_or(2.0),
            xmin: row.need(5),
            source_hash: row.need(6),
        })
        .collect()
}

/// The `limit` nearest chunks by the HNSW index.
pub fn nearest(c: &Collection, query: &[f32], limit: usize) -> Vec<Candidate> {
    let sql = format!("{} LIMIT $2", candidates_sql(c, &distance(c)));
    let _acting = ActingAs::restricted(c.source.owner);
    let settings = Settings::new();
    // pgvector looks at hnsw.ef_search candidates (40 by default) and, with iterative scans, goes on from there.
    let ef_search: usize = role::setting("hnsw.ef_search").and_then(|v| v.parse().ok()).unwrap_or(40);
    if ef_search < limit {
        settings.set("hnsw.ef_search", &limit.min(1000).to_string());
    }
    if role::setting("hnsw.iterative_scan").is_none_or(|v| v == "off") {
        settings.set("hnsw.iterative_scan", "strict_order");
    }
    spi::connect(|s| read(&s.query(Mode::Read, &sql, &[arg(Vector(query.to_vec())), arg(limit as i64)])))
}

/// All chunks by exact distance, in pieces: for when the nearest by the index are not visible to the role.
pub struct Exact<'c> {
    cursor: Cursor<'c>,
    owner: pgrx::pg_sys::Oid,
}

impl<'c> Exact<'c> {
    /// Begins.
    pub fn open(s: &spi::Spi<'c>, c: &Collection, query: &[f32]) -> Self {
        // Adding zero keeps the planner from the index, whose scans end after hnsw.max_scan_tuples.
        let order = format!("({}) OPERATOR(pg_catalog.+) 0::pg_catalog.float8", distance(c));
        let _acting = ActingAs::restricted(c.source.owner);
        Self { cursor: s.cursor(&candidates_sql(c, &order), &[arg(Vector(query.to_vec()))]), owner: c.source.owner }
    }

    /// The next candidates; none at the end.
    pub fn next(&mut self, count: usize) -> Vec<Candidate> {
        let _acting = ActingAs::restricted(self.owner);
        spi::in_own_memory(|| read(&self.cursor.fetch(count)))
    }

    /// Ends.
    pub fn close(self) {
        self.cursor.close();
    }
}

/// Which of these candidates' rows the current role may SELECT now with the content the chunk was made of, and their
/// title, link and metadata; one entry for each candidate.
///
/// Where policies decide, it runs as the invoking role, unable to write, with its own search_path, on which policies may
/// rely; every name here is qualified. Where none does, every row is visible to those who may read the table, and it
/// runs as the owner: no code attached to somebody's table runs with the rights of whoever searches.
pub fn visible(c: &Collection, candidates: &[Candidate]) -> Vec<Option<VisibleRow>> {
    let guarded = role::is_under_row_security(c.source.table);
    let _acting = if guarded { ActingAs::guarded_self() } else { ActingAs::restricted(c.source.owner) };
    // The row version is quicker to compare, but a role may have been granted some columns only, which system columns
    // never are.
    let same_version = if guarded { "false" } else { "s.xmin OPERATOR(pg_catalog.=) u.xmin" };
    let text = |column: &Option<Column>| match column {
        Some(column) => column.output("s"),
        None => "NULL::pg_catalog.text".to_owned(),
    };
    let metadata = if c.metadata.is_empty() {
        "NULL::pg_catalog.text".to_owned()
    } else {
        let pairs: Vec<String> = c
            .metadata
            .iter()
            .map(|column| {
                let value = if column.is_built_in { format!("s.{}", quote(&column.name)) } else { column.output("s") };
                format!("{}, {value}", pgrx::spi::quote_literal(&column.name))
            })
            .collect();
        format!("pg_catalog.jsonb_build_object({})::pg_catalog.text", pairs.join(", "))
    };
    let sql = format!(
        "SELECT u.place::pg_catalog.int4, {title}, {link}, {metadata}
         FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.xid[]),
                         pg_catalog.unnest($3::pg_catalog.int8[])) WITH ORDINALITY AS u (key, xmin, hash, place)
         CROSS JOIN LATERAL {record}
         JOIN {source} s ON {join}
         WHERE {same_version} OR {hash} OPERATOR(pg_catalog.=) u.hash",
        title = text(&c.title),
        link = text(&c.link),
        record = c.key.record("u.key::pg_catalog.jsonb", "k"),
        source = c.source.name,
        join = c.key.join("s", &c.key.columns, "k", &c.key.columns),
        hash = c.content_hash("s"),
    );
    let keys: Vec<String> = candidates.iter().map(|c| c.key.clone()).collect();
    let versions: Vec<_> = candidates.iter().map(|c| c.xmin).collect();
    let hashes: Vec<i64> = candidates.iter().map(|c| c.source_hash).collect();
    let mut visible = vec![None; candidates.len()];
    spi::connect(|s| {
        for row in s.query(Mode::Read, &sql, &[arg(keys), arg(versions), arg(hashes)]).iter() {
            let place = row.need::<i32>(1) as usize - 1;
            visible[place] = Some(VisibleRow { title: row.get(2), link: row.get(3), metadata: row.get(4) });
        }
    });
    visible
}
