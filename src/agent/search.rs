//! The runner of tool kind `search`: the collections a run may search, and its searches.

use crate::error::{Error, Result};
use crate::registry::statements::Collection;
use crate::retrieval::search::{self, Found, Wanted};
use pgrx::PgSqlErrorCode;
use ragent_core::agent::{Hit, SearchCall, SearchResult, SearchTool, Tool};

/// The collections that a run may search.
pub struct Searcher {
    collections: Vec<Collection>,
}

impl Searcher {
    /// Of the named collection, or of all that the current role may read and that can be searched now.
    ///
    /// # Errors
    /// The named collection does not exist, may not be read or cannot be searched.
    pub fn of(collection: Option<&str>) -> Result<Searcher> {
        Ok(Searcher { collections: search::usable_collections(collection)? })
    }

    /// One tool for each collection.
    pub fn tools(&self) -> Vec<Tool> {
        self.collections.iter().map(|c| tool(c).into()).collect()
    }

    /// Runs searches together: every embedding model is asked once for all its texts. One result for each, in their order.
    ///
    /// # Errors
    /// A collection is gone, or no embedding model can be asked.
    pub fn run(&self, calls: &[&SearchCall]) -> Result<Vec<SearchResult>> {
        let mut searches = Vec::new();
        for call in calls {
            let place = self.collections.iter().position(|c| c.name == call.collection).ok_or_else(|| {
                Error::undefined(
                    format!("collection \"{}\" does not exist", call.collection),
                    "The agent was offered it and it is gone; ask again.",
                )
            })?;
            searches.push((place, call.query.as_str()));
        }
        let most = calls.iter().map(|c| c.k).max().unwrap_or(1) as usize;
        let found = search::by_texts(&self.collections, &searches, Wanted { k: most, min_score: None })?;
        found
            .into_iter()
            .zip(calls)
            .map(|(found, call)| {
                let hits = found.into_iter().take(call.k as usize).map(hit).collect::<Result<_>>()?;
                Ok(SearchResult { hits })
            })
            .collect()
    }
}

fn tool(c: &Collection) -> SearchTool {
    let description = c.description.clone().unwrap_or_else(|| format!("rows of the table {}", c.source_name));
    SearchTool { collection: c.name.clone(), description }
}

fn hit(f: Found) -> Result<Hit> {
    let key = serde_json::from_str(&f.key).map_err(|e| {
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
