//! How good a ranking is, by what people said is relevant: the measures of trec_eval.
//!
//! A ranking is a list of keys, the best first. Judgements give keys a grade: 0 or less is not relevant, 1 and more is, the
//! more the better. What was not judged is not relevant. A key that comes a second time in a ranking does not count again
//! and takes no rank: several chunks of a row are one row.
//!
//! Where nothing is relevant, nothing can be measured: the result is `None`, and a mean leaves the query out. (`trec_eval`
//! counts such a query as 0.)
//!
//! ```
//! use std::collections::HashMap;
//! use ragent_core::retrieval::measures::{mrr, recall_at_k};
//! let judgements = HashMap::from([("a", 2), ("b", 1), ("c", 0)]);
//! assert_eq!(recall_at_k(&["c", "a", "x"], &judgements, 2), Some(0.5));
//! assert_eq!(mrr(&["c", "a", "x"], &judgements), Some(0.5));
//! ```

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Grades by key.
pub type Judgements<K> = HashMap<K, i32>;

/// Normalised discounted cumulative gain of the first `k`, 0 to 1; `ndcg_cut` of trec_eval.
///
/// A result of grade g at rank r gains g / log₂(r + 1); the sum is divided by that of the best ranking possible. Järvelin and
/// Kekäläinen, *Cumulated gain-based evaluation of IR techniques* (2002). (Others gain 2^g − 1: the same for grades 0 and 1.)
pub fn ndcg<K: Hash + Eq>(ranking: &[K], judgements: &Judgements<K>, k: usize) -> Option<f64> {
    let mut ideal: Vec<i32> = relevant(judgements).collect();
    ideal.sort_unstable_by(|a, b| b.cmp(a));
    let best = discounted(ideal.into_iter().take(k));
    (best > 0.0).then(|| discounted(grades(ranking, judgements).take(k)) / best)
}

/// The part of what is relevant that is among the first `k`, 0 to 1; `recall` of trec_eval.
pub fn recall_at_k<K: Hash + Eq>(ranking: &[K], judgements: &Judgements<K>, k: usize) -> Option<f64> {
    let all = relevant(judgements).count();
    (all > 0).then(|| hits(ranking, judgements, k) as f64 / all as f64)
}

/// The part of the first `k` that is relevant, 0 to 1; `P` of trec_eval. A ranking of fewer than `k` is counted as if others,
/// not relevant, followed. `None` also for `k` 0.
pub fn precision_at_k<K: Hash + Eq>(ranking: &[K], judgements: &Judgements<K>, k: usize) -> Option<f64> {
    (k > 0 && relevant(judgements).next().is_some()).then(|| hits(ranking, judgements, k) as f64 / k as f64)
}

/// One by the rank of the first relevant result, 0 if there is none; `recip_rank` of trec_eval. Its mean over queries is what
/// MRR stands for.
pub fn mrr<K: Hash + Eq>(ranking: &[K], judgements: &Judgements<K>) -> Option<f64> {
    relevant(judgements).next()?;
    let rank = grades(ranking, judgements).position(|grade| grade > 0);
    Some(rank.map_or(0.0, |place| 1.0 / (place + 1) as f64))
}

/// The mean of what could be measured; `None` if nothing could.
pub fn mean(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let (sum, count) = values.into_iter().flatten().fold((0.0, 0u32), |(sum, count), v| (sum + v, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The keys of scored results as a ranking: the best score first, of equal ones the greater key. So trec_eval breaks ties,
/// where results come without ranks: not in favour of whoever wrote them down.
pub fn ranking<K: Ord>(mut scored: Vec<(K, f64)>) -> Vec<K> {
    scored.sort_by(|(a, x), (b, y)| y.total_cmp(x).then_with(|| b.cmp(a)));
    scored.into_iter().map(|(key, _)| key).collect()
}

fn relevant<K>(judgements: &Judgements<K>) -> impl Iterator<Item = i32> {
    judgements.values().copied().filter(|grade| *grade > 0)
}

/// The grades of a ranking in order, 0 where there is none or it is less; repeated keys left out.
fn grades<K: Hash + Eq>(ranking: &[K], judgements: &Judgements<K>) -> impl Iterator<Item = i32> {
    let mut seen = HashSet::new();
    ranking
        .iter()
        .filter(move |key| seen.insert(*key))
        .map(|key| judgements.get(key).copied().unwrap_or_default().max(0))
}

fn hits<K: Hash + Eq>(ranking: &[K], judgements: &Judgements<K>, k: usize) -> usize {
    grades(ranking, judgements).take(k).filter(|grade| *grade > 0).count()
}

fn discounted(grades: impl Iterator<Item = i32>) -> f64 {
    grades.zip(2u32..).map(|(grade, place)| f64::from(grade) / f64::from(place).log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judgements(grades: &[(&'static str, i32)]) -> Judgements<&'static str> {
        grades.iter().copied().collect()
    }

    #[test]
    fn measures_are_those_of_trec_eval() {
        // Values of trec_eval (by pytrec_eval: ndcg_cut_3, ndcg_cut_10, recall_2, recall_10, P_2, P_10, recip_rank), see by hand: of the
        // first, DCG@3 = 0/log2(2) + 2/log2(3) + 1/log2(4) = 1.76186, ideal = 3 + 2/log2(3) + 1/2 = 4.76186.
        let graded = judgements(&[("a", 3), ("b", 2), ("c", 1), ("d", 0), ("e", -1)]);
        type Case = (&'static [&'static str], [f64; 7]);
        let cases: [Case; 5] = [
            (&["d", "b", "c", "a"], [0.369_994, 0.641_323, 1.0 / 3.0, 1.0, 0.5, 0.3, 0.5]),
            (&["a", "b", "c"], [1.0, 1.0, 2.0 / 3.0, 1.0, 1.0, 0.3, 1.0]),
            (&["x", "e", "y"], [0.0; 7]),
            (&[], [0.0; 7]),
            // Twice the same key is once: rank 2 is "c".
            (&["b", "b", "c"], [0.552_500, 0.552_500, 2.0 / 3.0, 2.0 / 3.0, 1.0, 0.2, 1.0]),
        ];
        for (ranking, expected) in cases {
            let measured = [
                ndcg(ranking, &graded, 3),
                ndcg(ranking, &graded, 10),
                recall_at_k(ranking, &graded, 2),
                recall_at_k(ranking, &graded, 10),
                precision_at_k(ranking, &graded, 2),
                precision_at_k(ranking, &graded, 10),
                mrr(ranking, &graded),
            ];
            for (measured, expected) in measured.into_iter().zip(expected) {
                assert!(
                    measured.is_some_and(|m| (m - expected).abs() < 1e-5),
                    "{ranking:?}: {measured:?}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn where_nothing_is_relevant_nothing_is_measured() {
        for none in [judgements(&[]), judgements(&[("a", 0), ("b", -2)])] {
            assert_eq!(ndcg(&["a"], &none, 10), None);
            assert_eq!(recall_at_k(&["a"], &none, 10), None);
            assert_eq!(precision_at_k(&["a"], &none, 10), None);
            assert_eq!(mrr(&["a"], &none), None);
        }
        let some = judgements(&[("a", 1)]);
        assert_eq!((ndcg(&["a"], &some, 0), precision_at_k(&["a"], &some, 0)), (None, None));
        assert_eq!(mean([Some(1.0), None, Some(0.5)]), Some(0.75));
        assert_eq!(mean([None]), None);
    }

    #[test]
    fn equal_scores_are_ranked_by_the_greater_key() {
        assert_eq!(ranking(vec![("a", 0.5), ("c", 0.9), ("b", 0.5)]), ["c", "b", "a"]);
    }
}
