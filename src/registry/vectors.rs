//! Where a generation's vectors are, and how they are compared.

use crate::pg::catalog;
use crate::pg::spi::quote;
use pgrx::pg_sys;

/// Longest vectors that `vector` can be indexed with; up to twice that, `halfvec` can.
const MAX_VECTOR_INDEX: i32 = 2000;
/// Longest vectors that can be indexed at all.
pub const MAX_DIMENSIONS: i32 = 4000;

/// The table that holds the vectors, and what of it is read.
#[derive(Debug, Clone)]
pub struct Vectors {
    /// The chunk table.
    pub table: pg_sys::Oid,
    /// Its qualified name, quoted; empty when the table is gone.
    pub table_name: String,
    /// `pg_class.relkind`; empty when the table is gone.
    pub table_kind: String,
    /// Its owner: the source's, unless somebody changed one of them.
    pub owner: pg_sys::Oid,
    /// The owner it was made for: the source's at that time. 0 where that is not known.
    pub made_for: pg_sys::Oid,
    /// Whether it or the source has had another owner since, whoever has them now.
    pub changed_hands: bool,
    /// Whether it has the columns it was made with, of the types it was made with.
    pub has_own_columns: bool,
    /// The index of the embeddings; 0 where there is none.
    pub index: pg_sys::Oid,
    /// The source's key columns as they are called there, in the key's order.
    pub key_columns: Vec<String>,
    /// Column of the embedding.
    pub column: String,
    /// Type and length of the embeddings.
    pub embedding: Embedding,
    /// Whether the table was there before and stays when the collection goes.
    pub is_adopted: bool,
}

/// The SQL type of embeddings of one length: `vector`, or `halfvec` where only that can be indexed.
#[derive(Debug, Clone)]
pub struct Embedding {
    /// Numbers in a vector, 1 to [`MAX_DIMENSIONS`].
    pub dimensions: i32,
    /// pgvector's schema, quoted.
    schema: String,
}

impl Embedding {
    /// The type for vectors of a length.
    pub fn new(dimensions: i32) -> Self {
        Self { dimensions, schema: catalog::vector_schema() }
    }

    fn is_half(&self) -> bool {
        self.dimensions > MAX_VECTOR_INDEX
    }

    /// `schema.vector(n)` or `schema.halfvec(n)`.
    pub fn sql_type(&self) -> String {
        format!("{}.{}({})", self.schema, if self.is_half() { "halfvec" } else { "vector" }, self.dimensions)
    }

    /// The operator class of an index by cosine distance.
    pub fn operator_class(&self) -> String {
        format!("{}.{}", self.schema, if self.is_half() { "halfvec_cosine_ops" } else { "vector_cosine_ops" })
    }
}

impl Vectors {
    /// Cosine distance of a chunk to a query, which is an SQL expression of type `vector`; 0 to 2, or NaN where one of
    /// them is zero. Written so that an HNSW index can be used.
    pub fn distance(&self, alias: &str, query: &str) -> String {
        let schema = &self.embedding.schema;
        let query = if self.embedding.is_half() { format!("{query}::{schema}.halfvec") } else { query.to_owned() };
        format!("{alias}.{} OPERATOR({schema}.<=>) {query}", quote(&self.column))
    }
}
