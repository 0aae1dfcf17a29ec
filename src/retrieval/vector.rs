//! The arm `vector`: chunks near the query's embedding, by the index as long as that pays, then by exact distance; where a
//! collection is small, without the index.

use super::arm::{Arm, Candidate};
use super::found::Found;
use super::statements::{self, NearestExactly, Way};
use super::widen;
use crate::pg::role;
use crate::pg::spi::{self, Spi};
use crate::registry::Collection;
use ragent_core::retrieval::Bounds;
use std::collections::HashSet;

/// Beyond so many candidates the index is left for an exact scan: pgvector looks at no more than 1000 at a time.
const MAX_INDEX_CANDIDATES: usize = 1000;

/// The best results of a collection by this arm.
pub fn results(c: &Collection, query: &[f32], bounds: Bounds) -> Vec<Found> {
    let mut looked_at = 0;
    let way = if statements::is_small(c) { Way::Exact } else { Way::Index };
    // Where policies decide, few of the nearest may be visible; where none does, nearly all are, and one statement finds them.
    if !role::is_under_row_security(c.source.table) {
        let found = statements::nearest_visible(c, query, bounds.k, way);
        if found.len() == bounds.k || found.last().is_some_and(|worst| !bounds.admits(worst.score)) {
            return found.into_iter().filter(|f| bounds.admits(f.score)).collect();
        }
        looked_at = bounds.k;
    }
    spi::connect(|s| widen::visible_results(&mut VectorArm::new(s, c, query, way), c, bounds, looked_at))
}

/// The chunks nearest to a vector.
struct VectorArm<'s, 'c> {
    spi: &'s Spi<'c>,
    collection: &'s Collection,
    query: &'s [f32],
    /// How those in the index are found.
    way: Way,
    stage: Stage<'c>,
    /// Given by the index.
    seen: HashSet<i64>,
    bound: f64,
}

enum Stage<'c> {
    /// So many were asked for by now.
    Index(usize),
    Exact(NearestExactly<'c>),
}

impl<'s, 'c> VectorArm<'s, 'c> {
    /// Before its first candidate.
    fn new(spi: &'s Spi<'c>, collection: &'s Collection, query: &'s [f32], way: Way) -> Self {
        Self { spi, collection, query, way, stage: Stage::Index(0), seen: HashSet::new(), bound: 1.0 }
    }

    /// Candidates that the index finds beyond those seen; none when it is left for the exact scan.
    fn by_index(&mut self, asked: usize, count: usize) -> Vec<Candidate> {
        let limit = asked + count;
        if limit > MAX_INDEX_CANDIDATES {
            return vec![];
        }
        let nearest = statements::nearest(self.spi, self.collection, self.query, limit, self.way);
        self.stage = Stage::Index(limit);
        if let Some(worst) = nearest.last() {
            self.bound = worst.score;
        }
        nearest.into_iter().filter(|c| self.seen.insert(c.chunk_id)).collect()
    }
}

impl Arm for VectorArm<'_, '_> {
    fn next(&mut self, count: usize) -> Vec<Candidate> {
        if let Stage::Index(asked) = self.stage {
            let new = self.by_index(asked, count);
            if !new.is_empty() {
                return new;
            }
            // An index scan that ends early proves little: entries of dead rows and its own bounds make it short.
            self.stage = Stage::Exact(NearestExactly::open(self.spi, self.collection, self.query));
        }
        let Stage::Exact(scan) = &mut self.stage else { return vec![] };
        loop {
            let nearest = scan.next(count);
            let Some(worst) = nearest.last() else { return vec![] };
            self.bound = worst.score;
            let new: Vec<Candidate> = nearest.into_iter().filter(|c| !self.seen.contains(&c.chunk_id)).collect();
            if !new.is_empty() {
                return new;
            }
        }
    }

    fn bound(&self) -> f64 {
        self.bound
    }
}
