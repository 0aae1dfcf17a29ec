//! A BERT-family sentence encoder on the CPU: text in, vector of length 1 out.
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
mod error;
mod file;
mod kernels;
mod model;
mod prepared;
mod tokens;
mod weights;

use std::path::{Path, PathBuf};

use config::Config;
pub use error::EncoderError;
use model::{Model, RUN_TOKENS, Work};
use tokens::Tokens;

/// A sentence encoder, opened from a model folder.
pub struct Encoder {
    dir: PathBuf,
    model: Model,
    tokens: Tokens,
    work: Work,
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
        let config = Config::read(dir)?;
        let tokenizer = dir.join("tokenizer.json");
        let tokens = Tokens::open(&tokenizer, config.vocabulary, config.max_tokens, config.lowercase)?;
        let model = Model::open(dir, config, use_prepared)?;
        Ok(Encoder { dir: dir.to_owned(), model, tokens, work: Work::default() })
    }

    /// How many numbers a vector has.
    pub fn dimensions(&self) -> usize {
        self.model.config().hidden
    }

    /// The most tokens of a text that count, special ones included; what is beyond is cut off.
    pub fn max_tokens(&self) -> usize {
        self.tokens.max_tokens()
    }

    /// Why the prepared file is not in use, or `None` if it is. Vectors are the same either way.
    pub fn unprepared(&self) -> Option<&str> {
        self.model.unprepared()
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
        match self.tokens.count(text, between) {
            Err(EncoderError::Interrupted) => Err(EncoderError::Interrupted),
            counted => Ok(counted.unwrap_or(text.len())),
        }
    }

    /// The vectors of some texts, in their order, each of length 1.
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
        let mut vectors = Vec::with_capacity(texts.len());
        let mut run: Vec<Vec<u32>> = Vec::new();
        let mut run_tokens = 0;
        for text in texts {
            if !between() {
                return Err(EncoderError::Interrupted);
            }
            let ids = self.ids(text, between)?;
            if run_tokens + ids.len() > RUN_TOKENS && !run.is_empty() {
                self.embed_run(&run, between, &mut vectors)?;
                run.clear();
                run_tokens = 0;
            }
            run_tokens += ids.len();
            run.push(ids);
        }
        if !run.is_empty() {
            self.embed_run(&run, between, &mut vectors)?;
        }
        Ok(vectors)
    }

    fn ids(&self, text: &str, between: &mut dyn FnMut() -> bool) -> Result<Vec<u32>, EncoderError> {
        let ids = self.tokens.ids(text, between)?;
        match ids.iter().find(|id| **id as usize >= self.model.vocabulary()) {
            None => Ok(ids),
            Some(id) => Err(EncoderError::Tokenizer {
                path: self.dir.join("tokenizer.json"),
                reason: format!("it has a token {id}, but the model's vocab_size is {}", self.model.vocabulary()),
            }),
        }
    }

    fn embed_run(
        &mut self,
        run: &[Vec<u32>],
        between: &mut dyn FnMut() -> bool,
        vectors: &mut Vec<Vec<f32>>,
    ) -> Result<(), EncoderError> {
        let new = self.model.embed(run, &mut self.work, between);
        self.work.shrink(self.model.config());
        let new = new.ok_or(EncoderError::Interrupted)?;
        if new.iter().flatten().any(|value| !value.is_finite()) {
            return Err(EncoderError::NotFinite { path: self.dir.clone() });
        }
        vectors.extend(new);
        Ok(())
    }
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
