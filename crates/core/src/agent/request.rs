//! What a run is made from.

use serde::{Deserialize, Serialize};

use super::{Limits, Strategy, Tool};
use crate::model::Message;

/// A question and everything a run needs to answer it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// What is asked.
    pub question: String,
    /// What the model may call; of them the first 64 are offered.
    pub tools: Vec<Tool>,
    /// Caps.
    pub limits: Limits,
    /// What the agent's author wants of the model, beside our own rules.
    pub instructions: Option<String>,
    /// What was said before, oldest first. Only what people and models *said* is taken: system messages, tool calls and
    /// their results are left out, and so are the markers of earlier answers, which name passages of other runs.
    pub history: Vec<Message>,
    /// The model that writes the answer, as `server/model-name`.
    pub chat_model: String,
    /// The model that decides what to search, where it is another one.
    pub decision_model: Option<String>,
    /// Who decides what comes next.
    pub strategy: Strategy,
    /// Whether a model that answers without having searched is told to search, and one that cites nothing to cite; once each, and
    /// not where the question is a greeting or the like.
    pub require_grounding: bool,
}

impl RunRequest {
    /// A request with the default limits and strategy, grounding required, and nothing optional.
    pub fn new(question: &str, chat_model: &str, tools: Vec<Tool>) -> RunRequest {
        RunRequest {
            question: question.to_owned(),
            tools,
            limits: Limits::default(),
            instructions: None,
            history: Vec::new(),
            chat_model: chat_model.to_owned(),
            decision_model: None,
            strategy: Strategy::default(),
            require_grounding: true,
        }
    }
}
