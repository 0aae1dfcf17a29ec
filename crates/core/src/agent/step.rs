//! What happened, one row of `rag.steps` each.

use serde::{Deserialize, Serialize};

use crate::model::Usage;

/// One thing that happened in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What it was.
    pub kind: StepKind,
    /// The round it belongs to, from 1; the model call that asks for searches and those searches share one.
    pub round: u32,
    /// Its particulars; the fields of each kind are listed at [`StepKind`].
    pub detail: serde_json::Value,
    /// Tokens it cost.
    pub usage: Usage,
    /// How long the driver took for it, if it said ([`super::Agent::record_latency`]). Searches of one round run
    /// together and carry the same time.
    pub latency_ms: Option<f64>,
}

/// The kinds of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// A reply of the chat model. Detail: `messages` (how many were sent), `tool_choice`, `content`, `tool_calls`
    /// (name, arguments), `truncated`.
    ModelCall,
    /// A tool call, whether it led to a search or not. Detail: `tool`, and either `error`, or `collection`, `query`,
    /// `k`, `from_memory`, `hits` (key, chunk, title, score, marker, new) and `new_evidence`.
    Search,
    /// The end. Detail: `outcome`, `decision`, `stop_reason`, `citations` (how many), `removed_markers`, `evidence`, `uncited`.
    Answer,
}

impl StepKind {
    /// The word in `rag.steps`.
    pub fn as_str(&self) -> &'static str {
        match self {
            StepKind::ModelCall => "model_call",
            StepKind::Search => "search",
            StepKind::Answer => "answer",
        }
    }
}
