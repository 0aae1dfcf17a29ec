//! From a changed row to its chunks: what can be decided without a database.
//!
//! - [`chunk`]: where a text is cut.
//! - [`copies`]: of equal texts, which chunk is in the index.
//! - [`recipe`]: what a chunk is made of, and the hash that says so.
//! - [`plan`]: which chunks a row keeps, moves, needs embedded.
//! - [`roster`]: in which databases a worker is started, and when.
//! - [`schedule`]: which collection is served next, how many rows at a time, and what has to wait for how long.
//! - [`verdict`]: what a failure means for the rows and the collection it met.

pub mod chunk;
pub mod copies;
pub mod plan;
pub mod recipe;
pub mod roster;
pub mod schedule;
pub mod verdict;
