//! Several segments become one, without what was deleted.

use super::block::{BLOCK, Encoded};
use super::page::{Page, PageWriter, Run, Runs};
use super::segment::SegmentSize;
use super::{Corrupt, DOCUMENTS, Posting};
use crate::retrieval::terms::WORD_MARK;
use crate::text::Pulse;

/// The pages of one segment.
pub trait PageSource {
    /// The bytes of the next one, in the order of keys; `None` when there are no more.
    fn next(&mut self) -> Option<Vec<u8>>;
}

impl<I: Iterator<Item = Vec<u8>>> PageSource for I {
    fn next(&mut self) -> Option<Vec<u8>> {
        Iterator::next(self)
    }
}

/// Writes a segment that has what the given ones have together, but for deleted documents.
///
/// Segments have no document in common. Memory is a page for each segment and what the longest list of postings takes when
/// it is packed, some two bytes a posting. `pulse` is called every few hundred postings.
///
/// # Errors
/// A page is damaged. What was given to `sink` by then must not be used.
pub fn merge(
    segments: &mut [&mut dyn PageSource],
    is_deleted: &mut dyn FnMut(i64) -> bool,
    sink: &mut dyn FnMut(Page),
    pulse: Pulse<'_>,
) -> Result<SegmentSize, Corrupt> {
    let mut cursors = segments.iter_mut().map(|s| Cursor::open(&mut **s)).collect::<Result<Vec<_>, _>>()?;
    let base = cursors.iter().filter(|c| c.posting().is_some()).map(|c| c.base).min().unwrap_or_default();
    let mut writer = PageWriter::new(base);
    let mut size = SegmentSize::default();
    while let Some(term) = cursors.iter().filter(|c| c.posting().is_some()).map(|c| &c.term).min().cloned() {
        let mut blocks = Vec::new();
        let mut postings: Vec<Posting> = Vec::with_capacity(BLOCK);
        let mut last = None;
        let mut with_term: Vec<usize> = (0..cursors.len()).filter(|at| cursors[*at].is_at(&term)).collect();
        loop {
            let next = with_term.iter().filter_map(|at| cursors[*at].posting().map(|p| (p.document, *at))).min();
            let Some((document, at)) = next else { break };
            if last >= Some(document) {
                return Err(Corrupt::Order);
            }
            last = Some(document);
            let posting = cursors[at].posting().ok_or(Corrupt::Order)?;
            cursors[at].advance()?;
            if !cursors[at].is_at(&term) {
                with_term.retain(|other| *other != at);
            }
            if is_deleted(document) || (term.starts_with(WORD_MARK) && !postings.is_empty()) {
                continue;
            }
            if term == DOCUMENTS {
                size.documents += 1;
                size.total_length += u64::from(posting.length);
            }
            postings.push(posting);
            if postings.len() == BLOCK {
                blocks.push(Encoded::pack(&postings));
                postings.clear();
                pulse();
            }
        }
        if !postings.is_empty() {
            blocks.push(Encoded::pack(&postings));
        }
        pulse();
        writer.add(&term, &blocks, sink);
    }
    writer.finish(sink);
    Ok(size)
}

/// Goes through the postings of a segment.
struct Cursor<'a> {
    source: &'a mut dyn PageSource,
    /// The page's runs that are still to come, the last first.
    runs: Vec<(String, Run)>,
    page: Vec<u8>,
    base: i64,
    term: String,
    postings: Vec<Posting>,
    place: usize,
}

impl<'a> Cursor<'a> {
    fn open(source: &'a mut dyn PageSource) -> Result<Self, Corrupt> {
        let mut cursor = Self {
            source,
            runs: Vec::new(),
            page: Vec::new(),
            base: i64::MAX,
            term: String::new(),
            postings: Vec::new(),
            place: 0,
        };
        cursor.next_run()?;
        Ok(cursor)
    }

    fn posting(&self) -> Option<Posting> {
        self.postings.get(self.place).copied()
    }

    /// Whether it has a posting left and the next is one of this term.
    fn is_at(&self, term: &str) -> bool {
        self.place < self.postings.len() && self.term == term
    }

    fn advance(&mut self) -> Result<(), Corrupt> {
        self.place += 1;
        if self.place == self.postings.len() { self.next_run() } else { Ok(()) }
    }

    /// Reads the next run; leaves no posting where there is none.
    fn next_run(&mut self) -> Result<(), Corrupt> {
        let last = self.postings.last().map(|p| p.document);
        self.postings.clear();
        self.place = 0;
        while self.runs.is_empty() {
            let Some(page) = self.source.next() else { return Ok(()) };
            let mut runs = Runs::new(&page)?;
            // All pages of a segment have the same one.
            if self.base < i64::MAX && self.base != runs.base() {
                return Err(Corrupt::Order);
            }
            self.base = runs.base();
            while let Some(run) = runs.next()? {
                self.runs.push((runs.term()?.to_owned(), run));
            }
            self.runs.reverse();
            self.page = page;
        }
        let Some((term, run)) = self.runs.pop() else { return Ok(()) };
        run.postings(&self.page, &mut self.postings)?;
        let first = self.postings.first().map(|p| p.document);
        // It rises from what was before, if there was something.
        if last.is_some() && (&term, first) <= (&self.term, last) {
            return Err(Corrupt::Order);
        }
        self.term = term;
        Ok(())
    }
}
