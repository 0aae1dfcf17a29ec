//! Texts to token ids.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde_json::value::RawValue;
use tokenizers::{ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

use crate::EncoderError;
use crate::file;
use crate::model::Sequence;

/// The tokenizer is never given more text at once than this, in bytes: it works up to 425 bytes of memory and two
/// microseconds for each of them, and cannot be interrupted.
const PIECE_BYTES: usize = 8 << 10;

/// A guess at how many bytes of text fill one token. Too low costs a second piece, too high tokenizes in vain.
const GENEROUS_BYTES_PER_TOKEN: usize = 12;

/// A model's tokenizer, with truncation and padding in our hands.
pub(crate) struct Tokens {
    tokenizer: Tokenizer,
    /// Special tokens before and after every text, `[CLS]` and `[SEP]` for BERT.
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    max_tokens: usize,
    lowercase: bool,
    seams: Seams,
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
            seams: Seams::of(&tokenizer, lowercase && !lowercases),
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

    /// Tokens of the whole text, special ones not counted. `between` is called before each piece of the text.
    pub(crate) fn count(&self, text: &str, between: &mut dyn FnMut() -> bool) -> Result<usize, EncoderError> {
        let mut total = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = self.seams.cut(rest, PIECE_BYTES);
            if !between() {
                return Err(EncoderError::Interrupted);
            }
            total += self.plain(piece)?.len();
            rest = after;
        }
        Ok(total)
    }

    /// How many tokens of its own a text may have.
    pub(crate) fn room(&self) -> usize {
        self.max_tokens - self.prefix.len() - self.suffix.len()
    }

    /// The ids of a text: special tokens, and as many of its own as the model's limit allows. `between` is called before
    /// each piece of the text but the first.
    pub(crate) fn single(&self, text: &str, between: &mut dyn FnMut() -> bool) -> Result<Sequence, EncoderError> {
        let own = self.first(text, self.room(), between)?;
        let mut ids = Vec::with_capacity(self.prefix.len() + own.len() + self.suffix.len());
        ids.extend_from_slice(&self.prefix);
        ids.extend_from_slice(&own);
        ids.extend_from_slice(&self.suffix);
        Ok(Sequence::single(ids))
    }

    /// How this tokenizer puts two texts together, for a model with `types` token types. `path` is its file.
    pub(crate) fn pairs(&self, path: &Path, types: usize) -> Result<Pairs, EncoderError> {
        let failed = |reason: String| EncoderError::Tokenizer { path: path.to_owned(), reason };
        if types < 2 {
            return Err(failed("the model has one token type, which does not tell two texts apart".to_owned()));
        }
        let framed = catch_unwind(AssertUnwindSafe(|| self.tokenizer.encode_fast(("a", "a"), true)))
            .map_err(|_| failed("the tokenizer library gave up on it".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        let pairs = Pairs::of(framed.get_ids(), framed.get_type_ids(), &self.plain("a")?)
            .ok_or_else(|| failed("it does not frame and mark two texts as BERT's does".to_owned()))?;
        match self.max_tokens.checked_sub(pairs.start.len() + pairs.middle.len() + pairs.end.len()) {
            Some(room) if room >= 2 => Ok(Pairs { room, ..pairs }),
            _ => {
                Err(failed(format!("special tokens leave no room in the model's limit of {} tokens", self.max_tokens)))
            }
        }
    }

    /// The first text of pairs, as far as any of them can use it.
    pub(crate) fn first_of_pairs(
        &self,
        pairs: &Pairs,
        text: &str,
        between: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<u32>, EncoderError> {
        self.first(text, pairs.room, between)
    }

    /// The ids of a pair: special tokens, and as many of the texts' own as the model's limit allows; of the longer text
    /// those that are too many are cut off. `first` is of [`Tokens::first_of_pairs`].
    pub(crate) fn pair(
        &self,
        pairs: &Pairs,
        first: &[u32],
        second: &str,
        between: &mut dyn FnMut() -> bool,
    ) -> Result<Sequence, EncoderError> {
        let second = self.first(second, pairs.room, between)?;
        let (kept_first, kept_second) = keep_of_pair(first.len(), second.len(), pairs.room);
        let mut ids = Vec::with_capacity(self.max_tokens.min(pairs.room + first.len()));
        for part in [&pairs.start, &first[..kept_first], &pairs.middle] {
            ids.extend_from_slice(part);
        }
        let start_of_second = ids.len();
        ids.extend_from_slice(&second[..kept_second]);
        ids.extend_from_slice(&pairs.end);
        Ok(Sequence { ids, second: start_of_second })
    }

    /// The first `room` tokens of a text: of its pieces, as many as it takes.
    fn first(&self, text: &str, room: usize, between: &mut dyn FnMut() -> bool) -> Result<Vec<u32>, EncoderError> {
        let mut target = match self.seams.are_exact {
            true => room.saturating_mul(GENEROUS_BYTES_PER_TOKEN).min(PIECE_BYTES),
            false => PIECE_BYTES,
        };
        let mut ids = Vec::new();
        let mut rest = text;
        loop {
            let (piece, after) = self.seams.cut(rest, target);
            ids.append(&mut self.plain(piece)?);
            if ids.len() >= room || after.is_empty() {
                ids.truncate(room);
                return Ok(ids);
            }
            if !between() {
                return Err(EncoderError::Interrupted);
            }
            (rest, target) = (after, PIECE_BYTES);
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

/// How two texts become one sequence: `[CLS] first [SEP] second [SEP]` for BERT.
pub(crate) struct Pairs {
    start: Vec<u32>,
    middle: Vec<u32>,
    end: Vec<u32>,
    /// How many tokens of their own the texts may have together.
    room: usize,
}

impl Pairs {
    /// Found from a pair of the same text twice, whose own tokens are `plain`: its ids and token types, which must be 0 up to
    /// the second text and 1 from there.
    fn of(ids: &[u32], types: &[u32], plain: &[u32]) -> Option<Pairs> {
        let find = |from: usize| ids.get(from..)?.windows(plain.len().max(1)).position(|ids| ids == plain);
        let first = find(0)?;
        let middle = first + plain.len();
        let second = middle + find(middle)?;
        let end = second + plain.len();
        let is_marked = types.iter().enumerate().all(|(at, kind)| *kind == u32::from(at >= second));
        is_marked.then(|| Pairs {
            start: ids[..first].to_vec(),
            middle: ids[middle..second].to_vec(),
            end: ids[end..].to_vec(),
            room: 0,
        })
    }
}

/// How many tokens are kept of two texts for which there is `room` together: what is too much goes from the longer one, and
/// where both are long each keeps half, the odd token being the second's. As the tokenizers library truncates "longest first",
/// but for the odd token of two texts of which each would fill the room.
fn keep_of_pair(first: usize, second: usize, room: usize) -> (usize, usize) {
    if first + second <= room {
        return (first, second);
    }
    let shorter = first.min(second);
    let (short, long) = if shorter <= room / 2 { (shorter, room - shorter) } else { (room / 2, room - room / 2) };
    if first > second { (long, short) } else { (short, long) }
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

/// Where a text may be taken apart so that the tokens of its parts are those of the whole.
///
/// For BERT's tokenizer that is before white space, before punctuation and before an ideograph: its normalizer works character
/// by character and keeps these (combining marks are dropped or stay with the character before them), its pre-tokenizer
/// always splits there, and words are tokenized one by one. An added token (`[MASK]`) is looked for in the text as it stands, so
/// characters of such tokens are no seams.
///
/// Where a text has no seam for [`PIECE_BYTES`], and with other tokenizers, it is taken apart at white space or between
/// characters all the same. A WordPiece tokenizer knows no word of more than a hundred characters: of one that is longer than a
/// piece, what is left is passed over, so that it is one unknown token as in the whole.
struct Seams {
    /// Whether the parts give the tokens of the whole at a seam.
    are_exact: bool,
    ideographs: bool,
    /// By ASCII code.
    ascii: [bool; 128],
    /// A word of more characters is one unknown token.
    longest_word: usize,
}

impl Seams {
    fn of(tokenizer: &Tokenizer, lowercase: bool) -> Seams {
        let bert = |n: &NormalizerWrapper| match n {
            NormalizerWrapper::BertNormalizer(n) => Some(n.handle_chinese_chars),
            _ => None,
        };
        let normalizer = tokenizer.get_normalizer();
        let pre_tokenizer = matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::BertPreTokenizer(_)));
        let added = tokenizer.get_added_tokens_decoder();
        let added = || added.values().flat_map(|token| token.content.chars());
        let are_exact =
            normalizer.is_none_or(|n| bert(n).is_some()) && pre_tokenizer && !added().any(char::is_whitespace);
        // Lower-casing looks beyond punctuation: a sigma at the end of a word has another form.
        let between_words = are_exact && !lowercase;
        let mut ascii = [false; 128];
        for (code, seam) in (0u8..).zip(&mut ascii) {
            *seam = matches!(code, b' ' | b'\n' | b'\t' | b'\r')
                || between_words && code.is_ascii_punctuation() && !added().any(|c| c == char::from(code));
        }
        let are_spaced = normalizer.and_then(bert) == Some(true);
        let longest_word = match tokenizer.get_model() {
            ModelWrapper::WordPiece(model) if are_exact => model.max_input_chars_per_word,
            _ => usize::MAX,
        };
        Seams { are_exact, ideographs: between_words && are_spaced && !added().any(is_ideograph), ascii, longest_word }
    }

    fn is_before(&self, c: char) -> bool {
        match self.ascii.get(c as usize) {
            Some(seam) => *seam,
            None => self.ideographs && is_ideograph(c),
        }
    }

    /// A first part of at most about `target` bytes, not empty unless the text is, and what comes after it.
    fn cut<'t>(&self, text: &'t str, target: usize) -> (&'t str, &'t str) {
        if text.len() <= target {
            return (text, "");
        }
        let end = text.floor_char_boundary(target);
        let end = if end > 0 { end } else { text.chars().next().map_or(0, char::len_utf8) };
        let next = text[end..].chars().next().map_or(0, char::len_utf8);
        let seam = text[..end + next].char_indices().rev().find(|(_, c)| self.is_before(*c));
        match seam {
            Some((at, _)) if at > 0 => text.split_at(at),
            _ => {
                let (part, rest) = text.split_at(end);
                let is_long = part.chars().rev().take_while(|c| is_of_word(*c)).count() > self.longest_word;
                (part, if is_long { rest.trim_start_matches(is_of_word) } else { rest })
            }
        }
    }
}

/// Whether a character is for certain part of a word, together with its like on both sides.
fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, 'À'..='Ö' | 'Ø'..='ö' | 'ø'..='ɏ' | 'Α'..='Ρ' | 'Σ'..='ώ' | 'А'..='я')
}

/// The blocks of ideographs that every version of BERT's normalizer puts blanks around.
fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}')
}
