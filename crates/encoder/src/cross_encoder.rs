//! Scores of passages for a query.

use std::path::Path;

use crate::EncoderError;
use crate::config::Task;
use crate::engine::Engine;
use crate::head::Head;
use crate::tokens::Pairs;

/// A BERT cross-encoder, opened from a model folder: it reads a query and a passage together and says how well they fit.
///
/// ```no_run
/// use std::path::Path;
/// use ragent_encoder::CrossEncoder;
///
/// let mut model = CrossEncoder::open(Path::new("models/ms-marco-MiniLM-L6-v2"))?;
/// let scores = model.score("how long is a day on Venus", &["A Venusian day lasts 243 Earth days.", "Mars is red."], &mut || true)?;
/// assert!(scores[0] > scores[1]);
/// # Ok::<(), ragent_encoder::EncoderError>(())
/// ```
///
/// The model is a `BertForSequenceClassification` with one label. Its folder is that of an [`crate::Encoder`], without the
/// files of sentence-transformers' pooling.
pub struct CrossEncoder {
    engine: Engine,
    pairs: Pairs,
    head: Head,
}

impl CrossEncoder {
    /// Opens a model folder, maps its weights and checks all of it.
    ///
    /// # Errors
    ///
    /// As for [`crate::Encoder::open`]; [`EncoderError::OtherTask`] for a sentence encoder.
    pub fn open(dir: &Path) -> Result<CrossEncoder, EncoderError> {
        CrossEncoder::open_with(dir, true)
    }

    /// As [`CrossEncoder::open`], but without the prepared file even where there is one.
    ///
    /// # Errors
    ///
    /// As for [`CrossEncoder::open`].
    pub fn open_unprepared(dir: &Path) -> Result<CrossEncoder, EncoderError> {
        CrossEncoder::open_with(dir, false)
    }

    fn open_with(dir: &Path, use_prepared: bool) -> Result<CrossEncoder, EncoderError> {
        let engine = Engine::open(dir, use_prepared, |task| task == Task::Rerank)?;
        let config = engine.model.config();
        let head = Head::open(dir, config)?;
        let pairs = engine.tokens.pairs(&dir.join("tokenizer.json"), config.token_types)?;
        Ok(CrossEncoder { engine, pairs, head })
    }

    /// The most tokens of a query and a passage together, special ones included. Of longer ones the end is cut off, of the
    /// longer of the two first.
    pub fn max_tokens(&self) -> usize {
        self.engine.tokens.max_tokens()
    }

    /// Why the prepared file is not in use, or `None` if it is. Scores are the same either way.
    pub fn unprepared(&self) -> Option<&str> {
        self.engine.model.unprepared()
    }

    /// How well each passage fits the query, in their order: the model's own number (a logit), higher for better. Numbers of
    /// different models mean different things; those of MS MARCO models go from about -11 to 11, and `1 / (1 + e^-score)` makes
    /// a number between 0 and 1 of them.
    ///
    /// A passage's score is the same, bit for bit, whatever passages are beside it. Pairs are computed together up to 512
    /// tokens; memory does not grow with the number of passages but by the scores. `between` is called before the query, before
    /// each passage, each further 8 kB of a text, and after some milliseconds of computing; where it returns false, the work stops.
    ///
    /// # Errors
    ///
    /// As for [`crate::Encoder::embed`].
    pub fn score(
        &mut self,
        query: &str,
        passages: &[&str],
        between: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<f32>, EncoderError> {
        if !between() {
            return Err(EncoderError::Interrupted);
        }
        let (pairs, head) = (&self.pairs, &self.head);
        let query = self.engine.tokens.first_of_pairs(pairs, query, between)?;
        self.engine.compute(
            passages,
            between,
            |tokens, passage, between| tokens.pair(pairs, &query, passage, between),
            |_, states| Some(head.score(states)).filter(|score| score.is_finite()),
        )
    }
}
