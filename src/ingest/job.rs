//! One job: some rows of one collection, from the queue to the chunk table.

use super::plan::{self, Action, Chunking, RowPlan};
use super::statements;
use crate::error::{Error, Result};
use crate::ingest::statements::chunks::{NewChunk, SourceRow, StoredChunk};
use crate::provider::{self, ModelName, Provider, options::Api};
use crate::registry;
use crate::registry::Collection;
use pgrx::pg_sys::TransactionId;
use std::ops::Range;
use std::rc::Rc;

/// What was read for a job, in one transaction.
pub struct Input {
    collection: Rc<Collection>,
    model: ModelName,
    provider: Provider,
    rows: Vec<RowPlan>,
    sources: Vec<SourceRow>,
    stored: Vec<StoredChunk>,
}

/// Why a collection has no job now.
pub enum NoJob {
    /// Nothing (left) to do.
    Nothing,
    /// The collection cannot be worked on until somebody does something.
    Blocked(Error),
}

/// A server and the role it is asked as: limits and failures of one key are not another's.
pub type Account = (String, u32);

/// Rows of one collection with what they need.
pub struct Job {
    /// The collection as it was when the job was made.
    pub collection: Rc<Collection>,
    /// Its model.
    pub model: ModelName,
    /// Where the model is.
    pub provider: Provider,
    /// The rows.
    pub rows: Vec<RowPlan>,
    /// Row and chunk of each text to embed.
    slots: Vec<(usize, usize)>,
    /// Vectors that came, by slot.
    vectors: Vec<Option<Vec<f32>>>,
}

/// Reads up to `limit` entries and all that is needed to plan them. Runs in a transaction.
pub fn read(collection: i32, limit: usize, busy_ids: &[i64], busy_keys: &[String]) -> Result<Input, NoJob> {
    let c = registry::by_id(collection).and_then(registry::held).ok_or(NoJob::Nothing)?;
    c.check().map_err(NoJob::Blocked)?;
    let model = ModelName::parse(&c.generation.model).map_err(NoJob::Blocked)?;
    let provider = provider::resolve(&model, c.source.owner).map_err(NoJob::Blocked)?;
    let entries = statements::queue::claim(collection, limit, busy_ids, busy_keys);
    if entries.is_empty() {
        return Err(NoJob::Nothing);
    }
    let mut rows: Vec<RowPlan> = Vec::new();
    let mut compare_all = Vec::new();
    for entry in entries {
        let Some(key) = entry.key else {
            compare_all.push(entry.id);
            continue;
        };
        match rows.iter_mut().find(|r| r.key == key) {
            Some(row) => {
                row.ids.push(entry.id);
                row.attempts = row.attempts.max(entry.attempts);
            }
            None => rows.push(RowPlan {
                key,
                ids: vec![entry.id],
                attempts: entry.attempts,
                queued_keys: vec![],
                chunks: vec![],
                version: None,
            }),
        }
    }
    if !compare_all.is_empty() {
        statements::chunks::settle(&c);
        statements::chunks::remove_orphans(&c);
        statements::queue::queue_missing(&c);
        statements::queue::finish(c.id, &compare_all);
    }
    let keys: Vec<String> = rows.iter().map(|r| r.key.clone()).collect();
    rows.truncate(statements::chunks::fitting(&c, &keys, MAX_BYTES));
    let sources = statements::chunks::source_rows(&c, &keys[..rows.len()]);
    let (rows, sources) = with_own_keys(rows, sources);
    let keys: Vec<String> = rows.iter().map(|r| r.key.clone()).collect();
    let stored = statements::chunks::stored(&c, &keys);
    Ok(Input { collection: c, model, provider, rows, sources, stored })
}

/// A job reads no more text than this, but for a single row that is longer.
const MAX_BYTES: i64 = 1 << 20;

/// Gives each row the key as it stands in the row, and makes one of those that are the same row.
fn with_own_keys(rows: Vec<RowPlan>, sources: Vec<SourceRow>) -> (Vec<RowPlan>, Vec<SourceRow>) {
    let mut kept: Vec<RowPlan> = Vec::new();
    let mut kept_sources = Vec::new();
    for (mut row, source) in rows.into_iter().zip(sources) {
        if source.exists {
            row.queued_keys.push(std::mem::replace(&mut row.key, source.key.clone()));
            if let Some(same) = kept.iter_mut().find(|k| k.key == row.key) {
                same.ids.append(&mut row.ids);
                same.queued_keys.append(&mut row.queued_keys);
                same.attempts = same.attempts.max(row.attempts);
                continue;
            }
        }
        kept.push(row);
        kept_sources.push(source);
    }
    (kept, kept_sources)
}

impl Input {
    /// The server that would be asked, as the owner.
    pub fn account(&self) -> Account {
        (self.provider.name.clone(), self.collection.source.owner.to_u32())
    }

    /// How many requests may be under way to it.
    pub fn max_in_flight(&self) -> usize {
        self.provider.max_in_flight
    }

    /// Cuts the rows into chunks and finds those to embed. Needs no transaction.
    pub fn plan(self) -> Result<Job> {
        let Self { collection, model, provider, mut rows, sources, stored } = self;
        let count = provider::token_counter(&provider, &model.model)?;
        let chunking = Chunking {
            model: &collection.generation.model,
            max_tokens: collection.generation.recipe.tokens as usize,
            overlap_tokens: collection.generation.recipe.overlap as usize,
            count: &*count,
        };
        for (i, (row, source)) in rows.iter_mut().zip(&sources).enumerate() {
            crate::pg::interrupt::check();
            let of_row: Vec<&StoredChunk> = stored.iter().filter(|s| s.row == i).collect();
            row.version = source.xmin.map(|xmin| (xmin, source.hash));
            row.chunks = if source.exists { plan::chunks(source, &chunking, &of_row) } else { vec![] };
        }
        let slots: Vec<(usize, usize)> = rows
            .iter()
            .enumerate()
            .flat_map(|(r, row)| {
                let embed = row.chunks.iter().enumerate();
                embed.filter(|(_, c)| matches!(c.action, Action::Embed)).map(move |(i, _)| (r, i))
            })
            .collect();
        let vectors = vec![None; slots.len()];
        Ok(Job { collection, model, provider, rows, slots, vectors })
    }
}

impl Job {
    /// The texts to embed.
    pub fn texts(&self) -> Vec<&str> {
        self.slots.iter().map(|&(r, c)| self.rows[r].chunks[c].embedded.as_str()).collect()
    }

    /// The server it asks, as the owner.
    pub fn account(&self) -> Account {
        (self.provider.name.clone(), self.collection.source.owner.to_u32())
    }

    /// Whether its model runs in this process.
    pub fn is_local(&self) -> bool {
        self.provider.api == Api::Local
    }

    /// All queue entries it answers.
    pub fn ids(&self) -> Vec<i64> {
        self.rows.iter().flat_map(|r| r.ids.iter().copied()).collect()
    }

    /// Takes the vectors of a run of texts.
    pub fn receive(&mut self, range: Range<usize>, vectors: Vec<Vec<f32>>) -> Result<()> {
        let wanted = self.collection.vectors.embedding.dimensions as usize;
        for (slot, vector) in range.zip(vectors) {
            if vector.len() != wanted {
                return Err(provider::wrong_dimensions(&self.model, wanted, vector.len()));
            }
            self.vectors[slot] = Some(vector);
        }
        Ok(())
    }

    /// Whether every text has its vector.
    pub fn is_complete(&self) -> bool {
        self.vectors.iter().all(Option::is_some)
    }

    /// Stores what it found and takes its entries off the queue. Runs in a transaction.
    pub fn store(&mut self) {
        // Dropped, or altered so that its keys are others, meanwhile: its entries are read anew.
        let Some(c) = registry::by_id(self.collection.id).and_then(registry::held) else { return };
        if c.check().is_err()
            || c.key.columns != self.collection.key.columns
            || c.generation.id != self.collection.generation.id
        {
            return;
        }
        let keys: Vec<String> = self.rows.iter().map(|r| r.key.clone()).collect();
        let keep: Vec<i32> = self.rows.iter().map(|r| r.chunks.len() as i32).collect();
        statements::chunks::remove_above(&c, &keys, &keep);
        statements::chunks::write(&c, &self.collection.generation.model, self.new_chunks());
        statements::chunks::confirm(&c, &self.versions());
        statements::queue::forget_failures(c.id, &keys);
        statements::queue::finish(c.id, &self.ids());
        if c.has_error {
            registry::statements::note_error(c.id, None);
        }
    }

    fn versions(&self) -> Vec<(String, TransactionId, i64)> {
        self.rows.iter().filter_map(|row| row.version.map(|(xmin, hash)| (row.key.clone(), xmin, hash))).collect()
    }

    fn new_chunks(&self) -> Vec<NewChunk> {
        let mut chunks = Vec::new();
        for (r, row) in self.rows.iter().enumerate() {
            let Some((xmin, source_hash)) = row.version else { continue };
            for (i, chunk) in row.chunks.iter().enumerate() {
                let embedding = match &chunk.action {
                    Action::Keep => continue,
                    Action::Move(vector) => vector.clone(),
                    Action::Embed => match self.slots.binary_search(&(r, i)) {
                        Ok(slot) => self.vectors[slot].clone().unwrap_or_default(),
                        Err(_) => continue,
                    },
                };
                chunks.push(NewChunk {
                    key: row.key.clone(),
                    chunk: i as i32 + 1,
                    content: chunk.content.clone(),
                    hash: chunk.hash.clone(),
                    xmin,
                    source_hash,
                    embedding,
                });
            }
        }
        chunks
    }
}
