//! New documents become a segment.

use std::collections::BTreeMap;

use super::block::{BLOCK, Encoded};
use super::page::{Page, PageWriter};
use super::{DOCUMENTS, MAX_COUNT, Posting, stored_term};
use crate::retrieval::terms::WORD_MARK;

/// Collects documents and writes their postings in order.
///
/// ```
/// use ragent_core::retrieval::postings::SegmentWriter;
/// let mut segment = SegmentWriter::default();
/// segment.add(7, 3, [("index", 2), ("lock", 1)]);
/// let mut pages = Vec::new();
/// let size = segment.finish(&mut |page| pages.push(page));
/// assert_eq!((size.documents, size.total_length, pages.len()), (1, 3, 1));
/// ```
#[derive(Debug, Default)]
pub struct SegmentWriter {
    /// Of a `BTreeMap`, so that pages are the same for the same documents.
    terms: BTreeMap<Box<str>, Vec<Posting>>,
    memory: usize,
}

/// How large a segment is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentSize {
    /// Documents, also those that have no term.
    pub documents: u64,
    /// Sum of their lengths.
    pub total_length: u64,
}

impl SegmentWriter {
    /// Adds a document that was not added before: its number, its length in terms (what k1 and b look at), and its terms with
    /// how often it has each. An empty term is left out. Of terms that begin with [`WORD_MARK`] only the first document is kept:
    /// they are there to be found, not to be scored.
    pub fn add<'t>(&mut self, document: i64, length: usize, terms: impl IntoIterator<Item = (&'t str, usize)>) {
        let capped = |count: usize| (count as u64).min(MAX_COUNT) as u32;
        let document = document.max(0);
        let length = capped(length);
        self.put(DOCUMENTS, Posting { document, frequency: 1, length });
        for (term, frequency) in terms {
            let term = stored_term(term);
            if frequency > 0 && !term.is_empty() {
                self.put(term, Posting { document, frequency: capped(frequency), length });
            }
        }
    }

    fn put(&mut self, term: &str, posting: Posting) {
        // About what a node of the tree, two allocations and the text take.
        const TERM: usize = 96;
        self.memory += size_of::<Posting>();
        if let Some(postings) = self.terms.get_mut(term) {
            return postings.push(posting);
        }
        self.memory += TERM + term.len();
        self.terms.insert(term.into(), vec![posting]);
    }

    /// About how many bytes of memory it takes: who adds without end writes a segment when it is too many.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Writes the pages, in the order of their keys.
    pub fn finish(self, sink: &mut dyn FnMut(Page)) -> SegmentSize {
        let mut size = SegmentSize::default();
        let base = self.terms.get(DOCUMENTS).into_iter().flatten().map(|p| p.document).min().unwrap_or_default();
        let mut writer = PageWriter::new(base);
        for (term, mut postings) in self.terms {
            postings.sort_by_key(|p| p.document);
            postings.dedup_by(|again, first| {
                let same = again.document == first.document;
                if same {
                    first.frequency = first.frequency.saturating_add(again.frequency).min(MAX_COUNT as u32);
                }
                same
            });
            if &*term == DOCUMENTS {
                size = SegmentSize {
                    documents: postings.len() as u64,
                    total_length: postings.iter().map(|p| u64::from(p.length)).sum(),
                };
            }
            if term.starts_with(WORD_MARK) {
                postings.truncate(1);
            }
            let blocks: Vec<Encoded> = postings.chunks(BLOCK).map(Encoded::pack).collect();
            writer.add(&term, &blocks, sink);
        }
        writer.finish(sink);
        size
    }
}
