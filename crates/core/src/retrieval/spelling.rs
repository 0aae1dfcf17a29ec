//! Words that somebody may have meant who wrote one that no document has.

use std::ops::RangeInclusive;

/// Lengths of words that are looked at, in characters: shorter ones are an edit away from everything, longer ones are no words.
pub const LENGTHS: RangeInclusive<usize> = 4..=32;

/// Most terms of the vocabulary that are looked at for a word: some milliseconds.
const MOST_STEPS: usize = 20_000;

/// The words there are, sorted by bytes.
pub trait Vocabulary {
    /// The first word that is not below `at_least`.
    fn from(&mut self, at_least: &str) -> Option<String>;
}

impl Vocabulary for &[&str] {
    fn from(&mut self, at_least: &str) -> Option<String> {
        self.get(self.partition_point(|w| *w < at_least)).map(|w| (*w).to_owned())
    }
}

/// A word of the vocabulary that is near.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    /// The word.
    pub word: String,
    /// How many edits make one of the other.
    pub edits: usize,
}

/// How many edits a word of that many characters may be away: none below 4, one below 6, else two.
pub fn most_edits(length: usize) -> usize {
    match length {
        0..4 => 0,
        4..6 => 1,
        _ => 2,
    }
}

/// The words of the vocabulary nearest to `word` that begin with the same letter: at most `most`, nearest first, of equally
/// near ones in the order of the vocabulary; none that is farther away than others are once one is an edit away only.
///
/// An edit is a letter more, less or other, or two neighbours swapped (optimal string alignment). The vocabulary is walked
/// as a tree: stretches of it that share a beginning too far away are jumped over. No more than 20,000 words are looked at.
///
/// ```
/// use ragent_core::retrieval::spelling::alternatives;
/// let mut vocabulary = ["default", "isolate", "isolation", "level", "levels"].as_slice();
/// let words: Vec<String> = alternatives("isolaton", 3, &mut vocabulary).into_iter().map(|a| a.word).collect();
/// assert_eq!(words, ["isolation"]);
/// ```
pub fn alternatives(word: &str, most: usize, vocabulary: &mut dyn Vocabulary) -> Vec<Alternative> {
    let wanted: Vec<char> = word.chars().collect();
    let mut nearest = most_edits(wanted.len());
    let mut found: Vec<Alternative> = Vec::new();
    let (Some(first), true) = (wanted.first(), nearest > 0 && LENGTHS.contains(&wanted.len())) else { return found };
    let mut walk = Walk::new(wanted.clone());
    let mut next = first.to_string();
    for _ in 0..MOST_STEPS {
        let Some(candidate) = vocabulary.from(&next) else { break };
        if candidate < next || !candidate.starts_with(*first) {
            break;
        }
        match walk.edits(&candidate, nearest) {
            Ok(edits) => {
                if edits < nearest.min(2) && edits <= 1 {
                    nearest = 1;
                    found.retain(|a| a.edits <= 1);
                }
                if edits <= nearest {
                    found.push(Alternative { word: candidate.clone(), edits });
                }
                next = candidate + "\0";
            }
            // Nothing that begins like this is near.
            Err(beginning) => match after_all_with(&candidate[..beginning]) {
                Some(after) => next = after,
                None => break,
            },
        }
    }
    found.sort_by_key(|a| a.edits);
    found.truncate(most);
    found
}

/// The least text above all that begin with `beginning`.
fn after_all_with(beginning: &str) -> Option<String> {
    let mut after = beginning.to_owned();
    while let Some(last) = after.pop() {
        let next = ((last as u32 + 1)..=char::MAX as u32).find_map(char::from_u32);
        if let Some(next) = next {
            after.push(next);
            return Some(after);
        }
    }
    None
}

/// The table of edit distances, a row for each letter of the word at hand: rows of the beginning that it shares with the one
/// before are kept.
struct Walk {
    wanted: Vec<char>,
    letters: Vec<char>,
    /// `rows[i][j]`: edits from the first i letters to the first j of the wanted word.
    rows: Vec<Vec<usize>>,
}

impl Walk {
    fn new(wanted: Vec<char>) -> Self {
        let first = (0..=wanted.len()).collect();
        Self { wanted, letters: Vec::new(), rows: vec![first] }
    }

    /// The edits to a word; where they are too many, the number of its first bytes that are too far away already.
    fn edits(&mut self, word: &str, most: usize) -> Result<usize, usize> {
        let shared = word.chars().zip(&self.letters).take_while(|(a, b)| a == *b).count();
        self.letters.truncate(shared);
        self.rows.truncate(shared + 1);
        for (at, c) in word.char_indices().skip(shared) {
            self.push(c);
            let end = at + c.len_utf8();
            // Two letters swapped may bring the next row back to what the row before had.
            let least = |row: Option<&Vec<usize>>| row.and_then(|r| r.iter().min()).copied().unwrap_or_default();
            let rows = self.rows.len();
            if least(self.rows.last()) > most && least(self.rows.get(rows.wrapping_sub(2))) + 1 > most {
                return Err(end);
            }
            if self.letters.len() > self.wanted.len() + most {
                return Err(end);
            }
        }
        let edits = self.rows.last().and_then(|row| row.last()).copied().unwrap_or(usize::MAX);
        if edits <= most { Ok(edits) } else { Ok(usize::MAX) }
    }

    fn push(&mut self, c: char) {
        let i = self.letters.len() + 1;
        self.letters.push(c);
        let above = &self.rows[i - 1];
        let mut row = Vec::with_capacity(self.wanted.len() + 1);
        row.push(i);
        for j in 1..=self.wanted.len() {
            let other = usize::from(self.wanted[j - 1] != c);
            let mut edits = (above[j] + 1).min(row[j - 1] + 1).min(above[j - 1] + other);
            if i > 1 && j > 1 && self.wanted[j - 2] == c && self.letters[i - 2] == self.wanted[j - 1] {
                edits = edits.min(self.rows[i - 2][j - 2] + 1);
            }
            row.push(edits);
        }
        self.rows.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_found_again() {
        let mut all =
            ["database", "default", "defer", "indexes", "isolation", "isolations", "level", "lever", "naïve", "vacuum"];
        all.sort_unstable();
        for (word, expected) in [
            ("defualt", vec![("default", 1)]),
            ("isolaton", vec![("isolation", 1)]),
            ("levle", vec![("level", 1)]),
            ("vacum", vec![("vacuum", 1)]),
            ("indxs", vec![]),
            ("indexse", vec![("indexes", 1)]),
            ("naive", vec![("naïve", 1)]),
            ("databsea", vec![("database", 2)]),
            ("isolat", vec![]),
            ("abc", vec![]),
            ("xyzzy", vec![]),
            ("", vec![]),
        ] {
            let found = alternatives(word, 3, &mut all.as_slice());
            let found: Vec<(&str, usize)> = found.iter().map(|a| (a.word.as_str(), a.edits)).collect();
            assert_eq!(found, expected, "{word}");
        }
    }

    /// Counts how often the vocabulary is asked.
    struct Counted<'a>(&'a [String], usize);

    impl Vocabulary for Counted<'_> {
        fn from(&mut self, at_least: &str) -> Option<String> {
            self.1 += 1;
            self.0.get(self.0.partition_point(|w| w.as_str() < at_least)).cloned()
        }
    }

    #[test]
    fn what_is_far_away_is_jumped_over() {
        let mut words: Vec<String> = (0..30_000u32)
            .map(|i| {
                let mut n = i.wrapping_mul(2_654_435_761);
                let tail = (0..8).map(|_| {
                    n = n.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                    char::from(b'a' + (n >> 16) as u8 % 26)
                });
                tail.collect()
            })
            .chain(["isolation".to_owned()])
            .collect();
        words.sort();
        words.dedup();
        let mut counted = Counted(&words, 0);
        assert_eq!(alternatives("isolaton", 3, &mut counted), [Alternative { word: "isolation".into(), edits: 1 }]);
        assert!(counted.1 < 3000, "asked {} times", counted.1);
    }
}
