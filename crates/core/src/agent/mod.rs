//! The agent: a state machine that decides when to call the model, when to search and when to stop.
mod answer;
mod citation;
mod io;
mod limits;
mod step;
mod tool;

pub use answer::{Answer, Decision, Outcome, StopReason};
pub use citation::Citation;
pub use io::{Effect, Hit, Input, SearchCall, SearchResult};
pub use limits::Limits;
pub use step::{Step, StepKind};
pub use tool::SearchTool;

use serde::{Deserialize, Serialize};

/// One run of an agent on one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    question: String,
    tools: Vec<SearchTool>,
    limits: Limits,
    steps: Vec<Step>,
    latency_ms: Option<f64>,
}

impl Agent {
    /// An agent for `question` that may search the collections of `tools`.
    pub fn new(question: &str, tools: Vec<SearchTool>, limits: Limits) -> Agent {
        Agent {
            question: question.to_owned(),
            tools,
            limits,
            steps: Vec::new(),
            latency_ms: None,
        }
    }

    /// Takes the result of the last effect and says what to do next.
    pub fn next(&mut self, input: Input) -> Effect {
        let _ = input;
        Effect::CallModel(crate::model::ChatRequest {
            messages: vec![],
            tools: vec![],
            tool_choice: crate::model::ToolChoice::Auto,
            max_output_tokens: self.limits.max_output_tokens,
        })
    }

    /// How long the driver took for the effect it is about to answer; call it before [`Agent::next`].
    pub fn record_latency(&mut self, ms: f64) {
        self.latency_ms = Some(ms);
    }

    /// Everything that happened so far, in order; a run only ever appends.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}
