//! What was found, sentence by sentence.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::conversation::Conversation;
use crate::prompt::passages::Passage as Shown;
use crate::text::{sentences, stem, terms, words};

/// A passage that was shown.
pub(super) struct Passage {
    /// Its number, to cite it by.
    pub number: u32,
    pub title_stems: HashSet<String>,
    /// Stems of its whole text, without the title.
    pub stems: HashSet<String>,
    /// Best place it had in any search, from 0.
    pub rank: usize,
    /// In how many searches it came.
    pub hits: usize,
}

/// A sentence of a passage.
pub(super) struct Sentence {
    /// Index into [`Found::passages`].
    pub passage: usize,
    /// Place within the passage.
    pub place: usize,
    /// White space collapsed.
    pub text: String,
    pub stems: HashSet<String>,
    /// All words as stems, in order, stop words too.
    pub sequence: Vec<String>,
    /// Which of them begin with a capital.
    pub capitals: Vec<bool>,
    pub form: Form,
    /// Whether it stands in the same paragraph as the sentence before.
    pub continues: bool,
}

/// What a sentence looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A sentence.
    Prose,
    /// A line that says what something is: `NAME — what it does`.
    Gloss,
    /// A sentence that ends in a colon.
    Lead,
    /// A heading, an item of a list, a row of a table, code.
    Fragment,
}

/// Everything that was found.
pub(super) struct Found<'p> {
    /// Called for each sentence that is looked at.
    pub pulse: &'p dyn Fn(),
    pub passages: Vec<Passage>,
    pub sentences: Vec<Sentence>,
    /// In how many sentences each stem stands.
    frequency: HashMap<String, usize>,
}

impl<'p> Found<'p> {
    pub(super) fn collect(conversation: &Conversation, pulse: &'p dyn Fn()) -> Found<'p> {
        let mut found = Found { pulse, passages: Vec::new(), sentences: Vec::new(), frequency: HashMap::new() };
        let mut index: BTreeMap<u32, usize> = BTreeMap::new();
        for report in &conversation.reports {
            for (rank, shown) in report.passages.iter().enumerate() {
                if let Some(&known) = index.get(&shown.number()) {
                    let passage = &mut found.passages[known];
                    passage.rank = passage.rank.min(rank);
                    passage.hits += 1;
                } else if let Shown::New { number, title, text, .. } = shown {
                    index.insert(*number, found.passages.len());
                    found.add(*number, title.as_deref().unwrap_or_default(), text, rank);
                }
            }
        }
        found
    }

    fn add(&mut self, number: u32, title: &str, text: &str, rank: usize) {
        let passage = self.passages.len();
        self.passages.push(Passage {
            number,
            // Numbers of chapters say nothing.
            title_stems: terms(title).into_iter().filter(|t| !t.chars().all(char::is_numeric)).collect(),
            stems: terms(text).into_iter().collect(),
            rank,
            hits: 1,
        });
        let mut end = None;
        for (place, range) in sentences(text).into_iter().enumerate() {
            (self.pulse)();
            let continues = end.is_some_and(|end: usize| !text[end..range.start].contains('\n'));
            end = Some(range.end);
            let text = text[range].split_whitespace().collect::<Vec<_>>().join(" ");
            let stems: HashSet<String> = terms(&text).into_iter().collect();
            for stem in &stems {
                *self.frequency.entry(stem.clone()).or_default() += 1;
            }
            let words = words(&text);
            let capitals = words.iter().map(|(r, _)| text[r.clone()].starts_with(char::is_uppercase)).collect();
            let sequence = words.into_iter().map(|(_, word)| stem(&word)).collect();
            let form = form(&text);
            self.sentences.push(Sentence { passage, place, text, stems, sequence, capitals, form, continues });
        }
    }

    /// How rare a stem is in what was found: 0.5 when it stands in every sentence, 1 when in none.
    pub(super) fn rarity(&self, stem: &str) -> f64 {
        let all = self.sentences.len() as f64;
        let with = self.frequency.get(stem).copied().unwrap_or(0) as f64;
        if with == 0.0 {
            return 1.0;
        }
        0.5 + 0.5 * (1.0 + all / (1.0 + with)).ln() / (1.0 + all).ln().max(1.0)
    }

    /// Whether any passage or title has the stem.
    pub(super) fn has(&self, stem: &str) -> bool {
        self.frequency.contains_key(stem) || self.passages.iter().any(|p| p.title_stems.contains(stem))
    }
}

fn form(text: &str) -> Form {
    let words = text.split(' ').count();
    let symbols = text.chars().filter(|c| "|=<>{}[]();_*/\\$#@+~".contains(*c)).count();
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    let code = symbols * 7 > letters.max(1) || text.contains(" | ") || text.contains("::") && symbols * 12 > letters;
    if code || words < 4 {
        return Form::Fragment;
    }
    let closed = text.trim_end_matches(['"', '\'', ')', '”', '’', ']']).ends_with(['.', '!', '…', '。']);
    if closed {
        Form::Prose
    } else if text.contains(" — ") && words <= 30 {
        Form::Gloss
    } else if text.ends_with(':') && words >= 8 {
        Form::Lead
    } else {
        Form::Fragment
    }
}
