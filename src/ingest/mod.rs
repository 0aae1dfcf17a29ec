//! From a changed row to its chunks: capture, queue, jobs.

#[allow(clippy::result_large_err)]
mod api;
mod capture;
pub mod duty;
mod job;
mod permit;
pub mod statements;
mod verify;
mod wait;
pub mod wake;
