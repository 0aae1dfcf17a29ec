//! The table that is to hold a collection's chunks.

use super::source::Table;
use crate::pg::spi::quote;
use crate::registry::{Column, Embedding};

/// A chunk table to be made beside a source.
pub struct ChunkTable<'a> {
    /// Name of the collection.
    pub collection: &'a str,
    /// The source.
    pub source: &'a Table,
    /// Content columns of the source.
    pub content: &'a [Column],
    /// Schema of the chunk table, not quoted.
    pub schema: String,
    /// Name of the chunk table, not quoted.
    pub name: String,
    /// The source's key columns as they are called in it.
    pub key_columns: Vec<String>,
    /// Its embeddings.
    pub embedding: Embedding,
}

/// Columns of a chunk table besides the key.
const OWN_COLUMNS: [&str; 8] =
    ["chunk", "chunk_id", "content", "content_hash", "model", "source_xmin", "source_hash", "embedding"];

impl ChunkTable<'_> {
    /// Schema and name, quoted.
    pub fn qualified_name(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.name))
    }
}

/// The key's names in the chunk table: the source's, unless one of the chunk table's own columns is called the same.
pub fn key_names(key: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for column in key {
        let mut name = column.clone();
        while OWN_COLUMNS.contains(&name.as_str()) || names.contains(&name) || (name != *column && key.contains(&name))
        {
            name = format!("key_{name}");
        }
        names.push(name);
    }
    names
}
