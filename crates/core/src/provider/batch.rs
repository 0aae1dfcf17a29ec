//! How many texts go into one request.

use std::collections::HashMap;
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

/// The two halves of a batch that was refused; `None` for a single text, which has no halves.
pub fn halves(batch: &Range<usize>) -> Option<[Range<usize>; 2]> {
    let middle = batch.start + batch.len() / 2;
    (batch.len() > 1).then_some([batch.start..middle, middle..batch.end])
}

/// How many texts servers turned out to take in one request, where that is fewer than their options say.
#[derive(Debug, Default)]
pub struct BatchLimits(HashMap<(String, String), Learned>);

/// What was learned of one model of one server.
#[derive(Debug, Default)]
struct Learned {
    /// No more texts are sent together.
    limit: Option<usize>,
    /// So many were taken together.
    proven: usize,
}

impl BatchLimits {
    /// Most texts to send together to a model at an address, where its options say `configured`.
    pub fn items(&self, url: &str, model: &str, configured: usize) -> usize {
        let learned = self.0.get(&(url.to_owned(), model.to_owned()));
        learned.and_then(|l| l.limit).map_or(configured, |limit| limit.min(configured))
    }

    /// So many texts were taken together.
    pub fn taken(&mut self, url: &str, model: &str, items: usize) {
        let learned = self.of(url, model);
        learned.proven = learned.proven.max(items);
    }

    /// So many texts were refused together: half as many are sent from now on. A text that is refused alone is to blame itself,
    /// so what was learned on the way to it does not count.
    pub fn refused(&mut self, url: &str, model: &str, items: usize) {
        let learned = self.of(url, model);
        learned.limit = match items {
            0 | 1 => Some(learned.proven).filter(|proven| *proven > 1),
            _ => Some(learned.limit.unwrap_or(usize::MAX).min(items.div_ceil(2))),
        };
    }

    fn of(&mut self, url: &str, model: &str) -> &mut Learned {
        self.0.entry((url.to_owned(), model.to_owned())).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_the_whole_and_a_single_text_has_none() {
        assert_eq!(halves(&(0..2)), Some([0..1, 1..2]));
        assert_eq!(halves(&(3..8)), Some([3..5, 5..8]));
        assert_eq!((halves(&(3..4)), halves(&(3..3))), (None, None));
    }

    #[test]
    fn a_limit_is_learned_and_a_bad_text_does_not_make_one() {
        let mut limits = BatchLimits::default();
        assert_eq!(limits.items("u", "m", 64), 64);
        for refused in [64, 32, 16] {
            limits.refused("u", "m", refused);
        }
        limits.taken("u", "m", 8);
        assert_eq!((limits.items("u", "m", 64), limits.items("u", "m", 4)), (8, 4));
        assert_eq!((limits.items("u", "other", 64), limits.items("v", "m", 64)), (64, 64));
        // One of eight is too long.
        for refused in [8, 4, 2] {
            limits.refused("u", "m", refused);
        }
        assert_eq!(limits.items("u", "m", 64), 1);
        limits.refused("u", "m", 1);
        assert_eq!(limits.items("u", "m", 64), 8);
        // Where nothing was taken yet, nothing is known.
        limits.refused("u", "new", 2);
        limits.refused("u", "new", 1);
        assert_eq!(limits.items("u", "new", 64), 64);
    }

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
