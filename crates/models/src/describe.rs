//! What a model is, in words.

use std::collections::BTreeMap;
use std::fs;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use ragent_encoder::{CrossEncoder, Encoder, EncoderError, Pooling, SETTINGS_FILE, Task};
use serde::{Deserialize, Serialize};

use crate::catalogue;
use crate::failure::Failure;
use crate::store::Store;

/// `ragent.json`: what was settled when the model was added. The encoder reads the prefixes, people the rest.
#[derive(Serialize, Deserialize, Default)]
pub struct Settings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<String>,
    /// Where the files were taken from.
    #[serde(default)]
    pub from: Option<String>,
    /// The files' sums as they came.
    #[serde(default)]
    pub sha256: BTreeMap<String, String>,
}

impl Settings {
    /// Writes a new file.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let failed = |error| Failure::of_file("write", path, &error);
        let mut text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        text.push('\n');
        let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
    }

    /// What of a model's file can be read; nothing of one that is not there.
    fn of(dir: &Path) -> Settings {
        let text = fs::read(dir.join(SETTINGS_FILE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

/// Some lines about a model, the first with its name.
pub fn model(store: &Store, name: &str) -> String {
    let dir = store.model(name);
    let mut lines = match facts(&dir) {
        Ok(facts) => facts,
        Err(error) => vec![format!("cannot be used: {error}")],
    };
    let settings = Settings::of(&dir);
    // Those that were put there otherwise are known by their name.
    let known = catalogue::find(name).map(|known| known.languages.join(", "));
    let languages = Some(settings.languages.join(", ")).filter(|languages| !languages.is_empty()).or(known);
    lines.push(format!("languages: {}", languages.as_deref().unwrap_or("not known")));
    if let Some(from) = settings.from {
        lines.push(format!("from: {from}"));
    }
    if let Some(sum) = settings.sha256.get(crate::source::WEIGHTS) {
        lines.push(format!("SHA-256 of the weights: {sum}"));
    }
    lines.into_iter().fold(format!("{name}\n"), |text, line| text + "    " + &line + "\n")
}

fn facts(dir: &Path) -> Result<Vec<String>, EncoderError> {
    let prepared = |reason: Option<&str>| match reason {
        None => "prepared: yes".to_owned(),
        Some(reason) => format!("prepared: no, {reason}"),
    };
    match ragent_encoder::task(dir)? {
        Task::Embed(pooling) => {
            let encoder = Encoder::open(dir)?;
            let pooling = match pooling {
                Pooling::Mean => "mean of all tokens",
                Pooling::Cls => "first token (CLS)",
            };
            let mut lines = vec![
                format!("embeds: vectors of {} dimensions", encoder.dimensions()),
                format!("longest text: {} tokens", encoder.document_tokens()),
                format!("pooling: {pooling}"),
            ];
            for (name, prefix) in [("query", encoder.query_prefix()), ("document", encoder.document_prefix())] {
                if !prefix.is_empty() {
                    lines.push(format!("{name} prefix: {prefix:?}"));
                }
            }
            lines.push(prepared(encoder.unprepared()));
            Ok(lines)
        }
        Task::Rerank => {
            let model = CrossEncoder::open(dir)?;
            Ok(vec![
                "reranks: a score for a query and a passage".to_owned(),
                format!("longest pair: {} tokens", model.max_tokens()),
                prepared(model.unprepared()),
            ])
        }
    }
}
