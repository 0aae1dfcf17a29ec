//! What a search asks for, how candidates are found and scored, and which results are the best.
//!
//! | module | what it decides |
//! |---|---|
//! | [`terms`], [`phrase`], [`spelling`] | what of a text is indexed and looked for beside lexemes; what a misspelt word meant |
//! | [`bm25`], [`postings`] | how well a text has the words of a query, and how the best are found without reading all |
//! | [`QueryKind`], [`fuse`] | how much each arm counts, and how their results become one ranking |
//! | [`filter`] | which rows may be found, by their metadata |
//! | [`diversity`], [`Bounds`], [`Widening`] | which results remain, and how many candidates are looked at for them |
//! | [`measures`] | how good a ranking is |

pub mod bm25;
mod bounds;
pub mod diversity;
pub mod filter;
pub mod fuse;
pub mod measures;
mod merge;
pub mod phrase;
pub mod postings;
mod query_kind;
pub mod spelling;
pub mod terms;
mod widening;

pub use bounds::{Bounds, MAX_K, OutOfBounds};
pub use merge::best;
pub use query_kind::QueryKind;
pub use widening::{LARGEST_BATCH, Widening};

/// How candidates are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// By the distance of their embedding to the query's.
    #[default]
    Vector,
}
