//! How the text of a new collection is to be cut.

use crate::error::{Error, Result};
use crate::registry::Recipe;

/// The chunker of new collections.
const CHUNKER: &str = "prose";
const DEFAULT_CHUNK_TOKENS: i32 = 400;
const DEFAULT_CHUNK_OVERLAP: i32 = 50;
const MIN_CHUNK_TOKENS: i32 = 16;
const MAX_CHUNK_TOKENS: i32 = 8000;

/// Sizes of chunks in tokens, as asked for, in range.
pub struct Sizes {
    tokens: Option<i32>,
    overlap: Option<i32>,
}

impl Sizes {
    /// Checks what was given.
    ///
    /// # Errors
    /// 22023 out of range.
    pub fn check(tokens: Option<i32>, overlap: Option<i32>) -> Result<Self> {
        if let Some(n) = tokens
            && !(MIN_CHUNK_TOKENS..=MAX_CHUNK_TOKENS).contains(&n)
        {
            return Err(Error::bad_argument(
                format!("chunk_tokens is {n}"),
                format!(
                    "Give a number between {MIN_CHUNK_TOKENS} and {MAX_CHUNK_TOKENS}; the default is {DEFAULT_CHUNK_TOKENS}."
                ),
            ));
        }
        let most = tokens.unwrap_or(DEFAULT_CHUNK_TOKENS) / 2;
        if let Some(n) = overlap
            && !(0..=most).contains(&n)
        {
            return Err(Error::bad_argument(
                format!("chunk_overlap is {n}"),
                format!("Give a number between 0 and half of chunk_tokens, {most}."),
            ));
        }
        Ok(Self { tokens, overlap })
    }

    /// The recipe to use: no chunk is longer than what the model reads, since the rest would not be found.
    pub fn fitted(&self, model_limit: Option<usize>) -> Recipe {
        let mut tokens = self.tokens.unwrap_or(DEFAULT_CHUNK_TOKENS);
        if let Some(limit) = model_limit.and_then(|n| i32::try_from(n).ok())
            && tokens > limit
        {
            if self.tokens.is_some() {
                pgrx::notice!("chunk_tokens is reduced from {tokens} to {limit}, the longest text the model reads");
            }
            tokens = limit;
        }
        let overlap = self.overlap.unwrap_or(DEFAULT_CHUNK_OVERLAP).min(tokens / 2);
        Recipe { chunker: CHUNKER.to_owned(), tokens, overlap }
    }
}
