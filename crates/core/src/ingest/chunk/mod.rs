//! Cutting a row's text into chunks that fit an embedding model.
//!
//! A chunker is a file here and a line in [`CHUNKERS`]. Its name is stored with a collection's generation and is part of every
//! chunk's hash, so it never changes its meaning: a chunker that cuts differently gets another name.
//!
//! ```
//! use ragent_core::ingest::chunk::{ChunkOptions, DEFAULT, chunker};
//! let words = |text: &str| text.split_whitespace().count();
//! let options = ChunkOptions { max_tokens: 5, overlap_tokens: 2 };
//! let chunks = chunker(DEFAULT).unwrap().split("One two three. Four five.\n\nSix seven.", &options, &words);
//! let texts: Vec<&str> = chunks.iter().map(|c| c.text.as_str()).collect();
//! assert_eq!(texts, ["One two three. Four five.", "Four five.\n\nSix seven."]);
//! ```

mod prose;
mod tokens;

pub use crate::text::Pulse;
pub use tokens::approximate_tokens;

/// Every chunker there is.
pub const CHUNKERS: &[&dyn Chunker] = &[&prose::Prose];

/// The chunker of collections that name none.
pub const DEFAULT: &str = "prose";

/// A way of cutting text.
pub trait Chunker: Sync {
    /// What it is called where collections store it.
    fn name(&self) -> &'static str;

    /// Begins to cut a text. `pulse` is called every few kilobytes, also where that takes long.
    fn begin(&self, text: &str, options: &ChunkOptions, pulse: Pulse<'_>) -> Box<dyn Cut>;

    /// Splits `text` into chunks of at most `options.max_tokens` tokens each, as `count` (usually an embedding model's
    /// tokeniser) counts them; none for blank text. The same arguments give the same chunks.
    fn split(&self, text: &str, options: &ChunkOptions, count: &dyn Fn(&str) -> usize) -> Vec<Chunk> {
        let mut cut = self.begin(text, options, &|| ());
        std::iter::from_fn(|| cut.next(count)).collect()
    }
}

/// A text that is being cut, chunk by chunk: a long one is done in turns.
pub trait Cut {
    /// The next chunk; `None` when the text is at its end. It costs about as much as the chunk is long, or as the longest
    /// stretch that is looked at as one (128 kB), whatever the text looks like.
    fn next(&mut self, count: &dyn Fn(&str) -> usize) -> Option<Chunk>;
}

/// How large chunks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkOptions {
    /// Most tokens of a chunk; 0 is taken as 1.
    pub max_tokens: usize,
    /// Most tokens of whole sentences repeated at the beginning of the next chunk; more than half of `max_tokens` is
    /// taken as half.
    pub overlap_tokens: usize,
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The piece; never blank, trimmed.
    pub text: String,
    /// Its length in tokens, as the counting function says.
    pub tokens: usize,
}

/// The chunker of that name.
pub fn chunker(name: &str) -> Option<&'static dyn Chunker> {
    CHUNKERS.iter().find(|c| c.name() == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunker_is_found_by_its_name_and_only_by_that() {
        for chunker in CHUNKERS {
            let same: Vec<_> = CHUNKERS.iter().filter(|c| c.name() == chunker.name()).collect();
            assert_eq!(same.len(), 1, "two chunkers are called {}", chunker.name());
        }
        assert_eq!(chunker(DEFAULT).map(Chunker::name), Some("prose"));
        assert!(chunker("no such chunker").is_none());
    }
}
