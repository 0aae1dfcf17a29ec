//! BM25: how well a word's frequency in a document speaks for the document.
//!
//! The formula is Lucene's `BM25Similarity` (since 8.0), with exact document lengths where Lucene rounds them to a byte. It is
//! what `bm25s` calls `method="lucene"`; that is the reference the ranking is compared with.
//!
//! ```text
//! score(document) = Σ over terms: weight · idf · frequency / (frequency + k1 · (1 − b + b · length / average length))
//! idf             = ln(1 + (N − df + ½) / (df + ½))
//! ```
//!
//! The `1 +` keeps `idf` above 0, also for a word that is in most documents: so a score grows with each term, and a bound on
//! it can be computed term by term. Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond* (2009).

/// The parameters of a collection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bm25 {
    k1: f64,
    b: f64,
}

/// A parameter that is not in range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum BadParameter {
    /// Not 0 to 10, or not a number.
    #[error("k1 is {0}")]
    K1(f64),
    /// Not 0 to 1, or not a number.
    #[error("b is {0}")]
    B(f64),
}

impl BadParameter {
    /// What to do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::K1(_) => {
                "Give a number from 0 (a word counts once, however often it stands there) to 10; usual are 1.2 to 2."
            }
            Self::B(_) => "Give a number from 0 (long texts are as good as short ones) to 1; usual is 0.75.",
        }
    }
}

impl Default for Bm25 {
    /// Lucene's: k1 1.2, b 0.75.
    fn default() -> Self {
        Self { k1: 1.2, b: 0.75 }
    }
}

impl Bm25 {
    /// `k1`, 0 to 10, says how much repetition counts; `b`, 0 to 1, how much a long document must make up for its length.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn new(k1: f64, b: f64) -> Result<Self, BadParameter> {
        if !(0.0..=10.0).contains(&k1) {
            return Err(BadParameter::K1(k1));
        }
        if !(0.0..=1.0).contains(&b) {
            return Err(BadParameter::B(b));
        }
        Ok(Self { k1, b })
    }

    /// How documents of a corpus are scored for a term that `frequency` of them have, and that counts `weight` times.
    pub fn scorer(&self, corpus: Corpus, frequency: u64, weight: f64) -> Scorer {
        Scorer {
            weight: weight * inverse_document_frequency(corpus.documents, frequency),
            short: self.k1 * (1.0 - self.b),
            long: if corpus.average_length > 0.0 { self.k1 * self.b / corpus.average_length } else { 0.0 },
        }
    }
}

/// How rare a term is: `ln(1 + (N − df + ½) / (df + ½))`, above 0. A frequency above the number of documents, which deleted
/// documents can bring about, is taken as all.
pub fn inverse_document_frequency(documents: u64, frequency: u64) -> f64 {
    let frequency = frequency.min(documents) as f64;
    ((documents as f64 - frequency + 0.5) / (frequency + 0.5)).ln_1p()
}

/// The documents of a collection as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Corpus {
    /// How many there are.
    pub documents: u64,
    /// Mean of their lengths, in terms; 0 if there are none.
    pub average_length: f64,
}

impl Corpus {
    /// Of so many documents that have so many terms together.
    pub fn new(documents: u64, total_length: u64) -> Self {
        let average_length = if documents == 0 { 0.0 } else { total_length as f64 / documents as f64 };
        Self { documents, average_length }
    }
}

/// How exactly a role may learn how common words are in a collection, rows that are hidden from it included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// As it is: for roles that may see every row.
    Exact,
    /// Rounded, for roles under policies: counts up to the next power of two and never below 8, the average length to three
    /// binary digits. A row more or less changes nothing, except where it crosses such a step.
    Coarse,
}

/// The least frequency that a coarse one says: whether one hidden row has a word, or none, cannot be told.
const COARSE_FLOOR: u64 = 8;

impl Precision {
    /// A count of documents at this precision.
    pub fn count(self, count: u64) -> u64 {
        match self {
            Self::Exact => count,
            Self::Coarse => count.max(COARSE_FLOOR).checked_next_power_of_two().unwrap_or(u64::MAX),
        }
    }

    /// A corpus at this precision.
    pub fn corpus(self, corpus: Corpus) -> Corpus {
        match self {
            Self::Exact => corpus,
            Self::Coarse => {
                Corpus { documents: self.count(corpus.documents), average_length: three_digits(corpus.average_length) }
            }
        }
    }
}

/// The nearest number that has three binary digits.
fn three_digits(x: f64) -> f64 {
    if x <= 0.0 || !x.is_finite() {
        return 0.0;
    }
    let unit = (x.log2().floor() - 2.0).exp2();
    (x / unit).round() * unit
}

/// Scores one term's part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scorer {
    /// Weight and idf together: what no score reaches.
    weight: f64,
    /// k1 · (1 − b)
    short: f64,
    /// k1 · b / average length
    long: f64,
}

impl Scorer {
    /// What no document's part reaches.
    pub fn most(&self) -> f64 {
        self.weight
    }

    /// The part of a document that has the term `frequency` times and `length` terms in all. It grows with the frequency and
    /// falls with the length; 0 for frequency 0.
    pub fn score(&self, frequency: u32, length: u32) -> f64 {
        let frequency = f64::from(frequency);
        if frequency == 0.0 {
            return 0.0;
        }
        self.weight * frequency / (frequency + self.short + self.long * f64::from(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn parameters_are_taken_in_their_range_only() {
        for (k1, b, expected) in [
            (1.2, 0.75, Ok(())),
            (0.0, 0.0, Ok(())),
            (10.0, 1.0, Ok(())),
            (-0.1, 0.5, Err("k1 is -0.1")),
            (f64::NAN, 0.5, Err("k1 is NaN")),
            (1.2, 1.1, Err("b is 1.1")),
            (1.2, f64::NAN, Err("b is NaN")),
        ] {
            assert_eq!(Bm25::new(k1, b).map(|_| ()).map_err(|e| e.to_string()), expected.map_err(str::to_owned));
        }
    }

    #[test]
    fn idf_is_that_of_lucene_and_above_zero() {
        // Lucene's explain(): idf, computed as log(1 + (N - n + 0.5) / (n + 0.5)), n = 3, N = 10: ln(1 + 7.5 / 3.5)
        assert!(near(inverse_document_frequency(10, 3), 1.145_132_304_3));
        assert!(inverse_document_frequency(10, 10) > 0.0);
        assert_eq!(inverse_document_frequency(10, 12), inverse_document_frequency(10, 10));
        assert!(inverse_document_frequency(0, 0) > 0.0);
    }

    #[test]
    fn scores_are_those_of_bm25s() {
        // bm25s 0.3, method "lucene", k1 1.2, b 0.75, of the documents [a b], [a a b c], [d e f], and of two queries.
        let corpus = Corpus::new(3, 9);
        let bm25 = Bm25::default();
        let (a, c) = (bm25.scorer(corpus, 2, 1.0), bm25.scorer(corpus, 1, 1.0));
        for (score, expected) in [
            (a.score(1, 2), 0.247_370_33),
            (a.score(2, 4), 0.268_573_5),
            (c.score(1, 4), 0.392_331_7),
            (a.score(0, 3), 0.0),
        ] {
            assert!(near(score, expected), "{score} is not {expected}");
        }
    }

    #[test]
    fn a_corpus_without_documents_scores_nothing_but_numbers() {
        let scorer = Bm25::default().scorer(Corpus::new(0, 0), 0, 1.0);
        assert!(scorer.score(3, 0).is_finite());
    }

    #[test]
    fn coarse_counts_are_powers_of_two_and_never_tell_few_from_none() {
        for (count, expected) in [(0, 8), (1, 8), (8, 8), (9, 16), (16, 16), (1000, 1024), (u64::MAX, u64::MAX)] {
            assert_eq!(Precision::Coarse.count(count), expected, "{count}");
            assert_eq!(Precision::Exact.count(count), count);
        }
        let corpus = Precision::Coarse.corpus(Corpus { documents: 1000, average_length: 87.3 });
        assert_eq!((corpus.documents, corpus.average_length), (1024, 80.0));
        assert_eq!(Precision::Coarse.corpus(Corpus::new(0, 0)).average_length, 0.0);
    }
}
