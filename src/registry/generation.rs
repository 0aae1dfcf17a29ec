//! A set of a collection's chunks, all made by one model and one recipe.

/// A row of `rag_internal.generation`. Its table is in [`super::Vectors`].
#[derive(Debug, Clone)]
pub struct Generation {
    /// Number of the generation.
    pub id: i32,
    /// Model of the embeddings, as `server/model`.
    pub model: String,
    /// How text is cut.
    pub recipe: Recipe,
}

/// How text becomes chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Stable name of the chunker.
    pub chunker: String,
    /// Longest chunk, in tokens.
    pub tokens: i32,
    /// Tokens a chunk repeats of the one before.
    pub overlap: i32,
}
