//! One result.

use crate::pg::jsonb::Jsonb;

/// One chunk found, with what its row is now.
#[derive(Debug, Clone)]
pub struct Found {
    /// Name of its collection.
    pub collection: String,
    /// Primary key of its row: `{"id": 2}`.
    pub key: Jsonb,
    /// Number of the chunk within its row, from 1.
    pub chunk: i32,
    /// Text of the chunk.
    pub content: String,
    /// Title of the row.
    pub title: Option<String>,
    /// Link of the row.
    pub link: Option<String>,
    /// Metadata columns of the row, an object.
    pub metadata: Option<Jsonb>,
    /// Cosine similarity to the query, -1 to 1.
    pub score: f64,
}
