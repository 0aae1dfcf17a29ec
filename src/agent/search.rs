//! The runner of tool kind `search`: the collections a run may search, and its searches.

use crate::error::{Error, Result};
use crate::registry::Collection;
use crate::retrieval::{Found, Query, Scope, Search, search};
use pgrx::PgSqlErrorCode;
use ragent_core::agent::{Hit, SearchCall, SearchResult, SearchTool, Tool};
use ragent_core::retrieval::{Bounds, Mode};
use std::rc::Rc;

/// One search tool for each collection.
pub fn tools(collections: &[Rc<Collection>]) -> Vec<Tool> {
    collections.iter().map(|c| tool(c).into()).collect()
}

/// Runs searches together: every embedding model is asked once for all its texts. One result for each, in their order.
/// `is_named`: the asker named the collection. Where it was found among all, what goes wrong with it is a warning.
///
/// # Errors
/// A named collection is gone or may not be read any more, or no embedding model can be asked.
pub fn run(calls: &[&SearchCall], is_named: bool) -> Result<Vec<SearchResult>> {
    let searches: Vec<Search<'_>> = calls
        .iter()
        .map(|call| Search {
            query: Query::Text(&call.query),
            scope: if is_named { Scope::One(&call.collection) } else { Scope::OneOfAll(&call.collection) },
            bounds: Bounds { k: call.k as usize, min_score: None },
            mode: Mode::default(),
        })
        .collect();
    let found = search(&searches)?;
    found
        .into_iter()
        .map(|found| Ok(SearchResult { hits: found.into_iter().map(hit).collect::<Result<_>>()? }))
        .collect()
}

fn tool(c: &Collection) -> SearchTool {
    let description = c.description.clone().unwrap_or_else(|| format!("rows of the table {}", c.source.name));
    SearchTool { collection: c.name.clone(), description }
}

fn hit(f: Found) -> Result<Hit> {
    let key = serde_json::from_str(&f.key.text()).map_err(|e| {
        Error::new(
            PgSqlErrorCode::ERRCODE_DATA_CORRUPTED,
            format!("the key of a chunk of collection \"{}\" is no JSON: {e}", f.collection),
            "Drop the collection and create it again.",
        )
    })?;
    Ok(Hit {
        collection: f.collection,
        key,
        chunk: f.chunk,
        content: f.content,
        title: f.title,
        link: f.link,
        score: f.score,
    })
}
