//! What a row should have as chunks, and which of them must be embedded.

use std::collections::HashMap;

use super::chunk::{ChunkOptions, Cut, Pulse};
use super::recipe::Recipe;
use crate::text;

/// What of a source row is embedded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowText {
    /// Content columns, in the collection's order; `None` for NULL.
    pub content: Vec<Option<String>>,
    /// Title column.
    pub title: Option<String>,
}

/// A chunk that is stored already.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredChunk {
    /// Number within its row, from 1.
    pub number: i32,
    /// [`Recipe::hash`] of what it was made of.
    pub hash: Vec<u8>,
    /// Embedding; empty where it is not at hand.
    pub embedding: Vec<f32>,
}

/// The chunks that are stored of one row, found by what they were made of.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    chunks: Vec<StoredChunk>,
    /// Places in `chunks`.
    by_hash: HashMap<Vec<u8>, Vec<usize>>,
}

impl FromIterator<StoredChunk> for Stored {
    fn from_iter<I: IntoIterator<Item = StoredChunk>>(chunks: I) -> Self {
        let mut chunks: Vec<StoredChunk> = chunks.into_iter().collect();
        chunks.sort_by_key(|chunk| chunk.number);
        let mut by_hash: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        for (place, chunk) in chunks.iter().enumerate() {
            by_hash.entry(chunk.hash.clone()).or_default().push(place);
        }
        Self { chunks, by_hash }
    }
}

impl Stored {
    /// What a chunk of that number and hash needs.
    fn action(&self, number: i32, hash: &[u8]) -> Action {
        let Some(places) = self.by_hash.get(hash) else { return Action::Embed };
        // They are as many as a row repeats one and the same passage, in the order of their numbers.
        if places.binary_search_by_key(&number, |place| self.chunks[*place].number).is_ok() {
            return Action::Keep;
        }
        let same = places.iter().map(|place| &self.chunks[*place].embedding);
        same.into_iter().find(|vector| !vector.is_empty()).map_or(Action::Embed, |vector| Action::Move(vector.clone()))
    }
}

/// One chunk as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkPlan {
    /// Number within its row, from 1.
    pub number: i32,
    /// Text to store.
    pub content: String,
    /// Text to embed: title and content.
    pub embedded: String,
    /// Tokens of the content.
    pub tokens: usize,
    /// [`Recipe::hash`] of it.
    pub hash: Vec<u8>,
    /// What is to be done.
    pub action: Action,
}

/// What a chunk needs.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Nothing: it is stored under its number already.
    Keep,
    /// The same is stored elsewhere, under another number or for another row: the vector is taken from there.
    Move(Vec<f32>),
    /// A vector from the model.
    Embed,
}

/// Titles longer than this are cut before they are embedded with each chunk.
const MAX_TITLE_CHARS: usize = 200;

/// A row on its way into chunks: a long one is done in turns.
pub struct RowPlan {
    title: String,
    cut: Box<dyn Cut>,
    /// Number of the last chunk.
    number: i32,
}

impl RowPlan {
    /// Begins with a row. `count` counts tokens as the model does; `pulse` is called every few kilobytes.
    pub fn new(row: RowText, recipe: &Recipe<'_>, count: &dyn Fn(&str) -> usize, pulse: Pulse<'_>) -> Self {
        let is_seen = |text: &String| !text::is_blank_within(text, pulse);
        let whole_title = row.title.filter(is_seen).unwrap_or_default();
        let mut parts = row.content.into_iter().flatten().filter(is_seen);
        let first = parts.next();
        // A row without content is found by its title, which is then the text and not embedded with it once more.
        let title: String = match first {
            Some(_) => whole_title.trim().chars().take(MAX_TITLE_CHARS).collect(),
            None => String::new(),
        };
        let mut text = first.unwrap_or(whole_title);
        for part in parts {
            pulse();
            text.push_str("\n\n");
            text.push_str(&part);
        }
        let title_tokens = if title.is_empty() { 0 } else { count(&title) };
        let max_tokens = recipe.options.max_tokens;
        let options = ChunkOptions {
            // A long title leaves at least half of the chunk to its text.
            max_tokens: max_tokens.saturating_sub(title_tokens).max(max_tokens / 2).max(1),
            overlap_tokens: recipe.options.overlap_tokens,
        };
        Self { title, cut: recipe.chunker.begin(&text, &options, pulse), number: 0 }
    }

    /// The row's next chunk; `None` when there is none left. `recipe` is the same each time.
    pub fn next(&mut self, recipe: &Recipe<'_>, count: &dyn Fn(&str) -> usize, stored: &Stored) -> Option<ChunkPlan> {
        let chunk = std::iter::from_fn(|| self.cut.next(count)).find(|chunk| !text::is_blank(&chunk.text))?;
        self.number += 1;
        let (number, title) = (self.number, &self.title);
        let embedded = if title.is_empty() { chunk.text.clone() } else { format!("{title}\n\n{}", chunk.text) };
        let hash = recipe.hash(title, &chunk.text);
        let action = stored.action(number, &hash);
        Some(ChunkPlan { number, content: chunk.text, embedded, tokens: chunk.tokens, hash, action })
    }
}

/// The chunks a row should have, in order: of its title where it has no content, none when it has no text at all. `count` counts tokens as the model does; `pulse` is called
/// for each chunk.
pub fn chunks(
    row: RowText,
    recipe: &Recipe<'_>,
    count: &dyn Fn(&str) -> usize,
    stored: &Stored,
    pulse: Pulse<'_>,
) -> Vec<ChunkPlan> {
    let mut plan = RowPlan::new(row, recipe, count, pulse);
    std::iter::from_fn(|| {
        pulse();
        plan.next(recipe, count, stored)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::chunk::CHUNKERS;

    fn words(text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn recipe(max_tokens: usize) -> Recipe<'static> {
        Recipe { model: "a/m", chunker: CHUNKERS[0], options: ChunkOptions { max_tokens, overlap_tokens: 0 } }
    }

    fn row(title: Option<&str>, content: &[Option<&str>]) -> RowText {
        let owned = |t: &&str| (*t).to_owned();
        RowText { content: content.iter().map(|c| c.as_ref().map(owned)).collect(), title: title.as_ref().map(owned) }
    }

    fn plan(
        title: Option<&str>,
        content: &[Option<&str>],
        max_tokens: usize,
        stored: &[&StoredChunk],
    ) -> Vec<ChunkPlan> {
        let stored: Stored = stored.iter().map(|s| (*s).clone()).collect();
        chunks(row(title, content), &recipe(max_tokens), &words, &stored, &|| ())
    }

    fn stored(number: i32, text: &str) -> StoredChunk {
        StoredChunk { number, hash: recipe(3).hash("", text), embedding: vec![number as f32] }
    }

    #[test]
    fn a_row_with_nothing_to_see_has_no_chunk() {
        for blank in ["\u{200b}", "\u{feff}", " \u{1}\n", "\u{202e}"] {
            assert_eq!(plan(None, &[Some(blank), None], 3, &[]), [], "{blank:?}");
        }
        assert_eq!(plan(None, &[Some("\u{feff}a")], 3, &[]).len(), 1);
        for blank in ["", " ", "\u{200b}\u{3164}"] {
            assert_eq!(plan(Some(blank), &[Some(blank)], 3, &[]), [], "{blank:?}");
            let planned = plan(Some(blank), &[Some("One.")], 3, &[]);
            assert_eq!(planned[0].embedded, "One.", "a title that nobody sees is embedded: {blank:?}");
        }
    }

    #[test]
    fn a_row_without_content_is_found_by_its_title() {
        for content in [&[None][..], &[Some("")], &[Some(" \u{200b}"), None], &[]] {
            let planned = plan(Some(" Opening hours. "), content, 20, &[]);
            let texts: Vec<_> = planned.iter().map(|c| (c.number, c.content.as_str(), c.embedded.as_str())).collect();
            assert_eq!(texts, [(1, "Opening hours.", "Opening hours.")], "{content:?}");
        }
        // It is what it is however the text came about, and a long title loses nothing.
        assert_eq!(plan(Some("One."), &[None], 3, &[])[0].hash, plan(None, &[Some("One.")], 3, &[])[0].hash);
        let long = "One two three. ".repeat(50);
        let planned = plan(Some(&long), &[None], 3, &[]);
        assert_eq!(planned.len(), 50);
        // Once there is content, the title stands with it as ever.
        assert_eq!(plan(Some("Title"), &[Some("Text.")], 9, &[])[0].embedded, "Title\n\nText.");
    }

    #[test]
    fn columns_become_one_text_and_what_is_blank_is_left_out() {
        for (content, expected) in [
            (vec![Some("One two."), None, Some("  "), Some("Three.")], vec!["One two.\n\nThree."]),
            (vec![None, Some("\n")], vec![]),
            (vec![], vec![]),
        ] {
            let texts: Vec<String> = plan(None, &content, 50, &[]).into_iter().map(|c| c.content).collect();
            assert_eq!(texts, expected);
        }
    }

    #[test]
    fn the_title_is_embedded_with_each_chunk_and_leaves_half_of_it_to_the_text() {
        let text = "One two three. Four five six. Seven eight nine.";
        for (title, max_tokens, chunks) in [("A title", 8, 2), ("A very long title of nine words in all", 6, 3)] {
            let planned = plan(Some(title), &[Some(text)], max_tokens, &[]);
            assert_eq!(planned.len(), chunks, "{planned:?}");
            for chunk in &planned {
                assert_eq!(chunk.embedded, format!("{title}\n\n{}", chunk.content));
            }
            assert_eq!(planned.iter().map(|c| c.number).collect::<Vec<_>>(), (1..=chunks as i32).collect::<Vec<_>>());
        }
        let long = "x".repeat(1000);
        assert_eq!(plan(Some(&long), &[Some("Text.")], 9, &[])[0].embedded, format!("{}\n\nText.", "x".repeat(200)));
    }

    #[test]
    fn a_chunk_is_kept_moved_or_embedded_by_what_is_stored() {
        let (one, two, three) = (stored(1, "One two three."), stored(2, "Four five six."), stored(5, "Four five six."));
        let text = [Some("One two three. Four five six.")];
        for (what_is_stored, expected) in [
            (vec![], [Action::Embed, Action::Embed]),
            (vec![&one, &two], [Action::Keep, Action::Keep]),
            (vec![&three, &two], [Action::Embed, Action::Keep]),
            (vec![&one, &three], [Action::Keep, Action::Move(vec![5.0])]),
        ] {
            let actions: Vec<Action> = plan(None, &text, 3, &what_is_stored).into_iter().map(|c| c.action).collect();
            assert_eq!(actions, expected);
        }
    }
}
