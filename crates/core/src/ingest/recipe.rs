//! What a chunk is made of.

use sha2::{Digest, Sha256};

use super::chunk::{ChunkOptions, Chunker};

/// How a collection's text becomes chunks.
#[derive(Clone, Copy)]
pub struct Recipe<'a> {
    /// The embedding model, `server/model`.
    pub model: &'a str,
    /// What cuts the text.
    pub chunker: &'static dyn Chunker,
    /// How large the chunks are, title included.
    pub options: ChunkOptions,
}

impl Recipe<'_> {
    /// SHA-256 over everything that decides about a chunk's vector and about where it stands: a stored chunk with the same
    /// hash is as good as a new one. Sizes are not part of it: what they change is the text.
    pub fn hash(&self, title: &str, text: &str) -> Vec<u8> {
        let mut hasher = Sha256::new();
        for part in [self.model, self.chunker.name(), title, text] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::chunk::{CHUNKERS, Cut, Pulse};

    struct Other;

    impl Chunker for Other {
        fn name(&self) -> &'static str {
            "other"
        }

        fn begin(&self, _: &str, _: &ChunkOptions, _: Pulse<'_>) -> Box<dyn Cut> {
            unreachable!("it is only named")
        }
    }

    fn recipe(model: &str) -> Recipe<'_> {
        Recipe { model, chunker: CHUNKERS[0], options: ChunkOptions { max_tokens: 10, overlap_tokens: 0 } }
    }

    #[test]
    fn the_hash_is_of_model_chunker_title_and_text_and_of_nothing_else() {
        let hash = recipe("a/m").hash("title", "text");
        assert_eq!(hash.len(), 32);
        assert_eq!(hash, recipe("a/m").hash("title", "text"));
        let sizes = ChunkOptions { max_tokens: 99, overlap_tokens: 9 };
        assert_eq!(hash, Recipe { options: sizes, ..recipe("a/m") }.hash("title", "text"));
        for other in [
            recipe("a/n").hash("title", "text"),
            recipe("a/m").hash("titl", "etext"),
            recipe("a/m").hash("", "titletext"),
            recipe("a/m").hash("title", "text "),
            Recipe { chunker: &Other, ..recipe("a/m") }.hash("title", "text"),
        ] {
            assert_ne!(hash, other);
        }
    }
}
