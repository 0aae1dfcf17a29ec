//! Results of several searches as one list.

/// Puts the best first and leaves `k`. Of equal scores, what came first stays first.
pub fn best<T>(found: &mut Vec<T>, k: usize, score: impl Fn(&T) -> f64) {
    found.sort_by(|a, b| score(b).total_cmp(&score(a)));
    found.truncate(k);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_k_remain_in_order() {
        let cases: [(&[f64], usize, &[f64]); 5] = [
            (&[], 3, &[]),
            (&[0.1, 0.9, 0.5], 2, &[0.9, 0.5]),
            (&[0.1, 0.9, 0.5], 5, &[0.9, 0.5, 0.1]),
            (&[-1.0, 0.0], 1, &[0.0]),
            (&[0.5, 0.5], 2, &[0.5, 0.5]),
        ];
        for (scores, k, expected) in cases {
            let mut found = scores.to_vec();
            best(&mut found, k, |score| *score);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn of_equal_scores_the_first_stays_first() {
        let mut found = vec![("a", 0.5), ("b", 0.7), ("c", 0.5)];
        best(&mut found, 2, |(_, score)| *score);
        assert_eq!(found, [("b", 0.7), ("a", 0.5)]);
    }
}
