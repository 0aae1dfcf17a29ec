//! The decisions of pg_ragent: pure Rust, no I/O, no PostgreSQL.
//!
//! The extension's backends and workers *drive* what is here: they do the calls this crate asks for and hand
//! back the results. Nothing here waits, opens a socket or reads a clock, so everything is tested without a database.
//!
//! | module | what it decides |
//! |---|---|
//! | [`ingest`] | how a row becomes chunks, which rows come next, what a failure means |
//! | [`model`] | the one shape in which any chat model is asked and answers |
//! | [`provider`] | how that shape is written on the wire, and what a failure means |
//! | [`agent`] | when to call the model, when to search, when to stop, what may be cited |
//! | [`retrieval`] | how many results a search gives, how many candidates it looks at, which are the best |
//! | [`prompt`] | every sentence a model reads from us, and the format of search results |
//! | [`extractive`] | the keyless model `local/extractive`: it answers with sentences it found |
//! | [`trace`] | a run, printed for a person |
//! | [`text`] | sentences, words and stems, shared by the above |

pub mod agent;
pub mod extractive;
pub mod ingest;
pub mod model;
pub mod prompt;
pub mod provider;
pub mod retrieval;
pub mod text;
pub mod trace;
