//! One job: some rows of one collection, from the queue to the chunk table.

use super::statements::chunks::{NewChunk, SourceRow, Version};
use super::statements::claim::Entry;
use super::statements::{chunks, claim, failure, queue};
use crate::error::{Error, Result};
use crate::provider::{self, Failure, ModelName, Provider};
use crate::registry::{self, Collection};
use pgrx::PgSqlErrorCode;
use ragent_core::ingest::chunk::{ChunkOptions, chunker};
use ragent_core::ingest::plan::{self, Action, ChunkPlan, StoredChunk};
use ragent_core::ingest::recipe::Recipe;
use ragent_core::ingest::schedule::Account;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// A job reads no more text than this, in bytes, but for a single row that is longer.
const MAX_BYTES: i64 = 1 << 20;
/// Chunks a job of a local model aims for: about a second's work.
pub const LOCAL_CHUNKS: usize = 64;

/// One row of a job.
#[derive(Debug)]
pub struct JobRow {
    /// Key as JSON text.
    pub key: String,
    /// Queue entries it answers.
    pub ids: Vec<i64>,
    /// Most failed attempts of these entries.
    pub attempts: u32,
    /// Whether the key is written in another way in its entries than in the row.
    is_rewritten: bool,
    /// The version read; `None` when the row is gone.
    version: Option<Version>,
    /// Chunks as they should be; none when the row is gone or has no text.
    pub chunks: Vec<ChunkPlan>,
}

/// One [`JobRow`] for each key: several entries may be of one row.
pub fn rows(entries: Vec<Entry>) -> Vec<JobRow> {
    let mut rows: Vec<JobRow> = Vec::new();
    for entry in entries {
        match rows.iter_mut().find(|r| r.key == entry.key) {
            Some(row) => {
                row.ids.push(entry.id);
                row.attempts = row.attempts.max(entry.attempts);
            }
            None => rows.push(JobRow {
                key: entry.key,
                ids: vec![entry.id],
                attempts: entry.attempts,
                is_rewritten: false,
                version: None,
                chunks: vec![],
            }),
        }
    }
    rows
}

/// All queue entries that rows answer.
pub fn ids(rows: &[JobRow]) -> Vec<i64> {
    rows.iter().flat_map(|r| r.ids.iter().copied()).collect()
}

/// What was read for a job, in one transaction.
pub struct Input {
    collection: Rc<Collection>,
    model: ModelName,
    provider: Provider,
    /// Its rows.
    pub rows: Vec<JobRow>,
    sources: Vec<Option<SourceRow>>,
    stored: Vec<(usize, StoredChunk)>,
}

/// Rows of one collection with what they need.
pub struct Job {
    /// The collection as it was when the job was made.
    pub collection: Rc<Collection>,
    /// Its model.
    pub model: ModelName,
    /// Where the model is.
    pub provider: Provider,
    /// Its rows.
    pub rows: Vec<JobRow>,
    /// Row and chunk of each text to embed.
    slots: Vec<(usize, usize)>,
    /// Vectors that came, by slot.
    vectors: Vec<Option<Vec<f32>>>,
    /// Rows with a text that the provider refuses, by their place, and why.
    refused: BTreeMap<usize, Failure>,
}

/// The collection of that number, its model, and where that is; `None` when it was dropped.
///
/// # Errors
/// Those of a collection, model or server that cannot be used until somebody does something.
fn usable(collection: i32) -> Result<Option<(Rc<Collection>, ModelName, Provider)>> {
    let Some(c) = registry::by_id(collection).and_then(registry::held) else { return Ok(None) };
    c.check()?;
    let model = ModelName::parse(&c.generation.model)?;
    let provider = provider::resolve(&model, c.source.owner)?;
    Ok(Some((c, model, provider)))
}

/// Reads all that is needed to plan claimed rows, `rows`, and gives back the claims of those it leaves out. Runs in a
/// transaction. `None` when the collection was dropped.
///
/// # Errors
/// The collection cannot be worked on until somebody does something.
pub fn read(collection: i32, mut rows: Vec<JobRow>) -> Result<Option<Input>> {
    let Some((c, model, provider)) = usable(collection)? else { return Ok(None) };
    let keys: Vec<String> = rows.iter().map(|r| r.key.clone()).collect();
    let left_out = rows.split_off(chunks::fitting(&c, &keys, MAX_BYTES));
    claim::release(c.id, &ids(&left_out));
    let sources = chunks::source_rows(&c, &keys[..rows.len()]);
    let (rows, sources) = with_own_keys(&c, rows, sources);
    let keys: Vec<String> = rows.iter().map(|r| r.key.clone()).collect();
    let stored = chunks::stored(&c, &keys);
    Ok(Some(Input { collection: c, model, provider, rows, sources, stored }))
}

/// Gives each row the key as it stands in the row, makes one of those that are the same row, and leaves out those that another
/// job is at work on.
fn with_own_keys(
    c: &Collection,
    rows: Vec<JobRow>,
    sources: Vec<Option<SourceRow>>,
) -> (Vec<JobRow>, Vec<Option<SourceRow>>) {
    let mut kept: Vec<(JobRow, Option<SourceRow>)> = Vec::new();
    for (mut row, source) in rows.into_iter().zip(sources) {
        if let Some(source) = &source {
            row.is_rewritten = row.key != source.key;
            row.key.clone_from(&source.key);
            if let Some((same, _)) = kept.iter_mut().find(|(k, _)| k.key == row.key) {
                same.ids.append(&mut row.ids);
                same.attempts = same.attempts.max(row.attempts);
                same.is_rewritten = true;
                continue;
            }
        }
        kept.push((row, source));
    }
    kept.retain(|(row, _)| !row.is_rewritten || claim::set_key(c.id, &row.ids, &row.key));
    kept.into_iter().unzip()
}

/// Compares everything a collection has with its source: removes chunks without a row, queues rows without a chunk, and takes
/// the entries that asked for it off the queue. Runs in a transaction.
///
/// # Errors
/// As [`read`].
pub fn compare(collection: i32, entries: &[i64]) -> Result<()> {
    let Some(c) = registry::by_id(collection) else { return Ok(()) };
    c.check()?;
    chunks::wait_for_ddl(&c);
    // What that DDL did is known now.
    let Some(c) = registry::by_id(collection) else { return Ok(()) };
    c.check()?;
    if claim::finish(c.id, entries).is_empty() {
        return Ok(());
    }
    chunks::remove_orphans(&c);
    queue::queue_missing(&c);
    if c.has_error {
        registry::statements::note_error(c.id, None);
    }
    Ok(())
}

impl Input {
    /// The server that would be asked, as the owner.
    pub fn account(&self) -> Account {
        account(&self.provider, &self.collection)
    }

    /// How many requests may be under way to it.
    pub fn max_in_flight(&self) -> usize {
        self.provider.settings.max_in_flight
    }

    /// Cuts the rows into chunks and finds those to embed. Needs no transaction.
    pub fn plan(self) -> Result<Job> {
        let Self { collection, model, provider, mut rows, sources, stored } = self;
        let generation = &collection.generation;
        let count = provider::token_counter(&provider, &model.model)?;
        let recipe = Recipe {
            model: &generation.model,
            chunker: chunker(&generation.recipe.chunker).ok_or_else(|| no_chunker(&collection))?,
            options: ChunkOptions {
                max_tokens: generation.recipe.tokens as usize,
                overlap_tokens: generation.recipe.overlap as usize,
            },
        };
        for (i, (row, source)) in rows.iter_mut().zip(&sources).enumerate() {
            crate::pg::interrupt::check();
            let Some(source) = source else { continue };
            let of_row: Vec<&StoredChunk> = stored.iter().filter(|(place, _)| *place == i).map(|(_, s)| s).collect();
            row.version = Some(source.version);
            row.chunks = plan::chunks(&source.text, &recipe, &*count, &of_row);
        }
        let slots: Vec<(usize, usize)> = rows
            .iter()
            .enumerate()
            .flat_map(|(r, row)| {
                let embed = row.chunks.iter().enumerate();
                embed.filter(|(_, c)| c.action == Action::Embed).map(move |(i, _)| (r, i))
            })
            .collect();
        let vectors = vec![None; slots.len()];
        Ok(Job { collection, model, provider, rows, slots, vectors, refused: BTreeMap::new() })
    }
}

fn account(provider: &Provider, collection: &Collection) -> Account {
    Account { server: provider.name.clone(), role: collection.source.owner.to_u32() }
}

fn no_chunker(c: &Collection) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
        format!("collection \"{}\" cannot be used: chunker \"{}\" does not exist", c.name, c.generation.recipe.chunker),
        "It was made by another version of pg_ragent: install that one, or drop the collection and create it anew.",
    )
}

impl Job {
    /// The texts to embed.
    pub fn texts(&self) -> Vec<&str> {
        self.slots.iter().map(|&(r, c)| self.rows[r].chunks[c].embedded.as_str()).collect()
    }

    /// The server it asks, as the owner.
    pub fn account(&self) -> Account {
        account(&self.provider, &self.collection)
    }

    /// Whether its model runs in this process.
    pub fn is_local(&self) -> bool {
        self.provider.runs_in_process()
    }

    /// How many chunks a job like this should have.
    pub fn target(&self) -> usize {
        if self.is_local() { LOCAL_CHUNKS } else { self.provider.settings.max_batch_items }
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

    /// The provider refuses a text that it was sent alone: the text's row is to blame, and no other.
    pub fn refuse(&mut self, text: usize, failure: Failure) {
        self.refused.entry(self.slots[text].0).or_insert(failure);
    }

    /// Whether a vector for one of these texts is of use.
    pub fn needs(&self, texts: &Range<usize>) -> bool {
        self.slots[texts.clone()].iter().any(|(row, _)| !self.refused.contains_key(row))
    }

    /// Whether every text has its vector, but for those of rows that are refused.
    pub fn is_complete(&self) -> bool {
        let mut open = self.vectors.iter().zip(&self.slots).filter(|(vector, _)| vector.is_none());
        open.all(|(_, (row, _))| self.refused.contains_key(row))
    }

    /// Its rows: those that are not refused, and those that are, with the reason.
    pub fn into_rows(mut self) -> (Vec<JobRow>, Vec<(JobRow, Failure)>) {
        let (mut sound, mut refused) = (Vec::new(), Vec::new());
        for (place, row) in self.rows.into_iter().enumerate() {
            match self.refused.remove(&place) {
                Some(failure) => refused.push((row, failure)),
                None => sound.push(row),
            }
        }
        (sound, refused)
    }

    /// Stores what it found and takes its entries off the queue. Runs in a transaction.
    pub fn store(&self) {
        let is_sound = |place: &usize| !self.refused.contains_key(place);
        let sound: Vec<(usize, &JobRow)> = self.rows.iter().enumerate().filter(|(place, _)| is_sound(place)).collect();
        let ids: Vec<i64> = sound.iter().flat_map(|(_, row)| row.ids.iter().copied()).collect();
        // Dropped, or altered so that its keys are others, meanwhile: its entries are read anew.
        let is_same = |c: &Rc<Collection>| {
            c.check().is_ok()
                && c.key.columns == self.collection.key.columns
                && c.generation.id == self.collection.generation.id
        };
        let usable = registry::by_id(self.collection.id).and_then(registry::held).filter(is_same);
        let Some(c) = usable else { return claim::release(self.collection.id, &ids) };
        // What this worker has no claim of any more, somebody else has read since, or will.
        let held = claim::finish(c.id, &ids);
        let is_held = |row: &JobRow| row.ids.iter().all(|id| held.contains(id));
        let rows: Vec<(usize, &JobRow)> = sound.into_iter().filter(|(_, row)| is_held(row)).collect();
        let keys: Vec<String> = rows.iter().map(|(_, row)| row.key.clone()).collect();
        let keep: Vec<i32> = rows.iter().map(|(_, row)| row.chunks.len() as i32).collect();
        let versions: Vec<(String, Version)> =
            rows.iter().filter_map(|(_, row)| Some((row.key.clone(), row.version?))).collect();
        chunks::remove_above(&c, &keys, &keep);
        chunks::write(&c, &self.collection.generation.model, self.new_chunks(&rows));
        chunks::confirm(&c, &versions);
        failure::forget(c.id, &keys);
        if c.has_error {
            registry::statements::note_error(c.id, None);
        }
    }

    fn new_chunks(&self, rows: &[(usize, &JobRow)]) -> Vec<NewChunk> {
        let mut new = Vec::new();
        for (r, row) in rows {
            let Some(version) = row.version else { continue };
            for (i, chunk) in row.chunks.iter().enumerate() {
                let embedding = match &chunk.action {
                    Action::Keep => continue,
                    Action::Move(vector) => vector.clone(),
                    Action::Embed => match self.slots.binary_search(&(*r, i)) {
                        Ok(slot) => self.vectors[slot].clone().unwrap_or_default(),
                        Err(_) => continue,
                    },
                };
                new.push(NewChunk {
                    key: row.key.clone(),
                    number: chunk.number,
                    content: chunk.content.clone(),
                    hash: chunk.hash.clone(),
                    version,
                    embedding,
                });
            }
        }
        new
    }
}
