//! What happened, one row of `rag.steps` each.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Decision, Outcome, StopReason, ToolDetail};
use crate::model::{ToolChoice, Usage};

/// One thing that happened in a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The round it belongs to, from 1; the model call that asks for searches and those searches share one.
    pub round: u32,
    /// What it was.
    pub detail: Detail,
    /// Tokens it cost.
    pub usage: Usage,
    /// Milliseconds the driver took for it, if it said ([`super::Run::record_latency`]). Calls of one round run together and
    /// carry the same time.
    pub latency_ms: Option<f64>,
}

/// The kinds of step, each with its particulars: columns `kind` and `detail` of `rag.steps`.
#[derive(Debug, Clone, PartialEq)]
pub enum Detail {
    /// A reply of a chat model.
    ModelCall(ModelCallDetail),
    /// A tool call, whether it was carried out or not.
    Tool(ToolDetail),
    /// The end.
    Answer(AnswerDetail),
}

/// A reply of a chat model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCallDetail {
    /// The model, in a run of more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many messages it was sent.
    pub messages: usize,
    /// Whether it was allowed to call tools.
    pub tool_choice: ToolChoice,
    /// What it had been told, where its reply before was no good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Told>,
    /// What it said, without its thoughts.
    pub content: Option<String>,
    /// What it called.
    pub tool_calls: Vec<ToolCallDetail>,
    /// How many more calls there were, which nobody looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls_dropped: Option<usize>,
    /// Whether what it said was cut off, at the provider's limit or at [`super::Limits::max_answer_chars`].
    pub truncated: bool,
    /// Whether the provider's content filter ended what it said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filtered: bool,
}

/// What a model is told whose reply is no good; each once in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// That its reply was empty.
    Empty,
    /// To search before it answers.
    Search,
    /// To cite what its answer rests on.
    Cite,
}

/// A tool call as a model wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallDetail {
    /// The tool, which may not exist.
    pub name: String,
    /// JSON text, which may be broken; at most 2000 characters.
    pub arguments: String,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerDetail {
    /// Whether anything was searched.
    pub decision: Decision,
    /// Whether there is an answer.
    pub outcome: Outcome,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// Passages cited.
    pub citations: usize,
    /// Markers that named nothing.
    pub removed_markers: u32,
    /// Passages the model was shown.
    pub evidence: usize,
    /// Whether it cites nothing though there was something to cite.
    pub uncited: bool,
}

const MODEL_CALL: &str = "model_call";
const ANSWER: &str = "answer";

/// A row of `rag.steps` that this version cannot read.
#[derive(Debug, thiserror::Error)]
pub enum DetailError {
    /// Its kind is unknown.
    #[error("there is no step of kind \"{0}\"")]
    Kind(String),
    /// Its detail is not that of its kind.
    #[error("the detail of a step of kind \"{kind}\" cannot be read: {error}")]
    Detail {
        /// The kind.
        kind: String,
        /// What is wrong.
        error: serde_json::Error,
    },
}

impl Detail {
    /// The word in `rag.steps.kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Detail::ModelCall(_) => MODEL_CALL,
            Detail::Tool(detail) => detail.kind(),
            Detail::Answer(_) => ANSWER,
        }
    }

    /// What stands in `rag.steps.detail`.
    ///
    /// # Panics
    /// Never: everything in a detail can be written as JSON.
    pub fn to_json(&self) -> Value {
        let json = match self {
            Detail::ModelCall(detail) => serde_json::to_value(detail),
            Detail::Tool(detail) => detail.to_json(),
            Detail::Answer(detail) => serde_json::to_value(detail),
        };
        json.expect("a detail can be written as JSON")
    }

    /// The same without any text: what was said, asked for, passed and found is left out, also where a model wrote it into a
    /// name. How much there was of each stays.
    #[must_use]
    pub fn without_texts(self) -> Detail {
        match self {
            Detail::ModelCall(detail) => Detail::ModelCall(ModelCallDetail {
                content: None,
                tool_calls: vec![ToolCallDetail::default(); detail.tool_calls.len()],
                ..detail
            }),
            Detail::Tool(detail) => Detail::Tool(detail.without_texts()),
            Detail::Answer(detail) => Detail::Answer(detail),
        }
    }

    /// Reads columns `kind` and `detail` of `rag.steps`.
    ///
    /// # Errors
    /// The kind is unknown, or the detail is not that of the kind.
    pub fn read(kind: &str, detail: Value) -> Result<Detail, DetailError> {
        match kind {
            MODEL_CALL => read(kind, detail).map(Detail::ModelCall),
            ANSWER => read(kind, detail).map(Detail::Answer),
            _ => ToolDetail::read(kind, detail).map(Detail::Tool),
        }
    }
}

pub(super) fn read<T: DeserializeOwned>(kind: &str, detail: Value) -> Result<T, DetailError> {
    serde_json::from_value(detail).map_err(|error| DetailError::Detail { kind: kind.to_owned(), error })
}
