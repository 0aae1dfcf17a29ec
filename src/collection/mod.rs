//! Registering tables for retrieval.

#[allow(clippy::result_large_err)]
mod api;
mod create;
pub mod statements;
