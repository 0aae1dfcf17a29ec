//! Results that are not all the same.

use std::collections::HashMap;
use std::hash::Hash;

/// Most chunks of a row among the results of a search that says nothing else.
pub const DEFAULT_CHUNKS_PER_ROW: usize = 3;

/// Lets through the first few chunks of each row, in the order they come.
#[derive(Debug, Clone)]
pub struct ChunksPerRow<K> {
    most: usize,
    seen: HashMap<K, usize>,
}

impl<K: Hash + Eq> ChunksPerRow<K> {
    /// At most so many of each row.
    pub fn new(most: usize) -> Self {
        Self { most, seen: HashMap::new() }
    }

    /// Whether one more chunk of this row is let through.
    pub fn admits(&mut self, row: K) -> bool {
        let count = self.seen.entry(row).or_default();
        *count += 1;
        *count <= self.most
    }
}

/// Which candidates to take, in which order, so that each adds something: maximal marginal relevance.
///
/// The next one is always that with the highest `diversity · −(its greatest similarity to one taken) + (1 − diversity) ·
/// relevance`. Carbonell and Goldstein, *The use of MMR, diversity-based reranking* (1998), where λ is `1 − diversity`.
/// `relevance` has the candidates' scores, at best on the scale of similarities (0 to 1); `similarity` is asked for pairs of
/// them, at most `k` · candidates times. Of equal ones the first is taken. `diversity` is 0 (the order of relevance) to 1.
///
/// ```
/// use ragent_core::retrieval::diversity::mmr;
/// // The first two say the same.
/// let similar = |a: usize, b: usize| if a + b == 1 { 0.99 } else { 0.1 };
/// assert_eq!(mmr(&[0.9, 0.89, 0.5], 2, 0.5, similar), [0, 2]);
/// assert_eq!(mmr(&[0.9, 0.89, 0.5], 2, 0.0, similar), [0, 1]);
/// ```
pub fn mmr(relevance: &[f64], k: usize, diversity: f64, mut similarity: impl FnMut(usize, usize) -> f64) -> Vec<usize> {
    let diversity = if diversity.is_nan() { 0.0 } else { diversity.clamp(0.0, 1.0) };
    let mut nearest = vec![f64::NEG_INFINITY; relevance.len()];
    let mut left: Vec<usize> = (0..relevance.len()).collect();
    let mut taken = Vec::with_capacity(k.min(relevance.len()));
    while taken.len() < k && !left.is_empty() {
        let value = |candidate: usize| {
            let same = if taken.is_empty() || diversity == 0.0 { 0.0 } else { diversity * nearest[candidate] };
            (1.0 - diversity) * relevance[candidate] - same
        };
        let mut best = 0;
        for place in 1..left.len() {
            // With diversity 1 the first one is still the most relevant.
            let (a, b) = (left[place], left[best]);
            let order = value(a).total_cmp(&value(b));
            let order = if taken.is_empty() { relevance[a].total_cmp(&relevance[b]) } else { order };
            if order.is_gt() {
                best = place;
            }
        }
        let chosen = left.remove(best);
        taken.push(chosen);
        if diversity > 0.0 {
            for candidate in &left {
                nearest[*candidate] = nearest[*candidate].max(similarity(*candidate, chosen));
            }
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_brings_no_more_than_its_share() {
        let mut rows = ChunksPerRow::new(2);
        let admitted: Vec<bool> = ["a", "b", "a", "a", "b", "c"].into_iter().map(|row| rows.admits(row)).collect();
        assert_eq!(admitted, [true, true, true, false, true, true]);
    }

    #[test]
    fn the_most_relevant_comes_first_and_those_like_it_late() {
        // Points on a line: near ones are alike.
        let points: [f64; 5] = [0.0, 0.01, 0.02, 1.0, 2.0];
        let similarity = |a: usize, b: usize| 1.0 - (points[a] - points[b]).abs() / 2.0;
        let relevance = [0.8, 0.9, 0.7, 0.6, 0.5];
        for (diversity, k, expected) in [
            (0.0, 5, vec![1, 0, 2, 3, 4]),
            (f64::NAN, 2, vec![1, 0]),
            (0.5, 3, vec![1, 4, 3]),
            (1.0, 2, vec![1, 4]),
            (0.5, 0, vec![]),
            (0.5, 99, vec![1, 4, 3, 0, 2]),
        ] {
            assert_eq!(mmr(&relevance, k, diversity, similarity), expected, "{diversity}");
        }
        assert!(mmr(&[], 3, 0.5, similarity).is_empty());
    }

    #[test]
    fn similarities_are_asked_for_no_more_than_k_times_each() {
        let mut asked = 0;
        let relevance = vec![0.5; 100];
        assert_eq!(
            mmr(&relevance, 10, 0.3, |_, _| {
                asked += 1;
                0.5
            })
            .len(),
            10
        );
        assert!(asked <= 1000);
    }
}
