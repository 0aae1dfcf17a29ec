//! What a search asks for, how many candidates are looked at, and which results are the best.

mod bounds;
mod merge;
mod widening;

pub use bounds::{Bounds, MAX_K, OutOfBounds};
pub use merge::best;
pub use widening::{LARGEST_BATCH, Widening};

/// How candidates are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// By the distance of their embedding to the query's.
    #[default]
    Vector,
}
