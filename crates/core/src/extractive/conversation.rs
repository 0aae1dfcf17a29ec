//! What the request says happened so far.

use std::collections::HashMap;

use crate::model::{ChatRequest, Message, ToolCall};
use crate::prompt::instructions::is_from_the_agent;
use crate::prompt::passages::{self, SearchReport, ToolMessage};

/// The run's question and what was searched for it.
pub(super) struct Conversation<'a> {
    /// The last thing the person said.
    pub question: &'a str,
    /// Messages with tool calls since then.
    pub rounds: usize,
    /// Every call since then, as tool name and query.
    pub queries: Vec<(String, String)>,
    /// Every result since then, in order.
    pub reports: Vec<SearchReport>,
}

impl<'a> Conversation<'a> {
    pub(super) fn read(r: &'a ChatRequest) -> Conversation<'a> {
        let asked = r.messages.iter().rposition(|m| matches!(m, Message::User(text) if !is_from_the_agent(text)));
        let question = match asked.map(|i| &r.messages[i]) {
            Some(Message::User(text)) => text.as_str(),
            _ => "",
        };
        let mut conversation = Conversation { question, rounds: 0, queries: Vec::new(), reports: Vec::new() };
        let mut calls: HashMap<&str, &ToolCall> = HashMap::new();
        for message in &r.messages[asked.map_or(0, |i| i + 1)..] {
            match message {
                Message::Assistant { tool_calls, .. } if !tool_calls.is_empty() => {
                    conversation.rounds += 1;
                    for call in tool_calls {
                        calls.insert(&call.id, call);
                        conversation.queries.extend(query_of(call).map(|query| (call.name.clone(), query)));
                    }
                }
                // Only what answers one of our calls is read.
                Message::Tool { call_id, content } if calls.contains_key(call_id.as_str()) => {
                    if let Some(ToolMessage::Results(report)) = passages::parse(content) {
                        conversation.reports.push(report);
                    }
                }
                _ => {}
            }
        }
        conversation
    }
}

fn query_of(call: &ToolCall) -> Option<String> {
    let arguments: serde_json::Value = serde_json::from_str(&call.arguments).ok()?;
    arguments.get("query")?.as_str().map(str::to_owned)
}
