//! A collection's source against its chunks, by content.

use super::capture;
use super::queue::UNFOLDED;
use crate::ingest::permit::Permit;
use crate::pg::jsonb::Jsonb;
use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Snapshot, arg, quote};
use crate::pg::xact;
use crate::registry::Collection;

/// How much of a text is looked at before the whole of it, in characters: mostly that is enough to see that it has something.
const GLANCE: i32 = 4000;

/// The differences, as a subquery of `key_1`, `key_2` ... and `problem`, one row for each row of the source. $2 is the model,
/// $3 the keys of rows that are left out: their content is not read.
///
/// `problem` is `missing` (a row with text has no chunk), `stale` (a chunk was made of another content), `incomplete` (a number
/// is missing among its chunks), `other model`, `orphaned` (chunks of no row, or of one without text), or NULL.
fn differences(c: &Collection) -> String {
    let places: Vec<String> = (1..=c.key.columns.len()).map(|n| format!("key_{n}")).collect();
    let named = |alias: &str, names: &[String]| {
        let columns: Vec<String> =
            names.iter().zip(&places).map(|(name, place)| format!("{alias}.{} AS {place}", quote(name))).collect();
        columns.join(", ")
    };
    let has_text: Vec<String> = c
        .embedded_as_text("s")
        .iter()
        .map(|text| {
            format!("rag_internal.has_text(pg_catalog.substr({text}, 1, {GLANCE})) OR rag_internal.has_text({text})")
        })
        .collect();
    let keys: Vec<String> = places.iter().map(|p| format!("coalesce(s.{p}, h.{p}) AS {p}")).collect();
    let chunk_keys = c.vectors.key_columns.iter().map(|name| format!("c.{}", quote(name))).collect::<Vec<_>>();
    format!(
        "(WITH left_out AS MATERIALIZED (
              SELECT k.* FROM pg_catalog.unnest($3::pg_catalog.text[]) AS u (key) CROSS JOIN LATERAL {record})
          SELECT {keys},
                 CASE WHEN s.key_1 IS NULL THEN 'orphaned'
                      WHEN h.key_1 IS NULL THEN CASE WHEN s.has_text THEN 'missing' END
                      WHEN h.first_hash OPERATOR(pg_catalog.<>) s.hash OR h.last_hash OPERATOR(pg_catalog.<>) s.hash
                      THEN CASE WHEN s.has_text THEN 'stale' ELSE 'orphaned' END
                      WHEN h.first_chunk OPERATOR(pg_catalog.<>) 1 OR h.last_chunk OPERATOR(pg_catalog.<>) h.chunks
                      THEN 'incomplete'
                      WHEN NOT h.is_of_model THEN 'other model'
                 END AS problem
          FROM (SELECT {source_keys}, {hash} AS hash, {has_text} AS has_text FROM {source} s
                WHERE NOT EXISTS (SELECT FROM left_out k WHERE {left_out_of_source})
                OFFSET 0) s
          FULL JOIN (SELECT {chunk_columns}, pg_catalog.count(*) AS chunks,
                            pg_catalog.min(c.chunk) AS first_chunk, pg_catalog.max(c.chunk) AS last_chunk,
                            pg_catalog.min(c.source_hash) AS first_hash, pg_catalog.max(c.source_hash) AS last_hash,
                            pg_catalog.bool_and(c.model OPERATOR(pg_catalog.=) $2) AS is_of_model
                     FROM {table} c
                     WHERE NOT EXISTS (SELECT FROM left_out k WHERE {left_out_of_chunks})
                     GROUP BY {group}) h
          ON {same})",
        record = c.key.record("u.key::pg_catalog.jsonb", "k"),
        keys = keys.join(", "),
        source_keys = named("s", &c.key.columns),
        hash = c.content_hash("s"),
        has_text = has_text.join(" OR "),
        source = c.source.name,
        left_out_of_source = c.key.join("s", &c.key.columns, "k", &c.key.columns),
        chunk_columns = named("c", &c.vectors.key_columns),
        table = c.vectors.table_name,
        left_out_of_chunks = c.key.join("k", &c.key.columns, "c", &c.vectors.key_columns),
        group = chunk_keys.join(", "),
        same = c.key.join("s", &places, "h", &places),
    )
}

/// Queues the rows whose chunks are not as their content is, as the owner, but for `left_out`.
pub fn queue_differences(c: &Collection, left_out: Vec<String>) {
    let rows = format!("FROM {} d WHERE d.problem IS NOT NULL", differences(c));
    let sql = capture::insert_of(c, "d", rows);
    let _acting = ActingAs::restricted(c.source.owner);
    let _permit = Permit::give(c.id);
    spi::connect(|s| s.run(&sql, &[arg(c.id), arg(c.generation.model.clone()), arg(left_out)]));
}

/// Differences of one kind.
#[derive(Debug)]
pub struct Difference {
    /// As [`differences`] has it.
    pub problem: String,
    /// How many rows.
    pub rows: i64,
    /// The key of one of them.
    pub example: Jsonb,
}

/// Counts the differences, as the owner and as the calling query sees them, but for rows that are `left_out`.
pub fn count_differences(c: &Collection, left_out: Vec<String>) -> Vec<Difference> {
    let places: Vec<String> = (1..=c.key.columns.len()).map(|n| format!("key_{n}")).collect();
    let sql = format!(
        "SELECT d.problem, pg_catalog.count(*) AS rows,
                pg_catalog.min({key}::pg_catalog.text COLLATE pg_catalog.\"C\")::pg_catalog.jsonb
                    AS example
         FROM {differences} d
         WHERE d.problem IS NOT NULL
         GROUP BY d.problem ORDER BY d.problem COLLATE pg_catalog.\"C\"",
        key = c.key.object("d", &places),
        differences = differences(c),
    );
    let _acting = ActingAs::restricted(c.source.owner);
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, &sql, &[arg(c.id), arg(c.generation.model.clone()), arg(left_out)]);
        rows.iter()
            .map(|row| Difference {
                problem: row.need_named("problem"),
                rows: row.need_named("rows"),
                example: row.need_named("example"),
            })
            .collect()
    })
}

/// More rows than this are too many to be left out of a comparison.
const MOST_PENDING: i64 = 1_000_000;

/// The keys of rows that are queued, as the calling query sees it. `Err` says how many they are: too many.
pub fn pending(collection: i32) -> Result<Vec<String>, i64> {
    const COUNT: &str = "SELECT coalesce(pg_catalog.sum(q.rows), 0)::pg_catalog.int8
        FROM rag_internal.queue q WHERE q.collection = $1 AND (q.key IS NOT NULL OR q.keys IS NOT NULL)";
    let keys = format!(
        "SELECT q.key::pg_catalog.text AS key FROM rag_internal.queue q
         WHERE q.collection = $1 AND q.key IS NOT NULL
         UNION ALL
         SELECT one.key::pg_catalog.text
         FROM rag_internal.queue q CROSS JOIN LATERAL ({UNFOLDED}) AS one (place, key)
         WHERE q.collection = $1 AND q.keys IS NOT NULL"
    );
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows: i64 = s.query(Snapshot::Active, COUNT, &[arg(collection)]).one().unwrap_or(0);
        if rows > MOST_PENDING {
            return Err(rows);
        }
        Ok(s.query(Snapshot::Active, &keys, &[arg(collection)]).iter().map(|row| row.need_named("key")).collect())
    })
}

/// Whether an error is that of a row that cannot be read, rather than of the database's state.
pub fn is_about_a_row(e: &crate::error::Error) -> bool {
    xact::is_about_data(e) || xact::sqlstate(e.code).starts_with("XX")
}
