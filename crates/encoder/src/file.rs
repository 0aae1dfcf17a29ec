//! Reading and mapping the files of a model folder.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use serde::de::DeserializeOwned;

use crate::EncoderError;

/// No JSON file of a sentence encoder comes near this; a larger one is refused before it is read into memory.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// The bytes of a small file, or `None` where there is no such file.
pub(crate) fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>, EncoderError> {
    let failed = |source| EncoderError::File { action: "read", path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_JSON_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_JSON_BYTES {
        return Err(EncoderError::Unsupported {
            path: path.to_owned(),
            reason: format!("the file is larger than {MAX_JSON_BYTES} bytes"),
        });
    }
    Ok(Some(bytes))
}

/// The bytes of a small file that must exist.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, EncoderError> {
    read_if_exists(path)?.ok_or_else(|| EncoderError::File {
        action: "read",
        path: path.to_owned(),
        source: std::io::Error::from(std::io::ErrorKind::NotFound),
    })
}

/// A JSON file that must exist.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, EncoderError> {
    parse_json(path, &read(path)?)
}

/// A JSON file, or `None` where there is no such file.
pub(crate) fn read_json_if_exists<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, EncoderError> {
    read_if_exists(path)?.map(|bytes| parse_json(path, &bytes)).transpose()
}

fn parse_json<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, EncoderError> {
    serde_json::from_slice(bytes).map_err(|source| EncoderError::Json { path: path.to_owned(), source })
}

/// Maps a file read-only and shared, so that every process that opens the model uses the same pages.
///
/// A mapped file must be replaced by renaming a new one over it, never written or cut in place: a process that
/// reads a page that is no longer there is killed by the system (SIGBUS).
#[allow(unsafe_code)]
pub(crate) fn map(path: &Path) -> Result<Arc<Mmap>, EncoderError> {
    let failed = |source| EncoderError::File { action: "map", path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    // SAFETY: the map is read-only and only ever read as bytes or numbers, for which every bit pattern is valid. That
    // nobody shortens or rewrites the file in place is the contract of a model folder, stated above and in the crate's
    // documentation.
    let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
    Ok(Arc::new(map))
}
