//! What encoders and cross-encoders share: a model, its tokenizer, and texts that go through them in runs.

use std::path::{Path, PathBuf};

use crate::EncoderError;
use crate::config::{Config, Task};
use crate::model::{Model, RUN_TOKENS, Sequence, Work};
use crate::tokens::Tokens;

/// A model folder, opened.
pub(crate) struct Engine {
    pub dir: PathBuf,
    pub model: Model,
    pub tokens: Tokens,
    work: Work,
}

impl Engine {
    /// Opens a folder whose model is of the kind that `fits` says yes to.
    pub(crate) fn open(dir: &Path, use_prepared: bool, fits: impl Fn(Task) -> bool) -> Result<Engine, EncoderError> {
        let config = Config::read(dir)?;
        if !fits(config.task) {
            return Err(EncoderError::OtherTask { path: dir.to_owned(), task: config.task });
        }
        let tokenizer = dir.join("tokenizer.json");
        let tokens = Tokens::open(&tokenizer, config.vocabulary, config.max_tokens, config.lowercase)?;
        let model = Model::open(dir, config, use_prepared)?;
        Ok(Engine { dir: dir.to_owned(), model, tokens, work: Work::default() })
    }

    /// Passes texts through the model, in runs of at most [`RUN_TOKENS`] unless a single one is longer, and makes of the states
    /// of each what `finish` makes of them; `None` stands for numbers that are not finite. `between` is called as
    /// [`crate::Encoder::embed`] says.
    pub(crate) fn compute<T>(
        &mut self,
        texts: &[&str],
        between: &mut dyn FnMut() -> bool,
        sequence: impl Fn(&Tokens, &str, &mut dyn FnMut() -> bool) -> Result<Sequence, EncoderError>,
        finish: impl Fn(&Model, &[f32]) -> Option<T>,
    ) -> Result<Vec<T>, EncoderError> {
        let mut made = Vec::with_capacity(texts.len());
        let mut run: Vec<Sequence> = Vec::new();
        let mut run_tokens = 0;
        for text in texts {
            if !between() {
                return Err(EncoderError::Interrupted);
            }
            let sequence = sequence(&self.tokens, text, between)?;
            self.check(&sequence)?;
            let length = sequence.ids.len();
            if run_tokens + length > RUN_TOKENS && !run.is_empty() {
                self.compute_run(&run, between, &finish, &mut made)?;
                run.clear();
                run_tokens = 0;
            }
            run_tokens += length;
            run.push(sequence);
        }
        if !run.is_empty() {
            self.compute_run(&run, between, &finish, &mut made)?;
        }
        Ok(made)
    }

    fn compute_run<T>(
        &mut self,
        run: &[Sequence],
        between: &mut dyn FnMut() -> bool,
        finish: impl Fn(&Model, &[f32]) -> Option<T>,
        made: &mut Vec<T>,
    ) -> Result<(), EncoderError> {
        let mut all_finite = true;
        let done = self.model.encode(run, &mut self.work, between, &mut |states| match finish(&self.model, states) {
            Some(new) => made.push(new),
            None => all_finite = false,
        });
        self.work.shrink(self.model.config());
        done.ok_or(EncoderError::Interrupted)?;
        if !all_finite {
            return Err(EncoderError::NotFinite { path: self.dir.clone() });
        }
        Ok(())
    }

    fn check(&self, sequence: &Sequence) -> Result<(), EncoderError> {
        match sequence.ids.iter().find(|id| **id as usize >= self.model.vocabulary()) {
            None => Ok(()),
            Some(id) => Err(EncoderError::Tokenizer {
                path: self.dir.join("tokenizer.json"),
                reason: format!("it has a token {id}, but the model's vocab_size is {}", self.model.vocabulary()),
            }),
        }
    }
}
