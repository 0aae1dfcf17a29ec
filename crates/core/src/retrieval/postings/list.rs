//! A term's postings in one segment, read as far as they are needed.

use std::rc::Rc;

use super::block::{BLOCK, Line};
use super::page::{Run, Runs};
use super::search::{Pages, Place};
use super::{Corrupt, Posting};
use crate::retrieval::bm25::Scorer;

/// A term's postings in one segment. It only moves forward.
pub(super) struct List<'a> {
    /// Which term of the query.
    pub(super) at: usize,
    /// No posting of the list scores more.
    pub(super) bound: f64,
    place: Place<'a>,
    scorer: Scorer,
    page: Rc<[u8]>,
    /// The blocks of the page, with their bounds. Each loose posting is a block of its own.
    blocks: Vec<(Line, f64)>,
    loose: Vec<Posting>,
    /// The first document in the next page.
    next: Option<i64>,
    block: usize,
    /// The block whose documents are unpacked.
    unpacked: Option<usize>,
    documents: Box<[i64; BLOCK]>,
    posting: usize,
}

impl<'a> List<'a> {
    /// From the page that has the beginning, and what it says about the term.
    pub(super) fn open(
        at: usize,
        place: Place<'a>,
        page: &Rc<[u8]>,
        run: &Run,
        scorer: Scorer,
    ) -> Result<Self, Corrupt> {
        if !run.begins {
            return Err(Corrupt::Order);
        }
        let mut list = Self {
            at,
            bound: 0.0,
            place,
            scorer,
            page: page.clone(),
            blocks: Vec::new(),
            loose: Vec::new(),
            next: None,
            block: 0,
            unpacked: None,
            documents: Box::new([0; BLOCK]),
            posting: 0,
        };
        list.read(run, -1)?;
        let blocks = list.blocks.iter().map(|(_, bound)| *bound).fold(0.0, f64::max);
        list.bound = run.all.as_ref().map_or(blocks, |all| all.bound(&scorer).max(blocks));
        Ok(list)
    }

    /// Reads a page's run, whose documents must be above `last`.
    fn read(&mut self, run: &Run, last: i64) -> Result<(), Corrupt> {
        let (scorer, blocks) = (self.scorer, &mut self.blocks);
        blocks.clear();
        self.loose.clear();
        if run.is_loose() {
            run.loose(&self.page, &mut self.loose)?;
            blocks.extend(self.loose.iter().map(|p| (Line::of(p), scorer.score(p.frequency, p.length))));
        } else {
            run.directory(&self.page, |line, frontier| blocks.push((line, frontier.bound(&scorer))))?;
        }
        let (first, end) = (blocks.first().map(|b| b.0.first), blocks.last().map(|b| b.0.last));
        self.next = run.goes_on.then_some(run.next);
        if first <= Some(last) || (run.goes_on && Some(run.next) <= end) {
            return Err(Corrupt::Order);
        }
        (self.block, self.unpacked, self.posting) = (0, None, 0);
        Ok(())
    }

    /// First and last document of the block that has the next one from `from` on, without unpacking it; `None` when there is
    /// none.
    #[inline]
    pub(super) fn block(&mut self, from: i64, pages: &mut dyn Pages) -> Result<Option<(i64, i64)>, Corrupt> {
        loop {
            while let Some((line, _)) = self.blocks.get(self.block) {
                if line.last >= from {
                    return Ok(Some((line.first, line.last)));
                }
                self.block += 1;
                self.posting = 0;
            }
            let Some(next) = self.next else { return Ok(None) };
            let place = Place { document: next.max(from), ..self.place };
            let page = pages.at(&[place]).into_iter().next().flatten().ok_or(Corrupt::Order)?;
            let run = Runs::find(&page, self.place.term)?.ok_or(Corrupt::Order)?;
            self.page = page;
            // What comes is not below what was announced, so this comes to an end.
            self.read(&run, next - 1)?;
        }
    }

    /// No posting of the block that [`List::block`] found scores more.
    pub(super) fn block_bound(&self) -> f64 {
        self.blocks.get(self.block).map_or(0.0, |(_, bound)| *bound)
    }

    /// A document from `from` on below which there is none, without unpacking a block for it.
    pub(super) fn possible(&mut self, from: i64, pages: &mut dyn Pages) -> Result<Option<i64>, Corrupt> {
        let Some((first, _)) = self.block(from, pages)? else { return Ok(None) };
        if self.unpacked == Some(self.block) { self.seek(from, pages) } else { Ok(Some(first.max(from))) }
    }

    /// The next document from `from` on, up to `highest`. A block behind that stays packed.
    #[inline]
    pub(super) fn next_within(
        &mut self,
        from: i64,
        highest: i64,
        pages: &mut dyn Pages,
    ) -> Result<Option<i64>, Corrupt> {
        match self.block(from, pages)? {
            Some((first, _)) if first <= highest => Ok(self.seek(from, pages)?.filter(|document| *document <= highest)),
            _ => Ok(None),
        }
    }

    /// The next document from `from` on.
    #[inline]
    pub(super) fn seek(&mut self, from: i64, pages: &mut dyn Pages) -> Result<Option<i64>, Corrupt> {
        if self.block(from, pages)?.is_none() {
            return Ok(None);
        }
        let Some((line, _)) = self.blocks.get(self.block) else { return Ok(None) };
        if self.unpacked != Some(self.block) {
            if self.loose.is_empty() {
                line.documents(&self.page, &mut self.documents)?;
            } else {
                self.documents[0] = line.first;
            }
            self.unpacked = Some(self.block);
            self.posting = 0;
        }
        // The last one is not below `from`.
        while self.documents[self.posting] < from && self.posting + 1 < line.count {
            self.posting += 1;
        }
        Ok(Some(self.documents[self.posting]))
    }

    /// What the term adds to the score of a document, up to which [`List::seek`] has moved.
    #[inline]
    pub(super) fn score(&self, document: i64) -> f64 {
        let (true, Some((line, bound))) = (self.unpacked == Some(self.block), self.blocks.get(self.block)) else {
            return 0.0;
        };
        if self.documents[self.posting] != document {
            return 0.0;
        }
        if !self.loose.is_empty() {
            return *bound;
        }
        let (frequency, length) = line.frequency_and_length(&self.page, self.posting);
        self.scorer.score(frequency, length)
    }
}
