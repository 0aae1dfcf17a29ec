//! What a row should have as chunks, and which of them must be embedded.

use super::chunk::ChunkOptions;
use super::recipe::Recipe;
use crate::text::is_blank;

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
    /// Embedding.
    pub embedding: Vec<f32>,
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
    /// The same is stored under another number: the vector is taken from there.
    Move(Vec<f32>),
    /// A vector from the model.
    Embed,
}

/// Titles longer than this are cut before they are embedded with each chunk.
const MAX_TITLE_CHARS: usize = 200;

/// The chunks a row should have, in order; none when it has no text. `count` counts tokens as the model does.
pub fn chunks(
    row: &RowText,
    recipe: &Recipe<'_>,
    count: &dyn Fn(&str) -> usize,
    stored: &[&StoredChunk],
) -> Vec<ChunkPlan> {
    let text =
        row.content.iter().flatten().filter(|t| !is_blank(t)).map(String::as_str).collect::<Vec<_>>().join("\n\n");
    let title: String = row.title.as_deref().unwrap_or("").trim().chars().take(MAX_TITLE_CHARS).collect();
    let title_tokens = if title.is_empty() { 0 } else { count(&title) };
    let max_tokens = recipe.options.max_tokens;
    let options = ChunkOptions {
        // A long title leaves at least half of the chunk to its text.
        max_tokens: max_tokens.saturating_sub(title_tokens).max(max_tokens / 2).max(1),
        overlap_tokens: recipe.options.overlap_tokens,
    };
    recipe
        .chunker
        .split(&text, &options, count)
        .into_iter()
        .filter(|chunk| !is_blank(&chunk.text))
        .zip(1..)
        .map(|(chunk, number)| {
            let embedded = if title.is_empty() { chunk.text.clone() } else { format!("{title}\n\n{}", chunk.text) };
            let hash = recipe.hash(&title, &chunk.text);
            let action = action(number, &hash, stored);
            ChunkPlan { number, content: chunk.text, embedded, hash, action }
        })
        .collect()
}

fn action(number: i32, hash: &[u8], stored: &[&StoredChunk]) -> Action {
    let mut same = stored.iter().filter(|s| s.hash == hash);
    match same.clone().find(|s| s.number == number).or_else(|| same.next()) {
        Some(found) if found.number == number => Action::Keep,
        Some(found) => Action::Move(found.embedding.clone()),
        None => Action::Embed,
    }
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
        chunks(&row(title, content), &recipe(max_tokens), &words, stored)
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
