//! Which segments are worth merging.

/// So many segments of about one size become one of the next.
const FANOUT: usize = 8;

/// What is known of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Its number.
    pub segment: i64,
    /// Documents in it, deleted ones included.
    pub documents: u64,
    /// Those of them that are deleted.
    pub deleted: u64,
}

impl SegmentFacts {
    /// Sizes that differ by less than a factor of [`FANOUT`], about, have one tier.
    fn tier(&self) -> u32 {
        // What is left is what will be copied.
        self.documents.saturating_sub(self.deleted).max(1).ilog2() / FANOUT.ilog2()
    }

    /// A fifth of what would be read is no longer there.
    fn is_worn(&self) -> bool {
        self.deleted > 0 && self.deleted.saturating_mul(5) >= self.documents
    }
}

/// The segments that are best merged next; empty where nothing is worth it.
///
/// Eight of a size become one, so each document is copied about log₈ of their number times, and of n documents there are at
/// most some 7 · log₈ n segments to search. A segment of which a fifth is deleted is written again.
pub fn segments_to_merge(segments: &[SegmentFacts]) -> Vec<i64> {
    let lowest_first = (0..=u64::BITS).map(|tier| segments.iter().filter(move |s| s.tier() == tier));
    for tier in lowest_first {
        let members: Vec<i64> = tier.map(|s| s.segment).collect();
        if members.len() >= FANOUT {
            return members;
        }
    }
    segments.iter().find(|s| s.is_worn()).map(|s| vec![s.segment]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(sizes: &[(u64, u64)]) -> Vec<SegmentFacts> {
        (1..)
            .zip(sizes)
            .map(|(segment, (documents, deleted))| SegmentFacts { segment, documents: *documents, deleted: *deleted })
            .collect()
    }

    #[test]
    fn eight_of_a_size_are_merged_and_worn_ones_written_again() {
        let eight_small = [[(100_000, 0)].as_slice(), &[(60, 0); 8]].concat();
        type Case<'a> = (&'a [(u64, u64)], &'a [i64]);
        let cases: [Case<'_>; 6] = [
            (&[], &[]),
            (&[(1000, 0); 7], &[]),
            (&eight_small, &[2, 3, 4, 5, 6, 7, 8, 9]),
            (&[(1000, 199)], &[]),
            (&[(5, 0), (1000, 200)], &[2]),
            (&[(3, 3)], &[1]),
        ];
        for (sizes, expected) in cases {
            assert_eq!(segments_to_merge(&segments(sizes)), expected, "{sizes:?}");
        }
    }

    #[test]
    fn few_segments_remain_of_many_small_ones() {
        let (mut all, mut copied, mut next) = (Vec::new(), 0, 0);
        for _ in 0..4096 {
            next += 1;
            all.push(SegmentFacts { segment: next, documents: 10, deleted: 0 });
            loop {
                let merged = segments_to_merge(&all);
                if merged.is_empty() {
                    break;
                }
                let documents = all.iter().filter(|s| merged.contains(&s.segment)).map(|s| s.documents).sum();
                all.retain(|s| !merged.contains(&s.segment));
                copied += documents;
                next += 1;
                all.push(SegmentFacts { segment: next, documents, deleted: 0 });
            }
        }
        assert!(all.len() <= 7 * 6 && copied <= 40_960 * 5, "{} segments, {copied} copied", all.len());
    }
}
