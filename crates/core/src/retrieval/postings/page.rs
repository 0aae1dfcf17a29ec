//! A piece of a segment as bytes: runs of postings, by term.
//!
//! ```text
//! page := version (1 byte) · base document (varint) · run*
//! run  := bytes shared with the term before (varint) · other bytes (varint, bytes) · bytes of what follows (varint)
//!         · head (varint: count << 2 | goes on << 1 | begins) · [df (varint) · frontier, if it begins and goes on]
//!         · [next document − base (varint), if it goes on] · postings
//! ```
//!
//! `count` is the number of the term's postings in this page. A term *begins* in the page that has its first posting, and
//! *goes on* where others have more of them. Fewer than 8 postings are *loose*: document − document before (from the base),
//! `length << 1 | (frequency > 1)`, and then frequency − 2, varints each. Others are a directory of blocks, see
//! [`super::block`], and their payloads, 128 postings each but for the last one.

use super::bits::{Reader, put_varint};
use super::block::{BLOCK, Encoded, LOOSE, Line};
use super::frontier::Frontier;
use super::{Corrupt, MAX_COUNT, MAX_TERM_BYTES, Posting};

const VERSION: u8 = 1;

/// Most bytes of a page that is written: with its key in a row, it fills a block of PostgreSQL (8 kB) and needs no TOAST,
/// where the table's `toast_tuple_target` allows it.
pub const PAGE_BYTES: usize = 7800;

/// Most bytes of a page that is read.
const MAX_PAGE_BYTES: usize = 1 << 16;

/// A piece of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Term of its first run.
    pub term: String,
    /// Document of its first posting; 0 if the term begins here.
    pub document: i64,
    /// Its runs, at most [`PAGE_BYTES`].
    pub bytes: Vec<u8>,
}

/// What a page says about a term.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) begins: bool,
    pub(super) goes_on: bool,
    pub(super) count: usize,
    /// How many documents of the segment have the term. Known where it begins.
    pub(super) df: u64,
    /// The term's first document in the next page, where it goes on.
    pub(super) next: i64,
    /// Bound over all of the segment, where the run begins and goes on.
    pub(super) all: Option<Frontier>,
    base: i64,
    /// Where the postings begin in the page.
    start: usize,
}

/// A term of a page, for who reads the vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The term.
    pub term: String,
    /// How many documents of the segment have it.
    pub documents: u64,
}

/// Goes through the runs of a page.
pub(super) struct Runs<'a> {
    reader: Reader<'a>,
    base: i64,
    is_first: bool,
    pub(super) term: Vec<u8>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(page: &'a [u8]) -> Result<Self, Corrupt> {
        if page.len() > MAX_PAGE_BYTES {
            return Err(Corrupt::Number);
        }
        let mut reader = Reader::new(page, 0);
        match reader.byte()? {
            VERSION => {}
            other => return Err(Corrupt::Version(other)),
        }
        let base = reader.at_most(i64::MAX as u64)? as i64;
        Ok(Self { reader, base, is_first: true, term: Vec::new() })
    }

    /// The next run, whose term is then in `term`.
    pub(super) fn next(&mut self) -> Result<Option<Run>, Corrupt> {
        if self.reader.is_at_end() {
            return Ok(None);
        }
        let shared = self.reader.at_most(self.term.len() as u64)? as usize;
        let other = self.reader.at_most((MAX_TERM_BYTES - shared) as u64)? as usize;
        let other = self.reader.take(other)?;
        // Terms rise: what is not shared is above what was there before.
        if !self.is_first && other <= &self.term[shared..] {
            return Err(Corrupt::Order);
        }
        self.is_first = false;
        self.term.truncate(shared);
        self.term.extend(other);
        let bytes = self.reader.at_most(MAX_PAGE_BYTES as u64)? as usize;
        let body_start = self.reader.at();
        self.reader.take(bytes)?;
        let mut body = self.reader;
        // Only the beginning of the body is read here.
        body.rewind(body_start);
        let head = body.varint()?;
        let count = head >> 2;
        if count == 0 || count > (bytes * BLOCK) as u64 {
            return Err(Corrupt::Number);
        }
        let (begins, goes_on) = (head & 1 != 0, head & 2 != 0);
        let (mut df, mut all) = (count, None);
        if begins && goes_on {
            df = body.at_most(i64::MAX as u64)?;
            all = Some(Frontier::read(&mut body)?);
        }
        let next = if goes_on { self.base.checked_add_unsigned(body.varint()?).ok_or(Corrupt::Number)? } else { 0 };
        Ok(Some(Run { begins, goes_on, count: count as usize, df, next, all, base: self.base, start: body.at() }))
    }

    /// The run of a term, if the page has one.
    pub(super) fn find(page: &'a [u8], term: &str) -> Result<Option<Run>, Corrupt> {
        let mut runs = Self::new(page)?;
        while let Some(run) = runs.next()? {
            match runs.term.as_slice().cmp(term.as_bytes()) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(Some(run)),
                std::cmp::Ordering::Greater => break,
            }
        }
        Ok(None)
    }

    /// No document of the page is below it.
    pub(super) fn base(&self) -> i64 {
        self.base
    }

    pub(super) fn term(&self) -> Result<&str, Corrupt> {
        std::str::from_utf8(&self.term).map_err(|_| Corrupt::Term)
    }
}

/// The terms that begin in a page, in order.
///
/// # Errors
/// The page is damaged.
pub fn entries(page: &[u8]) -> Result<Vec<Entry>, Corrupt> {
    let mut runs = Runs::new(page)?;
    let mut entries = Vec::new();
    while let Some(run) = runs.next()? {
        if run.begins {
            entries.push(Entry { term: runs.term()?.to_owned(), documents: run.df });
        }
    }
    Ok(entries)
}

impl Run {
    /// Whether its postings are loose.
    pub(super) fn is_loose(&self) -> bool {
        self.count < LOOSE
    }

    /// Reads loose postings.
    pub(super) fn loose(&self, page: &[u8], postings: &mut Vec<Posting>) -> Result<(), Corrupt> {
        let mut reader = Reader::new(page, self.start);
        postings.clear();
        let mut before = self.base;
        for place in 0..self.count {
            let gap = reader.varint()?;
            if place > 0 && gap == 0 {
                return Err(Corrupt::Order);
            }
            let document = before.checked_add_unsigned(gap).ok_or(Corrupt::Number)?;
            let length = reader.at_most(MAX_COUNT << 1 | 1)?;
            let frequency = if length & 1 == 0 { 1 } else { reader.at_most(MAX_COUNT - 2)? + 2 };
            postings.push(Posting { document, frequency: frequency as u32, length: (length >> 1) as u32 });
            before = document;
        }
        Ok(())
    }

    /// Reads all postings.
    pub(super) fn postings(&self, page: &[u8], postings: &mut Vec<Posting>) -> Result<(), Corrupt> {
        if self.is_loose() {
            return self.loose(page, postings);
        }
        postings.clear();
        let mut lines = Vec::new();
        self.directory(page, |line, _| lines.push(line))?;
        let mut documents = [0; BLOCK];
        for line in lines {
            line.documents(page, &mut documents)?;
            for (place, document) in documents[..line.count].iter().enumerate() {
                let (frequency, length) = line.frequency_and_length(page, place);
                postings.push(Posting { document: *document, frequency, length });
            }
        }
        Ok(())
    }

    /// Reads the directory of blocks. `each` is given every line with its frontier.
    pub(super) fn directory(&self, page: &[u8], mut each: impl FnMut(Line, &Frontier)) -> Result<(), Corrupt> {
        // Payloads stand behind the directory, whose end is known only when it was read.
        let mut lines = Vec::with_capacity(self.count.div_ceil(BLOCK).min(page.len()));
        let mut reader = Reader::new(page, self.start);
        let (mut left, mut before) = (self.count, self.base);
        let mut frontier = Frontier::default();
        while left > 0 {
            let line = Line::read(&mut reader, left.min(BLOCK), before, &mut frontier)?;
            if !lines.is_empty() && line.first <= before {
                return Err(Corrupt::Order);
            }
            (left, before) = (left - line.count, line.last);
            lines.push((line, frontier.clone()));
        }
        let mut start = reader.at();
        for (mut line, frontier) in lines {
            line.start = start;
            start += line.payload_bytes();
            if start > page.len() {
                return Err(Corrupt::Short);
            }
            each(line, &frontier);
        }
        Ok(())
    }
}

/// Lays runs out in pages. Terms come in order, each with all of its postings.
pub(super) struct PageWriter {
    /// The lowest document of the segment, or 0: documents are stored as distances from it.
    base: i64,
    page: Option<Page>,
    /// Term of the last run in the page.
    last_term: Vec<u8>,
}

impl PageWriter {
    pub(super) fn new(base: i64) -> Self {
        Self { base, page: None, last_term: Vec::new() }
    }

    /// Adds a term. `blocks` are full but for the last one.
    pub(super) fn add(&mut self, term: &str, blocks: &[Encoded], sink: &mut dyn FnMut(Page)) {
        let df: usize = blocks.iter().map(|b| b.count).sum();
        if df == 0 {
            return;
        }
        let mut all = Frontier::default();
        blocks.iter().for_each(|b| all.join(&b.frontier));
        all.shrink();
        let (mut rest, mut begins) = (blocks, true);
        while !rest.is_empty() {
            let fitting = self.fitting(term, rest);
            if fitting == 0 {
                self.flush(sink);
                continue;
            }
            let (now, later) = rest.split_at(fitting);
            self.run(term, now, later.first().map(|b| b.first), begins.then_some((df, &all)));
            if !later.is_empty() {
                self.flush(sink);
            }
            (rest, begins) = (later, false);
        }
    }

    /// Ends the segment.
    pub(super) fn finish(mut self, sink: &mut dyn FnMut(Page)) {
        self.flush(sink);
    }

    /// How many blocks fit into the page; at least one if it is empty: the longest is some 2 kB.
    fn fitting(&self, term: &str, blocks: &[Encoded]) -> usize {
        let used = self.page.as_ref().map(|p| p.bytes.len());
        // What stands before the blocks: numbers, and the frontier of all.
        let mut size = used.unwrap_or(16) + term.len() + 96;
        let fits = |block: &&Encoded| {
            size += block.size();
            size <= PAGE_BYTES
        };
        blocks.iter().take_while(fits).count().max(usize::from(used.is_none()))
    }

    /// Appends blocks. `next` is the first document of those to come; `begins` has the number of documents and the bound of
    /// all, where these blocks are the first.
    fn run(&mut self, term: &str, blocks: &[Encoded], next: Option<i64>, begins: Option<(usize, &Frontier)>) {
        let first = blocks.first().map_or(0, |b| b.first);
        let base = self.base;
        let page = self.page.get_or_insert_with(|| {
            let mut bytes = vec![VERSION];
            put_varint(&mut bytes, base as u64);
            Page { term: term.to_owned(), document: if begins.is_some() { 0 } else { first }, bytes }
        });
        let bytes = &mut page.bytes;
        let shared = self.last_term.iter().zip(term.as_bytes()).take_while(|(a, b)| a == b).count();
        put_varint(bytes, shared as u64);
        put_varint(bytes, (term.len() - shared) as u64);
        bytes.extend(&term.as_bytes()[shared..]);
        self.last_term.clear();
        self.last_term.extend(term.as_bytes());

        let count: usize = blocks.iter().map(|b| b.count).sum();
        let mut body = Vec::new();
        put_varint(&mut body, (count as u64) << 2 | u64::from(next.is_some()) << 1 | u64::from(begins.is_some()));
        if let (Some((df, all)), true) = (begins, next.is_some()) {
            put_varint(&mut body, df as u64);
            all.write(&mut body);
        }
        if let Some(next) = next {
            put_varint(&mut body, (next - base) as u64);
        }
        match blocks {
            [only] if only.count < LOOSE => {
                let mut before = base;
                for posting in &only.loose {
                    put_varint(&mut body, (posting.document - before) as u64);
                    let repeats = posting.frequency > 1;
                    put_varint(&mut body, u64::from(posting.length) << 1 | u64::from(repeats));
                    if repeats {
                        put_varint(&mut body, u64::from(posting.frequency) - 2);
                    }
                    before = posting.document;
                }
            }
            _ => {
                let mut before = base;
                for block in blocks {
                    block.write_line(&mut body, before);
                    before = block.last;
                }
                blocks.iter().for_each(|b| body.extend(&b.payload));
            }
        }
        put_varint(bytes, body.len() as u64);
        bytes.extend(body);
    }

    fn flush(&mut self, sink: &mut dyn FnMut(Page)) {
        self.last_term.clear();
        self.page.take().into_iter().for_each(sink);
    }
}
