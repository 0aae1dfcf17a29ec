//! All SQL text of the room.

mod chunk_table;
pub mod grants;
pub mod leftover;
pub mod source;

use super::create::NewCollection;
use super::leftover::Former;
use crate::ingest::statements::trigger::{self, Repair};
use crate::ingest::statements::{failure, queue, waiting};
use crate::pg::catalog;
use crate::pg::ddl_command::DdlCommand;
use crate::pg::role::{self, ActingAs, Settings};
use crate::pg::spi::{self, Row, Snapshot, arg, quote};
use crate::pg::worker;
use crate::pg::xact;
use crate::registry::{self, Collection};
use pgrx::pg_sys;
use ragent_core::ingest::schedule::Waiting;
use std::rc::Rc;

/// Creates chunk table, registered rows and triggers, and queues the rows there are. What a former collection left on the source
/// goes, and chunks that it left are taken over.
pub fn create(new: &NewCollection<'_>, former: Option<Former>) {
    leftover::clean(new.chunks.source.oid);
    let former = former.map(leftover::set_aside);
    let taken = create_chunk_table(new, former.as_ref());
    let id = insert(new);
    let collection = attach(id, new);
    fill(&collection, taken);
}

/// Makes a chunk table for a collection that has none, makes its triggers anew, and queues a comparison, which finds every
/// row missing that no chunk of the former table is of.
pub fn rebuild(c: &Collection, new: &NewCollection<'_>, former: Option<&Former>) {
    let taken = create_chunk_table(new, former);
    leftover::clean(c.source.table);
    let collection = attach(c.id, new);
    match taken {
        None => compare(&collection),
        taken => fill(&collection, taken),
    }
}

/// Queues what is to be embedded: all rows, and a comparison for chunks that were taken over.
fn fill(c: &Collection, taken: Option<i64>) {
    if let Some(taken) = taken {
        pgrx::notice!(
            "{taken} chunks are taken over from the former {}; those that are unchanged are not embedded again",
            c.vectors.table_name
        );
        compare(c);
    }
    queue::queue_all(c);
}

/// Makes a collection's triggers as they should be, without those of former collections, queues rows again that were given up, and
/// a comparison of everything it has.
pub fn mend(c: &Collection) {
    leftover::clean(c.source.table);
    trigger::restore(c.id, Repair::All);
    failure::queue_again(&[c.id]);
    compare(c);
}

/// Where columns of a collection's source have other names now, names them so.
pub fn follow_columns(collection: i32) {
    const SQL: &str = "SELECT rag_internal.follow_columns($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.run(SQL, &[arg(collection)]));
}

/// Queues a comparison of everything a collection has, which makes up for what was not captured.
fn compare(c: &Collection) {
    trigger::close_gap(c.id);
    queue_comparison(c);
}

/// Queues a comparison of everything a collection has.
pub fn queue_comparison(c: &Collection) {
    let _acting = ActingAs::superuser();
    spi::connect(|s| queue::compare_all(s, c.id));
    // Whoever asks for it has mended what kept it waiting, perhaps.
    waiting::end(&Waiting::Collection(c.id));
}

/// Creates the chunk table; how many chunks of a former one are in it, where there is one.
fn create_chunk_table(new: &NewCollection<'_>, former: Option<&Former>) -> Option<i64> {
    let owner = new.chunks.source.owner;
    run_as_owner(owner, &new.chunks.ddl());
    // Keys may mean nothing in their new type: then all is embedded anew.
    let taken = former.and_then(|former| match xact::attempt(|| leftover::copy(former, new)) {
        Ok(taken) => Some(taken),
        Err(e) => {
            pgrx::notice!("no chunks are taken over from the former {}: {e}", new.chunks.qualified_name());
            None
        }
    });
    // After the rows: one by one they would take ten times as long.
    run_as_owner(owner, &format!("{}; {}", new.chunks.index(), new.chunks.index_of_texts()));
    if let Some(former) = former {
        leftover::drop(former, owner);
    }
    taken
}

/// Registers the chunk table that was made for a collection, and makes its triggers and grants.
fn attach(id: i32, new: &NewCollection<'_>) -> Rc<Collection> {
    insert_generation(id, new);
    let collection = registry::by_id(id).expect("inserted just now");
    // So that the chunk table goes with its source, unasked.
    catalog::depend_on(collection.vectors.table, collection.source.table);
    trigger::restore(id, Repair::All);
    for grant in grants::to_sync(Some(id)) {
        grant.run();
    }
    collection
}

/// Runs DDL as the owner of a table.
fn run_as_owner(owner: pg_sys::Oid, sql: &str) {
    let _acting = as_owner(owner);
    spi::connect(|s| s.utility(sql));
}

/// The owner of a table, for DDL. Event triggers of the database run meanwhile. They find what the caller's search_path names,
/// as under the caller's own DDL, where the caller could do everything the owner can; else what the owner's own sessions
/// would name, as in a worker: nobody's path decides what runs with somebody else's rights.
fn as_owner(owner: pg_sys::Oid) -> ActingAs {
    ActingAs::definer(owner, owners_path(owner).as_deref())
}

fn owners_path(owner: pg_sys::Oid) -> Option<String> {
    let is_caller = role::has_privileges_of(owner) && !worker::is_this_process();
    (!is_caller).then(|| default_path(owner))
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
    owner: pg_sys::Oid,
    text: String,
    /// The tables it locks.
    pub tables: Vec<pg_sys::Oid>,
}

impl OwnersStatement {
    fn read(row: &Row<'_>) -> Self {
        Self { owner: row.need_named("owner"), text: row.need_named("statement"), tables: row.need_named("tables") }
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
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

/// In an event trigger on ddl_command_end: the collections whose types were altered, which are noted as they are now.
pub fn altered_collections() -> Vec<i32> {
    const SQL: &str = "SELECT id FROM rag_internal.altered_collections()";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::New, SQL, &[]).iter().map(|row| row.need_named("id")).collect())
}

/// Gives the key columns of a chunk table the types and collations that the source's have, as its owner. Casts, and what is
/// attached to the table, run meanwhile.
pub fn convert_key(c: &Collection) {
    const SQL: &str = "SELECT name, type, value FROM rag_internal.key_to_sync($1)";
    let alterations: Vec<String> = {
        let _acting = ActingAs::superuser();
        let alteration = |row: Row<'_>| {
            let value = row.named::<String>("value").map_or(String::new(), |value| format!(" USING {value}"));
            let (name, sql_type): (String, String) = (row.need_named("name"), row.need_named("type"));
            format!("ALTER COLUMN {} TYPE {sql_type}{value}", quote(&name))
        };
        spi::connect(|s| s.query(Snapshot::New, SQL, &[arg(c.id)]).iter().map(alteration).collect())
    };
    if alterations.is_empty() {
        return;
    }
    let table = &c.vectors.table_name;
    let sql = format!(
        "DROP POLICY rag_same_as_source ON {table}; ALTER TABLE {table} {}; {}",
        alterations.join(", "),
        chunk_table::create_policy(table, &c.vectors.key_columns),
    );
    {
        let _acting = ActingAs::restricted_definer(c.vectors.owner, owners_path(c.vectors.owner).as_deref());
        spi::connect(|s| s.utility(&sql));
    }
    // Rows that were given up have keys of the former type; a comparison finds them again.
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        s.run("DELETE FROM rag_internal.failure WHERE collection OPERATOR(pg_catalog.=) $1", &[arg(c.id)]);
    });
}

/// In an event trigger on sql_drop: forgets the collections whose tables are gone; what drops what is left of them.
pub fn forget_dropped() -> Vec<OwnersStatement> {
    const SQL: &str = "SELECT owner, statement, tables FROM rag_internal.forget_dropped_tables()";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, SQL, &[]);
        rows.iter().map(|row| OwnersStatement::read(&row)).collect()
    })
}

/// What a command did to a table.
pub struct Altered {
    /// The table.
    pub relation: pg_sys::Oid,
    /// Partitions were attached or detached, or it was created.
    pub partitions: bool,
    /// A trigger was made or renamed, or fires at other times.
    pub triggers: bool,
    /// Columns whose values may be others than they were.
    pub columns: Vec<String>,
}

/// In an event trigger on ddl_command_end: the tables that the command was about.
pub fn altered_tables() -> Vec<Altered> {
    const SQL: &str = "SELECT coalesce(t.tgrelid, d.objid) AS relation, d.command
        FROM pg_catalog.pg_event_trigger_ddl_commands() d
        LEFT JOIN pg_catalog.pg_trigger t
          ON d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass::pg_catalog.oid
         AND t.oid OPERATOR(pg_catalog.=) d.objid
        WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid OR t.oid IS NOT NULL";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::New, SQL, &[]);
        let read = |row: Row<'_>| {
            let command: DdlCommand = row.need_named("command");
            Altered {
                relation: row.need_named("relation"),
                partitions: command.changes_partitions(),
                triggers: command.changes_triggers(),
                columns: command.rewritten_columns(),
            }
        };
        rows.iter().map(read).collect()
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

fn insert(new: &NewCollection<'_>) -> i32 {
    const SQL: &str = "INSERT INTO rag_internal.collection
            (name, source, key_columns, content_columns, title_column, link_column, metadata_columns, description,
             serve_stale)
        VALUES ($1, $2::pg_catalog.regclass, $3, $4, $5, $6, $7, $8, $9) RETURNING id";
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
        arg(new.serve_stale),
    ];
    let id = spi::connect(|s| s.query(Snapshot::New, SQL, &args).one().expect("RETURNING gives a row"));
    // What a dump without its collections left under this number is nobody's.
    leftover::forget_number(id);
    id
}

fn insert_generation(collection: i32, new: &NewCollection<'_>) {
    const SQL: &str = "INSERT INTO rag_internal.generation
            (collection, model, dimensions, chunker, chunk_tokens, chunk_overlap, chunk_table, chunk_key_columns, state)
        VALUES ($1, $2, $3, $4, $5, $6, $7::pg_catalog.regclass, $8, 'serving')";
    const OWNER: &str = "INSERT INTO rag_internal.chunk_owner (chunk_table) VALUES ($1::pg_catalog.regclass)
        ON CONFLICT (chunk_table) DO UPDATE SET owner = EXCLUDED.owner";
    const HANDS: &str = "DELETE FROM rag_internal.changed_hands
        WHERE chunk_table OPERATOR(pg_catalog.=) $1::pg_catalog.regclass::pg_catalog.oid";
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
        s.run(HANDS, &[arg(new.chunks.qualified_name())]);
    });
}

/// Changes what is given of a collection; an empty description takes it away.
pub fn alter(collection: i32, description: Option<String>, serve_stale: Option<bool>) {
    const SQL: &str = "UPDATE rag_internal.collection
        SET description = CASE WHEN $2 THEN $3 ELSE description END, serve_stale = coalesce($4, serve_stale)
        WHERE id OPERATOR(pg_catalog.=) $1";
    let is_given = description.is_some();
    let description = description.filter(|d| !d.trim().is_empty());
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.run(SQL, &[arg(collection), arg(is_given), arg(description), arg(serve_stale)]));
}

/// Removes a collection: triggers, chunk tables, queue, failures, registered rows; and what former ones left on its source.
pub fn drop(c: &Collection) {
    if !c.source.name.is_empty() {
        trigger::remove(c.id);
    }
    drop_chunk_table(c);
    leftover::forget(c.id);
    leftover::clean(c.source.table);
}

/// Whether the chunk table has the primary key by which chunks are stored.
pub fn has_key(c: &Collection) -> bool {
    const SQL: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_index i
        WHERE i.indrelid OPERATOR(pg_catalog.=) $1 AND i.indisprimary AND i.indisvalid)";
    let _acting = ActingAs::superuser();
    c.vectors.is_adopted
        || spi::connect(|s| s.query(Snapshot::Active, SQL, &[arg(c.vectors.table)]).one().unwrap_or(false))
}

/// Whether the policy that shows a chunk to those who see its row is still there: it goes with the extension.
pub fn has_policy(c: &Collection) -> bool {
    const SQL: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_policy p
        WHERE p.polrelid OPERATOR(pg_catalog.=) $1 AND p.polname OPERATOR(pg_catalog.=) 'rag_same_as_source'::pg_catalog.name)";
    if c.vectors.is_adopted {
        return true;
    }
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::Active, SQL, &[arg(c.vectors.table)]).one().unwrap_or(false))
}

/// Forgets the generations of a collection.
pub fn forget_generations(c: &Collection) {
    const TABLES: [&str; 2] = ["chunk_owner", "changed_hands"];
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        s.run("DELETE FROM rag_internal.generation WHERE collection OPERATOR(pg_catalog.=) $1", &[arg(c.id)]);
        for table in TABLES {
            let sql = format!(
                "DELETE FROM rag_internal.{table} WHERE chunk_table OPERATOR(pg_catalog.=) $1::pg_catalog.regclass"
            );
            s.run(&sql, &[arg(c.vectors.table)]);
        }
    });
}

/// Forgets the serving generation of a collection and drops its chunk table; false: that is somebody else's by now, and
/// stays.
pub fn drop_chunk_table(c: &Collection) -> bool {
    // Before the table is dropped: the event trigger would forget the collection with it.
    forget_generations(c);
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

/// Whether any of the first rows of a source has text and no chunk. As the current role.
pub fn is_emptied(c: &Collection) -> bool {
    let statement = c.statement("is emptied", 0, || {
        let texts = c.embedded_as_text("s");
        let has_text: Vec<String> =
            texts.iter().map(|text| format!("rag_internal.has_text(pg_catalog.left({text}, 1000))")).collect();
        format!(
            "SELECT EXISTS (SELECT FROM (SELECT * FROM {source} LIMIT 200) s
             WHERE NOT EXISTS (SELECT FROM {chunks} c WHERE {join}) AND ({has_text}))",
            source = c.source.name,
            chunks = c.vectors.table_name,
            join = c.key.join("s", &c.key.columns, "c", &c.vectors.key_columns),
            has_text = has_text.join(" OR "),
        )
    });
    spi::connect(|s| s.query_kept(Snapshot::Active, &statement, &[]).one().unwrap_or(false))
}
