//! `rag.search`.

use crate::error::{json, required};
use crate::pg::vector::Vector;
use crate::retrieval::search::{self, Found, Wanted};
use pgrx::JsonB;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// The columns of `rag.search`.
type Row = (String, JsonB, i32, String, Option<String>, Option<String>, Option<JsonB>, f64);

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn search_text(
    query: Option<String>,
    collection: Option<String>,
    k: Option<i32>,
    min_score: Option<f64>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(collection, String),
            name!(key, JsonB),
            name!(chunk, i32),
            name!(content, String),
            name!(title, Option<String>),
            name!(link, Option<String>),
            name!(metadata, Option<JsonB>),
            name!(score, f64),
        ),
    >,
    ErrorReport,
> {
    let wanted = Wanted::check(k, min_score)?;
    let found = search::by_text(&required(query, "query")?, collection.as_deref(), wanted)?;
    Ok(TableIterator::new(found.into_iter().map(row)))
}

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn search_vector(
    query: Option<Vector>,
    collection: Option<String>,
    k: Option<i32>,
    min_score: Option<f64>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(collection, String),
            name!(key, JsonB),
            name!(chunk, i32),
            name!(content, String),
            name!(title, Option<String>),
            name!(link, Option<String>),
            name!(metadata, Option<JsonB>),
            name!(score, f64),
        ),
    >,
    ErrorReport,
> {
    let wanted = Wanted::check(k, min_score)?;
    let found = search::by_vector(&required(query, "query")?.0, collection.as_deref(), wanted)?;
    Ok(TableIterator::new(found.into_iter().map(row)))
}

fn row(f: Found) -> Row {
    (f.collection, json(&f.key), f.chunk, f.content, f.title, f.link, f.metadata.as_deref().map(json), f.score)
}
