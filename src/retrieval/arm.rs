//! How candidates are found.

use crate::pg::jsonb::Jsonb;

/// A chunk that may answer a query, not yet checked for visibility.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Number of the chunk within its table.
    pub chunk_id: i64,
    /// Primary key of its row.
    pub key: Jsonb,
    /// Number of the chunk within its row.
    pub chunk: i32,
    /// Text of the chunk.
    pub content: String,
    /// How well it answers; more is better.
    pub score: f64,
    /// Hash of the title and content it was made of.
    pub source_hash: i64,
}

/// One way to find candidates in a collection, the best first as far as the way allows it.
///
/// It reads with the rights of the collection's owner, and must not let anything out of what it reads.
pub trait Arm {
    /// The next candidates, about so many; none when there are no more. Each is given once.
    fn next(&mut self, count: usize) -> Vec<Candidate>;

    /// No candidate still to come has a score above this one.
    fn bound(&self) -> f64;
}
