//! The agent: a state machine that decides when the model is called, when a search runs, when to stop, and what may be cited.
//!
//! It does no I/O. A driver (a backend, a worker, a test) hands in what happened and does what it is told next:
//!
//! ```
//! use ragent_core::agent::{Agent, Effect, Hit, Input, Limits, SearchResult, SearchTool};
//!
//! let tool = SearchTool { collection: "facts".into(), description: "Facts about our office.".into() };
//! let mut agent = Agent::new("When does the office open?", vec![tool], Limits::default());
//! let mut effect = agent.next(Input::Start);
//! let answer = loop {
//!     effect = match effect {
//!         // Here the keyless model; a driver sends the request to whichever model is set.
//!         Effect::CallModel(request) => agent.next(Input::Model(ragent_core::extractive::reply(&request))),
//!         Effect::Search(calls) => agent.next(Input::Searched(calls.iter().map(|call| SearchResult {
//!             hits: vec![Hit {
//!                 collection: call.collection.clone(),
//!                 key: serde_json::json!({ "id": 1 }),
//!                 chunk: 1,
//!                 content: "The office opens at nine on weekdays.".into(),
//!                 title: None,
//!                 link: None,
//!                 score: 0.8,
//!             }],
//!         }).collect())),
//!         Effect::Done(answer) => break answer,
//!     };
//! };
//! assert_eq!(answer.text, "The office opens at nine on weekdays. [1]");
//! assert_eq!(answer.citations[0].key, serde_json::json!({ "id": 1 }));
//! ```
//!
//! It can be stored (serde) after any step and read back; [`Input::Start`] then gives the effect that is still open.
//!
//! Strategy `tools`, the only one so far: the model is offered a search tool for each collection and decides.
//! - The caps of [`Limits`] are counted here, whatever the model does: ≤ 3 rounds, ≤ 6 searches.
//! - Every tool call gets exactly one tool message. A broken call gets one that says what is wrong; it costs a round, never the run.
//! - Searches of one message run together. A query that was run before is answered from memory.
//! - A passage has one number in the whole run and is shown once. A round that brings nothing new is the last.
//! - The last model call forbids tools; a model that calls them all the same is not listened to.
//! - An answer's markers are checked: what names no passage of this run is taken out and counted.

mod answer;
mod citation;
mod evidence;
mod io;
mod limits;
mod marker;
mod round;
mod step;
#[cfg(test)]
mod tests;
mod tool;
mod unknown;

pub use answer::{Answer, Decision, Outcome, StopReason};
pub use citation::Citation;
pub use io::{Effect, Hit, Input, SearchCall, SearchResult};
pub use limits::Limits;
pub use step::{Step, StepKind};
pub use tool::SearchTool;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::evidence::Evidence;
pub(crate) use self::marker::without_markers;
use self::round::{Memory, Round};
use crate::model::{ChatReply, ChatRequest, Message, ToolCall, ToolChoice, Usage};
use crate::prompt::{self, NamedTool};

/// One run of an agent on one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    tools: Vec<NamedTool>,
    limits: Limits,
    messages: Vec<Message>,
    phase: Phase,
    /// Why the next model call is the last; `None` while the model may go on.
    last_because: Option<StopReason>,
    /// Whether the model was told that its reply was empty.
    nudged: bool,
    rounds: u32,
    searches: u32,
    usage: Usage,
    evidence: Evidence,
    memory: Memory,
    steps: Vec<Step>,
    /// Time of the effect that is about to be answered.
    latency_ms: Option<f64>,
}

/// What the driver is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Phase {
    New,
    Calling,
    Searching(Round),
    Done(Answer),
}

/// Most tool calls of one message that are looked at; a model that writes more is not answered on the rest.
const MAX_CALLS: usize = 64;

impl Agent {
    /// An agent for `question` that may search the collections of `tools`, of which the first 64 are offered.
    pub fn new(question: &str, tools: Vec<SearchTool>, limits: Limits) -> Agent {
        let may_search = limits.max_rounds > 0 && limits.max_searches > 0;
        let tools = if may_search { tool::name_tools(tools) } else { Vec::new() };
        let messages =
            vec![Message::System(prompt::system(&tools, &limits)), Message::User(question.trim().to_owned())];
        Agent {
            tools,
            limits,
            messages,
            phase: Phase::New,
            last_because: None,
            nudged: false,
            rounds: 0,
            searches: 0,
            usage: Usage::default(),
            evidence: Evidence::default(),
            memory: Memory::default(),
            steps: Vec::new(),
            latency_ms: None,
        }
    }

    /// Takes the result of the open effect and says what to do next. An input that does not belong to the open effect
    /// (and [`Input::Start`] at any time) changes nothing and gives that effect again.
    pub fn next(&mut self, input: Input) -> Effect {
        let phase = std::mem::replace(&mut self.phase, Phase::New);
        let latency = self.latency_ms.take();
        self.phase = match (phase, input) {
            (Phase::New, _) => Phase::Calling,
            (Phase::Calling, Input::Model(reply)) => self.take_reply(reply, latency),
            (Phase::Searching(round), Input::Searched(results)) => self.take_results(round, results, latency),
            (phase, _) => phase,
        };
        self.effect()
    }

    /// How long the driver took for the open effect, in milliseconds. Call it when the effect is done and before its result is
    /// handed to [`Agent::next`], which puts it on the steps that it adds.
    pub fn record_latency(&mut self, ms: f64) {
        self.latency_ms = Some(ms).filter(|ms| ms.is_finite());
    }

    /// Everything that happened so far, in order; a run only ever appends.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The effect that is open.
    fn effect(&self) -> Effect {
        match &self.phase {
            Phase::New | Phase::Calling => Effect::CallModel(ChatRequest {
                messages: self.messages.clone(),
                tools: self.tools.iter().map(|tool| prompt::tool_spec(tool, &self.limits)).collect(),
                tool_choice: self.tool_choice(),
                max_output_tokens: self.limits.max_output_tokens,
            }),
            Phase::Searching(round) => Effect::Search(round.searches().to_vec()),
            Phase::Done(answer) => Effect::Done(answer.clone()),
        }
    }

    fn tool_choice(&self) -> ToolChoice {
        if self.last_because.is_some() || self.tools.is_empty() { ToolChoice::None } else { ToolChoice::Auto }
    }

    fn take_reply(&mut self, reply: ChatReply, latency_ms: Option<f64>) -> Phase {
        self.usage += reply.usage;
        let content = reply.content.as_deref().map(without_thoughts).filter(|text| !text.is_empty());
        self.record_model_call(&reply, content, latency_ms);
        let may_call = self.tool_choice() == ToolChoice::Auto;
        match content {
            _ if may_call && !reply.tool_calls.is_empty() => self.begin_round(content, reply.tool_calls),
            Some(text) => self.finish(text, self.last_because.unwrap_or(StopReason::Answered)),
            None if !reply.tool_calls.is_empty() => {
                self.finish(prompt::DONT_KNOW, self.last_because.unwrap_or(StopReason::EmptyReply))
            }
            None if self.nudged => self.finish(prompt::DONT_KNOW, StopReason::EmptyReply),
            None => {
                self.nudged = true;
                self.messages.push(Message::User(prompt::NUDGE.into()));
                Phase::Calling
            }
        }
    }

    /// Answers a message with tool calls: notes it, sorts its calls, and searches if any of them needs it.
    fn begin_round(&mut self, content: Option<&str>, mut calls: Vec<ToolCall>) -> Phase {
        calls.truncate(MAX_CALLS);
        self.make_ids_unique(&mut calls);
        self.messages.push(Message::Assistant { content: content.map(str::to_owned), tool_calls: calls.clone() });
        self.rounds += 1;
        let room = self.limits.max_searches.saturating_sub(self.searches);
        let round = Round::sort(calls, &self.tools, &self.limits, &self.memory, room);
        self.searches += round.searches().len() as u32;
        if round.searches().is_empty() {
            // Nothing for the driver to do, so no time of its own.
            return self.take_results(round, Vec::new(), None);
        }
        Phase::Searching(round)
    }

    /// Tool messages are matched to calls by id, but models repeat ids, within a message and over the rounds.
    fn make_ids_unique(&self, calls: &mut [ToolCall]) {
        let mut taken: std::collections::HashSet<String> = self
            .messages
            .iter()
            .filter_map(|message| match message {
                Message::Tool { call_id, .. } => Some(call_id.clone()),
                _ => None,
            })
            .collect();
        for call in calls {
            let wanted = if call.id.trim().is_empty() { "call".to_owned() } else { call.id.clone() };
            let mut number = 2;
            call.id = wanted.clone();
            while !taken.insert(call.id.clone()) {
                call.id = format!("{wanted}_{number}");
                number += 1;
            }
        }
    }

    /// Ends a round: every call gets its message, and it is decided whether the model may go on.
    fn take_results(&mut self, round: Round, results: Vec<SearchResult>, latency_ms: Option<f64>) -> Phase {
        let outcome = round.answer(results, &mut self.evidence, &mut self.memory, &self.limits);
        self.last_because = if outcome.new_evidence == 0 && !outcome.correctable {
            Some(StopReason::NoNewEvidence)
        } else if self.searches >= self.limits.max_searches {
            Some(StopReason::MaxSearches)
        } else if self.rounds >= self.limits.max_rounds {
            Some(StopReason::MaxRounds)
        } else {
            None
        };
        for mut answered in outcome.calls {
            if self.last_because.is_some() {
                answered.set_notice(prompt::NO_MORE_SEARCHES);
            }
            self.messages.push(Message::Tool { call_id: answered.call_id, content: prompt::render(&answered.message) });
            self.steps.push(Step {
                kind: StepKind::Search,
                round: self.rounds,
                detail: answered.detail,
                usage: Usage::default(),
                latency_ms: latency_ms.filter(|_| answered.searched),
            });
        }
        Phase::Calling
    }

    fn finish(&mut self, text: &str, stop_reason: StopReason) -> Phase {
        let verified = citation::verify(text, &self.evidence);
        // Nothing but markers is no answer.
        let blank = !without_markers(&verified.text).chars().any(|c| c.is_alphanumeric());
        let (text, citations) =
            if blank { (prompt::DONT_KNOW.to_owned(), Vec::new()) } else { (verified.text, verified.citations) };
        let unknown = unknown::says_unknown(&text, !citations.is_empty());
        let answer = Answer {
            text,
            decision: if self.searches > 0 { Decision::UsedSearch } else { Decision::SkippedSearch },
            outcome: if unknown { Outcome::Unknown } else { Outcome::Answered },
            stop_reason,
            searches: self.searches,
            rounds: self.rounds,
            usage: self.usage,
            removed_markers: verified.removed,
            citations,
        };
        self.steps.push(Step {
            kind: StepKind::Answer,
            round: self.model_round(),
            detail: json!({
                "decision": answer.decision.as_str(),
                "outcome": answer.outcome.as_str(),
                "stop_reason": answer.stop_reason.as_str(),
                "citations": answer.citations.len(),
                "removed_markers": answer.removed_markers,
                "evidence": self.evidence.len(),
                "uncited": !unknown && answer.citations.is_empty() && self.evidence.len() > 0,
            }),
            usage: Usage::default(),
            latency_ms: None,
        });
        Phase::Done(answer)
    }

    fn record_model_call(&mut self, reply: &ChatReply, content: Option<&str>, latency_ms: Option<f64>) {
        let calls: Vec<Value> = reply
            .tool_calls
            .iter()
            .take(MAX_CALLS)
            .map(|call| json!({ "name": call.name, "arguments": crate::text::shorten(&call.arguments, 2_000) }))
            .collect();
        let mut detail = json!({
            "messages": self.messages.len(),
            "tool_choice": if self.tool_choice() == ToolChoice::Auto { "auto" } else { "none" },
            "content": content,
            "tool_calls": calls,
            "truncated": reply.truncated,
        });
        if reply.tool_calls.len() > MAX_CALLS {
            detail["tool_calls_dropped"] = (reply.tool_calls.len() - MAX_CALLS).into();
        }
        self.steps.push(Step {
            kind: StepKind::ModelCall,
            round: self.model_round(),
            detail,
            usage: reply.usage,
            latency_ms,
        });
    }

    /// The round that a model call belongs to: the one it would begin.
    fn model_round(&self) -> u32 {
        self.rounds + 1
    }
}

/// The text without the thinking that some models write before their answer.
fn without_thoughts(text: &str) -> &str {
    let trimmed = text.trim();
    for (open, close) in [("<think>", "</think>"), ("<thinking>", "</thinking>")] {
        if let Some(rest) = trimmed.strip_prefix(open) {
            // Thinking that never ends has no answer behind it.
            return rest.split_once(close).map_or("", |(_, answer)| answer.trim());
        }
    }
    trimmed
}
