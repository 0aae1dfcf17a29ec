//! One job: some rows of one collection, from the queue to the chunk table; or one long row, which is cut, embedded and stored
//! in turns.

use super::statements::chunks::{NewChunk, SourceRow, Version};
use super::statements::claim::Entry;
use super::statements::copies::Lost;
use super::statements::{chunks, claim, comparison, failure, queue};
use crate::error::{Error, Result};
use crate::guc;
use crate::pg::{interrupt, xact};
use crate::provider::{self, Failure, ModelName, Provider, TokenCounter, remote};
use crate::registry::{self, Collection};
use pgrx::PgSqlErrorCode;
use ragent_core::ingest::chunk::{ChunkOptions, chunker};
use ragent_core::ingest::plan::{self, Action, ChunkPlan, RowPlan, Stored, StoredChunk};
use ragent_core::ingest::recipe::Recipe;
use ragent_core::ingest::schedule::Account;
use ragent_core::ingest::verdict::Fault;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

/// How much text a job takes, in bytes.
struct Portion {
    /// Of several rows together.
    rows: i64,
    /// A row with more is long: it gets a job of its own and is done in turns.
    long: i64,
    /// Of a long row in one turn, about.
    turn: usize,
}

/// With a model in this process, some tenths of a second: text without blanks can have a chunk for every 250 bytes.
const LOCAL: Portion = Portion { rows: 64 << 10, long: 32 << 10, turn: 64 << 10 };
const REMOTE: Portion = Portion { rows: 1 << 20, long: 256 << 10, turn: 1 << 20 };

/// Chunks a job of a local model aims for.
const LOCAL_CHUNKS: usize = 64;
/// Tokens that are embedded in this process before something else has its turn: what the encoder computes at once, some tenths of
/// a second. A text has two of its own.
const LOCAL_PART: usize = 512;
const OWN_TOKENS: usize = 2;
/// Most chunks of a long row in one turn, and of a local model's most tokens.
const MOST_CHUNKS: usize = 1024;
const LOCAL_TOKENS: usize = 8 << 10;

/// One row of a job.
#[derive(Debug)]
pub struct JobRow {
    /// Key as JSON text.
    pub key: String,
    /// Queue entries it answers.
    pub ids: Vec<i64>,
    /// Most failed attempts of these entries.
    pub attempts: u32,
    /// Whether a worker died at work on it.
    pub is_suspect: bool,
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
                row.is_suspect |= entry.is_suspect;
            }
            None => rows.push(JobRow {
                key: entry.key,
                ids: vec![entry.id],
                attempts: entry.attempts,
                is_suspect: entry.is_suspect,
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
    /// Whether its one row is long.
    is_long: bool,
}

/// What became of reading claimed rows.
#[derive(Default)]
pub struct Reading {
    /// What is to be planned; `None` when nothing is, or the collection was dropped.
    pub input: Option<Input>,
    /// Entries of long rows, which wait until one that is under way is done.
    pub postponed: Vec<i64>,
    /// Whether rows were given up.
    pub has_refused: bool,
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
    /// Row and chunk of each text to embed, of equal ones together: the first of them is sent.
    slots: Vec<Vec<(usize, usize)>>,
    /// Vectors that came, by slot.
    vectors: Vec<Option<Vec<f32>>>,
    /// Rows with a text that the provider refuses, by their place, and why.
    refused: BTreeMap<usize, Failure>,
    /// Texts that are not asked for yet, as ranges of slots.
    pub parts: VecDeque<Range<usize>>,
    /// Of a long row: what is not cut yet.
    rest: Option<Rest>,
}

/// What is left of a long row while a part of it is in work.
struct Rest {
    plan: RowPlan,
    stored: Stored,
    count: TokenCounter,
    /// Number of the first chunk in work.
    from: i32,
    /// Whether these are the last ones.
    is_last: bool,
}

/// What storing a job came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It is done.
    Done,
    /// It is a long row's, of which there is more.
    More,
    /// Somebody else has its rows.
    Lost,
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

/// Reads all that is needed to plan claimed rows, gives back the claims of those it leaves out, and gives rows up that are longer
/// than the worker takes. Runs in a transaction. A long row is taken only if `takes_long`.
///
/// # Errors
/// The collection cannot be worked on until somebody does something.
pub fn read(collection: i32, rows: Vec<JobRow>, takes_long: bool) -> Result<Reading> {
    let Some((c, model, provider)) = usable(collection)? else { return Ok(Reading::default()) };
    let portion = portion(&provider);
    let keys: Vec<String> = rows.iter().map(|r| r.key.clone()).collect();
    let longest = i64::try_from(guc::max_row_bytes()).unwrap_or(i64::MAX);
    let mut reading = Reading::default();
    let (mut taken, mut left_out, mut total) = (Vec::new(), Vec::new(), 0);
    let mut is_long = false;
    for (row, size) in rows.into_iter().zip(chunks::sizes(&c, &keys)) {
        if size > longest {
            failure::give_up(c.id, &row.ids, &row.key, row.attempts + 1, &too_long(size, longest));
            reading.has_refused = true;
        } else if size > portion.long && !takes_long {
            reading.postponed.extend(&row.ids);
            left_out.push(row);
        } else if !taken.is_empty() && (is_long || size > portion.long || total + size > portion.rows) {
            left_out.push(row);
        } else {
            is_long = size > portion.long;
            total += size;
            taken.push(row);
        }
    }
    claim::release(c.id, &ids(&left_out));
    if taken.is_empty() {
        return Ok(reading);
    }
    let keys: Vec<String> = taken.iter().map(|r| r.key.clone()).collect();
    let sources = chunks::source_rows(&c, &keys);
    let (rows, sources) = with_own_keys(&c, taken, sources);
    let keys: Vec<String> = rows.iter().map(|r| r.key.clone()).collect();
    let stored = chunks::stored(&c, &keys);
    reading.input = Some(Input { collection: c, model, provider, rows, sources, stored, is_long });
    Ok(reading)
}

/// Of claimed rows that could not be read together: those that cannot be read alone, by their place, and why. None where reading
/// fails whatever the rows are. Runs in a transaction.
pub fn unreadable(collection: i32, rows: &[JobRow]) -> Vec<(usize, Fault, Error)> {
    let Ok(Some((c, ..))) = usable(collection) else { return Vec::new() };
    let longest = i64::try_from(guc::max_row_bytes()).unwrap_or(i64::MAX);
    let read = |keys: &[String]| {
        let is_short = chunks::sizes(&c, keys).iter().all(|size| *size <= longest);
        if is_short {
            chunks::source_rows(&c, keys);
            chunks::stored(&c, keys);
        }
    };
    if xact::attempt(|| read(&[])).is_err() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        interrupt::check();
        let key = std::slice::from_ref(&row.key);
        let fault = match xact::attempt(|| chunks::read_keys(&c, key)) {
            Err(e) => Some((Fault::Key, unreadable_key(&e))),
            Ok(()) => xact::attempt(|| read(key)).err().map(|e| (Fault::Data, e)),
        };
        // A lock is nothing that a row is to blame for.
        found.extend(
            fault
                .filter(|(_, e)| e.code != PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE)
                .map(|(fault, e)| (place, fault, e)),
        );
    }
    found
}

fn unreadable_key(e: &Error) -> Error {
    Error::new(
        e.code,
        format!("the key cannot be read: {}", e.message),
        "Since the row was queued, its key has become something else: a table that it names was dropped, an enum label renamed, a type changed. The row is looked for under what it is called now: everything is compared once for that.",
    )
}

fn portion(provider: &Provider) -> Portion {
    if provider.runs_in_process() { LOCAL } else { REMOTE }
}

fn too_long(size: i64, longest: i64) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
        format!("the row has {size} bytes of text, more than {longest}"),
        "Divide the text into several rows, or raise rag.max_row_bytes, reload, and SELECT rag.retry_failures().",
    )
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

/// Compares everything a collection has with its source: removes chunks without a row, queues rows whose chunks are not as their
/// content is, and takes the entries that asked for it off the queue. Rows that were given up stay so, unless they are found under
/// another key by now. Runs in a transaction.
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
    let given_up = chunks::readable_keys(&c, failure::keys(c.id));
    match xact::attempt(|| comparison::queue_differences(&c, given_up)) {
        Ok(()) => {}
        // A row that cannot be read: each is looked at by itself, so that this one fails alone.
        Err(e) if comparison::is_about_a_row(&e) => {
            pgrx::log!("collection {collection}: every row is queued, since they cannot be compared together: {e}");
            queue::queue_all(&c);
        }
        // Raised, so that the entries stay in the queue.
        Err(e) => e.raise(),
    }
    chunks::promote(&c);
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

    /// Cuts the rows into chunks; of a long row, the first of them. Needs no transaction. [`Job::divide`] comes next.
    pub fn plan(self) -> Result<Job> {
        let Self { collection, model, provider, mut rows, sources, stored, is_long } = self;
        let count = provider::token_counter(&provider, &model.model)?;
        let recipe = recipe(&collection)?;
        let mut stored_of_rows: Vec<Vec<StoredChunk>> = vec![Vec::new(); rows.len()];
        for (place, chunk) in stored {
            stored_of_rows[place].push(chunk);
        }
        let mut rest = None;
        for ((row, source), stored) in rows.iter_mut().zip(sources).zip(stored_of_rows) {
            let Some(source) = source else { continue };
            row.version = Some(source.version);
            let stored = stored.into_iter().collect::<Stored>();
            if is_long {
                let plan = RowPlan::new(source.text, &recipe, &*count, &interrupt::check);
                rest = Some((plan, stored));
            } else {
                row.chunks = plan::chunks(source.text, &recipe, &*count, &stored, &interrupt::check);
            }
        }
        let rest = rest.map(|(plan, stored)| Rest { plan, stored, count, from: 1, is_last: false });
        let mut job = Job {
            collection,
            model,
            provider,
            rows,
            slots: vec![],
            vectors: vec![],
            refused: BTreeMap::new(),
            parts: VecDeque::new(),
            rest,
        };
        if is_long {
            job.go_on()?;
        }
        Ok(job)
    }
}

fn recipe(c: &Collection) -> Result<Recipe<'_>> {
    let generation = &c.generation;
    Ok(Recipe {
        model: &generation.model,
        chunker: chunker(&generation.recipe.chunker).ok_or_else(|| no_chunker(c))?,
        options: ChunkOptions {
            max_tokens: generation.recipe.tokens as usize,
            overlap_tokens: generation.recipe.overlap as usize,
        },
    })
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
        self.slots.iter().map(|slot| self.chunk(slot).embedded.as_str()).collect()
    }

    /// The first chunk of a text.
    fn chunk(&self, slot: &[(usize, usize)]) -> &ChunkPlan {
        let (row, chunk) = slot[0];
        &self.rows[row].chunks[chunk]
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

    /// Whether it is of a long row, and so goes on for many turns.
    pub fn is_long(&self) -> bool {
        self.rest.is_some()
    }

    /// Cuts the next chunks of a long row. Needs no transaction. [`Job::divide`] comes next.
    pub fn go_on(&mut self) -> Result<()> {
        let most = if self.is_local() {
            LOCAL_CHUNKS
        } else {
            self.provider.settings.max_batch_items.saturating_mul(self.provider.settings.max_in_flight)
        };
        let most_bytes = portion(&self.provider).turn;
        let recipe = recipe(&self.collection)?;
        if let (Some(rest), [row]) = (&mut self.rest, self.rows.as_mut_slice()) {
            if let Some(last) = row.chunks.last() {
                rest.from = last.number + 1;
            }
            row.chunks.clear();
            let most_tokens = if self.provider.runs_in_process() { LOCAL_TOKENS } else { usize::MAX };
            let (mut bytes, mut embeds, mut tokens) = (0, 0, 0);
            while embeds < most && tokens < most_tokens && bytes < most_bytes && row.chunks.len() < MOST_CHUNKS {
                interrupt::check();
                let Some(chunk) = rest.plan.next(&recipe, &*rest.count, &rest.stored) else {
                    rest.is_last = true;
                    break;
                };
                bytes += chunk.content.len();
                if chunk.action == Action::Embed {
                    embeds += 1;
                    tokens += chunk.tokens;
                }
                row.chunks.push(chunk);
            }
        }
        Ok(())
    }

    /// The chunks to embed.
    fn unembedded(&mut self) -> impl Iterator<Item = &mut ChunkPlan> {
        self.rows.iter_mut().flat_map(|row| &mut row.chunks).filter(|chunk| chunk.action == Action::Embed)
    }

    /// Whether there is any text that may be stored already.
    pub fn needs_vectors(&mut self) -> bool {
        self.unembedded().next().is_some()
    }

    /// Takes the vectors of texts that are stored already, of whatever row. Runs in a transaction.
    pub fn take_stored(&mut self) {
        // Where it was dropped or altered meanwhile, that shows when it is stored.
        let usable = registry::by_id(self.collection.id).and_then(registry::held).filter(|c| c.check().is_ok());
        let Some(c) = usable.filter(|c| c.generation.id == self.collection.generation.id) else { return };
        let hashes: HashSet<Vec<u8>> = self.unembedded().map(|chunk| chunk.hash.clone()).collect();
        let vectors = chunks::vectors(&c, hashes.into_iter().collect());
        for chunk in self.unembedded() {
            if let Some(vector) = vectors.get(&chunk.hash) {
                chunk.action = Action::Move(vector.clone());
            }
        }
    }

    /// Finds the texts to embed, each once, and divides them into parts that are asked for at a time.
    pub fn divide(&mut self) {
        let mut slots: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut by_hash: HashMap<&[u8], usize> = HashMap::new();
        for (r, row) in self.rows.iter().enumerate() {
            for (i, chunk) in row.chunks.iter().enumerate().filter(|(_, chunk)| chunk.action == Action::Embed) {
                let slot = *by_hash.entry(&chunk.hash).or_insert(slots.len());
                if slot == slots.len() {
                    slots.push(Vec::new());
                }
                slots[slot].push((r, i));
            }
        }
        self.vectors = vec![None; slots.len()];
        self.slots = slots;
        self.parts = if self.is_local() {
            let tokens: Vec<usize> = self.slots.iter().map(|slot| self.chunk(slot).tokens + OWN_TOKENS).collect();
            ragent_core::provider::batches(&tokens, LOCAL_CHUNKS, LOCAL_PART).into()
        } else {
            remote::batches(&self.provider, &self.model.model, &self.texts()).into()
        };
    }

    /// The queue entries of the rows that these texts are of.
    pub fn entries_of(&self, range: Range<usize>) -> Vec<i64> {
        let rows: BTreeSet<usize> = self.slots[range].iter().flatten().map(|(row, _)| *row).collect();
        rows.into_iter().flat_map(|row| self.rows[row].ids.iter().copied()).collect()
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

    /// The provider refuses a text that it was sent alone: the rows that have it are to blame, and no others.
    pub fn refuse(&mut self, text: usize, failure: Failure) {
        for (row, _) in &self.slots[text] {
            self.refused.entry(*row).or_insert_with(|| failure.clone());
        }
        // Nobody needs the rest of these rows.
        let (slots, refused) = (&self.slots, &self.refused);
        self.parts.retain(|part| slots[part.clone()].iter().flatten().any(|(row, _)| !refused.contains_key(row)));
    }

    /// Whether all of its rows are refused.
    pub fn is_refused(&self) -> bool {
        !self.rows.is_empty() && self.refused.len() == self.rows.len()
    }

    /// Whether every text has its vector, but for those of rows that are refused.
    pub fn is_complete(&self) -> bool {
        let mut open = self.vectors.iter().zip(&self.slots).filter(|(vector, _)| vector.is_none());
        open.all(|(_, slot)| slot.iter().all(|(row, _)| self.refused.contains_key(row)))
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

    /// Stores what it found and, unless there is more of it, takes its entries off the queue. Runs in a transaction.
    pub fn store(&self) -> Progress {
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
        let Some(c) = usable else {
            claim::release(self.collection.id, &ids);
            return Progress::Lost;
        };
        let (from, is_last) = self.rest.as_ref().map_or((1, true), |rest| (rest.from, rest.is_last));
        // What this worker has no claim of any more, somebody else has read since, or will.
        let held = if is_last { claim::finish(c.id, &ids) } else { claim::still_held(c.id, &ids) };
        let is_held = |row: &JobRow| row.ids.iter().all(|id| held.contains(id));
        let rows: Vec<(usize, &JobRow)> = sound.into_iter().filter(|(_, row)| is_held(row)).collect();
        let keys: Vec<String> = rows.iter().map(|(_, row)| row.key.clone()).collect();
        let versions: Vec<(String, Version)> =
            rows.iter().filter_map(|(_, row)| Some((row.key.clone(), row.version?))).collect();
        let last = |row: &JobRow| row.chunks.last().map_or(from - 1, |chunk| chunk.number);
        let lost = if is_last {
            let keep: Vec<i32> = rows.iter().map(|(_, row)| last(row)).collect();
            chunks::remove_above(&c, &keys, &keep)
        } else {
            Lost::default()
        };
        chunks::write(&c, &self.collection.generation.model, self.new_chunks(&rows), lost);
        let to = if is_last { i32::MAX } else { self.rows.first().map_or(0, last) };
        chunks::confirm(&c, &versions, from..=to);
        if !is_last {
            if rows.is_empty() {
                return Progress::Lost;
            }
            // What is left to do may be another by now: the row is read anew, and what is stored of it need not be again.
            let (is_changed, is_compared) = claim::what_came_since(c.id, &ids, &keys[0]);
            if is_changed || is_compared && chunks::sizes(&c, &keys) == [0] {
                claim::release(c.id, &ids);
                return Progress::Lost;
            }
            return Progress::More;
        }
        failure::forget(c.id, &keys);
        if c.has_error {
            registry::statements::note_error(c.id, None);
        }
        Progress::Done
    }

    fn new_chunks(&self, rows: &[(usize, &JobRow)]) -> Vec<NewChunk> {
        let places =
            self.slots.iter().zip(&self.vectors).flat_map(|(slot, v)| slot.iter().map(move |place| (*place, v)));
        let vectors: HashMap<(usize, usize), &Option<Vec<f32>>> = places.collect();
        let mut new = Vec::new();
        for (r, row) in rows {
            let Some(version) = row.version else { continue };
            for (i, chunk) in row.chunks.iter().enumerate() {
                let embedding = match &chunk.action {
                    Action::Keep => continue,
                    Action::Move(vector) => vector.clone(),
                    Action::Embed => match vectors.get(&(*r, i)) {
                        Some(vector) => vector.as_deref().unwrap_or_default().to_vec(),
                        None => continue,
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
