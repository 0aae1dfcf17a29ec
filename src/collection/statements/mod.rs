//! All SQL text of the room.

mod chunk_table;
pub mod source;

use super::create::NewCollection;
use crate::ingest::statements::{capture, queue};
use crate::pg::catalog;
use crate::pg::role::{ActingAs, Settings};
use crate::pg::spi::{self, Snapshot, arg};
use crate::registry::{self, Collection};
use pgrx::pg_sys;

/// Creates chunk table, registered rows and triggers, and queues the rows there are.
pub fn create(new: &NewCollection<'_>) {
    {
        let _acting = ActingAs::owner(new.chunks.source.owner);
        spi::connect(|s| s.utility(&new.chunks.ddl()));
    }
    let id = insert(new);
    insert_generation(id, new);
    let collection = registry::by_id(id).expect("inserted just now");
    // So that DROP TABLE of the source needs no CASCADE although the policy names it.
    catalog::depend_on(collection.vectors.table, collection.source.table);
    {
        let _acting = ActingAs::owner(collection.source.owner);
        spi::connect(|s| s.utility(&capture::create_triggers(&collection, collection.source.kind == "p")));
    }
    {
        let _acting = ActingAs::superuser();
        spi::connect(|s| s.run("SELECT rag_internal.sync_grants($1)", &[arg(id)]));
    }
    queue::queue_all(&collection);
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
    spi::connect(|s| s.run(SQL, &args));
}

/// Removes a collection: triggers, chunk tables, queue, failures, registered rows.
pub fn drop(c: &Collection) {
    if !c.source.name.is_empty() {
        let _acting = ActingAs::owner(c.source.owner);
        let settings = Settings::new();
        // Which of the triggers there are depends on the kind of table.
        settings.set("client_min_messages", "warning");
        spi::connect(|s| s.utility(&capture::drop_triggers(c)));
    }
    if c.vectors.table_kind == "r" && !c.vectors.is_adopted {
        let _acting = ActingAs::owner(c.vectors.owner);
        spi::connect(|s| s.utility(&format!("DROP TABLE {}", c.vectors.table_name)));
    }
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        // Dropping the chunk table forgets the collection by the event trigger; where those are off, this does.
        s.run("DELETE FROM rag_internal.queue WHERE collection = $1", &[arg(c.id)]);
        s.run("DELETE FROM rag_internal.failure WHERE collection = $1", &[arg(c.id)]);
        s.run("DELETE FROM rag_internal.pause WHERE collection = $1", &[arg(c.id)]);
        s.run("DELETE FROM rag_internal.generation WHERE collection = $1", &[arg(c.id)]);
        s.run("DELETE FROM rag_internal.collection WHERE id = $1", &[arg(c.id)]);
    });
}

/// Tables beyond this size are not counted.
const COUNTED_BYTES: &str = "268435456";

/// Rows of a table that the current role sees: counted up to a size, estimated above it.
pub fn count(oid: pg_sys::Oid, name: &str) -> i64 {
    let facts = format!(
        "SELECT reltuples::pg_catalog.int8, pg_catalog.pg_relation_size(oid) OPERATOR(pg_catalog.>) {COUNTED_BYTES}
         FROM pg_catalog.pg_class WHERE oid OPERATOR(pg_catalog.=) $1"
    );
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, &facts, &[arg(oid)]);
        let estimate = rows.first().map(|row| (row.need::<i64>(1), row.get(2).unwrap_or(false)));
        match estimate {
            Some((n, true)) if n >= 0 => n,
            _ => s.query(Snapshot::Active, &format!("SELECT pg_catalog.count(*) FROM {name}"), &[]).one().unwrap_or(0),
        }
    })
}
