//! What goes into a run and what comes out of it.

use serde::{Deserialize, Serialize};

use super::{Answer, Call, CallResult};
use crate::model::{ChatReply, ChatRequest};

/// What the driver hands in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Asks for the effect that is open: at the beginning, or (after a crash) on a run read back.
    Start,
    /// The reply to [`Effect::CallModel`].
    Model(ChatReply),
    /// What the calls of [`Effect::Call`] brought: one for each, in the same order.
    Called(Vec<CallResult>),
}

/// What the driver has to do next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Ask a model; answer with [`Input::Model`].
    CallModel(ModelCall),
    /// Carry out these calls, together if possible; answer with [`Input::Called`].
    Call(Vec<Call>),
    /// The run is over. Any further input gives the same answer again.
    Done(Answer),
}

/// A request and the model that is to answer it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCall {
    /// The model, as in [`super::RunRequest`].
    pub model: String,
    /// What it is asked.
    pub request: ChatRequest,
}
