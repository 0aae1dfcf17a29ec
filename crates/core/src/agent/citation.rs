//! Markers in an answer and the chunks they stand for.

use serde::{Deserialize, Serialize};

/// A marker of the answer and the chunk it stands for. Serialises to an element of `rag.answer`'s `citations`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Citation {
    /// The number in the answer's text.
    pub marker: u32,
    /// Collection of the chunk.
    pub collection: String,
    /// Key of its source row.
    pub key: serde_json::Value,
    /// Its number within the row, from 1.
    pub chunk: i32,
    /// Title of the row.
    pub title: Option<String>,
    /// Link of the row.
    pub link: Option<String>,
    /// The part of the chunk that supports the sentence with the marker: verbatim, at most 300 characters.
    pub quote: String,
}
