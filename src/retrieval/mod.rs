//! A query and the passages the asker may see.

#[allow(clippy::result_large_err)]
mod api;
pub mod search;
mod statements;
