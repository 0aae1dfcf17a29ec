//! What a model wants before a text: "query: ", say. Many models were trained with different words before what is looked for
//! and what is to be found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::EncoderError;
use crate::file;

/// The name of the file of a model folder with the settings that are ours.
pub const SETTINGS_FILE: &str = "ragent.json";

/// No model's prefix comes near this.
const MAX_BYTES: usize = 1000;

/// What is put before a query and before a document; empty for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Prefixes {
    pub query: String,
    pub document: String,
    /// The file that has them, for errors.
    pub path: PathBuf,
}

impl Prefixes {
    /// From `ragent.json`; what it does not name, from sentence-transformers' `config_sentence_transformers.json`.
    pub(crate) fn read(dir: &Path) -> Result<Prefixes, EncoderError> {
        let path = dir.join(SETTINGS_FILE);
        let ours: SettingsFile = file::read_json_if_exists(&path)?.unwrap_or_default();
        let theirs_path = dir.join("config_sentence_transformers.json");
        let mut theirs: SentenceTransformersFile = file::read_json_if_exists(&theirs_path)?.unwrap_or_default();
        let mut prompt = |names: &[&str]| names.iter().find_map(|name| theirs.prompts.remove(*name).flatten());
        let (query, document) = (prompt(&["query"]), prompt(&["document", "passage", "corpus"]));
        let prefixes = Prefixes {
            path: if ours.query_prefix.is_some() || ours.document_prefix.is_some() { path } else { theirs_path },
            query: ours.query_prefix.or(query).unwrap_or_default(),
            document: ours.document_prefix.or(document).unwrap_or_default(),
        };
        for (name, prefix) in [("query", &prefixes.query), ("document", &prefixes.document)] {
            if prefix.len() > MAX_BYTES {
                let reason = format!("the {name} prefix has {} bytes, more than {MAX_BYTES}", prefix.len());
                return Err(EncoderError::Unsupported { path: prefixes.path, reason });
            }
        }
        Ok(prefixes)
    }

    pub(crate) fn are_empty(&self) -> bool {
        self.query.is_empty() && self.document.is_empty()
    }
}

/// `ragent.json`. What else stands in it is for whoever put the model there.
#[derive(Deserialize, Default)]
struct SettingsFile {
    #[serde(default)]
    query_prefix: Option<String>,
    #[serde(default)]
    document_prefix: Option<String>,
}

/// `config_sentence_transformers.json`
#[derive(Deserialize, Default)]
struct SentenceTransformersFile {
    #[serde(default)]
    prompts: BTreeMap<String, Option<String>>,
}
