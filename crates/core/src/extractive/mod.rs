//! The keyless deterministic model `local/extractive`.
use crate::model::{ChatReply, ChatRequest};

/// Answers one request of the agent.
pub fn reply(r: &ChatRequest) -> ChatReply {
    let _ = r;
    ChatReply::default()
}
