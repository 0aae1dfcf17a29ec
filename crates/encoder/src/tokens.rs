//! Texts to token ids.

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::Path;

use serde_json::value::RawValue;
use tokenizers::{ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

use crate::EncoderError;
use crate::file;

/// Longer texts are counted in pieces of about this many bytes, so that a tokenizer's working memory (some fifty
/// bytes for each byte of text) stays small.
const COUNTING_PIECE_BYTES: usize = 64 << 10;

/// A first guess at how many bytes of text fill one token. Too low costs a second try, too high tokenizes in vain.
const GENEROUS_BYTES_PER_TOKEN: usize = 12;

/// A model's tokenizer, with truncation and padding in our hands.
pub(crate) struct Tokens {
    tokenizer: Tokenizer,
    /// Special tokens before and after every text, `[CLS]` and `[SEP]` for BERT.
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    max_tokens: usize,
    lowercase: bool,
    splits_at_whitespace: bool,
}

impl Tokens {
    /// Reads `tokenizer.json`. `vocabulary` is the number of rows of the model's embedding table.
    pub(crate) fn open(
        path: &Path,
        vocabulary: usize,
        max_tokens: usize,
        lowercase: bool,
    ) -> Result<Tokens, EncoderError> {
        let failed = |reason: String| EncoderError::Tokenizer { path: path.to_owned(), reason };
        let (tokenizer, prefix, suffix) = read(path)?;
        let known = tokenizer.get_vocab_size(true);
        if known > vocabulary {
            return Err(failed(format!("it has {known} tokens, but the model's vocab_size is {vocabulary}")));
        }
        if let Some(unknown) = unknown_token(&tokenizer).filter(|token| tokenizer.token_to_id(token).is_none()) {
            return Err(failed(format!("its unknown token \"{unknown}\" is not in its vocabulary")));
        }
        let special = prefix.len() + suffix.len();
        if special == 0 {
            return Err(failed("it adds no special tokens to a text".to_owned()));
        }
        if max_tokens <= special {
            return Err(failed(format!(
                "it adds {special} special tokens, but the model's limit is {max_tokens} tokens"
            )));
        }
        let lowercases =
            matches!(tokenizer.get_normalizer(), Some(NormalizerWrapper::BertNormalizer(n)) if n.lowercase);
        Ok(Tokens {
            splits_at_whitespace: splits_at_whitespace(&tokenizer),
            lowercase: lowercase && !lowercases,
            tokenizer,
            prefix,
            suffix,
            max_tokens,
        })
    }

    pub(crate) fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Tokens of the whole text, special ones not counted.
    pub(crate) fn count(&self, text: &str) -> Result<usize, EncoderError> {
        if !self.splits_at_whitespace {
            return Ok(self.plain(text)?.len());
        }
        let mut total = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(cut_at_whitespace(rest, COUNTING_PIECE_BYTES));
            total += self.plain(piece)?.len();
            rest = after;
        }
        Ok(total)
    }

    /// The ids of a text: special tokens, and as many of its own as the model's limit allows.
    pub(crate) fn ids(&self, text: &str) -> Result<Vec<u32>, EncoderError> {
        let room = self.max_tokens - self.prefix.len() - self.suffix.len();
        let own = self.first(text, room)?;
        let mut ids = Vec::with_capacity(self.prefix.len() + own.len() + self.suffix.len());
        ids.extend_from_slice(&self.prefix);
        ids.extend_from_slice(&own);
        ids.extend_from_slice(&self.suffix);
        Ok(ids)
    }

    /// The first `room` tokens of a text.
    ///
    /// A long text is not tokenized as a whole: its first part, cut before whitespace, gives the first tokens of the
    /// whole (see [`splits_at_whitespace`]). Where that part does not fill the room, a part twice as long is tried.
    fn first(&self, text: &str, room: usize) -> Result<Vec<u32>, EncoderError> {
        let mut target = room.saturating_mul(GENEROUS_BYTES_PER_TOKEN);
        loop {
            let end = if self.splits_at_whitespace { cut_at_whitespace(text, target) } else { text.len() };
            let mut ids = self.plain(&text[..end])?;
            if ids.len() >= room || end == text.len() {
                ids.truncate(room);
                return Ok(ids);
            }
            target = target.max(end).saturating_mul(2);
        }
    }

    fn plain(&self, text: &str) -> Result<Vec<u32>, EncoderError> {
        let encoding = if self.lowercase {
            self.tokenizer.encode_fast(text.to_lowercase(), false)
        } else {
            self.tokenizer.encode_fast(text, false)
        };
        let encoding =
            encoding.map_err(|error| EncoderError::Tokenize { bytes: text.len(), reason: error.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }
}

/// Reads a tokenizer, and what it puts before and after a text.
fn read(path: &Path) -> Result<(Tokenizer, Vec<u32>, Vec<u32>), EncoderError> {
    // The parts are taken apart without being read, which only checks that all of it is JSON.
    let mut parts: BTreeMap<String, Box<RawValue>> = file::read_json(path)?;
    // The file may ask for truncation to another length and for padding to a fixed one, which would change vectors.
    // And there is nothing here to decode.
    for part in ["truncation", "padding", "decoder"] {
        parts.remove(part);
    }
    // The library panics on some files that are JSON but make no sense.
    let made = catch_unwind(|| {
        let json = serde_json::to_vec(&parts).map_err(|error| error.to_string())?;
        let tokenizer = Tokenizer::from_bytes(json).map_err(|error| error.to_string())?;
        let (prefix, suffix) = special_tokens(&tokenizer)?;
        Ok((tokenizer, prefix, suffix))
    });
    made.unwrap_or_else(|_| Err("the tokenizer library gave up on it".to_owned()))
        .map_err(|reason: String| EncoderError::Tokenizer { path: path.to_owned(), reason })
}

/// The token that stands for a word of which no part is known, if there is one.
fn unknown_token(tokenizer: &Tokenizer) -> Option<&str> {
    match tokenizer.get_model() {
        ModelWrapper::WordPiece(model) => Some(&model.unk_token),
        ModelWrapper::WordLevel(model) => Some(&model.unk_token),
        _ => None,
    }
}

/// What the tokenizer puts before and after a text, found by giving it one.
fn special_tokens(tokenizer: &Tokenizer) -> Result<(Vec<u32>, Vec<u32>), String> {
    let ids = |special| match tokenizer.encode_fast("a", special) {
        Ok(encoding) => Ok(encoding.get_ids().to_vec()),
        Err(error) => Err(error.to_string()),
    };
    let (plain, framed) = (ids(false)?, ids(true)?);
    let start = framed
        .windows(plain.len().max(1))
        .position(|window| window == plain)
        .ok_or_else(|| "it does not frame a text in special tokens".to_owned())?;
    Ok((framed[..start].to_vec(), framed[start + plain.len()..].to_vec()))
}

/// Whether tokenizing the part of a text before a whitespace character gives the first tokens of the whole.
///
/// It does for BERT's tokenizer: its normalizer works character by character and keeps whitespace (combining marks are
/// dropped or stay with the character before them), its pre-tokenizer always splits at whitespace, and words are
/// tokenized one by one. The exception would be an added token that contains whitespace itself.
fn splits_at_whitespace(tokenizer: &Tokenizer) -> bool {
    let normalizer = matches!(tokenizer.get_normalizer(), None | Some(NormalizerWrapper::BertNormalizer(_)));
    let pre_tokenizer = matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::BertPreTokenizer(_)));
    let added = tokenizer.get_added_tokens_decoder();
    normalizer && pre_tokenizer && added.values().all(|token| !token.content.contains(char::is_whitespace))
}

/// Where to cut a text into a first part of about `target` bytes: before the first ASCII space or line break from there on,
/// or at its end. Never 0 for a text that is not empty.
fn cut_at_whitespace(text: &str, target: usize) -> usize {
    let target = target.max(1);
    let Some(tail) = text.as_bytes().get(target..) else {
        return text.len();
    };
    // ASCII bytes are never part of a longer UTF-8 sequence, so this is a character boundary.
    tail.iter().position(|byte| matches!(byte, b' ' | b'\n')).map_or(text.len(), |at| target + at)
}
