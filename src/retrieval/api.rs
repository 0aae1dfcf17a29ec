//! `rag.search`; what the policies of chunk tables call: `rag_internal.shows_row`.

use super::{Query, Scope, Search, search_and_tell, shown};
use crate::error::Error;
use crate::pg::call;
use crate::pg::jsonb::Jsonb;
use crate::pg::vector::Vector;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use ragent_core::retrieval::{Bounds, Mode};

// pgrx reads the columns from the signature itself, so that both functions get theirs from one macro.
macro_rules! search_function {
    ($name:ident, $type:ident, $query:ident => $search:expr) => {
        #[pg_extern(sql = false)]
        #[allow(clippy::type_complexity)]
        fn $name(
            query: Option<$type>,
            collection: Option<String>,
            k: Option<i32>,
            min_score: Option<f64>,
        ) -> Result<
            TableIterator<
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
            >,
            ErrorReport,
        > {
            // As any strict function: a join with a column that has NULLs must not fail at one of them.
            let Some($query) = query else { return Ok(TableIterator::new(std::iter::empty())) };
            let bounds = Bounds::check(k, min_score).map_err(|e| Error::bad_argument(e.to_string(), e.hint()))?;
            let scope = Scope::of(collection.as_deref());
            let found = search_and_tell(Search { query: $search, scope, bounds, mode: Mode::default() })?;
            Ok(TableIterator::new(
                found
                    .into_iter()
                    .map(|f| (f.collection, f.key, f.chunk, f.content, f.title, f.link, f.metadata, f.score)),
            ))
        }
    };
}

search_function!(search_text, String, text => Query::Text(&text));
search_function!(search_vector, Vector, vector => Query::Vector(&vector.0));

#[pg_extern(sql = false)]
fn shows_row(chunk_table: pg_sys::Oid, source_hash: i64, key: pg_sys::FunctionCallInfo) -> Result<bool, ErrorReport> {
    Ok(shown::shows_row(call::state(key), chunk_table, source_hash, call::arguments(key, 2))?)
}
