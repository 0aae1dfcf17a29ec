//! Caps that hold whatever the model asks for.

use serde::{Deserialize, Serialize};

/// Caps of one run. A model that ignores them costs nothing: they are counted in code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Messages with tool calls that are answered; the model call after that is final.
    pub max_rounds: u32,
    /// Searches run in the whole run; repeated ones answered from memory do not count.
    pub max_searches: u32,
    /// Most hits a search may ask for.
    pub max_k: u32,
    /// Hits of a search that does not say.
    pub default_k: u32,
    /// Longest passage shown to the model, in characters; the rest of a longer one is left out and that is said.
    pub max_hit_chars: usize,
    /// All passages shown in a run together, in characters; what comes after that is left out and that is said.
    pub max_evidence_chars: usize,
    /// Longest answer, in characters; what a model writes beyond it is cut off before anything else is done with it.
    pub max_answer_chars: usize,
    /// Upper bound of each model reply in tokens; `None` leaves it to the provider.
    pub max_output_tokens: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_rounds: 3,
            max_searches: 6,
            max_k: 10,
            default_k: 5,
            max_hit_chars: 4_000,
            max_evidence_chars: 60_000,
            max_answer_chars: 100_000,
            max_output_tokens: None,
        }
    }
}
