//! Which documents have a term: an inverted index that lives in an ordinary table.
//!
//! A *document* is a chunk, known by its number. A *posting* says how often a document has a term and how long the document
//! is. A *segment* is what was written at one time, for some documents: their postings, sorted by term and then document, and
//! cut into [`Page`]s of some kilobytes, each a row of the table. So a chunk's hundred terms cost a few rows, not a hundred,
//! and a rare term costs some ten bytes. Segments are never changed; [`merge()`] makes one of several and leaves out what was
//! deleted.
//!
//! ```text
//! segment 7:  page (a, 0) ............ page (index, 0) [index: 12 … 9,000] page (index, 9,001) [index: 9,001 …] page (lock, 0)
//! ```
//!
//! A page is found by its key, term and document: it is the last one whose key is not above what is looked for. [`top_k`] asks
//! for pages through [`Pages`] as it needs them, and skips blocks of postings whose bound says that none of them can be among
//! the best.
//!
//! Pages come from a table and are not trusted: any bytes are read as postings or are [`Corrupt`], in bounded memory.

mod best;
mod bits;
mod block;
mod frontier;
mod list;
mod merge;
mod page;
mod policy;
mod search;
mod segment;

pub use best::Hit;
pub use merge::{PageSource, merge};
pub use page::{Entry, PAGE_BYTES, Page, entries};
pub use policy::{SegmentFacts, segments_to_merge};
pub use search::{Found, Index, Pages, Place, Restriction, WeightedTerm, top_k};
pub use segment::{SegmentSize, SegmentWriter};

/// The term that every document has, once: its postings are the list of a segment's documents and their lengths.
pub const DOCUMENTS: &str = "";

/// Largest frequency and length that a posting holds; what is above is stored as this.
pub const MAX_COUNT: u64 = (1 << 31) - 1;

/// Longest term, in bytes. Longer ones are cut, at a character; texts and queries alike, so that they still meet.
pub const MAX_TERM_BYTES: usize = 255;

/// That a document has a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posting {
    /// Number of the chunk, not negative.
    pub document: i64,
    /// How often it has the term, 1 to [`MAX_COUNT`].
    pub frequency: u32,
    /// How many terms it has in all, repetitions counted, at most [`MAX_COUNT`].
    pub length: u32,
}

/// A page does not read as one that was written here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// It was written by another version.
    #[error("unknown version {0}")]
    Version(u8),
    /// It ends before it should.
    #[error("it is cut off")]
    Short,
    /// It has a number that cannot be.
    #[error("a number is out of range")]
    Number,
    /// Its terms or documents do not rise.
    #[error("it is not in order")]
    Order,
    /// A term is not UTF-8 or too long.
    #[error("a term is no text")]
    Term,
}

impl Corrupt {
    /// What to do.
    pub fn hint(&self) -> &'static str {
        "The full-text index of the collection is damaged: build it again."
    }
}

/// A term as it is stored: cut to [`MAX_TERM_BYTES`].
pub fn stored_term(term: &str) -> &str {
    let mut end = term.len().min(MAX_TERM_BYTES);
    while !term.is_char_boundary(end) {
        end -= 1;
    }
    &term[..end]
}
