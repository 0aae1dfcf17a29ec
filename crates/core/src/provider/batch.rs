//! How many texts go into one request.

use std::ops::Range;

/// Cuts texts into runs that a provider takes in one request, in order. `tokens` holds each text's length. A text that is
/// longer than `max_tokens` has a run of its own.
///
/// ```
/// use ragent_core::provider::batches;
/// assert_eq!(batches(&[10, 10, 90, 10], 2, 100), [0..2, 2..4]);
/// ```
pub fn batches(tokens: &[usize], max_items: usize, max_tokens: usize) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (i, n) in tokens.iter().enumerate() {
        let full = i - start >= max_items || sum + n > max_tokens;
        if i > start && full {
            batches.push(start..i);
            (start, sum) = (i, 0);
        }
        sum += n;
    }
    if start < tokens.len() {
        batches.push(start..tokens.len());
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_keep_both_limits_and_leave_nothing_out() {
        for (tokens, max_items, max_tokens, lengths) in [
            (vec![], 2, 10, vec![]),
            (vec![1], 2, 10, vec![1]),
            (vec![1, 1, 1], 2, 10, vec![2, 1]),
            (vec![5, 5, 1], 9, 10, vec![2, 1]),
            (vec![5, 6, 5], 9, 10, vec![1, 1, 1]),
            (vec![99, 1, 99], 9, 10, vec![1, 1, 1]),
            (vec![0, 0, 0], 3, 0, vec![3]),
        ] {
            let runs = batches(&tokens, max_items, max_tokens);
            assert_eq!(
                runs.iter().map(Range::len).collect::<Vec<_>>(),
                lengths,
                "{tokens:?} by {max_items}, {max_tokens}"
            );
            assert!(runs.into_iter().flatten().eq(0..tokens.len()), "{tokens:?} by {max_items}, {max_tokens}");
        }
    }
}
