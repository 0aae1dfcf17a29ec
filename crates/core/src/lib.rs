//! The decisions of pg_ragent: pure Rust, no I/O, no PostgreSQL.
//!
//! The extension's backends and workers *drive* what is here: they do the calls this crate asks for and hand
//! back the results. Nothing here waits, opens a socket or reads a clock, so everything is tested without a database.
//!
//! | module | what it decides |
//! |---|---|
//! | [`trace`] | a run, printed for a person |
//! | [`agent`] | when to call the model, when to search, when to stop, what may be cited |
//! | [`extractive`] | the keyless model `local/extractive`: it answers with sentences it found |
//! | [`prompt`] | every sentence a model reads from us, the format of search results, citation markers |
//! | [`collection`] | when what happens to registered tables is followed |
//! | [`retrieval`] | what of a text is looked for, how candidates are scored, which are the best, how good that is |
//! | [`ingest`] | how a row becomes chunks, which rows come next, what a failure means |
//! | [`provider`] | how a request is written on the wire, and what a failure means |
//! | [`model`] | the one shape in which any chat model is asked and answers |
//! | [`scope`] | which of what a role left behind it is shown, where several people share the role |
//! | [`text`] | sentences, words and stems, shared by the above |
//!
//! A module uses only modules that stand below it (collection, retrieval and ingest not each other);
//! `scripts/check-invariants` checks this order.

pub mod agent;
pub mod collection;
pub mod extractive;
pub mod ingest;
pub mod model;
pub mod prompt;
pub mod provider;
pub mod retrieval;
pub mod scope;
pub mod text;
pub mod trace;
