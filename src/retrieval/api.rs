//! `rag.search`.

use super::{Found, Query, Scope, Search, search};
use crate::error::{Error, required};
use crate::pg::jsonb::Jsonb;
use crate::pg::vector::Vector;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use ragent_core::retrieval::{Bounds, Mode};

/// The rows of `rag.search`.
type Results = TableIterator<
    'static,
    (
        name!(collection, String),
        name!(key, Jsonb),
        name!(chunk, i32),
        name!(content, String),
        name!(title, Option<String>),
        name!(link, Option<String>),
        name!(metadata, Option<Jsonb>),
        name!(score, f64),
    ),
>;

#[pg_extern(sql = false)]
fn search_text(
    query: Option<String>,
    collection: Option<String>,
    k: Option<i32>,
    min_score: Option<f64>,
) -> Result<Results, ErrorReport> {
    let query = required(query, "query")?;
    results(Query::Text(&query), collection.as_deref(), k, min_score)
}

#[pg_extern(sql = false)]
fn search_vector(
    query: Option<Vector>,
    collection: Option<String>,
    k: Option<i32>,
    min_score: Option<f64>,
) -> Result<Results, ErrorReport> {
    let query = required(query, "query")?;
    results(Query::Vector(&query.0), collection.as_deref(), k, min_score)
}

fn results(
    query: Query<'_>,
    collection: Option<&str>,
    k: Option<i32>,
    min_score: Option<f64>,
) -> Result<Results, ErrorReport> {
    let bounds = Bounds::check(k, min_score).map_err(|e| Error::bad_argument(e.to_string(), e.hint()))?;
    let found = search(&[Search { query, scope: Scope::of(collection), bounds, mode: Mode::default() }])?;
    Ok(TableIterator::new(found.into_iter().flatten().map(row)))
}

fn row(f: Found) -> (String, Jsonb, i32, String, Option<String>, Option<String>, Option<Jsonb>, f64) {
    (f.collection, f.key, f.chunk, f.content, f.title, f.link, f.metadata, f.score)
}
