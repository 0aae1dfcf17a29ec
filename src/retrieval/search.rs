//! `rag.search`: the nearest chunks the invoking role may see.

use super::statements::{self, Candidate, Exact, VisibleRow};
use crate::error::{Error, Result};
use crate::pg::{role, spi};
use crate::provider::{self, ModelName};
use crate::registry::{self, Collection};
use pgrx::PgSqlErrorCode;
use std::collections::HashMap;
use std::rc::Rc;

/// One chunk found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its collection.
    pub collection: String,
    /// Its row's key as JSON text.
    pub key: String,
    /// Its number.
    pub chunk: i32,
    /// Its text.
    pub content: String,
    /// Its row's title.
    pub title: Option<String>,
    /// Its row's link.
    pub link: Option<String>,
    /// Its row's metadata as JSON text.
    pub metadata: Option<String>,
    /// Cosine similarity, -1 to 1.
    pub score: f64,
}

/// How many and how good.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// At most so many.
    pub k: usize,
    /// None below this score.
    pub min_score: Option<f64>,
}

/// Most results of one search.
pub const MAX_K: i32 = 1000;
/// Beyond so many candidates the index is left for an exact scan.
const MAX_INDEX_CANDIDATES: usize = 1000;
/// Candidates an exact scan checks at a time.
const EXACT_BATCH: usize = 1000;

impl Wanted {
    /// Checks `k` and `min_score` as given in SQL.
    pub fn check(k: Option<i32>, min_score: Option<f64>) -> Result<Self> {
        let k = k.unwrap_or(10);
        if !(1..=MAX_K).contains(&k) {
            return Err(Error::bad_argument(
                format!("k is {k}"),
                format!("Give the number of results wanted, 1 to {MAX_K}."),
            ));
        }
        if let Some(score) = min_score
            && !(-1.0..=1.0).contains(&score)
        {
            return Err(Error::bad_argument(
                format!("min_score is {score}"),
                "Scores are cosine similarities: give a number between -1 and 1.",
            ));
        }
        Ok(Self { k: k as usize, min_score })
    }
}

/// Searches by text, in the named collection or in all the role may read.
pub fn by_text(query: &str, collection: Option<&str>, wanted: Wanted) -> Result<Vec<Found>> {
    check_query(query)?;
    let collections = usable_collections(collection)?;
    let queries: Vec<(usize, &str)> = (0..collections.len()).map(|i| (i, query)).collect();
    let mut found: Vec<Found> = by_texts(&collections, &queries, wanted)?.into_iter().flatten().collect();
    best(&mut found, wanted.k);
    Ok(found)
}

/// The named collection, or all the role may read. Of all, those that cannot be searched now are left out with a
/// warning: somebody else's broken table must not keep a role from searching its own.
pub fn usable_collections(name: Option<&str>) -> Result<Vec<Rc<Collection>>> {
    if let Some(name) = name {
        let c = registry::readable(name)?;
        c.check()?;
        return Ok(vec![c]);
    }
    let mut collections = registry::all_readable();
    collections.retain(|c| match c.check() {
        Ok(()) => true,
        Err(e) => {
            pgrx::warning!("{e}");
            false
        }
    });
    Ok(collections)
}

/// Several searches at once, each a collection's place and a text: every model is asked once for all its texts.
/// Where one of several models cannot be asked, its collections give nothing, with a warning.
pub fn by_texts(collections: &[Rc<Collection>], searches: &[(usize, &str)], wanted: Wanted) -> Result<Vec<Vec<Found>>> {
    let mut by_model: HashMap<(&str, i32), Vec<&str>> = HashMap::new();
    for &(c, query) in searches {
        let texts = by_model
            .entry((&collections[c].generation.model, collections[c].vectors.embedding.dimensions))
            .or_default();
        if !texts.contains(&query) {
            texts.push(query);
        }
    }
    let models = by_model.len();
    let mut failed = Vec::new();
    let mut vectors: HashMap<(&str, i32, &str), Vec<f32>> = HashMap::new();
    for ((model, dimensions), texts) in by_model {
        let embedded = ModelName::parse(model)
            .and_then(|name| provider::embed(&name, &texts, Some(dimensions as usize), role::current()));
        match embedded {
            Ok(embedded) => {
                vectors.extend(texts.iter().map(|t| (model, dimensions, *t)).zip(embedded));
            }
            Err(e) => failed.push((model, e)),
        }
    }
    if failed.len() == models
        && let Some((_, e)) = failed.pop()
    {
        return Err(e);
    }
    for (model, e) in failed {
        pgrx::warning!("collections of model \"{model}\" are left out: {e}");
    }
    searches
        .iter()
        .map(|&(c, query)| {
            let collection = &collections[c];
            let key = (collection.generation.model.as_str(), collection.vectors.embedding.dimensions, query);
            match vectors.get(&key) {
                Some(vector) => Ok(one(collection, vector, wanted)),
                None => Ok(vec![]),
            }
        })
        .collect()
}

/// Searches by vector. Of all collections, those of its length.
pub fn by_vector(query: &[f32], collection: Option<&str>, wanted: Wanted) -> Result<Vec<Found>> {
    if query.iter().all(|x| *x == 0.0) {
        return Err(Error::bad_argument(
            "the query vector is zero",
            "A vector without direction has no nearest neighbours by cosine.",
        ));
    }
    let mut collections = usable_collections(collection)?;
    match collection {
        Some(_) => {
            let c = &collections[0];
            if c.vectors.embedding.dimensions as usize != query.len() {
                return Err(Error::new(
                    PgSqlErrorCode::ERRCODE_DATA_EXCEPTION,
                    format!("different vector dimensions {} and {}", query.len(), c.vectors.embedding.dimensions),
                    format!("Embed the query with the collection's model, {}.", c.generation.model),
                ));
            }
        }
        None => collections.retain(|c| c.vectors.embedding.dimensions as usize == query.len()),
    }
    let mut found: Vec<Found> = collections.iter().flat_map(|c| one(c, query, wanted)).collect();
    best(&mut found, wanted.k);
    Ok(found)
}

/// Refuses a text that cannot be searched for.
pub fn check_query(query: &str) -> Result<()> {
    if query.trim().is_empty() {
        return Err(Error::bad_argument("the query is empty", "Give a text to search for."));
    }
    Ok(())
}

fn best(found: &mut Vec<Found>, k: usize) {
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.truncate(k);
}

/// One collection, one vector: candidates by the index, widened until `k` visible ones are found or none are left.
fn one(c: &Collection, query: &[f32], wanted: Wanted) -> Vec<Found> {
    let mut limit = wanted.k;
    while limit <= MAX_INDEX_CANDIDATES {
        let candidates = statements::nearest(c, query, limit);
        let exhausted = candidates.len() < limit;
        let worst = candidates.last().map_or(2.0, |c| c.distance);
        let found = visible(c, candidates, wanted);
        if found.len() >= wanted.k || wanted.min_score.is_some_and(|min| 1.0 - worst < min) {
            return found;
        }
        // An index scan that ends early proves little: entries of dead rows and its own bounds make it short.
        if exhausted {
            break;
        }
        limit = (limit * 4).max(64);
    }
    exact(c, query, wanted)
}

fn exact(c: &Collection, query: &[f32], wanted: Wanted) -> Vec<Found> {
    spi::connect(|s| {
        let mut found = Vec::new();
        let mut scan = Exact::open(s, c, query);
        loop {
            crate::pg::interrupt::check();
            let candidates = scan.next(EXACT_BATCH);
            let Some(worst) = candidates.last().map(|c| c.distance) else { break };
            let left = Wanted { k: wanted.k - found.len(), ..wanted };
            found.extend(visible(c, candidates, left));
            if found.len() >= wanted.k || wanted.min_score.is_some_and(|min| 1.0 - worst < min) {
                break;
            }
        }
        scan.close();
        found
    })
}

/// The first `k` candidates whose row the current role may see.
fn visible(c: &Collection, candidates: Vec<Candidate>, wanted: Wanted) -> Vec<Found> {
    let good: Vec<Candidate> =
        candidates.into_iter().filter(|c| wanted.min_score.is_none_or(|min| 1.0 - c.distance >= min)).collect();
    let rows = statements::visible(c, &good);
    good.into_iter()
        .zip(rows)
        .filter_map(|(candidate, row)| row.map(|row| found(c, candidate, row)))
        .take(wanted.k)
        .collect()
}

fn found(c: &Collection, candidate: Candidate, row: VisibleRow) -> Found {
    Found {
        collection: c.name.clone(),
        key: candidate.key,
        chunk: candidate.chunk,
        content: candidate.content,
        title: row.title,
        link: row.link,
        metadata: row.metadata,
        score: 1.0 - candidate.distance,
    }
}
