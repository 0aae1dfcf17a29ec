//! Embeddings of query texts.

use crate::error::{Error, Result};
use crate::pg::role;
use crate::provider::{self, ModelName};
use crate::registry::Collection;
use std::collections::HashMap;

/// What decides a text's vector besides the text: model and length.
type Space = (String, i32);

/// The embeddings of texts, each in the space of the collections it is searched in.
pub struct QueryVectors(HashMap<Space, HashMap<String, Vec<f32>>>);

impl QueryVectors {
    /// Embeds texts for collections; every model is asked once for all its texts. Where one of several models cannot be
    /// asked, its texts have no vector, with a warning.
    ///
    /// # Errors
    /// Those of the model, when none of them can be asked.
    pub fn embed<'a>(wanted: impl Iterator<Item = (&'a Collection, &'a str)>) -> Result<Self> {
        let mut texts_by_space: HashMap<Space, Vec<&str>> = HashMap::new();
        for (collection, text) in wanted {
            let texts = texts_by_space.entry(space(collection)).or_default();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let mut vectors = HashMap::new();
        let mut failed = Vec::new();
        for (space, texts) in texts_by_space {
            let embedded = ModelName::parse(&space.0)
                .map_err(Error::from)
                .and_then(|model| provider::embed(&model, &texts, Some(space.1 as usize), role::current()));
            match embedded {
                Ok(embedded) => {
                    vectors.insert(space, texts.into_iter().map(str::to_owned).zip(embedded).collect());
                }
                Err(e) => failed.push((space.0, e)),
            }
        }
        if vectors.is_empty()
            && let Some((_, e)) = failed.pop()
        {
            return Err(e);
        }
        for (model, e) in failed {
            pgrx::warning!("collections of model \"{model}\" are left out: {e}");
        }
        Ok(Self(vectors))
    }

    /// The vector of a text for a collection, unless its model could not be asked.
    pub fn get(&self, collection: &Collection, text: &str) -> Option<&[f32]> {
        self.0.get(&space(collection))?.get(text).map(Vec::as_slice)
    }
}

fn space(c: &Collection) -> Space {
    (c.generation.model.clone(), c.vectors.embedding.dimensions)
}
