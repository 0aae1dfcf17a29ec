//! A BERT-family sentence encoder on the CPU: text in, vector of length 1 out. And cross-encoders, which read a query and a
//! passage together and give a score: see [`CrossEncoder`].
//!
//! It runs the models that are known as MiniLM, BGE, GTE and E5 in their English variants, straight from the folder that
//! sentence-transformers models come in, without Python and without a native library:
//!
//! ```no_run
//! use std::path::Path;
//! use ragent_encoder::Encoder;
//!
//! let mut encoder = Encoder::open(Path::new("models/all-MiniLM-L6-v2"))?;
//! let vectors = encoder.embed(&["a plane takes off", "an aircraft departs"], &mut || true)?;
//! let cosine: f32 = vectors[0].iter().zip(&vectors[1]).map(|(a, b)| a * b).sum();
//! assert!(cosine > 0.5 && vectors[0].len() == encoder.dimensions());
//! # Ok::<(), ragent_encoder::EncoderError>(())
//! ```
//!
//! # The model folder
//!
//! | file | what is taken from it |
//! |---|---|
//! | `config.json` | the sizes; `model_type` must be `bert`, `position_embedding_type` absolute |
//! | `model.safetensors` | the weights, F32, F16 or BF16, names with or without a `bert.` prefix |
//! | `tokenizer.json` | the tokenizer; its own truncation and padding settings are not used |
//! | `1_Pooling/config.json` | mean or CLS pooling; without it the mean, as sentence-transformers does |
//! | `sentence_bert_config.json` | `max_seq_length`, the model's limit in tokens, and `do_lower_case` |
//! | `tokenizer_config.json` | `model_max_length`, the limit where there is no `max_seq_length` |
//! | `modules.json` | if there is one, no module beyond transformer, pooling and normalisation may be in it |
//! | `ragent.json` | what of it is ours: `query_prefix` and `document_prefix`, put before texts by [`Encoder::embed_queries`] and [`Encoder::embed_documents`] |
//! | `config_sentence_transformers.json` | `prompts` named query and document (or passage), where `ragent.json` names none |
//! | `model.ragent` | if there is one, the weights in a faster layout; see [`prepare`] |
//!
//! Whatever the encoder does not compute exactly as the model's authors meant it is refused when the model is opened.
//!
//! # What it costs
//!
//! Opening takes some milliseconds, most of them for the tokenizer. Weights are mapped, not read: all processes share
//! them, and a process has a few megabytes of its own. Texts are not padded; up to 512 tokens go through the layers at
//! once, and attention stays within each text. The work buffer is kept between calls and does not grow beyond what 512
//! tokens need (5 MB for MiniLM-L6), except while a single longer text is in work. There are no threads.
//!
//! A text's vector is the same, bit for bit, whatever texts are beside it and whether the weights are prepared or not. It
//! depends on the processor: with other vector instructions sums are rounded otherwise, in the last digits.
//!
//! # Files must be replaced, not rewritten
//!
//! The weights are mapped. To change them, write new files under other names and rename them over the old ones:
//! shortening a mapped file in place makes the system kill the processes that use it.

mod config;
mod cross_encoder;
mod engine;
mod error;
mod file;
mod head;
mod kernels;
mod model;
mod prefixes;
mod prepared;
mod tokens;
mod weights;

use std::path::{Path, PathBuf};

use config::Config;
pub use config::{Pooling, Task};
pub use cross_encoder::CrossEncoder;
use engine::Engine;
pub use error::EncoderError;
pub use prefixes::SETTINGS_FILE;
use tokens::Tokens;

/// A sentence encoder, opened from a model folder.
pub struct Encoder {
    engine: Engine,
    pooling: Pooling,
    /// How many tokens the prefixes take of a text's room.
    query_prefix_tokens: usize,
    document_prefix_tokens: usize,
}

impl Encoder {
    /// Opens a model folder, maps its weights and checks all of it: every size, name, shape and type.
    ///
    /// # Errors
    ///
    /// Everything that is missing, damaged, contradictory or not supported; see [`EncoderError`].
    pub fn open(dir: &Path) -> Result<Encoder, EncoderError> {
        Encoder::open_with(dir, true)
    }

    /// As [`Encoder::open`], but without the prepared file even where there is one. Slower, for comparison.
    ///
    /// # Errors
    ///
    /// As for [`Encoder::open`].
    pub fn open_unprepared(dir: &Path) -> Result<Encoder, EncoderError> {
        Encoder::open_with(dir, false)
    }

    fn open_with(dir: &Path, use_prepared: bool) -> Result<Encoder, EncoderError> {
        let engine = Engine::open(dir, use_prepared, |task| matches!(task, Task::Embed(_)))?;
        let config = engine.model.config();
        let Task::Embed(pooling) = config.task else {
            return Err(EncoderError::OtherTask { path: dir.to_owned(), task: config.task });
        };
        let tokens_of = |prefix: &str| -> Result<usize, EncoderError> {
            let tokens = engine.tokens.count(prefix, &mut || true)?;
            if tokens >= engine.tokens.room() {
                let (path, room) = (config.prefixes.path.clone(), engine.tokens.room());
                let reason = format!("a prefix has {tokens} tokens, but the model reads no more than {room}");
                return Err(EncoderError::Unsupported { path, reason });
            }
            Ok(tokens)
        };
        let (query_prefix_tokens, document_prefix_tokens) =
            (tokens_of(&config.prefixes.query)?, tokens_of(&config.prefixes.document)?);
        Ok(Encoder { engine, pooling, query_prefix_tokens, document_prefix_tokens })
    }

    /// How many numbers a vector has.
    pub fn dimensions(&self) -> usize {
        self.engine.model.config().hidden
    }

    /// The most tokens of a text that count, special ones included; what is beyond is cut off.
    pub fn max_tokens(&self) -> usize {
        self.engine.tokens.max_tokens()
    }

    /// How many tokens of its own a query may have: those of the prefix and special ones do not count.
    pub fn query_tokens(&self) -> usize {
        self.engine.tokens.room() - self.query_prefix_tokens
    }

    /// How many tokens of its own a document may have: those of the prefix and special ones do not count.
    pub fn document_tokens(&self) -> usize {
        self.engine.tokens.room() - self.document_prefix_tokens
    }

    /// How the vectors of tokens become one.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// What the model wants before a query; may be empty.
    pub fn query_prefix(&self) -> &str {
        &self.engine.model.config().prefixes.query
    }

    /// What the model wants before a document, a text that is to be found; may be empty.
    pub fn document_prefix(&self) -> &str {
        &self.engine.model.config().prefixes.document
    }

    /// Why the prepared file is not in use, or `None` if it is. Vectors are the same either way.
    pub fn unprepared(&self) -> Option<&str> {
        self.engine.model.unprepared()
    }

    /// The number of tokens of the whole text, special ones not counted and nothing cut off.
    ///
    /// `between` is called before each piece of 8 kB; where it returns false, the work stops. A text that the tokenizer
    /// refuses counts a token for each byte: never too few.
    ///
    /// # Errors
    ///
    /// [`EncoderError::Interrupted`] if `between` says so.
    pub fn count_tokens(&self, text: &str, between: &mut dyn FnMut() -> bool) -> Result<usize, EncoderError> {
        match self.engine.tokens.count(text, between) {
            Err(EncoderError::Interrupted) => Err(EncoderError::Interrupted),
            counted => Ok(counted.unwrap_or(text.len())),
        }
    }

    /// The vectors of some texts as they are, without a prefix, in their order, each of length 1.
    ///
    /// `between` is called before each text, each further 8 kB of a text, and, while texts are computed together (at most 512
    /// tokens), after some milliseconds each; where it returns false, the work stops. A text without any token of its own,
    /// such as an empty one, has a vector too: that of the special tokens.
    ///
    /// # Errors
    ///
    /// [`EncoderError::Interrupted`] if `between` says so, [`EncoderError::NotFinite`] if the weights are damaged in a way
    /// that gives no usable vector, [`EncoderError::Tokenize`] if the tokenizer refuses a text.
    pub fn embed(&mut self, texts: &[&str], between: &mut dyn FnMut() -> bool) -> Result<Vec<Vec<f32>>, EncoderError> {
        self.embed_after("", texts, between)
    }

    /// The vectors of some queries: as [`Encoder::embed`], with the model's query prefix before each.
    ///
    /// # Errors
    ///
    /// As for [`Encoder::embed`].
    pub fn embed_queries(
        &mut self,
        texts: &[&str],
        between: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        let prefix = self.query_prefix().to_owned();
        self.embed_after(&prefix, texts, between)
    }

    /// The vectors of some texts that are to be found: as [`Encoder::embed`], with the model's document prefix before each.
    ///
    /// # Errors
    ///
    /// As for [`Encoder::embed`].
    pub fn embed_documents(
        &mut self,
        texts: &[&str],
        between: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        let prefix = self.document_prefix().to_owned();
        self.embed_after(&prefix, texts, between)
    }

    fn embed_after(
        &mut self,
        prefix: &str,
        texts: &[&str],
        between: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Vec<f32>>, EncoderError> {
        let pooling = self.pooling;
        self.engine.compute(
            texts,
            between,
            |tokens: &Tokens, text, between| match prefix {
                "" => tokens.single(text, between),
                // The tokenizer sees the whole: where it splits is its own matter.
                prefix => tokens.single(&format!("{prefix}{text}"), between),
            },
            |model, states| {
                let vector = model::pool(pooling, states, model.config().hidden);
                vector.iter().all(|value| value.is_finite()).then_some(vector)
            },
        )
    }
}

/// What the model in a folder is for, by its `config.json` and the files about pooling; the weights are not looked at.
///
/// # Errors
///
/// As for [`Encoder::open`].
pub fn task(dir: &Path) -> Result<Task, EncoderError> {
    Ok(Config::read(dir)?.task)
}

/// Writes `model.ragent` into a model folder: its linear layers' weights in the layout that is fastest for short texts.
/// [`Encoder::open`] uses it as long as it belongs to the `model.safetensors` beside it. Returns the file's path.
///
/// # Errors
///
/// As for [`Encoder::open`], and [`EncoderError::File`] if the file cannot be written.
pub fn prepare(dir: &Path) -> Result<PathBuf, EncoderError> {
    model::prepare(dir, Config::read(dir)?)
}

/// Reads all of a model folder's prepared file; says why it cannot be used, or `None` if it can.
///
/// # Errors
///
/// As for [`Encoder::open`].
pub fn verify_prepared(dir: &Path) -> Result<Option<String>, EncoderError> {
    model::verify(dir, Config::read(dir)?)
}
