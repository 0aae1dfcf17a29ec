//! From a changed row to its chunks: what can be decided without a database.

pub mod chunk;
