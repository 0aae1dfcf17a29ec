//! What any chat model is asked and what it answers, independent of the wire format.
//!
//! A wire format writes a [`ChatRequest`] and reads a [`ChatReply`]; the keyless model answers one directly. All types can be
//! stored and read back with serde.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text::storable;

/// Most tool calls of one message that are looked at; a model that writes more is not answered on the rest.
pub const MAX_CALLS: usize = 64;

/// One message of a conversation with a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Instructions to the model.
    System(String),
    /// What the person (or, for a nudge, the agent) says.
    User(String),
    /// What the model said earlier.
    Assistant {
        /// Text, if any.
        content: Option<String>,
        /// Tools it asked for, in its order.
        tool_calls: Vec<ToolCall>,
        /// What else its provider wrote, for that provider.
        #[serde(default, skip_serializing_if = "OwnFields::is_empty")]
        own: OwnFields,
    },
    /// The result of one tool call.
    Tool {
        /// The [`ToolCall::id`] this answers.
        call_id: String,
        /// What the model gets to read.
        content: String,
    },
}

/// Fields that only the provider knows which wrote them: by name, each value as the JSON text it came as. Some providers want
/// them back (signatures of thoughts, reasoning).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnFields(pub BTreeMap<String, String>);

impl OwnFields {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A tool call as the model wrote it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Identifier that the tool's message must repeat.
    pub id: String,
    /// Name of the tool; may be one that was never offered.
    pub name: String,
    /// Raw JSON text, unchecked: models do write broken JSON.
    pub arguments: String,
    /// What else the provider wrote beside them.
    #[serde(default, skip_serializing_if = "OwnFields::is_empty")]
    pub own: OwnFields,
    /// What else it wrote beside name and arguments, where those stand in an object of their own.
    #[serde(default, skip_serializing_if = "OwnFields::is_empty")]
    pub function_own: OwnFields,
}

impl Message {
    /// Takes out what only the provider knows that wrote it.
    pub fn forget_own_fields(&mut self) {
        if let Message::Assistant { tool_calls, own, .. } = self {
            *own = OwnFields::default();
            for call in tool_calls {
                call.own = OwnFields::default();
                call.function_own = OwnFields::default();
            }
        }
    }

    /// Whether it has fields that only the provider knows that wrote it.
    pub fn has_own_fields(&self) -> bool {
        match self {
            Message::Assistant { tool_calls, own, .. } => {
                !own.is_empty() || tool_calls.iter().any(|c| !c.own.is_empty() || !c.function_own.is_empty())
            }
            _ => false,
        }
    }
}

/// A tool the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// `^[a-zA-Z0-9_-]{1,64}$`, unique within a request.
    pub name: String,
    /// What the tool is for, for the model to decide.
    pub description: String,
    /// JSON schema of the arguments.
    pub parameters: serde_json::Value,
}

/// Whether the model may call tools in this turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// The model must answer in text.
    None,
}

/// One request to a chat model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatRequest {
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// Tools on offer; stays filled when `tool_choice` is `None`, because the history may mention them.
    pub tools: Vec<ToolSpec>,
    /// Whether tools may be called.
    pub tool_choice: ToolChoice,
    /// Upper bound for the reply, in tokens.
    pub max_output_tokens: Option<u32>,
}

/// One reply of a chat model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatReply {
    /// Text, if any.
    pub content: Option<String>,
    /// Tools it asks for, at most [`MAX_CALLS`].
    pub tool_calls: Vec<ToolCall>,
    /// How many more calls there were.
    #[serde(default)]
    pub dropped_calls: usize,
    /// What else the provider wrote in the message.
    #[serde(default)]
    pub own: OwnFields,
    /// What it cost.
    pub usage: Usage,
    /// How it ended.
    #[serde(default)]
    pub finish: Finish,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model had said what it wanted to.
    #[default]
    Complete,
    /// It was cut at a limit of length.
    Truncated,
    /// The provider's content filter ended it.
    Filtered,
}

impl ChatReply {
    /// The reply with texts that PostgreSQL can hold, see [`storable`].
    #[must_use]
    pub fn storable(mut self) -> ChatReply {
        let mend = |text: &mut String| *text = storable(std::mem::take(text));
        self.content.iter_mut().for_each(mend);
        for call in &mut self.tool_calls {
            mend(&mut call.id);
            mend(&mut call.name);
            mend(&mut call.arguments);
        }
        self
    }
}

/// Tokens spent; zero when the provider does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_can_be_stored_and_is_else_as_it_was() {
        for (text, clean) in [("", ""), ("a", "a"), ("\0", "\u{fffd}"), ("a\0b", "a\u{fffd}b"), ("\\u0000", "\\u0000")]
        {
            let call = ToolCall { id: text.into(), name: text.into(), arguments: text.into(), ..ToolCall::default() };
            let reply = ChatReply { content: Some(text.into()), tool_calls: vec![call], ..ChatReply::default() };
            let reply = reply.storable();
            assert_eq!(reply.content.as_deref(), Some(clean));
            let call =
                ToolCall { id: clean.into(), name: clean.into(), arguments: clean.into(), ..ToolCall::default() };
            assert_eq!(reply.tool_calls, [call]);
        }
    }
}
