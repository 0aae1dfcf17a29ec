//! All SQL text of the room.

mod chunk_table;
pub mod source;

use super::create::NewCollection;
use crate::ingest::statements::{capture, queue, waiting};
use crate::pg::catalog;
use crate::pg::quiet_ddl;
use crate::pg::role::{self, ActingAs, Settings};
use crate::pg::spi::{self, Row, Snapshot, arg};
use crate::registry::{self, Collection};
use pgrx::pg_sys;
use ragent_core::ingest::schedule::Waiting;
use std::rc::Rc;

/// Creates chunk table, registered rows and triggers, and queues the rows there are.
pub fn create(new: &NewCollection<'_>) {
    create_chunk_table(new);
    let id = insert(new);
    let collection = attach(id, new);
    queue::queue_all(&collection);
}

/// Makes a chunk table for a collection that has none, makes its triggers anew, and queues a comparison, which finds every
/// row missing.
pub fn rebuild(c: &Collection, new: &NewCollection<'_>) {
    create_chunk_table(new);
    drop_triggers(c);
    let collection = attach(c.id, new);
    compare(&collection);
}

/// Queues a comparison of everything a collection has.
pub fn compare(c: &Collection) {
    let _acting = ActingAs::superuser();
    spi::connect(|s| queue::compare_all(s, c.id));
    // Whoever asks for it has mended what kept it waiting, perhaps.
    waiting::end(&Waiting::Collection(c.id));
}

fn create_chunk_table(new: &NewCollection<'_>) {
    let _acting = as_owner(new.chunks.source.owner);
    spi::connect(|s| s.utility(&new.chunks.ddl()));
}

/// Registers the chunk table that was made for a collection, and makes its triggers and grants.
fn attach(id: i32, new: &NewCollection<'_>) -> Rc<Collection> {
    insert_generation(id, new);
    let collection = registry::by_id(id).expect("inserted just now");
    // So that DROP TABLE of the source needs no CASCADE although the policy names it.
    catalog::depend_on(collection.vectors.table, collection.source.table);
    create_triggers(&collection);
    for grant in grants_to_sync(Some(id)) {
        grant.run();
    }
    collection
}

/// The owner of a table, for DDL. Event triggers of the database run meanwhile. They find what the caller's search_path names,
/// as under the caller's own DDL, where the caller could do everything the owner can; else what the owner's own sessions
/// would name: nobody's path decides what runs with somebody else's rights.
fn as_owner(owner: pg_sys::Oid) -> ActingAs {
    let path = (!role::has_privileges_of(owner)).then(|| default_path(owner));
    ActingAs::definer(owner, path.as_deref())
}

/// The search_path that a role's sessions in this database begin with.
fn default_path(owner: pg_sys::Oid) -> String {
    const SQL: &str = "SELECT coalesce(
        (SELECT pg_catalog.substr(s.setting, 13)
         FROM pg_catalog.pg_db_role_setting d CROSS JOIN LATERAL pg_catalog.unnest(d.setconfig) AS s (setting)
         WHERE pg_catalog.starts_with(s.setting, 'search_path=')
           AND d.setrole OPERATOR(pg_catalog.=) ANY (ARRAY[0::pg_catalog.oid, $1])
           AND d.setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY[0::pg_catalog.oid, (
                SELECT b.oid FROM pg_catalog.pg_database b
                WHERE b.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())])
         ORDER BY d.setrole DESC, d.setdatabase DESC LIMIT 1),
        (SELECT boot_val FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'search_path'))";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::Active, SQL, &[arg(owner)]).one().unwrap_or_default())
}

/// A statement that is to be run as a table's owner.
pub struct OwnersStatement {
    /// Name of the collection; empty where it is gone.
    pub collection: String,
    owner: pg_sys::Oid,
    text: String,
}

impl OwnersStatement {
    fn read(row: &Row<'_>, collection: String) -> Self {
        Self { collection, owner: row.need_named("owner"), text: row.need_named("statement") }
    }

    /// Runs it.
    pub fn run(&self) {
        let _acting = as_owner(self.owner);
        let settings = Settings::new();
        // What goes along with a chunk table that is dropped is of no interest to whoever dropped the source.
        settings.set("client_min_messages", "warning");
        spi::connect(|s| s.utility(&self.text));
    }
}

/// What is to be granted and revoked on the chunk tables of a collection, or of all.
pub fn grants_to_sync(collection: Option<i32>) -> Vec<OwnersStatement> {
    const SQL: &str = "SELECT collection, owner, statement FROM rag_internal.grants_to_sync($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, SQL, &[arg(collection)]);
        rows.iter().map(|row| OwnersStatement::read(&row, row.need_named("collection"))).collect()
    })
}

/// In an event trigger on sql_drop: forgets the collections whose tables are gone; what drops what is left of them.
pub fn forget_dropped() -> Vec<OwnersStatement> {
    const SQL: &str = "SELECT owner, statement FROM rag_internal.forget_dropped_tables()";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, SQL, &[]);
        rows.iter().map(|row| OwnersStatement::read(&row, String::new())).collect()
    })
}

/// Whether reading a table runs code that somebody attached to it, or policies decide what is read.
pub fn runs_code(table: pg_sys::Oid) -> bool {
    const SQL: &str = "SELECT NOT rag_internal.reading_runs_no_code($1) OR c.relrowsecurity
            OR EXISTS (SELECT FROM pg_catalog.pg_trigger t
                       WHERE t.tgrelid OPERATOR(pg_catalog.=) c.oid AND NOT t.tgisinternal
                         AND t.tgfoid OPERATOR(pg_catalog.<>) 'rag_internal.capture()'::pg_catalog.regprocedure)
        FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) $1";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::Active, SQL, &[arg(table)]).one().unwrap_or(false))
}

/// Creates the capture triggers: as a superuser, since nobody else may make a trigger of their function, and past event
/// triggers, which may run as the owner only.
fn create_triggers(c: &Collection) {
    let triggers = capture::triggers(c, c.source.kind == "p");
    {
        let _acting = ActingAs::superuser();
        triggers.iter().for_each(|t| quiet_ddl::create_trigger(c.source.table, &t.create));
    }
    let _acting = as_owner(c.source.owner);
    spi::connect(|s| triggers.iter().for_each(|t| s.utility(&t.enable)));
}

fn insert(new: &NewCollection<'_>) -> i32 {
    const SQL: &str = "INSERT INTO rag_internal.collection
            (name, source, key_columns, content_columns, title_column, link_column, metadata_columns, description)
        VALUES ($1, $2::pg_catalog.regclass, $3, $4, $5, $6, $7, $8) RETURNING id";
    let _acting = ActingAs::superuser();
    let content: Vec<String> = new.chunks.content.iter().map(|c| c.name.clone()).collect();
    let args = [
        arg(new.chunks.collection.to_owned()),
        arg(new.chunks.source.oid),
        arg(new.chunks.source.key.columns.clone()),
        arg(content),
        arg(new.title.clone()),
        arg(new.link.clone()),
        arg(new.metadata.clone()),
        arg(new.description.clone()),
    ];
    spi::connect(|s| s.query(Snapshot::New, SQL, &args).one().expect("RETURNING gives a row"))
}

fn insert_generation(collection: i32, new: &NewCollection<'_>) {
    const SQL: &str = "INSERT INTO rag_internal.generation
            (collection, model, dimensions, chunker, chunk_tokens, chunk_overlap, chunk_table, chunk_key_columns, state)
        VALUES ($1, $2, $3, $4, $5, $6, $7::pg_catalog.regclass, $8, 'serving')";
    const OWNER: &str = "INSERT INTO rag_internal.chunk_owner (chunk_table) VALUES ($1::pg_catalog.regclass)
        ON CONFLICT (chunk_table) DO UPDATE SET owner = EXCLUDED.owner, is_void = false";
    let _acting = ActingAs::superuser();
    let args = [
        arg(collection),
        arg(new.model.clone()),
        arg(new.chunks.embedding.dimensions),
        arg(new.recipe.chunker.clone()),
        arg(new.recipe.tokens),
        arg(new.recipe.overlap),
        arg(new.chunks.qualified_name()),
        arg(new.chunks.key_columns.clone()),
    ];
    spi::connect(|s| {
        s.run(SQL, &args);
        s.run(OWNER, &[arg(new.chunks.qualified_name())]);
    });
}

/// Removes a collection: triggers, chunk tables, queue, failures, registered rows.
pub fn drop(c: &Collection) {
    if !c.source.name.is_empty() {
        drop_triggers(c);
    }
    drop_chunk_table(c);
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        // First: a worker that makes single entries of one with many keys holds this row until they can be seen.
        s.run("DELETE FROM rag_internal.collection WHERE id OPERATOR(pg_catalog.=) $1", &[arg(c.id)]);
        s.run("DELETE FROM rag_internal.queue WHERE collection OPERATOR(pg_catalog.=) $1", &[arg(c.id)]);
        s.run("DELETE FROM rag_internal.failure WHERE collection OPERATOR(pg_catalog.=) $1", &[arg(c.id)]);
        s.run("DELETE FROM rag_internal.pause WHERE collection OPERATOR(pg_catalog.=) $1", &[arg(c.id)]);
    });
}

/// Whether the policy that shows a chunk to those who see its row is still there: it goes with a column that it names.
pub fn has_policy(c: &Collection) -> bool {
    const SQL: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_policy p
        WHERE p.polrelid OPERATOR(pg_catalog.=) $1 AND p.polname OPERATOR(pg_catalog.=) 'rag_same_as_source'::pg_catalog.name)";
    if c.vectors.is_adopted {
        return true;
    }
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::Active, SQL, &[arg(c.vectors.table)]).one().unwrap_or(false))
}

fn drop_triggers(c: &Collection) {
    let _acting = as_owner(c.source.owner);
    let settings = Settings::new();
    // Which of the triggers there are depends on the kind of table.
    settings.set("client_min_messages", "warning");
    spi::connect(|s| s.utility(&capture::drop_triggers(c)));
}

/// Forgets the serving generation of a collection and drops its chunk table; false: that is somebody else's by now, and
/// stays.
pub fn drop_chunk_table(c: &Collection) -> bool {
    {
        let _acting = ActingAs::superuser();
        // Before the table is dropped: the event trigger would forget the collection with it.
        spi::connect(|s| {
            s.run("DELETE FROM rag_internal.generation WHERE collection OPERATOR(pg_catalog.=) $1", &[arg(c.id)]);
            s.run(
                "DELETE FROM rag_internal.chunk_owner WHERE chunk_table OPERATOR(pg_catalog.=) $1::pg_catalog.regclass",
                &[arg(c.vectors.table)],
            );
        });
    }
    let vectors = &c.vectors;
    if vectors.is_adopted || vectors.table_kind != "r" {
        return vectors.table_kind.is_empty();
    }
    // It belongs to the collection, whoever owns that now, unless somebody else was given it.
    if vectors.owner != vectors.made_for && !role::has_privileges_of(vectors.owner) {
        return false;
    }
    // What a former owner made of it must not keep the new one from dropping it.
    let cascade = if c.check_owner().is_err() { " CASCADE" } else { "" };
    let _acting = as_owner(vectors.owner);
    spi::connect(|s| s.utility(&format!("DROP TABLE {}{cascade}", vectors.table_name)));
    true
}

/// Tables beyond this size are not counted.
const COUNTED_BYTES: &str = "268435456";

/// A table whose rows are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// The source of a collection.
    Source,
    /// Its chunk table.
    Chunks,
}

/// Rows of a table that the current role sees: counted up to a size; above it estimated, if that is wanted, or none.
pub fn count(c: &Collection, which: Counted, estimate: bool) -> Option<i64> {
    let facts = format!(
        "SELECT reltuples::pg_catalog.int8, pg_catalog.pg_relation_size(oid) OPERATOR(pg_catalog.>) {COUNTED_BYTES}
         FROM pg_catalog.pg_class WHERE oid OPERATOR(pg_catalog.=) $1"
    );
    let (oid, name, statement) = match which {
        Counted::Source => (c.source.table, &c.source.name, "count rows"),
        Counted::Chunks => (c.vectors.table, &c.vectors.table_name, "count chunks"),
    };
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, &facts, &[arg(oid)]);
        let facts = rows.first().map(|row| (row.need::<i64>(1), row.get(2).unwrap_or(false)));
        match facts {
            Some((_, true)) if !estimate => None,
            Some((n, true)) if n >= 0 => Some(n),
            _ => {
                // Policies may rely on the search_path of the role they are asked for.
                let counted = c.statement(statement, 0, || format!("SELECT pg_catalog.count(*) FROM {name}"));
                s.query_kept(Snapshot::Active, &counted, &[]).one()
            }
        }
    })
}

/// About how many rows a table has, as the catalogs and statistics say; `None`: they do not say.
pub fn estimate(c: &Collection, which: Counted) -> Option<i64> {
    // What is in partitions is not counted for the whole. Nothing is in a file without a page.
    const SQL: &str = "SELECT pg_catalog.sum(CASE
            WHEN pg_catalog.pg_relation_size(r.oid) OPERATOR(pg_catalog.=) 0 THEN 0
            WHEN r.reltuples OPERATOR(pg_catalog.>) 0 THEN r.reltuples::pg_catalog.int8
            WHEN pg_catalog.pg_stat_get_live_tuples(r.oid) OPERATOR(pg_catalog.>) 0
                THEN pg_catalog.pg_stat_get_live_tuples(r.oid) END)::pg_catalog.int8
        FROM pg_catalog.pg_class r
        WHERE r.relkind OPERATOR(pg_catalog.<>) 'p'
          AND (r.oid OPERATOR(pg_catalog.=) $1 OR r.oid OPERATOR(pg_catalog.=) ANY (
                   SELECT p.relid::pg_catalog.oid FROM pg_catalog.pg_partition_tree($1::pg_catalog.regclass) p))";
    let table = match which {
        Counted::Source => c.source.table,
        Counted::Chunks => c.vectors.table,
    };
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::Active, SQL, &[arg(table)]).one())
}

/// Whether a collection's chunk table has no rows, although any of the first rows of its source has text. As the current role.
pub fn is_emptied(c: &Collection) -> bool {
    let text = c.content_as_text("s");
    let statement = c.statement("is emptied", 0, || {
        let texts: Vec<String> = text.iter().map(|text| format!("pg_catalog.left({text}, 1000)")).collect();
        format!(
            "SELECT NOT EXISTS (SELECT FROM {}) AND EXISTS (SELECT FROM (SELECT * FROM {} LIMIT 1000) s
             WHERE pg_catalog.concat_ws(' ', {}) OPERATOR(pg_catalog.~) '\\S')",
            c.vectors.table_name,
            c.source.name,
            texts.join(", ")
        )
    });
    spi::connect(|s| s.query_kept(Snapshot::Active, &statement, &[]).one().unwrap_or(false))
}
