//! Numbers as bytes: varints, and columns of numbers of one width.

use super::Corrupt;

/// Appends `value` in groups of seven bits, the lowest first; 1 to 10 bytes.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bits the number needs; 0 for 0.
pub(super) fn width(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// How many bytes a column of `count` numbers of that width takes.
pub(super) fn column_bytes(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Appends a column: the lowest `width` bits of each number, the first at the lowest bits of the first byte.
pub(super) fn put_column(out: &mut Vec<u8>, values: impl Iterator<Item = u64>, width: u32) {
    let (mut held, mut bits) = (0u128, 0);
    for value in values {
        held |= u128::from(value) << bits;
        bits += width;
        while bits >= 8 {
            out.push(held as u8);
            held >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(held as u8);
    }
}

/// The number at `place` of a column; 0 beyond its end. `width` is at most 63.
#[inline]
pub(super) fn column_at(column: &[u8], place: usize, width: u32) -> u64 {
    let bit = place * width as usize;
    let (byte, shift) = (bit / 8, bit as u32 % 8);
    let mask = (1u64 << width) - 1;
    if let Some(eight) = column.get(byte..byte + 8)
        && shift + width <= 64
    {
        return (u64::from_le_bytes(eight.try_into().unwrap_or_default()) >> shift) & mask;
    }
    let rest = column.get(byte..).unwrap_or_default();
    let held = rest.iter().take(9).rev().fold(0u128, |held, b| held << 8 | u128::from(*b));
    (held >> shift) as u64 & mask
}

/// Reads bytes that came from a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// From `at` on.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at: at.min(bytes.len()) }
    }

    /// Where it stands.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Goes back to where it stood.
    pub(super) fn rewind(&mut self, at: usize) {
        self.at = at.min(self.bytes.len());
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn byte(&mut self) -> Result<u8, Corrupt> {
        let byte = *self.bytes.get(self.at).ok_or(Corrupt::Short)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Corrupt> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let group = u64::from(byte & 0x7f);
            if shift == 63 && group > 1 {
                break;
            }
            value |= group << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Corrupt::Number)
    }

    /// A varint that fits, at most `max`.
    pub(super) fn at_most(&mut self, max: u64) -> Result<u64, Corrupt> {
        let value = self.varint()?;
        if value > max { Err(Corrupt::Number) } else { Ok(value) }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Corrupt> {
        let end = self.at.checked_add(count).ok_or(Corrupt::Short)?;
        let taken = self.bytes.get(self.at..end).ok_or(Corrupt::Short)?;
        self.at = end;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_read_back_and_those_that_are_too_long_refused() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut reader = Reader::new(&out, 0);
            assert_eq!((reader.varint(), reader.is_at_end()), (Ok(value), true));
            assert_eq!(Reader::new(&out[..out.len() - 1], 0).varint(), Err(Corrupt::Short));
        }
        assert_eq!(Reader::new(&[0xff; 11], 0).varint(), Err(Corrupt::Number));
    }

    #[test]
    fn columns_of_any_width_are_read_back() {
        for width in 0..=63 {
            let values: Vec<u64> = (0..130u64)
                .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & ((1u128 << width) as u64).wrapping_sub(1))
                .collect();
            let mut out = Vec::new();
            put_column(&mut out, values.iter().copied(), width);
            assert_eq!(out.len(), column_bytes(values.len(), width));
            for (place, value) in values.iter().enumerate() {
                assert_eq!(column_at(&out, place, width), *value, "width {width} at {place}");
            }
            assert_eq!(column_at(&out, 10_000, width), 0);
        }
    }
}
