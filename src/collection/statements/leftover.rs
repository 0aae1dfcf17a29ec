//! What a restore of a part, or DROP EXTENSION, left behind: capture triggers, chunk tables, registered rows.

use super::{OwnersStatement, run_as_owner};
use crate::collection::create::NewCollection;
use crate::collection::leftover::{Former, Half};
use crate::ingest::statements::chunks;
use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Snapshot, arg, quote};
use crate::registry::Collection;
use crate::registry::statements::{columns, hash_of_texts};
use pgrx::pg_sys;

/// Chunks that are copied at a time.
const BATCH: usize = 10_000;
/// What is copied of a chunk, besides its key. Its number is new, and which version of the row it was made of is not known: that
/// version may be one of another cluster.
const COPIED: [&str; 6] = ["chunk", "content", "content_hash", "model", "source_hash", "embedding"];

/// Drops the capture triggers on a source, or its partitions, that belong to no collection of it.
pub fn clean(source: pg_sys::Oid) {
    const SQL: &str = "SELECT owner, statement, tables FROM rag_internal.leftover_triggers($1)";
    let found: Vec<OwnersStatement> = {
        let _acting = ActingAs::superuser();
        spi::connect(|s| {
            let rows = s.query(Snapshot::New, SQL, &[arg(source)]);
            rows.iter().map(|row| OwnersStatement::read(&row)).collect()
        })
    };
    found.iter().for_each(OwnersStatement::run);
}

/// Why a table cannot be taken for the chunks of a former collection; `None`: it can. Without types, the key may have any of
/// PostgreSQL's own.
pub fn why_not(
    table: pg_sys::Oid,
    owner: pg_sys::Oid,
    key: &[String],
    types: Option<Vec<pg_sys::Oid>>,
) -> Option<String> {
    const SQL: &str = "SELECT rag_internal.why_no_former_chunks($1, $2, $3, $4)";
    let _acting = ActingAs::superuser();
    let args = [arg(table), arg(owner), arg(key.to_vec()), arg(types)];
    spi::connect(|s| s.query(Snapshot::New, SQL, &args).one())
}

/// Gives a former chunk table and its indexes other names, since the new one is to have them, and forgets what is registered of it.
pub fn set_aside(former: Former) -> Former {
    const FORGET: &str = "DELETE FROM rag_internal.generation g WHERE g.chunk_table OPERATOR(pg_catalog.=) $1
        AND NOT EXISTS (SELECT FROM rag_internal.collection c WHERE c.id OPERATOR(pg_catalog.=) g.collection)";
    const SQL: &str = "SELECT pg_catalog.format('ALTER %s %I.%I RENAME TO %I', r.kind, n.nspname, r.relname, r.new_name) AS statement,
            pg_catalog.format('%I.%I', n.nspname, r.new_name) AS name
        FROM (SELECT 'TABLE' AS kind, 0 AS place, c.relname, c.relnamespace, pg_catalog.format('rag_former_%s', c.oid) AS new_name
              FROM pg_catalog.pg_class c WHERE c.oid = $1
              UNION ALL
              SELECT 'INDEX', 1, c.relname, c.relnamespace, pg_catalog.format('rag_former_%s', c.oid)
              FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1) r
        JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
        ORDER BY r.place";
    let renamed: Vec<(String, String)> = {
        let _acting = ActingAs::superuser();
        spi::connect(|s| {
            s.run(FORGET, &[arg(former.table)]);
            let rows = s.query(Snapshot::New, SQL, &[arg(former.table)]);
            rows.iter().map(|row| (row.need_named("statement"), row.need_named("name"))).collect()
        })
    };
    renamed.iter().for_each(|(statement, _)| run_as_owner(former.owner, statement));
    let name = renamed.into_iter().next().map(|(_, name)| name).unwrap_or_default();
    Former { name, ..former }
}

/// Copies the chunks of a former table into the one that was made now, as the owner of both; how many. None where their vectors
/// are of another length, or their keys of another type.
pub fn copy(former: &Former, new: &NewCollection<'_>) -> i64 {
    const SAME: &str = "SELECT ROW(o.atttypid, o.atttypmod)::pg_catalog.record OPERATOR(pg_catalog.*=) ROW(n.atttypid, n.atttypmod)::pg_catalog.record
        FROM pg_catalog.pg_attribute o, pg_catalog.pg_attribute n
        WHERE o.attrelid = $1 AND n.attrelid = $2::pg_catalog.regclass AND o.attname = 'embedding' AND n.attname = 'embedding'
          AND NOT EXISTS (
              SELECT FROM ROWS FROM (pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::pg_catalog.text[])) AS k (old, new)
              LEFT JOIN pg_catalog.pg_attribute f ON f.attrelid = $1 AND f.attname = k.old::pg_catalog.name
              LEFT JOIN pg_catalog.pg_attribute t ON t.attrelid = n.attrelid AND t.attname = k.new::pg_catalog.name
              WHERE f.atttypid IS DISTINCT FROM t.atttypid)";
    let table = new.chunks.qualified_name();
    let is_same = {
        let _acting = ActingAs::superuser();
        let args = [
            arg(former.table),
            arg(table.clone()),
            arg(former.key_columns.clone()),
            arg(new.chunks.key_columns.clone()),
        ];
        spi::connect(|s| s.query(Snapshot::New, SAME, &args).one().unwrap_or(false))
    };
    if !is_same {
        return 0;
    }
    let copied = COPIED.map(str::to_owned);
    let sql = format!(
        "WITH moved AS (
             SELECT t.*, pg_catalog.row_number() OVER (ORDER BY t.chunk_id) AS place
             FROM {former} t WHERE t.model = $1 AND t.chunk_id > $2 AND t.chunk > 0{is_wanted} ORDER BY t.chunk_id LIMIT {BATCH}),
         stored AS (
             INSERT INTO {table} ({new_keys}, {copied}, chunk_id, source_xmin, is_copy)
             SELECT {old_keys}, {moved}, ids.id, '0'::pg_catalog.xid, false
             FROM moved m JOIN pg_catalog.unnest($3::pg_catalog.int8[]) WITH ORDINALITY AS ids (id, place) ON ids.place = m.place
             ON CONFLICT DO NOTHING RETURNING 1)
         SELECT (SELECT pg_catalog.count(*) FROM stored) AS stored, (SELECT pg_catalog.max(chunk_id) FROM moved) AS last",
        former = former.name,
        is_wanted = if new.serve_stale { of_same_rows(former, new) } else { String::new() },
        new_keys = new.chunks.key_columns.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", "),
        old_keys = columns("m", &former.key_columns),
        copied = copied.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", "),
        moved = columns("m", &copied),
    );
    let (mut count, mut last) = (0, i64::MIN);
    loop {
        let ids = chunks::new_ids(BATCH);
        let _acting = ActingAs::restricted(former.owner);
        let (stored, next): (i64, Option<i64>) = spi::connect(|s| {
            let rows = s.query(Snapshot::New, &sql, &[arg(new.model.clone()), arg(last), arg(ids)]);
            let row = rows.first().expect("a SELECT without FROM gives a row");
            (row.need_named("stored"), row.named("last"))
        });
        count += stored;
        match next {
            Some(next) => last = next,
            None => break,
        }
    }
    // One chunk of each text is to be in the index.
    let mark = format!(
        "UPDATE {table} t SET is_copy = true
         FROM (SELECT c.content_hash, pg_catalog.min(c.chunk_id) FROM {table} c
               GROUP BY c.content_hash HAVING pg_catalog.count(*) > 1) AS first (hash, chunk_id)
         WHERE t.content_hash = first.hash AND t.chunk_id <> first.chunk_id"
    );
    let _acting = ActingAs::restricted(former.owner);
    spi::connect(|s| s.run(&mark, &[]));
    count
}

/// ` AND ...`: the source has the row of a former chunk `t`, as that chunk was made of it. Where old texts are shown, no others are
/// taken over: the former table may have been that of another source, or of rows that are others by now.
fn of_same_rows(former: &Former, new: &NewCollection<'_>) -> String {
    let source = new.chunks.source;
    let title = source.columns.iter().filter(|column| Some(&column.name) == new.title.as_ref());
    let texts: Vec<String> = title.chain(new.chunks.content).map(|column| column.as_text("s")).collect();
    format!(
        " AND EXISTS (SELECT FROM {source} s WHERE {same_key} AND {hash} = t.source_hash)",
        source = source.name,
        same_key = source.key.join("s", &source.key.columns, "t", &former.key_columns),
        hash = hash_of_texts(&texts),
    )
}

/// Drops a former chunk table.
pub fn drop(former: &Former, owner: pg_sys::Oid) {
    run_as_owner(owner, &format!("DROP TABLE {}", former.name));
}

/// The collection of that name of which only a part is registered.
pub fn half(name: &str) -> Option<Half> {
    const SQL: &str = "SELECT c.id, c.source::pg_catalog.oid AS source, r.relowner AS owner
        FROM rag_internal.collection c LEFT JOIN pg_catalog.pg_class r ON r.oid = c.source
        WHERE c.name = $1 AND NOT EXISTS (SELECT FROM rag_internal.generation g WHERE g.collection = c.id AND g.state = 'serving')";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, SQL, &[arg(name.to_owned())]);
        rows.first().map(|row| Half {
            id: row.need_named("id"),
            source: row.need_named("source"),
            owner: row.named("owner"),
        })
    })
}

/// Forgets a collection: what is registered and noted under its number.
pub fn forget(id: i32) {
    let _acting = ActingAs::superuser();
    // First: a worker that makes single entries of one with many keys holds this row until they can be seen.
    spi::connect(|s| s.run("DELETE FROM rag_internal.collection WHERE id OPERATOR(pg_catalog.=) $1", &[arg(id)]));
    forget_number(id);
}

/// Forgets what is noted under a number of collections, but for the collection.
pub fn forget_number(id: i32) {
    const TABLES: [&str; 7] = ["generation", "queue", "failure", "pause", "waiting", "capture_gap", "grant_failure"];
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        for table in TABLES {
            let sql = format!("DELETE FROM rag_internal.{table} WHERE collection OPERATOR(pg_catalog.=) $1");
            s.run(&sql, &[arg(id)]);
        }
    });
}

/// The chunk table of a collection, if its chunks may be taken over into a new one.
pub fn of_collection(c: &Collection) -> Option<Former> {
    let vectors = &c.vectors;
    let is_usable = why_not(vectors.table, c.source.owner, &vectors.key_columns, None).is_none();
    is_usable.then(|| Former {
        table: vectors.table,
        name: vectors.table_name.clone(),
        owner: c.source.owner,
        key_columns: vectors.key_columns.clone(),
    })
}
