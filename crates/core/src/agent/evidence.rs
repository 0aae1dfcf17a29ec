//! The passages retrieved in a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Hit, Limits};
use crate::text::normalise;

/// All passages of a run, each once, numbered from 1 in the order they came.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::agent) struct Evidence {
    passages: Vec<Hit>,
    /// Characters shown to the model so far.
    chars: usize,
    /// Number by collection, key and chunk.
    by_identity: BTreeMap<String, u32>,
    /// Number by what the text says: the same text under another key is the same passage.
    by_content: BTreeMap<String, u32>,
}

/// What became of a hit.
#[derive(Debug, PartialEq)]
pub(in crate::agent) enum Added {
    /// Not seen before; now it has this number.
    New(u32),
    /// It has this number already.
    Known(u32),
    /// The limit of text is reached, and it was not taken.
    Omitted,
}

impl Evidence {
    /// Adds a hit, unless it is known or the limit of text is reached. The first passage is taken always.
    pub(in crate::agent) fn add(&mut self, hit: Hit, limits: &Limits) -> Added {
        let identity = identity(&hit);
        let content = normalise(&hit.content);
        if let Some(&number) = self.by_identity.get(&identity).or_else(|| self.by_content.get(&content)) {
            self.by_identity.insert(identity, number);
            return Added::Known(number);
        }
        let chars = hit.content.chars().count().min(limits.max_hit_chars);
        if !self.passages.is_empty() && self.chars + chars > limits.max_evidence_chars {
            return Added::Omitted;
        }
        self.chars += chars;
        self.passages.push(hit);
        let number = self.passages.len() as u32;
        self.by_identity.insert(identity, number);
        self.by_content.insert(content, number);
        Added::New(number)
    }

    pub(in crate::agent) fn get(&self, number: u32) -> Option<&Hit> {
        self.passages.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    pub(in crate::agent) fn len(&self) -> usize {
        self.passages.len()
    }
}

fn identity(hit: &Hit) -> String {
    // JSON of a list, so that no name can run into the next part.
    serde_json::json!([hit.collection, hit.key, hit.chunk]).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hit(key: i32, chunk: i32, content: &str) -> Hit {
        Hit {
            collection: "c".into(),
            key: json!({ "id": key }),
            chunk,
            content: content.into(),
            title: None,
            link: None,
            score: 0.5,
        }
    }

    #[test]
    fn a_passage_keeps_its_number_and_the_same_text_is_one_passage() {
        let mut evidence = Evidence::default();
        let limits = Limits::default();
        assert_eq!(evidence.add(hit(1, 1, "Some text."), &limits), Added::New(1));
        assert_eq!(evidence.add(hit(1, 2, "Other text."), &limits), Added::New(2));
        assert_eq!(evidence.add(hit(1, 1, "Some text."), &limits), Added::Known(1));
        assert_eq!(evidence.add(hit(9, 1, " some\n TEXT. "), &limits), Added::Known(1));
        // The second key now is known too, whatever its text.
        assert_eq!(evidence.add(hit(9, 1, "changed"), &limits), Added::Known(1));
        assert_eq!(evidence.get(2).unwrap().chunk, 2);
        assert_eq!((evidence.get(0), evidence.get(3), evidence.len()), (None, None, 2));
    }

    #[test]
    fn text_beyond_the_limit_is_left_out_but_the_first_passage_is_taken() {
        let mut evidence = Evidence::default();
        let limits = Limits { max_hit_chars: 100, max_evidence_chars: 50, ..Limits::default() };
        assert_eq!(evidence.add(hit(1, 1, &"x".repeat(500)), &limits), Added::New(1));
        assert_eq!(evidence.add(hit(2, 1, "y"), &limits), Added::Omitted);
        let limits = Limits { max_hit_chars: 100, max_evidence_chars: 250, ..Limits::default() };
        assert_eq!(evidence.add(hit(2, 1, &"y".repeat(500)), &limits), Added::New(2));
        assert_eq!(evidence.add(hit(3, 1, &"z".repeat(60)), &limits), Added::Omitted);
        assert_eq!(evidence.add(hit(4, 1, &"z".repeat(50)), &limits), Added::New(3));
    }
}
