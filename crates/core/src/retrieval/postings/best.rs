//! The best documents so far.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A document that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Its number.
    pub document: i64,
    /// Its BM25 score, above 0.
    pub score: f64,
}

impl Hit {
    /// Whether it stands before another: a better score, or the same and a lower number.
    fn is_before(&self, other: &Hit) -> bool {
        self.score > other.score || (self.score == other.score && self.document < other.document)
    }
}

/// The `k` best of what was offered.
pub(super) struct Best<'a> {
    k: usize,
    /// The worst first.
    heap: BinaryHeap<Worst>,
    after: Option<Hit>,
    excluded: Option<&'a dyn Fn(i64) -> bool>,
}

impl<'a> Best<'a> {
    /// None but hits that come after `after` and whose documents are not excluded.
    pub(super) fn new(k: usize, after: Option<Hit>, excluded: Option<&'a dyn Fn(i64) -> bool>) -> Self {
        Self { k, heap: BinaryHeap::new(), after, excluded }
    }

    /// Whether no document of at most this score can come in.
    #[inline]
    pub(super) fn is_out_of_reach(&self, bound: f64) -> bool {
        self.heap.len() == self.k && self.heap.peek().is_some_and(|worst| bound < worst.0.score)
    }

    pub(super) fn offer(&mut self, hit: Hit) {
        if hit.score <= 0.0 || self.after.is_some_and(|after| !after.is_before(&hit)) {
            return;
        }
        let is_full = self.heap.len() == self.k;
        if is_full && self.heap.peek().is_some_and(|worst| !hit.is_before(&worst.0)) {
            return;
        }
        if self.excluded.is_some_and(|is_excluded| is_excluded(hit.document)) {
            return;
        }
        if is_full {
            self.heap.pop();
        }
        self.heap.push(Worst(hit));
    }

    /// The best first.
    pub(super) fn into_sorted(self) -> Vec<Hit> {
        self.heap.into_sorted_vec().into_iter().map(|worst| worst.0).collect()
    }
}

/// A hit, greater the worse it is.
struct Worst(Hit);

impl Ord for Worst {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.score.total_cmp(&self.0.score).then(self.0.document.cmp(&other.0.document))
    }
}

impl PartialOrd for Worst {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Worst {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Worst {}
