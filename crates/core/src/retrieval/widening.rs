//! How many more candidates to look at when too few of those before may be shown.

/// Most candidates of one batch.
pub const LARGEST_BATCH: usize = 1000;
/// Fewer than so many more are not worth another look.
const SMALLEST_STEP: usize = 64;

/// The sizes of the batches of candidates, without an end: `k` at first, then each as many as make the total four times
/// what it was, between 64 and [`LARGEST_BATCH`].
#[derive(Debug, Clone)]
pub struct Widening {
    k: usize,
    total: usize,
}

impl Widening {
    /// For a search of `k` results, with `looked_at` candidates looked at by then.
    pub fn new(k: usize, looked_at: usize) -> Self {
        Self { k, total: looked_at }
    }
}

impl Iterator for Widening {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let more = if self.total == 0 { self.k } else { (3 * self.total).max(SMALLEST_STEP) };
        let more = more.clamp(1, LARGEST_BATCH);
        self.total += more;
        Some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_fast_up_to_the_largest() {
        let cases: [(usize, usize, [usize; 5]); 4] = [
            (10, 0, [10, 64, 222, 888, 1000]),
            (1, 0, [1, 64, 195, 780, 1000]),
            (1000, 0, [1000, 1000, 1000, 1000, 1000]),
            (10, 10, [64, 222, 888, 1000, 1000]),
        ];
        for (k, looked_at, expected) in cases {
            let batches: Vec<usize> = Widening::new(k, looked_at).take(5).collect();
            assert_eq!(batches, expected, "k {k} after {looked_at}");
        }
    }
}
