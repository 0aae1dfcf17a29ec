//! All SQL text of the room: candidates with the owner's rights, then what the current role may see of them.

use super::arm::Candidate;
use super::{Found, shown};
use crate::guc;
use crate::ingest::statements::queue::UNFOLDED;
use crate::pg::catalog;
use crate::pg::jsonb::Jsonb;
use crate::pg::role::{self, ActingAs, Settings};
use crate::pg::spi::{self, Arg, Cursor, Rows, Snapshot, Spi, arg, quote};
use crate::pg::vector::Vector;
use crate::registry::statements::{MAX_ARGUMENTS, columns};
use crate::registry::{Collection, Column};
use std::collections::HashSet;

/// pgvector's default of `hnsw.ef_search`, which holds before its library is loaded.
const DEFAULT_EF_SEARCH: usize = 40;
/// The most `hnsw.ef_search` can be.
const MAX_EF_SEARCH: usize = 1000;

/// A table may be so many times as large as the index whose vectors are read from it.
const MOST_COPIES: u32 = 8;

/// Whether a collection has so few texts that its index saves nothing. It is asked at every search, and costs no query.
pub fn is_small(c: &Collection) -> bool {
    const KB_OF_BLOCK: u32 = pgrx::pg_sys::BLCKSZ / 1024;
    let most = guc::exact_search_size() / KB_OF_BLOCK;
    let is_within = |relation, most| catalog::blocks(relation).is_some_and(|blocks| blocks <= most);
    is_within(c.vectors.index, most) && is_within(c.vectors.table, most.saturating_mul(MOST_COPIES))
}

/// How the chunks nearest to a vector are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By the index.
    Index,
    /// By comparing what is in the index, where it is small.
    Exact,
}

/// The `k` nearest chunks as results, without those whose row is gone or, unless that is wanted, has another content by now.
/// For roles that no policy concerns: to them every row of a table they may read is visible. Best first.
pub fn nearest_visible(c: &Collection, query: &[f32], k: usize, way: Way) -> Vec<Found> {
    let name = match way {
        Way::Index => "nearest visible",
        Way::Exact => "nearest visible exactly",
    };
    let statement = c.statement(name, k as u32, || nearest_visible_sql(c, &nearest_sql(c, k, way)));
    let _acting =
        if c.reading_runs_no_code { ActingAs::reader(c.source.owner) } else { ActingAs::restricted(c.source.owner) };
    let _settings = (way == Way::Index && k > ef_search()).then(|| widened(k));
    let mut seen = HashSet::new();
    spi::connect(|s| {
        let rows = s.query_kept(Snapshot::Active, &statement, &[arg(Vector(query.to_vec()))]);
        let found = rows.iter().filter(|row| seen.insert(row.need::<i64>(8))).map(|row| Found {
            collection: c.name.clone(),
            key: row.need(1),
            chunk: row.need(2),
            content: row.need(3),
            score: score(row.get(4)),
            title: row.get(5),
            link: row.get(6),
            metadata: row.get(7),
        });
        found.collect()
    })
}

/// What is shown of the rows of `nearest` and of their source's. A limit inside keeps the nearest apart from the join, so that
/// the index gives them in order.
fn nearest_visible_sql(c: &Collection, nearest: &str) -> String {
    format!(
        "SELECT {key}, u.chunk, {content}, u.distance, {title}, {link}, {metadata}, u.chunk_id
         FROM ({nearest}) AS u
         JOIN {source} s ON {join}
         WHERE {is_shown}
         ORDER BY {ORDER}",
        key = c.key.object("u", &key_names(c)),
        content = chunk_text("u"),
        title = shown(c.title.as_ref()),
        link = shown(c.link.as_ref()),
        metadata = metadata(c),
        source = c.source.name,
        join = c.key.join("s", &c.key.columns, "u", &key_names(c)),
        is_shown = is_shown(c, "u.source_hash"),
    )
}

/// The order of results: of chunks that are equally near, which all of equal texts are, the one in the index is the first,
/// whichever way they were found.
const ORDER: &str = "u.distance, u.is_copy, u.chunk_id";

/// What the key's columns are called in [`nearest_sql`] and [`all_exactly`].
fn key_names(c: &Collection) -> Vec<String> {
    (1..=c.key.columns.len()).map(|n| format!("key_{n}")).collect()
}

/// The columns of a chunk that both give, besides its distance.
fn chunk_columns(c: &Collection, alias: &str) -> String {
    let keys = c.vectors.key_columns.iter().zip(key_names(c));
    let keys: Vec<String> = keys.map(|(name, key)| format!("{alias}.{} AS {key}", quote(name))).collect();
    format!(
        "{}, {alias}.chunk, {alias}.chunk_id, {alias}.content, {alias}.source_hash, {alias}.is_copy",
        keys.join(", ")
    )
}

/// The `limit` nearest chunks, the nearest first. Each that is in the index brings its copies along: no more than are wanted in
/// all.
fn nearest_sql(c: &Collection, limit: usize, way: Way) -> String {
    let table = &c.vectors.table_name;
    let distance = match way {
        Way::Index => c.vectors.distance("c", "$1"),
        Way::Exact => exact_distance(c),
    };
    let keys: Vec<String> = key_names(c).iter().map(|key| format!("o.{key}")).collect();
    format!(
        "SELECT u.*, o.distance
         FROM (SELECT {columns}, c.content_hash, {distance} AS distance
               FROM {table} c WHERE NOT c.is_copy ORDER BY {distance} LIMIT {limit}) AS o
         CROSS JOIN LATERAL (
               SELECT {keys}, o.chunk, o.chunk_id, o.content, o.source_hash, o.is_copy
               UNION ALL
               (SELECT {columns} FROM {table} c
                WHERE c.content_hash OPERATOR(pg_catalog.=) o.content_hash AND c.is_copy
                ORDER BY c.chunk_id LIMIT {limit})) AS u
         ORDER BY o.distance, u.is_copy, u.chunk_id LIMIT {limit}",
        columns = chunk_columns(c, "c"),
        keys = keys.join(", "),
    )
}

/// A chunk's distance to the query, where the index is not to be used. Adding zero keeps the planner from it: its scans end
/// after hnsw.max_scan_tuples.
fn exact_distance(c: &Collection) -> String {
    format!("({}) OPERATOR(pg_catalog.+) 0::pg_catalog.float8", c.vectors.distance("c", "$1"))
}

/// All chunks by exact distance, the nearest first.
fn all_exactly(c: &Collection) -> String {
    format!(
        "SELECT * FROM (SELECT {columns}, {distance} AS distance FROM {table} c) AS u ORDER BY {ORDER}",
        columns = chunk_columns(c, "c"),
        distance = exact_distance(c),
        table = c.vectors.table_name,
    )
}

/// The `limit` nearest chunks, the nearest first.
pub fn nearest(s: &Spi<'_>, c: &Collection, query: &[f32], limit: usize, way: Way) -> Vec<Candidate> {
    let name = match way {
        Way::Index => "nearest",
        Way::Exact => "nearest in a small one",
    };
    let statement = c.statement(name, limit as u32, || candidates_sql(c, &nearest_sql(c, limit, way)));
    let _acting = ActingAs::restricted(c.source.owner);
    let _settings = widened(limit);
    candidates(&s.query_kept(Snapshot::Active, &statement, &[arg(Vector(query.to_vec()))]))
}

/// How many candidates an index scan looks at.
fn ef_search() -> usize {
    role::setting("hnsw.ef_search").and_then(|v| v.parse().ok()).unwrap_or(DEFAULT_EF_SEARCH)
}

/// Settings under which an index scan gives so many candidates: pgvector looks at `hnsw.ef_search` of them and, with
/// iterative scans, goes on from there.
fn widened(limit: usize) -> Settings {
    let settings = Settings::new();
    if ef_search() < limit {
        settings.set("hnsw.ef_search", &limit.min(MAX_EF_SEARCH).to_string());
    }
    if role::setting("hnsw.iterative_scan").is_none_or(|v| v == "off") {
        settings.set("hnsw.iterative_scan", "strict_order");
    }
    settings
}

/// All chunks by exact distance, in pieces.
pub struct NearestExactly<'c> {
    cursor: Cursor<'c>,
    owner: pgrx::pg_sys::Oid,
}

impl<'c> NearestExactly<'c> {
    /// Begins.
    pub fn open(s: &Spi<'c>, c: &Collection, query: &[f32]) -> Self {
        let statement = c.statement("nearest exactly", 0, || candidates_sql(c, &all_exactly(c)));
        let _acting = ActingAs::restricted(c.source.owner);
        Self { cursor: s.cursor(&statement, &[arg(Vector(query.to_vec()))]), owner: c.source.owner }
    }

    /// The next candidates; none at the end.
    pub fn next(&mut self, count: usize) -> Vec<Candidate> {
        let _acting = ActingAs::restricted(self.owner);
        spi::in_own_memory(|| candidates(&self.cursor.fetch(count)))
    }
}

/// Candidates made of the rows of `nearest`, in their order.
fn candidates_sql(c: &Collection, nearest: &str) -> String {
    format!(
        "SELECT u.chunk_id, pg_catalog.jsonb_build_object({key}), u.chunk, {content}, u.distance, u.source_hash
         FROM ({nearest}) AS u",
        key = candidate_key(c),
        content = chunk_text("u"),
    )
}

fn candidates(rows: &Rows<'_>) -> Vec<Candidate> {
    rows.iter()
        .map(|row| Candidate {
            chunk_id: row.need(1),
            key: row.need(2),
            chunk: row.need(3),
            content: row.need(4),
            score: score(row.get(5)),
            source_hash: row.need(6),
        })
        .collect()
}

/// The score of a distance. Where a vector is zero it is not a number: as far away as can be.
fn score(distance: Option<f64>) -> f64 {
    1.0 - distance.filter(|d| !d.is_nan()).unwrap_or(2.0)
}

/// Those candidates whose row the current role may SELECT now with the content the chunk was made of (or another, where the
/// collection has old texts shown), in their order.
///
/// Where policies decide, it runs as the current role, unable to write, with its own search_path, on which policies may
/// rely; every name here is qualified. Where none does, every row is visible to those who may read the table, and it
/// runs as the owner: no code attached to somebody's table runs with the rights of whoever searches.
pub fn visible(c: &Collection, candidates: Vec<Candidate>) -> Vec<Found> {
    let is_guarded = role::is_under_row_security(c.source.table);
    let name = if is_guarded { "visible under policies" } else { "visible" };
    let statement = c.statement(name, 0, || visible_sql(c));
    let _acting = if is_guarded { ActingAs::guarded_self() } else { ActingAs::restricted(c.source.owner) };
    let _settings = c.key.settings();
    let keys: Vec<_> = candidates.iter().map(|c| c.key.clone()).collect();
    let hashes: Vec<_> = candidates.iter().map(|c| c.source_hash).collect();
    let mut candidates: Vec<Option<Candidate>> = candidates.into_iter().map(Some).collect();
    spi::connect(|s| {
        let rows = s.query_kept(Snapshot::Active, &statement, &[arg(keys), arg(hashes)]);
        let found = rows.iter().filter_map(|row| {
            let candidate = candidates[row.need::<i64>(1) as usize - 1].take()?;
            Some(Found {
                collection: c.name.clone(),
                key: candidate.key,
                chunk: candidate.chunk,
                content: candidate.content,
                score: candidate.score,
                title: row.get(2),
                link: row.get(3),
                metadata: row.get(4),
            })
        });
        found.collect()
    })
}

fn visible_sql(c: &Collection) -> String {
    format!(
        "SELECT u.place, {title}, {link}, {metadata}
         FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.jsonb[]), pg_catalog.unnest($2::pg_catalog.int8[])) WITH ORDINALITY
              AS u (key, source_hash, place)
         CROSS JOIN LATERAL {record}
         JOIN {source} s ON {join}
         WHERE {is_shown}
         ORDER BY u.place",
        title = shown(c.title.as_ref()),
        link = shown(c.link.as_ref()),
        metadata = metadata(c),
        record = c.key.record("u.key", "k"),
        source = c.source.name,
        join = c.key.join("s", &c.key.columns, "k", &c.key.columns),
        is_shown = is_shown(c, "u.source_hash"),
    )
}

/// Whether the current role may SELECT a row with this key and the content that a chunk was made of. As in [`visible`] where
/// policies decide, whether or not they do: whoever reads the chunk table named it.
pub fn shows_row(c: &Collection, hash: i64, key: Vec<Arg<'_>>) -> bool {
    let statement = c.statement("shows row", 0, || {
        let names = c.key.columns.iter().take(c.key.equality.len()).enumerate();
        let same_key: Vec<String> =
            names.map(|(n, name)| c.key.equal(n, &format!("s.{}", quote(name)), &format!("${}", n + 2))).collect();
        // It names what the chunk was made of, so that reading the one asks for the same rights as reading the other, also where
        // the content is not looked at.
        let used = c.key.columns.iter().chain(c.content.iter().chain(&c.title).map(|column| &column.name));
        format!(
            "SELECT true WHERE EXISTS (SELECT {used} FROM {source} s WHERE {same_key} AND {is_shown})",
            used = columns("s", &used.cloned().collect::<Vec<_>>()),
            source = c.source.name,
            same_key = same_key.join(" AND "),
            is_shown = is_shown(c, "$1"),
        )
    });
    let args: Vec<Arg<'_>> = std::iter::once(arg(hash)).chain(key).collect();
    let _acting = ActingAs::guarded_self();
    spi::connect(|s| s.query_kept(Snapshot::Active, &statement, &args).first().is_some())
}

/// All rows of a source that the current role may SELECT, as [`shows_row`] finds them one by one. None where they are more than
/// can be remembered.
pub fn shown_rows(c: &Collection) -> Option<shown::Rows> {
    let columns_of_key = c.key.columns.len();
    let statement = c.statement("shown rows", 0, || {
        let (hash, key) = (c.hash_if_any("s"), columns("s", &c.key.columns));
        format!("SELECT coalesce({hash}, 0), {key} FROM {source} s", source = c.source.name)
    });
    let _acting = ActingAs::guarded_self();
    spi::connect(|s| {
        let mut cursor = s.cursor(&statement, &[]);
        let mut found = shown::Rows::new(c.serve_stale);
        loop {
            let read = spi::in_own_memory(|| {
                let rows = cursor.fetch(ROWS_AT_ONCE);
                let mut count = 0;
                for row in rows.iter() {
                    let key: Option<Vec<_>> = (2..columns_of_key + 2).map(|column| row.image(column)).collect();
                    if !found.add(row.need(1), &key?) {
                        return None;
                    }
                    count += 1;
                }
                Some(count)
            })?;
            if read == 0 {
                return Some(found);
            }
        }
    })
}

/// So many rows are fetched at once where many are read.
const ROWS_AT_ONCE: usize = 1000;

/// Whether a chunk is shown whose row `s` is there: while the row has the content that the chunk was made of, which has this
/// hash; of some collections also after that, until it is embedded anew. The row version would not tell: a column that was dropped
/// and added again, a renamed label of an enum or another expression of a virtual column leave it as it is.
fn is_shown(c: &Collection, hash: &str) -> String {
    if c.serve_stale {
        return "true".to_owned();
    }
    c.is_as_embedded("s", hash)
}

/// The first `most` entries of collection $1.
const FIRST_ENTRIES: &str = "(SELECT q.key, q.keys, q.rows FROM rag_internal.queue q
    WHERE q.collection OPERATOR(pg_catalog.=) $1 ORDER BY q.id LIMIT $2) AS q";

/// How many rows the first `most` entries of a collection are about, and whether a comparison is among them.
pub fn entries(collection: i32, most: usize) -> (usize, bool) {
    let sql = format!(
        "SELECT pg_catalog.count(DISTINCT q.key) OPERATOR(pg_catalog.+) coalesce(pg_catalog.sum(q.rows) FILTER (WHERE q.keys IS NOT NULL), 0)::pg_catalog.int8
                    AS rows,
                coalesce(pg_catalog.bool_or(q.key IS NULL AND q.keys IS NULL), false) AS is_compared
         FROM {FIRST_ENTRIES}"
    );
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, &sql, &[arg(collection), arg(most as i64)]);
        let row = rows.first().expect("an aggregate gives a row");
        (row.need_named::<i64>("rows") as usize, row.need_named("is_compared"))
    })
}

/// The keys that the first `most` entries of a collection are about, as many at most, and whether a comparison is among them.
pub fn waiting_keys(collection: i32, most: usize) -> (Vec<Jsonb>, bool) {
    let sql = format!(
        "SELECT one.key AS key, q.key IS NULL AND q.keys IS NULL AS is_compared
         FROM {FIRST_ENTRIES}
         CROSS JOIN LATERAL (
             SELECT 1, q.key WHERE q.keys IS NULL
             UNION ALL
             {UNFOLDED}) AS one (place, key)
         LIMIT $2"
    );
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, &sql, &[arg(collection), arg(most as i64)]);
        let is_compared = rows.iter().any(|row| row.need_named("is_compared"));
        (rows.iter().filter_map(|row| row.named("key")).collect(), is_compared)
    })
}

/// How many rows with these keys the current role sees in a collection's source.
pub fn count_visible(c: &Collection, keys: Vec<Jsonb>) -> usize {
    let statement = c.statement("waiting and visible", 0, || {
        format!(
            "SELECT pg_catalog.count(*)
             FROM (SELECT DISTINCT d.key FROM pg_catalog.unnest($1::pg_catalog.jsonb[]) AS d (key)) AS u
             CROSS JOIN LATERAL {record} JOIN {source} s ON {join}",
            record = c.key.record("u.key", "k"),
            source = c.source.name,
            join = c.key.join("s", &c.key.columns, "k", &c.key.columns),
        )
    });
    spi::connect(|s| s.query_kept(Snapshot::Active, &statement, &[arg(keys)]).one::<i64>().unwrap_or(0) as usize)
}

/// What a result brings along at most, whatever somebody wrote into its row: longer values are cut or left out before they
/// leave the executor, whose memory is given back at every row and whose failed allocations are errors.
///
/// Bytes of a chunk's text, which no chunker reaches, and what is left of a longer one, in characters.
const MAX_CONTENT: (usize, usize) = (65536, 16384);
/// The same of a title or link.
const MAX_SHOWN: (usize, usize) = (4096, 1024);
/// Bytes of a metadata value, and of all metadata of a row as JSON text.
const MAX_METADATA: usize = 65536;
/// Bytes of a key column in a chunk table: more than an index entry holds.
const MAX_KEY: usize = 8192;

/// A text of at most so many bytes as it is, of a longer one its first characters. The length is known without reading the
/// text, and no more of it is read than is shown.
fn cut(text: &str, (bytes, characters): (usize, usize)) -> String {
    format!(
        "CASE WHEN pg_catalog.octet_length({text}) OPERATOR(pg_catalog.<=) {bytes} THEN {text}
              ELSE pg_catalog.\"left\"({text}, {characters}) END"
    )
}

/// The text of a chunk.
fn chunk_text(alias: &str) -> String {
    cut(&format!("{alias}.content"), MAX_CONTENT)
}

/// A candidate's key, as arguments of `jsonb_build_object`. Of one that no index could hold, a null, which no row has.
fn candidate_key(c: &Collection) -> String {
    let pairs = c.key.columns.iter().zip(key_names(c)).enumerate().map(|(place, (shown, name))| {
        let column = format!("u.{name}");
        let value = c.key.json(place, &column);
        format!("{}, {}", pgrx::spi::quote_literal(shown), if_small(&column, &value, MAX_KEY))
    });
    pairs.collect::<Vec<_>>().join(", ")
}

/// A value made of a column that is stored in no more than so many bytes; else null.
fn if_small(column: &str, value: &str, bytes: usize) -> String {
    format!("CASE WHEN pg_catalog.pg_column_size({column}) OPERATOR(pg_catalog.<=) {bytes} THEN {value} END")
}

/// Title or link, as text.
fn shown(column: Option<&Column>) -> String {
    column.map_or_else(
        || "NULL::pg_catalog.text".to_owned(),
        |column| {
            let text = column.output("s");
            if column.is_text {
                return cut(&text, MAX_SHOWN);
            }
            if_small(&format!("s.{}", quote(&column.name)), &cut(&text, MAX_SHOWN), MAX_METADATA)
        },
    )
}

/// Metadata, an object of the columns' values; of types that are not built in, their text: a cast to JSON could be
/// somebody's code. In place of a value that is too long, or that `jsonb` cannot hold, stands a null, and in place of all where
/// they are too long together.
fn metadata(c: &Collection) -> String {
    if c.metadata.is_empty() {
        return "NULL::pg_catalog.jsonb".to_owned();
    }
    let values = c.metadata.iter().map(|column| {
        let name = format!("s.{}", quote(&column.name));
        if column.is_text {
            let text = column.output("s");
            return format!(
                "CASE WHEN pg_catalog.octet_length({text}) OPERATOR(pg_catalog.<=) {MAX_METADATA} THEN {text} END"
            );
        }
        if_small(&name, &column.as_json("s"), MAX_METADATA)
    });
    let (values, nulls) = (object(c, values), object(c, c.metadata.iter().map(|_| "NULL".to_owned())));
    format!(
        "CASE WHEN pg_catalog.octet_length(({values})::pg_catalog.text) OPERATOR(pg_catalog.<=) {MAX_METADATA}
              THEN {values} ELSE {nulls} END"
    )
}

/// An object of the metadata columns with these values.
fn object(c: &Collection, values: impl Iterator<Item = String>) -> String {
    let pairs: Vec<String> = c
        .metadata
        .iter()
        .zip(values)
        .map(|(column, value)| format!("{}, {value}", pgrx::spi::quote_literal(&column.name)))
        .collect();
    let objects: Vec<String> = pairs
        .chunks(MAX_ARGUMENTS / 2)
        .map(|pairs| format!("pg_catalog.jsonb_build_object({})", pairs.join(", ")))
        .collect();
    objects.join(" OPERATOR(pg_catalog.||) ")
}
