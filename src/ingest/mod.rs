//! From a changed row to its chunks: capture, queue, jobs.

#[allow(clippy::result_large_err)]
mod api;
pub mod duty;
mod job;
mod plan;
pub mod statements;
mod wait;
