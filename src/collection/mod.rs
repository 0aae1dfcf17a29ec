//! Registering tables for retrieval.

#[allow(clippy::result_large_err)]
mod api;
mod chunk_table;
mod create;
mod recipe;
mod row_counts;
mod source;
mod statements;
