//! Registering tables for retrieval.

mod alter;
#[allow(clippy::result_large_err)]
mod api;
mod chunk_table;
mod create;
mod drop;
pub mod duty;
mod follow;
mod leftover;
mod recipe;
mod refresh;
mod row_counts;
mod source;
mod statements;
