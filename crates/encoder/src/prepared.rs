//! The prepared file, `model.ragent`: the weights of the linear layers, transposed to the layout that is fastest for
//! short texts, in a file that is mapped.
//!
//! All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `ragentw\0` |
//! | 8..12 | version of the format, 1 |
//! | 12..16 | length of this header, 128 |
//! | 16..48 | fingerprint of the `model.safetensors` it was made from |
//! | 48..60 | layers, hidden size, inner size, 4 bytes each |
//! | 60..68 | length of what follows the header |
//! | 68..100 | SHA-256 of what follows the header |
//! | 100..128 | the first 28 bytes of the SHA-256 of bytes 0..100 |
//! | 128.. | per layer: query, key and value side by side `[hidden][3·hidden]`, attention output `[hidden][hidden]`, `[hidden][inner]`, `[inner][hidden]`: 32-bit numbers, one row per input, each matrix padded to a multiple of 64 bytes |
//!
//! Opening checks the header, the fingerprint and the length, which takes well under a millisecond. The checksum over
//! everything is for [`verify`].

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use sha2::{Digest, Sha256};

use crate::EncoderError;
use crate::config::Config;
use crate::file;
use crate::kernels::{PANEL, fill_panel};
use crate::weights::{Floats, Weights};

const MAGIC: &[u8; 8] = b"ragentw\0";
const VERSION: u32 = 1;
const HEADER: usize = 128;
const ALIGNMENT: usize = 64;

/// The name of a prepared file in its model folder.
pub(crate) const FILE_NAME: &str = "model.ragent";

/// The sizes of the matrices of one layer, as (inputs, outputs), in the order of the file.
pub(crate) fn matrices(config: &Config) -> [(usize, usize); 4] {
    let (hidden, inner) = (config.hidden, config.inner);
    [(hidden, 3 * hidden), (hidden, hidden), (hidden, inner), (inner, hidden)]
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

fn payload_bytes(config: &Config) -> usize {
    config.layers * matrices(config).iter().map(|(inputs, outputs)| padded(inputs * outputs * 4)).sum::<usize>()
}

fn header(config: &Config, fingerprint: &[u8; 32], payload_hash: &[u8; 32]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(HEADER as u32).to_le_bytes());
    header[16..48].copy_from_slice(fingerprint);
    for (at, value) in [(48, config.layers), (52, config.hidden), (56, config.inner)] {
        header[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
    }
    header[60..68].copy_from_slice(&(payload_bytes(config) as u64).to_le_bytes());
    header[68..100].copy_from_slice(payload_hash);
    let check: [u8; 32] = Sha256::digest(&header[..100]).into();
    header[100..].copy_from_slice(&check[..28]);
    header
}

/// A prepared file that belongs to the model beside it.
pub(crate) struct Prepared {
    map: Arc<Mmap>,
    /// Where each matrix starts, in bytes: four a layer.
    starts: Vec<usize>,
}

impl Prepared {
    /// Opens the prepared file of a model folder, if there is one that was made from these weights by this version.
    /// What keeps it from being used is told in the error's words; it is no failure, the weights themselves will do.
    pub(crate) fn open(dir: &Path, config: &Config, weights: &Weights) -> Result<Prepared, String> {
        let path = dir.join(FILE_NAME);
        if !path.exists() {
            return Err(format!("there is no {FILE_NAME}"));
        }
        let map = file::map(&path).map_err(|error| error.to_string())?;
        check(&map, config, weights)?;
        let mut starts = Vec::with_capacity(config.layers * 4);
        let mut start = HEADER;
        for _ in 0..config.layers {
            for (inputs, outputs) in matrices(config) {
                starts.push(start);
                start += padded(inputs * outputs * 4);
            }
        }
        Ok(Prepared { map, starts })
    }

    /// Matrix `index` of a layer, one row per input.
    pub(crate) fn matrix(&self, config: &Config, layer: usize, index: usize) -> Floats {
        let (inputs, outputs) = matrices(config)[index];
        Floats::mapped(&self.map, self.starts[layer * 4 + index], inputs * outputs * 4)
    }
}

/// Checks a prepared file's header against the model.
fn check(map: &[u8], config: &Config, weights: &Weights) -> Result<(), String> {
    let Some(found) = map.first_chunk::<HEADER>() else {
        return Err(format!("{FILE_NAME} has {} bytes, less than a header", map.len()));
    };
    if found[..8] != *MAGIC {
        return Err(format!("{FILE_NAME} is not a prepared file"));
    }
    let version = u32::from_le_bytes([found[8], found[9], found[10], found[11]]);
    if version != VERSION {
        return Err(format!("{FILE_NAME} has version {version}, this program reads version {VERSION}"));
    }
    let mut payload_hash = [0; 32];
    payload_hash.copy_from_slice(&found[68..100]);
    if *found != header(config, &weights.fingerprint(), &payload_hash) {
        return Err(format!("{FILE_NAME} was not made from the model.safetensors beside it"));
    }
    let expected = HEADER + payload_bytes(config);
    if map.len() != expected {
        return Err(format!("{FILE_NAME} has {} bytes, expected {expected}", map.len()));
    }
    Ok(())
}

/// Reads the whole prepared file of a model folder and compares it with its checksum.
pub(crate) fn verify(dir: &Path, config: &Config, weights: &Weights) -> Result<(), String> {
    let map = file::map(&dir.join(FILE_NAME)).map_err(|error| error.to_string())?;
    check(&map, config, weights)?;
    let hash: [u8; 32] = Sha256::digest(&map[HEADER..]).into();
    if hash != map[68..100] {
        return Err(format!("{FILE_NAME} is damaged: its contents do not match its checksum"));
    }
    Ok(())
}

/// Writes the prepared file of a model folder: under another name first, then renamed, so that a process that has the old
/// one mapped keeps it and nobody ever sees half a file. `matrix(layer, index)` gives each matrix, one row per output.
pub(crate) fn write(
    dir: &Path,
    config: &Config,
    weights: &Weights,
    matrix: impl Fn(usize, usize) -> Vec<f32>,
) -> Result<PathBuf, EncoderError> {
    let path = dir.join(FILE_NAME);
    let temporary = dir.join(format!(".{FILE_NAME}.{}", std::process::id()));
    let written = write_to(&temporary, config, weights, matrix)
        .and_then(|()| fs::rename(&temporary, &path))
        .and_then(|()| sync_directory(dir));
    if let Err(source) = written {
        // Whatever could not be written is of no use; that it may not exist at all is fine.
        let _ = fs::remove_file(&temporary);
        return Err(EncoderError::File { action: "write", path, source });
    }
    Ok(path)
}

fn write_to(
    path: &Path,
    config: &Config,
    weights: &Weights,
    matrix: impl Fn(usize, usize) -> Vec<f32>,
) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&[0; HEADER])?;
    let mut hash = Sha256::new();
    for layer in 0..config.layers {
        for (index, (inputs, outputs)) in matrices(config).into_iter().enumerate() {
            let values = matrix(layer, index);
            let mut panel = vec![0.0; PANEL * inputs];
            let mut bytes = Vec::with_capacity(padded(inputs * outputs * 4));
            for rows in values.chunks(PANEL * inputs) {
                let panel = &mut panel[..rows.len()];
                fill_panel(rows, inputs, panel);
                for value in panel {
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
            }
            bytes.resize(padded(bytes.len()), 0);
            hash.update(&bytes);
            file.write_all(&bytes)?;
        }
    }
    io::Seek::rewind(&mut file)?;
    file.write_all(&header(config, &weights.fingerprint(), &hash.finalize().into()))?;
    file.sync_all()
}

/// Makes a rename survive a power cut. Where directories cannot be opened (Windows) there is nothing to do.
fn sync_directory(dir: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}
