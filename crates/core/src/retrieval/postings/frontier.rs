//! The best that a set of postings can score, whatever the corpus and the parameters.

use super::Posting;
use super::bits::{Reader, put_varint, width};
use super::{Corrupt, MAX_COUNT};
use crate::retrieval::bm25::Scorer;

/// Most pairs that are kept.
const MAX_PAIRS: usize = 6;

/// The pairs of frequency and length that no other posting of the set beats, that is, has at least the frequency and at most
/// the length. A score grows with the frequency and falls with the length, so the best score of the set is that of one of
/// these, for any k1, b, average length and idf.
///
/// Lucene calls it competitive impacts. Where there are more than six, neighbours are joined to a pair at least as good as
/// both, so that what it says stays a bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Frontier {
    /// By frequency, both rising.
    pairs: Vec<(u32, u32)>,
}

impl Frontier {
    pub(super) fn of(postings: &[Posting]) -> Self {
        let mut frontier = Self::default();
        postings.iter().for_each(|p| frontier.add(p.frequency, p.length));
        frontier.shrink();
        frontier
    }

    /// Takes in another set. Call [`Frontier::shrink`] when all is in.
    pub(super) fn join(&mut self, other: &Frontier) {
        other.pairs.iter().for_each(|(frequency, length)| self.add(*frequency, *length));
    }

    fn add(&mut self, frequency: u32, length: u32) {
        let place = self.pairs.partition_point(|(f, _)| *f < frequency);
        if self.pairs[place..].first().is_some_and(|(_, l)| *l <= length) {
            return;
        }
        // Beaten are those of the same frequency (at `place`) or less that are not shorter.
        let same = self.pairs[place..].first().is_some_and(|(f, _)| *f == frequency);
        let beaten = self.pairs[..place].iter().rev().take_while(|(_, l)| *l >= length).count();
        self.pairs.splice(place - beaten..place + usize::from(same), [(frequency, length)]);
    }

    pub(super) fn shrink(&mut self) {
        while self.pairs.len() > MAX_PAIRS {
            // The neighbours whose frequencies lie nearest: joined, they promise least that is not there.
            let at = (0..self.pairs.len() - 1)
                .min_by_key(|i| u64::from(self.pairs[i + 1].0) * 1000 / u64::from(self.pairs[*i].0.max(1)))
                .unwrap_or_default();
            self.pairs[at + 1].1 = self.pairs[at].1;
            self.pairs.remove(at);
        }
    }

    /// No posting of the set scores more.
    pub(super) fn bound(&self, scorer: &Scorer) -> f64 {
        self.pairs.iter().map(|(frequency, length)| scorer.score(*frequency, *length)).fold(0.0, f64::max)
    }

    /// Not less than the bytes that it takes.
    pub(super) fn size(&self) -> usize {
        1 + self.pairs.last().map_or(0, |(f, l)| self.pairs.len() * (varint_bytes(*f) + varint_bytes(*l)))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.pairs.len() as u64);
        let (mut frequency, mut length) = (0, 0);
        for pair in &self.pairs {
            put_varint(out, u64::from(pair.0 - frequency));
            put_varint(out, u64::from(pair.1 - length));
            (frequency, length) = *pair;
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let mut frontier = Self::default();
        frontier.read_again(reader)?;
        Ok(frontier)
    }

    /// As [`Frontier::read`], into the memory of one that is no longer needed.
    pub(super) fn read_again(&mut self, reader: &mut Reader<'_>) -> Result<(), Corrupt> {
        self.pairs.clear();
        let count = reader.at_most(MAX_PAIRS as u64)?;
        let (mut frequency, mut length) = (0u64, 0u64);
        for _ in 0..count {
            frequency += reader.at_most(MAX_COUNT)?;
            length += reader.at_most(MAX_COUNT)?;
            if frequency > MAX_COUNT || length > MAX_COUNT {
                return Err(Corrupt::Number);
            }
            self.pairs.push((frequency as u32, length as u32));
        }
        Ok(())
    }
}

fn varint_bytes(value: u32) -> usize {
    (width(u64::from(value)).max(1) as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retrieval::bm25::{Bm25, Corpus};

    fn postings(pairs: &[(u32, u32)]) -> Vec<Posting> {
        (0..)
            .zip(pairs)
            .map(|(document, (frequency, length))| Posting { document, frequency: *frequency, length: *length })
            .collect()
    }

    #[test]
    fn only_what_nothing_beats_is_kept() {
        type Pairs = &'static [(u32, u32)];
        let cases: [(Pairs, Pairs); 5] = [
            (&[], &[]),
            (&[(1, 9), (1, 5), (1, 7)], &[(1, 5)]),
            (&[(1, 5), (2, 5), (2, 4)], &[(2, 4)]),
            (&[(3, 30), (1, 10), (2, 40), (2, 20)], &[(1, 10), (2, 20), (3, 30)]),
            (&[(2, 20), (1, 20), (3, 21)], &[(2, 20), (3, 21)]),
        ];
        for (all, kept) in cases {
            assert_eq!(Frontier::of(&postings(all)).pairs, kept, "{all:?}");
        }
    }

    #[test]
    fn the_bound_holds_when_pairs_are_joined_and_is_read_back() {
        let all = postings(&(1..40).map(|i| (i, i * i)).collect::<Vec<_>>());
        let frontier = Frontier::of(&all);
        assert_eq!(frontier.pairs.len(), MAX_PAIRS);
        for (k1, b, average) in [(1.2, 0.75, 50), (0.0, 0.0, 1), (10.0, 1.0, 1), (0.9, 0.4, 1000)] {
            let scorer = Bm25::new(k1, b).unwrap().scorer(Corpus::new(100, 100 * average), 7, 1.0);
            let best = all.iter().map(|p| scorer.score(p.frequency, p.length)).fold(0.0, f64::max);
            assert!(frontier.bound(&scorer) >= best);
        }
        let mut out = Vec::new();
        frontier.write(&mut out);
        assert_eq!(Frontier::read(&mut Reader::new(&out, 0)), Ok(frontier));
    }
}
