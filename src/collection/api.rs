//! `rag.create_collection`, `rag.alter_collection`, `rag.drop_collection`, `rag.refresh`, `rag_internal.row_counts`; what event
//! triggers call: `rag_internal.sync_types`, `rag_internal.drop_leftovers`, `rag_internal.altered_tables`.

use super::{alter, create, drop, follow, refresh as refreshing, row_counts, statements};
use crate::error::required;
use crate::registry;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments)]
fn create_collection(
    name: Option<String>,
    source: Option<pg_sys::Oid>,
    content: Option<Vec<Option<String>>>,
    title: Option<String>,
    link: Option<String>,
    metadata: Option<Vec<Option<String>>>,
    embedding_model: Option<String>,
    dimensions: Option<i32>,
    chunk_tokens: Option<i32>,
    chunk_overlap: Option<i32>,
    description: Option<String>,
    chunk_table: Option<String>,
    serve_stale: Option<bool>,
) -> Result<String, ErrorReport> {
    Ok(create::create(create::Request {
        name: required(name, "name")?,
        source: required(source, "source")?,
        content: required(content, "content")?,
        title,
        link,
        metadata: metadata.unwrap_or_default(),
        embedding_model,
        dimensions,
        chunk_tokens,
        chunk_overlap,
        description,
        chunk_table,
        serve_stale: serve_stale.unwrap_or(false),
    })?)
}

#[pg_extern(sql = false)]
fn alter_collection(
    name: Option<String>,
    description: Option<String>,
    serve_stale: Option<bool>,
) -> Result<(), ErrorReport> {
    Ok(alter::alter(&required(name, "name")?, description, serve_stale)?)
}

#[pg_extern(sql = false)]
fn drop_collection(name: Option<String>, if_exists: Option<bool>) -> Result<(), ErrorReport> {
    Ok(drop::drop_collection(&required(name, "name")?, if_exists == Some(true))?)
}

#[pg_extern(sql = false)]
fn refresh(collection: Option<String>) -> Result<(), ErrorReport> {
    Ok(refreshing::refresh(&required(collection, "collection")?)?)
}

#[pg_extern(sql = false)]
fn sync_types() -> Result<(), ErrorReport> {
    follow::types();
    Ok(())
}

#[pg_extern(sql = false)]
fn drop_leftovers() -> Result<(), ErrorReport> {
    follow::drops();
    Ok(())
}

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn altered_tables() -> Result<
    TableIterator<
        'static,
        (name!(relation, pg_sys::Oid), name!(partitions, bool), name!(triggers, bool), name!(columns, Vec<String>)),
    >,
    ErrorReport,
> {
    let altered = statements::altered_tables();
    Ok(TableIterator::new(altered.into_iter().map(|t| (t.relation, t.partitions, t.triggers, t.columns))))
}

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn row_counts(
    collection: i32,
) -> Result<
    TableIterator<'static, (name!(rows, Option<i64>), name!(chunks, Option<i64>), name!(is_emptied, Option<bool>))>,
    ErrorReport,
> {
    let counts = registry::by_id(collection).map(|c| row_counts::row_counts(&c)).unwrap_or_default();
    Ok(TableIterator::once((counts.rows, counts.chunks, counts.is_emptied)))
}
