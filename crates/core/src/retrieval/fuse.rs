//! Results of several arms as one ranking.
//!
//! The default, a convex combination with 0.4 for the vector arm, was chosen on Cranfield (225 queries, 1,400 documents) and
//! checked on HotpotQA (100 questions, 994 paragraphs): MiniLM-L6 and BM25 with an English stemmer over the default chunker's
//! chunks, 100 candidates an arm, the best chunk of a row. nDCG@10 · recall@10 · recall@100 · MRR:
//!
//! | | Cranfield | HotpotQA |
//! |---|---|---|
//! | vector alone | 0.506 · 0.462 · 0.790 · 0.775 | 0.785 · 0.850 · 0.990 · 0.885 |
//! | BM25 alone | 0.527 · 0.450 · 0.765 · 0.815 | 0.801 · 0.895 · 0.980 · 0.895 |
//! | convex, scales that the query sets ([`Scale`]), 0.3 | 0.570 · 0.502 · 0.808 · 0.852 | 0.840 · 0.910 · 1.000 · 0.935 |
//! | **0.4** | 0.575 · 0.510 · 0.807 · 0.847 | 0.848 · 0.910 · 1.000 · 0.950 |
//! | 0.5 | 0.574 · 0.510 · 0.807 · 0.840 | 0.843 · 0.905 · 0.995 · 0.939 |
//! | 0.6 | 0.569 · 0.508 · 0.807 · 0.836 | 0.835 · 0.900 · 0.990 · 0.931 |
//! | convex, scale from 0 to the best candidate, 0.6 | 0.574 · 0.509 · 0.807 · 0.847 | 0.845 · 0.905 · 0.995 · 0.943 |
//! | convex, scale from the worst to the best candidate, 0.5 | 0.571 · 0.502 · 0.802 · 0.842 | 0.843 · 0.905 · 1.000 · 0.943 |
//! | convex, standard scores of the candidates, 0.5 | 0.570 · 0.502 · 0.804 · 0.837 | 0.842 · 0.905 · 1.000 · 0.943 |
//! | reciprocal rank (60), 0.4 | 0.562 · 0.496 · 0.787 · 0.830 | 0.817 · 0.900 · 0.995 · 0.905 |
//! | reciprocal rank (60), 0.5 | 0.560 · 0.500 · 0.802 · 0.821 | 0.821 · 0.900 · 1.000 · 0.913 |

use std::collections::HashMap;
use std::hash::Hash;

/// What an arm found.
#[derive(Debug, Clone)]
pub struct ArmResults<K> {
    /// Candidates with the arm's own scores, best first, each once.
    pub hits: Vec<(K, f64)>,
    /// How much the arm counts, 0 to 1; the weights of all arms make 1.
    pub weight: f64,
    /// The range of its scores.
    pub scale: Scale,
}

/// A range of scores, brought to 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// The score that is worth nothing.
    pub least: f64,
    /// The score that is worth all, above `least`.
    pub most: f64,
}

/// How arms are put together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Fusion {
    /// The weighted sum of scores, each on its arm's scale: a convex combination.
    #[default]
    Convex,
    /// The weighted sum of 1 / (60 + rank), reciprocal rank fusion: it looks at ranks only. Cormack, Clarke and Büttcher,
    /// *Reciprocal rank fusion outperforms Condorcet and individual rank learning methods* (2009).
    ReciprocalRank,
}

/// A candidate in the ranking of all arms.
#[derive(Debug, Clone, PartialEq)]
pub struct Fused<K> {
    /// Which.
    pub key: K,
    /// Its score, 0 to 1 as far as those of the arms are within their scales.
    pub score: f64,
    /// For each arm, what it said; `None` where it did not have the candidate.
    pub arms: Vec<Option<ArmScore>>,
}

/// What an arm said of a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArmScore {
    /// The arm's own score.
    pub score: f64,
    /// Place among its results, from 1.
    pub rank: usize,
}

/// How much the vector arm counts beside the text arm, where nothing else is said.
pub const VECTOR_WEIGHT: f64 = 0.4;

/// The constant of reciprocal rank fusion.
const RRF: f64 = 60.0;

impl Scale {
    /// Cosine similarities: those below 0 are worth nothing.
    pub const COSINE: Scale = Scale { least: 0.0, most: 1.0 };

    /// BM25 scores of a query of which none reaches `most`: the sum of its terms' idf, as
    /// [`Found`](super::postings::Found) has it.
    ///
    /// On such scales a score says the same whatever else was found: it can be compared over collections, a second page has none
    /// of the first again, and a least score means something. Scales that end at the best candidate rank no better.
    pub fn bm25(most: f64) -> Self {
        Self { least: 0.0, most: if most > 0.0 { most } else { 1.0 } }
    }

    /// A score on this scale, not below 0.
    pub fn part(self, score: f64) -> f64 {
        let part = (score - self.least) / (self.most - self.least);
        if part.is_finite() { part.max(0.0) } else { 0.0 }
    }
}

impl Fusion {
    fn part(self, scale: Scale, score: f64, rank: usize) -> f64 {
        match self {
            Fusion::Convex => scale.part(score),
            // On a scale of its own: 1 for the first.
            Fusion::ReciprocalRank => (RRF + 1.0) / (RRF + rank as f64),
        }
    }
}

/// All candidates of all arms, best first. Where an arm does not have a candidate, it adds nothing. Of equal scores that comes
/// first which an earlier arm has, or has higher.
///
/// ```
/// use ragent_core::retrieval::fuse::{ArmResults, Fusion, Scale, fuse};
/// let vector = ArmResults { hits: vec![("a", 0.8), ("b", 0.6)], weight: 0.5, scale: Scale::COSINE };
/// let text = ArmResults { hits: vec![("b", 9.0), ("c", 3.0)], weight: 0.5, scale: Scale::bm25(9.0) };
/// let fused = fuse(Fusion::Convex, &[vector, text]);
/// let keys: Vec<&str> = fused.iter().map(|f| f.key).collect();
/// assert_eq!(keys, ["b", "a", "c"]);
/// assert_eq!(fused[0].arms[1].map(|arm| (arm.score, arm.rank)), Some((9.0, 1)));
/// ```
pub fn fuse<K: Hash + Eq + Clone>(fusion: Fusion, arms: &[ArmResults<K>]) -> Vec<Fused<K>> {
    let mut places: HashMap<K, usize> = HashMap::new();
    let mut fused: Vec<Fused<K>> = Vec::new();
    for (at, arm) in arms.iter().enumerate() {
        for ((key, score), rank) in arm.hits.iter().zip(1..) {
            let place = *places.entry(key.clone()).or_insert_with(|| {
                fused.push(Fused { key: key.clone(), score: 0.0, arms: vec![None; arms.len()] });
                fused.len() - 1
            });
            let candidate = &mut fused[place];
            if candidate.arms[at].is_none() {
                candidate.score += arm.weight * fusion.part(arm.scale, *score, rank);
                candidate.arms[at] = Some(ArmScore { score: *score, rank });
            }
        }
    }
    fused.sort_by(|a, b| b.score.total_cmp(&a.score));
    fused
}

/// No candidate that none of the arms has given yet can have a higher fused score than this, as long as arms give theirs best
/// first. An arm that has no more (`is_exhausted`, in the order of arms) can add nothing.
pub fn bound_of_unseen<K>(fusion: Fusion, arms: &[ArmResults<K>], is_exhausted: &[bool]) -> f64 {
    let part = |(arm, is_exhausted): (&ArmResults<K>, &bool)| match arm.hits.last() {
        _ if *is_exhausted => 0.0,
        Some((_, last)) => arm.weight * fusion.part(arm.scale, *last, arm.hits.len() + 1),
        None => arm.weight,
    };
    arms.iter().zip(is_exhausted).map(part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(hits: &[(&'static str, f64)], weight: f64, scale: Scale) -> ArmResults<&'static str> {
        ArmResults { hits: hits.to_vec(), weight, scale }
    }

    fn scores(fused: &[Fused<&'static str>]) -> Vec<(&'static str, f64)> {
        fused.iter().map(|f| (f.key, (f.score * 1000.0).round() / 1000.0)).collect()
    }

    #[test]
    fn scores_are_summed_by_weight_on_each_arms_scale() {
        let vector = arm(&[("a", 0.9), ("b", 0.5), ("c", -0.2)], 0.6, Scale::COSINE);
        let text = arm(&[("c", 8.0), ("b", 4.0), ("d", 1.0)], 0.4, Scale::bm25(8.0));
        let fused = fuse(Fusion::Convex, &[vector.clone(), text.clone()]);
        assert_eq!(scores(&fused), [("a", 0.54), ("b", 0.5), ("c", 0.4), ("d", 0.05)]);
        let c = &fused[2];
        assert_eq!(c.arms, [Some(ArmScore { score: -0.2, rank: 3 }), Some(ArmScore { score: 8.0, rank: 1 })]);
        assert_eq!(fused[0].arms[1], None);

        let fused = fuse(Fusion::ReciprocalRank, &[vector, text]);
        assert_eq!(scores(&fused), [("b", 0.984), ("c", 0.981), ("a", 0.6), ("d", 0.387)]);
    }

    #[test]
    fn without_results_or_with_those_of_one_arm_only_the_order_is_that_arms() {
        let empty = arm(&[], 0.5, Scale::bm25(0.0));
        let vector = arm(&[("a", 0.3), ("b", 0.2)], 0.5, Scale::COSINE);
        for fusion in [Fusion::Convex, Fusion::ReciprocalRank] {
            let keys: Vec<&str> = fuse(fusion, &[empty.clone(), vector.clone()]).iter().map(|f| f.key).collect();
            assert_eq!(keys, ["a", "b"]);
            assert!(fuse(fusion, &[empty.clone(), empty.clone()]).is_empty());
        }
    }

    #[test]
    fn nothing_unseen_is_better_than_the_bound() {
        let all = [("a", 0.9), ("b", 0.7), ("c", 0.4), ("d", 0.1)];
        let other = [("d", 5.0), ("c", 4.0), ("b", 2.0), ("a", 1.0)];
        for fusion in [Fusion::Convex, Fusion::ReciprocalRank] {
            let arms = |n: usize| [arm(&all[..n], 0.5, Scale::COSINE), arm(&other[..n], 0.5, Scale::bm25(5.0))];
            let whole = fuse(fusion, &arms(4));
            for n in 0..4 {
                let seen: Vec<&str> = fuse(fusion, &arms(n)).iter().map(|f| f.key).collect();
                let bound = bound_of_unseen(fusion, &arms(n), &[false, false]);
                let unseen = whole.iter().filter(|f| !seen.contains(&f.key)).map(|f| f.score).fold(0.0, f64::max);
                assert!(unseen <= bound, "{fusion:?} after {n}: {unseen} above {bound}");
            }
            assert_eq!(bound_of_unseen(fusion, &arms(2), &[true, true]), 0.0);
        }
    }
}
