//! What a row should have as chunks, and which of them must be embedded.

use crate::ingest::statements::chunks::{SourceRow, StoredChunk};
use ragent_core::ingest::chunk::{self, ChunkOptions};
use sha2::{Digest, Sha256};

/// A row's queue entries, its chunks as they should be.
pub struct RowPlan {
    /// Key as JSON text.
    pub key: String,
    /// Queue entries it answers.
    pub ids: Vec<i64>,
    /// Most failed attempts of these entries.
    pub attempts: i32,
    /// The key as its entries have it, where that is written differently.
    pub queued_keys: Vec<String>,
    /// xmin and content hash of the row version read; None when the row is gone.
    pub version: Option<(pgrx::pg_sys::TransactionId, i64)>,
    /// Chunks, in order; empty when the row is gone or has no text.
    pub chunks: Vec<ChunkPlan>,
}

/// One chunk as it should be.
pub struct ChunkPlan {
    /// Its text.
    pub content: String,
    /// What is embedded: title and text.
    pub embedded: String,
    /// SHA-256 over model, title and text.
    pub hash: Vec<u8>,
    /// What is to be done.
    pub action: Action,
}

/// What a chunk needs.
pub enum Action {
    /// Nothing: it is stored under its number already.
    Keep,
    /// The text is stored under another number: the vector is taken from there.
    Move(Vec<f32>),
    /// A vector from the model.
    Embed,
}

/// How a collection's text becomes chunks.
pub struct Chunking<'a> {
    /// Model, part of the hash.
    pub model: &'a str,
    /// Longest chunk, in tokens.
    pub max_tokens: usize,
    /// Overlap, in tokens.
    pub overlap_tokens: usize,
    /// Counts tokens.
    pub count: &'a dyn Fn(&str) -> usize,
}

/// Titles longer than this are cut before they are embedded with each chunk.
const MAX_TITLE_CHARS: usize = 200;

/// The chunks a source row should have.
pub fn chunks(row: &SourceRow, chunking: &Chunking<'_>, stored: &[&StoredChunk]) -> Vec<ChunkPlan> {
    let text = row
        .content
        .iter()
        .flatten()
        .filter(|t| !t.trim().is_empty())
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("\n\n");
    let title: String = row.title.as_deref().unwrap_or("").trim().chars().take(MAX_TITLE_CHARS).collect();
    let title_tokens = if title.is_empty() { 0 } else { (chunking.count)(&title) };
    let options = ChunkOptions {
        // A long title leaves at least half of the chunk to its text.
        max_tokens: chunking.max_tokens.saturating_sub(title_tokens).max(chunking.max_tokens / 2).max(1),
        overlap_tokens: chunking.overlap_tokens,
    };
    chunk::split(&text, &options, chunking.count)
        .into_iter()
        .enumerate()
        .map(|(i, c)| {
            let embedded = if title.is_empty() { c.text.clone() } else { format!("{title}\n\n{}", c.text) };
            let hash = hash(chunking.model, &title, &c.text);
            let number = i as i32 + 1;
            let action = if stored.iter().any(|s| s.chunk == number && s.hash == hash) {
                Action::Keep
            } else if let Some(same) = stored.iter().find(|s| s.hash == hash) {
                Action::Move(same.embedding.clone())
            } else {
                Action::Embed
            };
            ChunkPlan { content: c.text, embedded, hash, action }
        })
        .collect()
}

fn hash(model: &str, title: &str, text: &str) -> Vec<u8> {
    let mut hasher = Sha256::new();
    for part in [model, title, text] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_vec()
}
