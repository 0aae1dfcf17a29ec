//! A search: what SQL and the agent ask for alike.

use super::query_vectors::QueryVectors;
use super::{Found, Scope, vector, waiting};
use crate::error::{Error, Result};
use crate::provider::input;
use crate::registry::{self, Collection};
use pgrx::PgSqlErrorCode;
use ragent_core::retrieval::{Bounds, Mode, best};
use std::rc::Rc;

/// What is looked for, where, and how much of it is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Search<'a> {
    /// What is looked for.
    pub query: Query<'a>,
    /// Where.
    pub scope: Scope<'a>,
    /// How many results, and how good.
    pub bounds: Bounds,
    /// How candidates are found.
    pub mode: Mode,
}

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub enum Query<'a> {
    /// A text, to be embedded by each collection's model.
    Text(&'a str),
    /// A vector that exists already.
    Vector(&'a [f32]),
}

/// Runs several searches at once; the results of each, best first.
///
/// # Errors
/// 22023 a query that cannot be searched for, 54000 one that is too long, 22000 a vector of another length than the named
/// collection's, those of [`Scope::collections`] and of the models.
pub fn search(searches: &[Search<'_>]) -> Result<Vec<Vec<Found>>> {
    let collections = searches.iter().map(Search::collections).collect::<Result<Vec<_>>>()?;
    search_in(searches, &collections)
}

/// Runs one search for somebody who is told what of the searched collections waits to be embedded.
///
/// # Errors
/// Those of [`search`].
pub fn search_and_tell(search: Search<'_>) -> Result<Vec<Found>> {
    let collections = search.collections()?;
    let mut found = search_in(&[search], std::slice::from_ref(&collections))?;
    waiting::tell(&collections, search.scope.is_named());
    Ok(found.pop().unwrap_or_default())
}

fn search_in(searches: &[Search<'_>], collections: &[Vec<Rc<Collection>>]) -> Result<Vec<Vec<Found>>> {
    let texts = searches.iter().zip(collections).flat_map(|(search, collections)| {
        let text = match search.query {
            Query::Text(text) => Some(text),
            Query::Vector(_) => None,
        };
        text.into_iter().flat_map(|text| collections.iter().map(move |c| (&**c, text)))
    });
    let vectors = QueryVectors::embed(texts)?;
    searches
        .iter()
        .zip(collections)
        .map(|(search, collections)| {
            let mut found = Vec::new();
            for c in collections {
                let vector = match search.query {
                    Query::Text(text) => vectors.get(c, text),
                    Query::Vector(vector) => Some(vector),
                };
                if let Some(vector) = vector {
                    // No more is kept than is wanted, however many collections there are.
                    found.extend(search.results(c, vector)?);
                    best(&mut found, search.bounds.k, |f| f.score);
                }
            }
            Ok(found)
        })
        .collect()
}

impl Search<'_> {
    /// The collections it is run in.
    fn collections(&self) -> Result<Vec<Rc<Collection>>> {
        self.query.check()?;
        let mut collections = self.scope.collections()?;
        if let Query::Vector(vector) = self.query {
            if self.scope.is_named() {
                collections.iter().try_for_each(|c| check_length(vector, c))?;
            } else {
                collections.retain(|c| c.vectors.embedding.dimensions as usize == vector.len());
            }
        }
        Ok(collections)
    }

    /// Its results in a collection as it is now; none where it was dropped. The tables are locked against changes until the
    /// transaction ends. Not before: a table is not kept from being altered while a model is waited for.
    ///
    /// # Errors
    /// 55000 the asker named it, and it can no longer be used.
    fn results(&self, c: &Rc<Collection>, vector: &[f32]) -> Result<Vec<Found>> {
        if !self.scope.is_named() {
            return Ok(registry::attempt(c, |c| self.one(c, vector)).unwrap_or_default());
        }
        let Some(c) = registry::held(c.clone()) else { return Ok(Vec::new()) };
        c.check()?;
        Ok(self.one(&c, vector))
    }

    /// Its results in one collection.
    fn one(&self, c: &Collection, vector: &[f32]) -> Vec<Found> {
        match self.mode {
            Mode::Vector => vector::results(c, vector, self.bounds),
        }
    }
}

impl Query<'_> {
    fn check(&self) -> Result<()> {
        match self {
            Query::Text(text) if ragent_core::text::is_blank(text) => {
                Err(Error::bad_argument("the query is empty", "Give a text to search for."))
            }
            Query::Vector(vector) if vector.iter().all(|x| *x == 0.0) => Err(Error::bad_argument(
                "the query vector is zero",
                "A vector without direction has no nearest neighbours by cosine.",
            )),
            Query::Text(text) => input::check("the query", text),
            Query::Vector(_) => Ok(()),
        }
    }
}

fn check_length(vector: &[f32], c: &Collection) -> Result<()> {
    let dimensions = c.vectors.embedding.dimensions;
    if dimensions as usize == vector.len() {
        return Ok(());
    }
    Err(Error::new(
        PgSqlErrorCode::ERRCODE_DATA_EXCEPTION,
        format!("different vector dimensions {} and {dimensions}", vector.len()),
        format!("Embed the query with the collection's model, {}.", c.generation.model),
    ))
}
