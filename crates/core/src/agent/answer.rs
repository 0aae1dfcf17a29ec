//! How a run ended.

use serde::{Deserialize, Serialize};

use super::Citation;
use crate::model::Usage;

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The answer with its markers `[1]`, `[2]`, … in the order of their first appearance; never empty.
    pub text: String,
    /// One entry for each marker in the text, in their order.
    pub citations: Vec<Citation>,
    /// Whether the model searched.
    pub decision: Decision,
    /// Whether it knew.
    pub outcome: Outcome,
    /// Why the run ended.
    pub stop_reason: StopReason,
    /// Searches run.
    pub searches: u32,
    /// Messages with tool calls that were answered.
    pub rounds: u32,
    /// Tokens of all model calls together.
    pub usage: Usage,
    /// Markers taken out of the text because they name nothing that was retrieved in this run.
    pub removed_markers: u32,
}

/// Whether the model searched before it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// At least one search was run.
    UsedSearch,
    /// None was run.
    SkippedSearch,
}

impl Decision {
    /// The word in `rag.answer` and `rag.runs`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Decision::UsedSearch => "used_search",
            Decision::SkippedSearch => "skipped_search",
        }
    }
}

/// Whether there is an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The text answers the question.
    Answered,
    /// The text says that the data does not tell.
    Unknown,
}

impl Outcome {
    /// The word in `rag.answer` and `rag.runs`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Answered => "answered",
            Outcome::Unknown => "unknown",
        }
    }
}

/// Why the run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model answered by itself.
    Answered,
    /// The model wanted more rounds than [`super::Limits::max_rounds`]; it was asked for its answer.
    MaxRounds,
    /// [`super::Limits::max_searches`] was reached; the model was asked for its answer.
    MaxSearches,
    /// A round brought no passage that was not known already; the model was asked for its answer.
    NoNewEvidence,
    /// The model's reply was empty, twice.
    EmptyReply,
}

impl StopReason {
    /// The word in `rag.answer` and `rag.runs`.
    pub fn as_str(&self) -> &'static str {
        match self {
            StopReason::Answered => "answered",
            StopReason::MaxRounds => "max_rounds",
            StopReason::MaxSearches => "max_searches",
            StopReason::NoNewEvidence => "no_new_evidence",
            StopReason::EmptyReply => "empty_reply",
        }
    }
}
