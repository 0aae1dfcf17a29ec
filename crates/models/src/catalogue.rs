//! Models that are known by name: where they are, the sums of their files, and what their files do not say.

use std::path::Path;

use crate::failure::Failure;
use crate::sums::Sums;

/// A model that is known.
pub struct Known {
    /// The folder's name.
    pub name: &'static str,
    pub repository: &'static str,
    /// The commit whose files have these sums.
    pub revision: &'static str,
    sums: &'static str,
    pub languages: &'static [&'static str],
    pub query_prefix: &'static str,
    pub what: &'static str,
}

impl Known {
    /// The sums of its files.
    ///
    /// # Errors
    ///
    /// Sums that are none.
    pub fn sums(&self) -> Result<Sums, Failure> {
        Sums::parse(self.sums, Path::new(self.name))
    }
}

/// All of them.
pub const KNOWN: [Known; 3] = [
    Known {
        name: "all-MiniLM-L6-v2",
        repository: "sentence-transformers/all-MiniLM-L6-v2",
        revision: "1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        sums: include_str!("../../../scripts/models.sha256"),
        languages: &["en"],
        query_prefix: "",
        what: "embeds; the default model",
    },
    Known {
        name: "bge-small-en-v1.5",
        repository: "BAAI/bge-small-en-v1.5",
        revision: "5c38ec7c405ec4b44b94cc5a9bb96e735b38267a",
        sums: include_str!("sums/bge-small-en-v1.5.sha256"),
        languages: &["en"],
        query_prefix: "Represent this sentence for searching relevant passages: ",
        what: "embeds; reads twice as much of a text, takes twice as long",
    },
    Known {
        name: "ms-marco-MiniLM-L6-v2",
        repository: "cross-encoder/ms-marco-MiniLM-L6-v2",
        revision: "233902d25c440f23af6f7d6e94d2946bac0bee0a",
        sums: include_str!("sums/ms-marco-MiniLM-L6-v2.sha256"),
        languages: &["en"],
        query_prefix: "",
        what: "reranks",
    },
];

/// The model of this name, or of this repository of the hub.
pub fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name || known.repository == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_its_sums() {
        for known in KNOWN {
            known.sums().expect(known.name);
            assert!(known.revision.len() == 40 && known.repository.ends_with(known.name));
        }
    }
}
