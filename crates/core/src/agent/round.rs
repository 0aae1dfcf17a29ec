//! One message of tool calls: sorting its calls, and answering each.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use super::tools::{BrokenCall, Desk, Memory, Report, Toolbox};
use super::{Call, CallResult, Limits, ToolDetail};
use crate::model::ToolCall;
use crate::prompt::passages::{self, ToolMessage};

/// The calls of one message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Round {
    asked: Vec<Asked>,
    /// What is to be carried out.
    calls: Vec<Call>,
}

/// A call as the model wrote it, and what is to be done about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Asked {
    call: ToolCall,
    todo: Todo,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Todo {
    /// Report the result of this call of the round.
    Report(usize),
    /// Report what memory has, at the latest from an earlier call of the same message.
    Remember(Call),
    /// Tell the model what is wrong, so that it can do better.
    Correct { error: String, detail: ToolDetail },
    /// Tell the model that no call of this kind is left.
    Refuse(Call),
}

/// A round that is over.
pub(super) struct RoundOutcome {
    /// One for each call, in order.
    pub calls: Vec<AnsweredCall>,
    /// Passages that were not known before.
    pub new_evidence: u32,
    /// Whether a call was broken in a way that the model can correct.
    pub correctable: bool,
}

/// A tool call with its message and what is recorded of it.
pub(super) struct AnsweredCall {
    pub call_id: String,
    pub message: String,
    pub detail: ToolDetail,
    /// Whether the driver did something for it.
    pub carried_out: bool,
}

impl Round {
    /// Sorts calls into those to carry out, known ones and broken ones. `called` counts the calls carried out so far by kind,
    /// and those to carry out now are added to it.
    pub(super) fn sort(
        calls: Vec<ToolCall>,
        tools: &Toolbox,
        limits: &Limits,
        memory: &Memory,
        called: &mut BTreeMap<String, u32>,
    ) -> Round {
        let mut round = Round { asked: Vec::new(), calls: Vec::new() };
        let mut keys: HashSet<String> = HashSet::new();
        for call in calls {
            let todo = match tools.read(&call.name, &call.arguments, limits) {
                Err(broken) => {
                    let BrokenCall { error, detail } = *broken;
                    Todo::Correct { error, detail }
                }
                Ok(read) => {
                    let key = read.key();
                    let count = called.entry(read.kind().to_owned()).or_default();
                    if key.as_ref().is_some_and(|key| memory.contains_key(key) || keys.contains(key)) {
                        Todo::Remember(read)
                    } else if *count >= read.cap(limits) {
                        Todo::Refuse(read)
                    } else {
                        *count += 1;
                        keys.extend(key);
                        round.calls.push(read);
                        Todo::Report(round.calls.len() - 1)
                    }
                }
            };
            round.asked.push(Asked { call, todo });
        }
        round
    }

    /// The calls to carry out.
    pub(super) fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Answers every call. A result that is missing counts as nothing found.
    pub(super) fn answer(self, results: Vec<CallResult>, mut desk: Desk<'_>) -> RoundOutcome {
        let mut results: Vec<Option<CallResult>> = results.into_iter().map(Some).collect();
        results.resize(self.calls.len().max(results.len()), None);
        let mut outcome = RoundOutcome { calls: Vec::new(), new_evidence: 0, correctable: false };
        for Asked { call: ToolCall { id, name, .. }, todo } in self.asked {
            let carried_out = matches!(todo, Todo::Report(_));
            let (message, detail) = match todo {
                Todo::Report(i) => {
                    let call = &self.calls[i];
                    let result = results[i].take().unwrap_or_else(|| call.no_result());
                    let Report { message, detail, new_evidence } = call.report(&name, Some(result), &mut desk);
                    outcome.new_evidence += new_evidence;
                    (message, detail)
                }
                Todo::Remember(call) => {
                    let Report { message, detail, .. } = call.report(&name, None, &mut desk);
                    (message, detail)
                }
                Todo::Correct { error, detail } => {
                    outcome.correctable = true;
                    (error_message(error), detail)
                }
                Todo::Refuse(call) => {
                    let (error, detail) = call.refuse(&name, desk.limits);
                    (error_message(error), detail)
                }
            };
            outcome.calls.push(AnsweredCall { call_id: id, message, detail, carried_out });
        }
        outcome
    }
}

fn error_message(message: String) -> String {
    passages::render(&ToolMessage::Error { message, notice: None })
}
