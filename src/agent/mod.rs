//! A question and its answer: drives the agent of `ragent_core`, records runs.

#[allow(clippy::result_large_err)]
mod api;
mod backend;
mod statements;
