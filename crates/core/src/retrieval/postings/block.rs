//! Up to 128 postings of a term, packed.
//!
//! A block is a line in its page's directory and a payload. The directory can be read without the payload: it says which
//! documents a block may hold and what they can score at most.
//!
//! ```text
//! line    := first document − last document before (varint) · last − first document (varint) · widths (u16: 6 bits documents, 5 frequencies, 5 lengths)
//!            · shortest length (varint) · frontier
//! payload := columns of document − document before − 1 (but of the first), frequency − 1, length − shortest length
//! ```

use super::bits::{Reader, column_at, column_bytes, put_column, put_varint, width};
use super::frontier::Frontier;
use super::{Corrupt, MAX_COUNT, Posting};

/// Most postings of a block.
pub(super) const BLOCK: usize = 128;

/// A block on its way into a page.
#[derive(Debug, Clone)]
pub(super) struct Encoded {
    pub(super) count: usize,
    pub(super) first: i64,
    pub(super) last: i64,
    /// The postings, for blocks so small that they are written without packing.
    pub(super) loose: Vec<Posting>,
    widths: u16,
    shortest: u32,
    pub(super) frontier: Frontier,
    pub(super) payload: Vec<u8>,
}

/// Fewer postings than these are not packed: the directory's line would be longer than they are.
pub(super) const LOOSE: usize = 8;

impl Encoded {
    /// Packs postings of rising documents, at least one, at most [`BLOCK`].
    pub(super) fn pack(postings: &[Posting]) -> Self {
        let first = postings.first().map_or(0, |p| p.document);
        let shortest = postings.iter().map(|p| p.length).min().unwrap_or_default();
        let gaps = postings.windows(2).map(|two| (two[1].document - two[0].document - 1) as u64);
        let frequencies = postings.iter().map(|p| u64::from(p.frequency - 1));
        let lengths = postings.iter().map(|p| u64::from(p.length - shortest));
        let widest = |values: &mut dyn Iterator<Item = u64>| width(values.fold(0, |all, value| all | value));
        let (d, f, l) = (widest(&mut gaps.clone()), widest(&mut frequencies.clone()), widest(&mut lengths.clone()));
        let mut payload = Vec::new();
        put_column(&mut payload, gaps, d);
        put_column(&mut payload, frequencies, f);
        put_column(&mut payload, lengths, l);
        Self {
            count: postings.len(),
            first,
            last: postings.last().map_or(0, |p| p.document),
            loose: if postings.len() < LOOSE { postings.to_vec() } else { Vec::new() },
            widths: (d | f << 6 | l << 11) as u16,
            shortest,
            frontier: Frontier::of(postings),
            payload,
        }
    }

    /// Not less than the bytes that it takes, its line included.
    pub(super) fn size(&self) -> usize {
        const LONGEST_LINE: usize = 26;
        const LONGEST_LOOSE: usize = 19;
        let packed = LONGEST_LINE + self.frontier.size() + self.payload.len();
        packed.max(self.loose.len() * LONGEST_LOOSE)
    }

    /// Its line, behind a block that ends at `before`.
    pub(super) fn write_line(&self, out: &mut Vec<u8>, before: i64) {
        put_varint(out, (self.first - before) as u64);
        put_varint(out, (self.last - self.first) as u64);
        out.extend(self.widths.to_le_bytes());
        put_varint(out, u64::from(self.shortest));
        self.frontier.write(out);
    }
}

/// A block's line, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) count: usize,
    /// Document of the first posting.
    pub(super) first: i64,
    /// Document of the last posting.
    pub(super) last: i64,
    /// Bits of a document, of a frequency, of a length.
    widths: (u32, u32, u32),
    shortest: u32,
    /// Where the payload begins in its page.
    pub(super) start: usize,
}

impl Line {
    /// A loose posting as a block.
    pub(super) fn of(posting: &Posting) -> Self {
        let document = posting.document;
        Self { count: 1, first: document, last: document, widths: (0, 0, 0), shortest: 0, start: 0 }
    }

    /// Reads the line of a block of `count` postings; [`Line::start`] is still to be set. `before` is the last document before,
    /// or the page's base in front of the first one.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        count: usize,
        before: i64,
        frontier: &mut Frontier,
    ) -> Result<Self, Corrupt> {
        let first = before.checked_add_unsigned(reader.varint()?).ok_or(Corrupt::Number)?;
        let last = first.checked_add_unsigned(reader.varint()?).ok_or(Corrupt::Number)?;
        let widths = u32::from(u16::from_le_bytes([reader.byte()?, reader.byte()?]));
        let shortest = reader.at_most(MAX_COUNT)? as u32;
        frontier.read_again(reader)?;
        Ok(Self { count, first, last, widths: (widths & 0x3f, widths >> 6 & 0x1f, widths >> 11), shortest, start: 0 })
    }

    pub(super) fn payload_bytes(&self) -> usize {
        column_bytes(self.count - 1, self.widths.0)
            + column_bytes(self.count, self.widths.1)
            + column_bytes(self.count, self.widths.2)
    }

    /// Unpacks the documents.
    ///
    /// # Errors
    /// They do not end where the line says.
    pub(super) fn documents(&self, page: &[u8], documents: &mut [i64; BLOCK]) -> Result<(), Corrupt> {
        let column = page.get(self.start..).unwrap_or_default();
        let width = self.widths.0;
        let mut document = self.first;
        documents[0] = document;
        for (place, slot) in documents[1..self.count].iter_mut().enumerate() {
            let gap = column_at(column, place, width);
            // At most 63 bits each: what runs over is below what was there, and is seen at the end.
            document = document.wrapping_add(gap as i64).wrapping_add(1);
            *slot = document;
        }
        if document != self.last || !documents[..self.count].is_sorted() { Err(Corrupt::Order) } else { Ok(()) }
    }

    /// Frequency and length of the posting at `place`, below [`Line::count`].
    #[inline]
    pub(super) fn frequency_and_length(&self, page: &[u8], place: usize) -> (u32, u32) {
        let (d, f, l) = self.widths;
        let frequencies = self.start + column_bytes(self.count - 1, d);
        let lengths = frequencies + column_bytes(self.count, f);
        let frequency = column_at(page.get(frequencies..).unwrap_or_default(), place, f) as u32;
        let length = column_at(page.get(lengths..).unwrap_or_default(), place, l) as u32;
        let capped = |count: u32| count.min(MAX_COUNT as u32);
        (capped(frequency.saturating_add(1)), capped(self.shortest.saturating_add(length)))
    }
}
