//! A run, printed for a person.

use serde::{Deserialize, Serialize};

/// One row of `rag.runs`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRow {
    /// Identifier of the run.
    pub id: String,
    /// What was asked.
    pub question: String,
    /// Chat model, `'server/model-name'`.
    pub model: String,
    /// `used_search` or `skipped_search`; `None` while it runs or when it failed.
    pub decision: Option<String>,
    /// `answered` or `unknown`.
    pub outcome: Option<String>,
    /// Why it ended.
    pub stop_reason: Option<String>,
    /// The answer.
    pub answer: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Citations as in `rag.answer`; anything but an array prints as none.
    pub citations: serde_json::Value,
    /// Searches run.
    pub searches: i64,
    /// Rounds of tool calls.
    pub rounds: i64,
    /// Tokens read by the model.
    pub input_tokens: i64,
    /// Tokens written by the model.
    pub output_tokens: i64,
    /// Time from question to answer.
    pub latency_ms: Option<f64>,
    /// When it began, as text.
    pub started_at: Option<String>,
}

/// One row of `rag.steps`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepRow {
    /// Place within the run, from 1.
    pub number: i64,
    /// `model_call`, `search` or `answer`.
    pub kind: String,
    /// Round, from 1.
    pub round: i64,
    /// The step's particulars, see [`crate::agent::StepKind`].
    pub detail: serde_json::Value,
    /// Tokens read.
    pub input_tokens: i64,
    /// Tokens written.
    pub output_tokens: i64,
    /// Time it took.
    pub latency_ms: Option<f64>,
}

/// The run as text: a header, then its steps, numbered and indented.
pub fn render(run: &RunRow, steps: &[StepRow]) -> String {
    let mut out = format!("run {}\nquestion: {}\nmodel: {}\n", run.id, run.question, run.model);
    for step in steps {
        out.push_str(&format!("{}. {} {}\n", step.number, step.kind, step.detail));
    }
    out
}
