//! Tensors of a safetensors file, checked and used where they lie.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use crate::EncoderError;
use crate::file;

/// A number format that weights may be stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    F32,
    F16,
    Bf16,
}

impl Format {
    fn bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 2,
        }
    }

    /// Decodes numbers of this format. `bytes` holds exactly `out.len()` of them.
    fn decode(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Format::F32 => {
                for (value, raw) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *value = f32::from_le_bytes(*raw);
                }
            }
            Format::F16 => {
                for (value, raw) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *value = f16_to_f32(u16::from_le_bytes(*raw));
                }
            }
            Format::Bf16 => {
                for (value, raw) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *value = f32::from_bits(u32::from(u16::from_le_bytes(*raw)) << 16);
                }
            }
        }
    }
}

/// IEEE 754 half precision to single precision; exact, since every half is a single.
fn f16_to_f32(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let exponent = u32::from(half >> 10) & 0x1f;
    let fraction = u32::from(half) & 0x3ff;
    match exponent {
        // A subnormal is fraction · 2⁻²⁴, and both factors are exact.
        0 => f32::from_bits(sign | (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits()),
        0x1f => f32::from_bits(sign | 0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (fraction << 13)),
    }
}

/// Numbers that lie in a mapped file, or were decoded because they could not be used there.
#[derive(Clone)]
pub(crate) enum Floats {
    /// 32-bit numbers of this machine's byte order at an aligned place of a file.
    Mapped {
        /// The file.
        map: Arc<Mmap>,
        /// Where in it, in bytes.
        start: usize,
        /// How many bytes.
        bytes: usize,
    },
    /// Numbers of our own.
    Owned(Vec<f32>),
}

impl Floats {
    /// The numbers in `map[start..start + bytes]`, in place if they can be, else decoded. The range must be inside the map.
    fn new(map: &Arc<Mmap>, start: usize, bytes: usize, format: Format) -> Floats {
        let raw = &map[start..start + bytes];
        let in_place = format == Format::F32 && cfg!(target_endian = "little");
        if in_place && bytemuck::try_cast_slice::<u8, f32>(raw).is_ok() {
            return Floats::Mapped { map: Arc::clone(map), start, bytes };
        }
        let mut values = vec![0.0; bytes / format.bytes()];
        format.decode(raw, &mut values);
        Floats::Owned(values)
    }

    /// Little-endian 32-bit numbers of a mapped file. The range must be inside the map.
    pub(crate) fn mapped(map: &Arc<Mmap>, start: usize, bytes: usize) -> Floats {
        Floats::new(map, start, bytes, Format::F32)
    }

    pub(crate) fn as_slice(&self) -> &[f32] {
        match self {
            Floats::Mapped { map, start, bytes } => bytemuck::cast_slice(&map[*start..start + bytes]),
            Floats::Owned(values) => values,
        }
    }
}

/// A table of which single rows are read, such as the word embeddings: decoded row by row, never as a whole.
pub(crate) struct Rows {
    map: Arc<Mmap>,
    start: usize,
    format: Format,
    rows: usize,
    width: usize,
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Copies row `index` into `out`, which is as wide as the table. `index` must be less than `len()`.
    pub(crate) fn read(&self, index: usize, out: &mut [f32]) {
        let bytes = self.width * self.format.bytes();
        let start = self.start + index * bytes;
        self.format.decode(&self.map[start..start + bytes], out);
    }
}

/// Where a tensor lies in the file.
struct Place {
    format: Format,
    start: usize,
    bytes: usize,
}

/// An open weights file.
pub(crate) struct Weights {
    path: PathBuf,
    map: Arc<Mmap>,
    tensors: safetensors::tensor::Metadata,
    data_start: usize,
    /// What stands before each tensor's name: nothing, or `bert.` in files saved from a model with a head.
    prefix: &'static str,
}

impl Weights {
    /// Maps `model.safetensors` and checks its header against its length.
    pub(crate) fn open(path: &Path) -> Result<Weights, EncoderError> {
        let map = file::map(path)?;
        let damaged = |error: safetensors::SafeTensorError| EncoderError::Weights {
            path: path.to_owned(),
            reason: format!("{error} (the file has {} bytes)", map.len()),
        };
        let (header, tensors) = SafeTensors::read_metadata(&map).map_err(damaged)?;
        let prefix = ["", "bert."]
            .into_iter()
            .find(|prefix| tensors.info(&format!("{prefix}{WORD_EMBEDDINGS}")).is_some())
            .unwrap_or_default();
        Ok(Weights { path: path.to_owned(), data_start: 8 + header, tensors, prefix, map: Arc::clone(&map) })
    }

    /// A tensor of the given shape, all of it.
    pub(crate) fn floats(&self, name: &str, shape: &[usize]) -> Result<Floats, EncoderError> {
        let place = self.place(name, shape)?;
        Ok(Floats::new(&self.map, place.start, place.bytes, place.format))
    }

    /// A tensor of the head, whose name never has the prefix: it stands beside what the prefix names.
    pub(crate) fn head_vector(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, EncoderError> {
        let place = self.place_of(name.to_owned(), shape)?;
        Ok(Floats::new(&self.map, place.start, place.bytes, place.format).as_slice().to_vec())
    }

    /// A small tensor, copied.
    pub(crate) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, EncoderError> {
        Ok(self.floats(name, &[len])?.as_slice().to_vec())
    }

    /// A two-dimensional tensor that is read by rows.
    pub(crate) fn rows(&self, name: &str, rows: usize, width: usize) -> Result<Rows, EncoderError> {
        let place = self.place(name, &[rows, width])?;
        Ok(Rows { map: Arc::clone(&self.map), start: place.start, format: place.format, rows, width })
    }

    /// What tells this file from another model's: SHA-256 over its length, its header and the first kilobyte of every
    /// tensor. Training changes every number of a tensor that it changes, so a kilobyte of each shows it, and reading
    /// the whole file would take longer than opening a model may.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        const SAMPLE: usize = 1024;
        let mut hash = Sha256::new();
        hash.update((self.map.len() as u64).to_le_bytes());
        hash.update(&self.map[..self.data_start]);
        for name in self.tensors.offset_keys() {
            if let Some(info) = self.tensors.info(&name) {
                let start = self.data_start + info.data_offsets.0;
                let end = (self.data_start + info.data_offsets.1).min(start + SAMPLE);
                hash.update(&self.map[start..end]);
            }
        }
        hash.finalize().into()
    }

    fn place(&self, name: &str, shape: &[usize]) -> Result<Place, EncoderError> {
        self.place_of(format!("{}{name}", self.prefix), shape)
    }

    fn place_of(&self, name: String, shape: &[usize]) -> Result<Place, EncoderError> {
        let Some(info) = self.tensors.info(&name) else {
            return Err(EncoderError::MissingTensor { path: self.path.clone(), name });
        };
        if info.shape != shape {
            return Err(EncoderError::TensorShape {
                path: self.path.clone(),
                name,
                expected: shape.to_vec(),
                found: info.shape.clone(),
            });
        }
        let format = match info.dtype {
            Dtype::F32 => Format::F32,
            Dtype::F16 => Format::F16,
            Dtype::BF16 => Format::Bf16,
            other => {
                let found = format!("{other:?}");
                return Err(EncoderError::TensorType { path: self.path.clone(), name, found });
            }
        };
        // `read_metadata` has checked that every range lies inside the file and has the length that its shape and type call for.
        let (start, end) = info.data_offsets;
        Ok(Place { format, start: self.data_start + start, bytes: end - start })
    }
}

/// The table of word embeddings, which every BERT model has.
pub(crate) const WORD_EMBEDDINGS: &str = "embeddings.word_embeddings.weight";

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a half by its definition, in double precision.
    fn half_by_definition(half: u16) -> f64 {
        let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
        let fraction = f64::from(half & 0x3ff) / 1024.0;
        match (half >> 10) & 0x1f {
            0 => sign * fraction * 2f64.powi(-14),
            31 if half & 0x3ff == 0 => sign * f64::INFINITY,
            31 => f64::NAN,
            exponent => sign * (1.0 + fraction) * 2f64.powi(i32::from(exponent) - 15),
        }
    }

    #[test]
    fn every_half_decodes_to_its_value() {
        for half in 0..=u16::MAX {
            let (found, expected) = (f64::from(f16_to_f32(half)), half_by_definition(half));
            assert!(found == expected || (found.is_nan() && expected.is_nan()), "{half:#06x}: {found} {expected}");
        }
    }

    #[test]
    fn bf16_is_the_upper_half_of_a_float() {
        let mut out = [0.0; 2];
        Format::Bf16.decode(&[0x80, 0x3f, 0x20, 0xc0], &mut out);
        assert_eq!(out, [1.0, -2.5]);
    }
}
