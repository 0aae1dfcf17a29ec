//! The state machine: one execution on one question.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::evidence::Evidence;
use super::round::Round;
use super::strategies::{Event, Next, Slot};
use super::tools::{Desk, Memory, Toolbox};
use super::{
    Answer, AnswerDetail, CallResult, Decision, Detail, Effect, Input, Limits, ModelCall, ModelCallDetail, Outcome,
    RunRequest, Step, StopReason, Strategy, ToolCallDetail, citation, tools, unknown,
};
use crate::model::{ChatReply, ChatRequest, Message, ToolCall, ToolChoice, Usage};
use crate::prompt::instructions::{self, DONT_KNOW, NO_MORE_SEARCHES, NUDGE};
use crate::prompt::marker::without_markers;
use crate::prompt::passages;
use crate::text::shorten;

/// One run of an agent on one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    strategy: Strategy,
    chat_model: String,
    decision_model: Option<String>,
    tools: Toolbox,
    limits: Limits,
    messages: Vec<Message>,
    phase: Phase,
    /// Why the next model call is the last; `None` while tools may be called.
    last_because: Option<StopReason>,
    /// Whether the model was told that its reply was empty.
    nudged: bool,
    rounds: u32,
    /// Calls carried out, by kind of tool.
    called: BTreeMap<String, u32>,
    usage: Usage,
    evidence: Evidence,
    memory: Memory,
    /// Steps that the driver has not taken yet; it records them, so they are no part of what is stored.
    #[serde(skip)]
    steps: Vec<Step>,
    /// Time of the effect that is about to be answered.
    #[serde(skip)]
    latency_ms: Option<f64>,
}

/// What the driver is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    Asking(Slot),
    Calling(Round),
    Done(Answer),
}

/// Most tool calls of one message that are looked at; a model that writes more is not answered on the rest.
pub(super) const MAX_CALLS: usize = 64;

/// Why a stored run cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Another version stored it.
    #[error("the run's state has version {0}, and this is version {version}", version = Run::VERSION)]
    Version(i32),
    /// It is of this version, but broken.
    #[error("the run's state cannot be read: {0}")]
    State(#[from] serde_json::Error),
}

impl Run {
    /// Version of what [`Run::state`] gives. It changes whenever the stored form does, in any type that is part of it.
    pub const VERSION: i32 = 1;

    /// A run that is about to begin.
    pub fn new(request: RunRequest) -> Run {
        let RunRequest { question, tools, limits, instructions, history, chat_model, decision_model, strategy } =
            request;
        let tools = if limits.max_rounds > 0 { Toolbox::new(tools) } else { Toolbox::default() };
        let tools = if tools.is_used_up(&BTreeMap::new(), &limits) { Toolbox::default() } else { tools };
        let system =
            instructions::system(&tools.lines(), limits.max_rounds, limits.max_searches, instructions.as_deref());
        let mut messages = vec![Message::System(system)];
        messages.extend(history.into_iter().filter_map(said));
        messages.push(Message::User(question.trim().to_owned()));
        let mut run = Run {
            strategy,
            chat_model,
            decision_model,
            tools,
            limits,
            messages,
            phase: Phase::Asking(Slot::Chat),
            last_because: None,
            nudged: false,
            rounds: 0,
            called: BTreeMap::new(),
            usage: Usage::default(),
            evidence: Evidence::default(),
            memory: Memory::default(),
            steps: Vec::new(),
            latency_ms: None,
        };
        let next = strategy.next(&run, Event::Began);
        run.phase = run.begin(next, Slot::Chat, None);
        run
    }

    /// What has to be stored to carry on later; `None` when the run is over.
    ///
    /// # Panics
    /// Never: everything in a run can be written as JSON.
    pub fn state(&self) -> Option<Value> {
        let is_over = matches!(self.phase, Phase::Done(_));
        (!is_over).then(|| serde_json::to_value(self).expect("a run can be written as JSON"))
    }

    /// Reads back what [`Run::state`] gave; `version` is the [`Run::VERSION`] it was stored with.
    ///
    /// # Errors
    /// Another version, or a state that is none.
    pub fn restore(version: i32, state: Value) -> Result<Run, RestoreError> {
        if version != Run::VERSION {
            return Err(RestoreError::Version(version));
        }
        Ok(serde_json::from_value(state)?)
    }

    /// Takes the result of the open effect and says what to do next. An input that does not belong to the open effect
    /// (and [`Input::Start`] at any time) changes nothing and gives that effect again.
    pub fn next(&mut self, input: Input) -> Effect {
        let phase = std::mem::replace(&mut self.phase, Phase::Asking(Slot::Chat));
        let latency = self.latency_ms.take();
        self.phase = match (phase, input) {
            (Phase::Asking(slot), Input::Model(reply)) => self.take_reply(slot, reply.without_nul(), latency),
            (Phase::Calling(round), Input::Called(results)) => self.take_results(round, results, latency),
            (phase, _) => phase,
        };
        self.effect()
    }

    /// How long the driver took for the open effect, in milliseconds. Call it when the effect is done and before its result is
    /// handed to [`Run::next`], which puts it on the steps that it adds.
    pub fn record_latency(&mut self, ms: f64) {
        self.latency_ms = Some(ms).filter(|ms| ms.is_finite());
    }

    /// What happened since this was last called, in order.
    pub fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// Whether tools may still be called.
    pub(super) fn may_call(&self) -> bool {
        self.last_because.is_none() && self.has_tools()
    }

    pub(super) fn has_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    /// Why the model call that was just answered was the last, if it was.
    pub(super) fn last_because(&self) -> Option<StopReason> {
        self.last_because
    }

    /// Whether the model was told that its reply was empty.
    pub(super) fn was_nudged(&self) -> bool {
        self.nudged
    }

    /// The effect that is open.
    fn effect(&self) -> Effect {
        match &self.phase {
            Phase::Asking(slot) => Effect::CallModel(ModelCall {
                model: self.model(*slot).to_owned(),
                request: ChatRequest {
                    messages: self.messages.clone(),
                    tools: self.tools.specs(&self.limits),
                    tool_choice: self.tool_choice(),
                    max_output_tokens: self.limits.max_output_tokens,
                },
            }),
            Phase::Calling(round) => Effect::Call(round.calls().to_vec()),
            Phase::Done(answer) => Effect::Done(answer.clone()),
        }
    }

    fn model(&self, slot: Slot) -> &str {
        match (slot, &self.decision_model) {
            (Slot::Decision, Some(model)) => model,
            _ => &self.chat_model,
        }
    }

    fn tool_choice(&self) -> ToolChoice {
        if self.may_call() { ToolChoice::Auto } else { ToolChoice::None }
    }

    /// The phase that `next` begins. `slot` was asked last, and `said` is what it said.
    fn begin(&mut self, next: Next, slot: Slot, said: Option<&str>) -> Phase {
        match next {
            Next::Ask { model, last } => {
                self.last_because = self.last_because.or(last);
                Phase::Asking(if self.decision_model.is_some() { model } else { Slot::Chat })
            }
            Next::Nudge if !self.nudged => {
                self.nudged = true;
                self.messages.push(Message::User(NUDGE.into()));
                Phase::Asking(slot)
            }
            Next::Call(calls) if self.may_call() && !calls.is_empty() => self.begin_round(said, calls),
            Next::Answer(text, because) => self.finish(&text, because),
            Next::Nudge | Next::Call(_) => self.finish(DONT_KNOW, self.last_because.unwrap_or(StopReason::EmptyReply)),
        }
    }

    fn take_reply(&mut self, slot: Slot, reply: ChatReply, latency_ms: Option<f64>) -> Phase {
        self.usage += reply.usage;
        let content = reply.content.as_deref().map(without_thoughts).filter(|text| !text.is_empty());
        let kept = content.map(|text| first_chars(text, self.limits.max_answer_chars));
        let truncated = reply.truncated || kept != content;
        self.record_model_call(slot, &reply, kept, truncated, latency_ms);
        let event = Event::Replied { by: slot, text: kept, calls: reply.tool_calls };
        let next = self.strategy.next(self, event);
        self.begin(next, slot, kept)
    }

    /// Answers a message with tool calls: notes it, sorts its calls, and has those carried out that need it.
    fn begin_round(&mut self, content: Option<&str>, mut calls: Vec<ToolCall>) -> Phase {
        calls.truncate(MAX_CALLS);
        self.make_ids_unique(&mut calls);
        self.messages.push(Message::Assistant { content: content.map(str::to_owned), tool_calls: calls.clone() });
        self.rounds += 1;
        let round = Round::sort(calls, &self.tools, &self.limits, &self.memory, &mut self.called);
        if round.calls().is_empty() {
            // Nothing for the driver to do, so no time of its own.
            return self.take_results(round, Vec::new(), None);
        }
        Phase::Calling(round)
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
    fn take_results(&mut self, round: Round, results: Vec<CallResult>, latency_ms: Option<f64>) -> Phase {
        let desk = Desk { evidence: &mut self.evidence, memory: &mut self.memory, limits: &self.limits };
        let outcome = round.answer(results, desk);
        let cap = self.cap();
        let event = Event::Called { new_evidence: outcome.new_evidence, correctable: outcome.correctable, cap };
        let next = match self.strategy.next(self, event) {
            Next::Ask { model, last } => Next::Ask { model, last: last.or(cap) },
            next => next,
        };
        let is_last = matches!(next, Next::Ask { last: Some(_), .. });
        for mut answered in outcome.calls {
            if is_last {
                passages::push_notice(&mut answered.message, NO_MORE_SEARCHES);
            }
            self.messages.push(Message::Tool { call_id: answered.call_id, content: answered.message });
            self.steps.push(Step {
                round: self.rounds,
                detail: Detail::Tool(answered.detail),
                usage: Usage::default(),
                latency_ms: latency_ms.filter(|_| answered.carried_out),
            });
        }
        self.begin(next, Slot::Chat, None)
    }

    /// The cap that is reached.
    fn cap(&self) -> Option<StopReason> {
        if self.tools.is_used_up(&self.called, &self.limits) {
            Some(StopReason::MaxSearches)
        } else if self.rounds >= self.limits.max_rounds {
            Some(StopReason::MaxRounds)
        } else {
            None
        }
    }

    fn searches(&self) -> u32 {
        tools::searches(&self.called)
    }

    fn finish(&mut self, text: &str, stop_reason: StopReason) -> Phase {
        let verified = citation::verify(text, &self.evidence);
        // Nothing but markers is no answer.
        let blank = !without_markers(&verified.text).chars().any(|c| c.is_alphanumeric());
        let (text, citations) =
            if blank { (DONT_KNOW.to_owned(), Vec::new()) } else { (verified.text, verified.citations) };
        let unknown = unknown::says_unknown(&text, !citations.is_empty());
        let answer = Answer {
            text,
            decision: if self.searches() > 0 { Decision::UsedSearch } else { Decision::SkippedSearch },
            outcome: if unknown { Outcome::Unknown } else { Outcome::Answered },
            stop_reason,
            searches: self.searches(),
            rounds: self.rounds,
            usage: self.usage,
            removed_markers: verified.removed,
            citations,
        };
        let detail = AnswerDetail {
            decision: answer.decision,
            outcome: answer.outcome,
            stop_reason,
            citations: answer.citations.len(),
            removed_markers: answer.removed_markers,
            evidence: self.evidence.len(),
            uncited: !unknown && answer.citations.is_empty() && self.evidence.len() > 0,
        };
        self.steps.push(Step {
            round: self.model_round(),
            detail: Detail::Answer(detail),
            usage: Usage::default(),
            latency_ms: None,
        });
        Phase::Done(answer)
    }

    fn record_model_call(
        &mut self,
        slot: Slot,
        reply: &ChatReply,
        content: Option<&str>,
        truncated: bool,
        latency_ms: Option<f64>,
    ) {
        let calls = reply.tool_calls.iter().take(MAX_CALLS);
        let dropped = reply.tool_calls.len().saturating_sub(MAX_CALLS);
        let detail = ModelCallDetail {
            model: self.decision_model.is_some().then(|| self.model(slot).to_owned()),
            messages: self.messages.len(),
            tool_choice: self.tool_choice(),
            content: content.map(str::to_owned),
            tool_calls: calls
                .map(|call| ToolCallDetail { name: call.name.clone(), arguments: shorten(&call.arguments, 2_000) })
                .collect(),
            tool_calls_dropped: Some(dropped).filter(|n| *n > 0),
            truncated,
        };
        self.steps.push(Step {
            round: self.model_round(),
            detail: Detail::ModelCall(detail),
            usage: reply.usage,
            latency_ms,
        });
    }

    /// The round that a model call belongs to: the one it would begin.
    fn model_round(&self) -> u32 {
        self.rounds + 1
    }
}

/// A message of the history as this run's model gets to see it.
fn said(message: Message) -> Option<Message> {
    let spoken = match message {
        Message::User(text) => Message::User(text.trim().to_owned()),
        Message::Assistant { content: Some(text), .. } => {
            Message::Assistant { content: Some(without_markers(&text).trim().to_owned()), tool_calls: Vec::new() }
        }
        _ => return None,
    };
    let blank =
        matches!(&spoken, Message::User(text) | Message::Assistant { content: Some(text), .. } if text.is_empty());
    (!blank).then_some(spoken)
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

fn first_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| text[..end].trim_end())
}
