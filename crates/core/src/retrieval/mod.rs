//! What a search asks for, how candidates are found and scored, and which results are the best.

pub mod bm25;
mod bounds;
pub mod diversity;
pub mod filter;
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
