//! A question and its answer: drives the runs of `ragent_core`, carries out their tool calls, records them.

#[allow(clippy::result_large_err)]
mod api;
mod backend;
mod recorder;
mod search;
mod statements;
mod trace;
