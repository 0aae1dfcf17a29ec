//! The state machine: one execution on one question.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{CUT_OFF, FILTERED};
use super::citation::Verified;
use super::evidence::Evidence;
use super::round::Round;
use super::strategies::{Event, Next, Slot};
use super::tools::{Desk, Memory, Toolbox};
use super::{
    Answer, AnswerDetail, CallResult, Decision, Detail, Effect, Input, Limits, ModelCall, ModelCallDetail, Outcome,
    RunRequest, Step, StopReason, Strategy, Told, ToolCallDetail, citation, text_call, thoughts, tools, unknown,
};
use crate::extractive;
use crate::model::{ChatReply, ChatRequest, Finish, MAX_CALLS, Message, OwnFields, ToolCall, ToolChoice, Usage};
use crate::prompt::instructions::{self, CITE, DONT_KNOW, NO_MORE_SEARCHES, NUDGE, SEARCH_FIRST};
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
    /// What models were told about their replies.
    told: BTreeSet<Told>,
    /// What the model that is asked now was told about the reply before.
    just_told: Option<Told>,
    /// Whether they are told to search and to cite.
    require_grounding: bool,
    /// Whether the question is a greeting or the like.
    small_talk: bool,
    /// The model of each message that has fields only its provider knows, by the message's place.
    authors: BTreeMap<usize, String>,
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

/// What a model said.
#[derive(Clone, Copy)]
struct Said<'a> {
    by: Slot,
    text: Option<&'a str>,
    own: &'a OwnFields,
    finish: Finish,
}

impl Said<'_> {
    /// Nothing.
    const NOTHING: Said<'static> =
        Said { by: Slot::Chat, text: None, own: &OwnFields(BTreeMap::new()), finish: Finish::Complete };

    /// Why there is no more of it, if it is not whole.
    fn cut(&self) -> Option<StopReason> {
        match self.finish {
            Finish::Complete => None,
            Finish::Truncated => Some(StopReason::Truncated),
            Finish::Filtered => Some(StopReason::ContentFilter),
        }
    }
}

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
    pub const VERSION: i32 = 2;

    /// A run that is about to begin.
    pub fn new(request: RunRequest) -> Run {
        let RunRequest {
            question,
            tools,
            limits,
            instructions,
            history,
            chat_model,
            decision_model,
            strategy,
            require_grounding,
        } = request;
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
            told: BTreeSet::new(),
            just_told: None,
            require_grounding,
            small_talk: extractive::is_small_talk(&question),
            authors: BTreeMap::new(),
            rounds: 0,
            called: BTreeMap::new(),
            usage: Usage::default(),
            evidence: Evidence::default(),
            memory: Memory::default(),
            steps: Vec::new(),
            latency_ms: None,
        };
        let next = strategy.next(&run, Event::Began);
        run.phase = run.begin(next, Said::NOTHING);
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
            (Phase::Asking(slot), Input::Model(reply)) => self.take_reply(slot, reply.storable(), latency),
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
        self.told.contains(&Told::Empty)
    }

    /// The effect that is open.
    fn effect(&self) -> Effect {
        match &self.phase {
            Phase::Asking(slot) => Effect::CallModel(ModelCall {
                model: self.model(*slot).to_owned(),
                request: ChatRequest {
                    messages: self.messages_for(self.model(*slot)),
                    tools: self.tools.specs(&self.limits),
                    tool_choice: self.tool_choice(),
                    max_output_tokens: self.limits.max_output_tokens,
                },
            }),
            Phase::Calling(round) => Effect::Call(round.calls().to_vec()),
            Phase::Done(answer) => Effect::Done(answer.clone()),
        }
    }

    /// The messages as `model` gets them: what only another provider knows is left out.
    fn messages_for(&self, model: &str) -> Vec<Message> {
        let server = |model: &str| model.split_once('/').map_or(model, |(server, _)| server).trim().to_owned();
        let mut messages = self.messages.clone();
        for (place, author) in &self.authors {
            if server(author) != server(model)
                && let Some(message) = messages.get_mut(*place)
            {
                message.forget_own_fields();
            }
        }
        messages
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

    /// The phase that `next` begins after what a model `said`.
    fn begin(&mut self, next: Next, said: Said<'_>) -> Phase {
        match next {
            Next::Ask { last: Some(StopReason::Answered), .. } if self.must_search() => {
                self.tell(Told::Search, said.by, said.text)
            }
            Next::Ask { model, last } => {
                self.last_because = self.last_because.or(last);
                Phase::Asking(if self.decision_model.is_some() { model } else { Slot::Chat })
            }
            Next::Nudge if !self.was_nudged() => self.tell(Told::Empty, said.by, None),
            Next::Call(calls) if self.may_call() && !calls.is_empty() => self.begin_round(said, calls),
            Next::Answer(text, because) => self.answer(&text, said.cut().unwrap_or(because), said),
            Next::Nudge | Next::Call(_) => {
                let because = self.last_because.unwrap_or(StopReason::EmptyReply);
                self.finish(self.verify(DONT_KNOW), because)
            }
        }
    }

    /// Ends the run with this text, unless a model can still be told to do better.
    fn answer(&mut self, text: &str, because: StopReason, said: Said<'_>) -> Phase {
        let verified = self.verify(text);
        // Who said that it is the end of the text has no more to say.
        if said.finish == Finish::Complete && said.text.is_some() {
            if self.must_search() {
                return self.tell(Told::Search, said.by, Some(text));
            }
            if self.must_cite(&verified) {
                self.last_because = Some(self.last_because.unwrap_or(because));
                return self.tell(Told::Cite, Slot::Chat, Some(text));
            }
        }
        self.finish(verified, because)
    }

    /// Whether the model is told to search: it could, nothing was searched, and it was not told before.
    fn must_search(&self) -> bool {
        self.is_grounded_by_rule() && self.may_call() && self.searches() == 0 && !self.told.contains(&Told::Search)
    }

    /// Whether the model is told to cite: there is something to cite, and it was not told before.
    fn must_cite(&self, answer: &Verified) -> bool {
        self.is_grounded_by_rule()
            && answer.citations.is_empty()
            && self.evidence.len() > 0
            && !unknown::says_unknown(&answer.text, false)
            && !self.told.contains(&Told::Cite)
    }

    fn is_grounded_by_rule(&self) -> bool {
        self.require_grounding && !self.small_talk
    }

    /// Asks a model again, after telling it what is wrong with what it said.
    fn tell(&mut self, what: Told, model: Slot, text: Option<&str>) -> Phase {
        self.told.insert(what);
        self.just_told = Some(what);
        if let Some(text) = text {
            let content = Some(text.to_owned());
            self.messages.push(Message::Assistant { content, tool_calls: Vec::new(), own: OwnFields::default() });
        }
        let words = match what {
            Told::Empty => NUDGE,
            Told::Search => SEARCH_FIRST,
            Told::Cite => CITE,
        };
        self.messages.push(Message::User(words.into()));
        Phase::Asking(model)
    }

    fn take_reply(&mut self, slot: Slot, reply: ChatReply, latency_ms: Option<f64>) -> Phase {
        self.usage += reply.usage;
        let text = reply.content.as_deref().map(thoughts::without).filter(|text| !text.is_empty());
        let mut calls = reply.tool_calls.clone();
        if calls.is_empty()
            && let Some(text) = &text
        {
            calls = text_call::read(text, |name| self.tools.has(name));
        }
        // A call that was written as text is no answer.
        let text = text.filter(|_| reply.tool_calls.len() == calls.len());
        let kept = text.as_deref().map(|text| first_chars(text, self.limits.max_answer_chars));
        let cut_here = kept.map(str::len) != text.as_deref().map(|text| text.trim_end().len());
        let finish = if cut_here { Finish::Truncated } else { reply.finish };
        let said = Said { by: slot, text: kept, own: &reply.own, finish };
        self.record_model_call(said, &reply, &calls, latency_ms);
        let just_told = self.just_told.take();
        if kept.is_none() && just_told == Some(Told::Cite) {
            // The answer without citations is what there is.
            let before = self.messages.iter().rev().find_map(|message| match message {
                Message::Assistant { content: Some(text), .. } => Some(text.as_str()),
                _ => None,
            });
            let verified = self.verify(before.unwrap_or(DONT_KNOW));
            return self.finish(verified, self.last_because.unwrap_or(StopReason::Answered));
        }
        if let (None, Slot::Chat, Some(because)) = (kept, slot, said.cut())
            && (calls.is_empty() || !self.may_call())
        {
            // Asked again it would only be cut again.
            let text = if because == StopReason::Truncated { CUT_OFF } else { FILTERED };
            return self.finish(self.verify(text), because);
        }
        let event = Event::Replied { by: slot, text: kept, calls };
        let next = self.strategy.next(self, event);
        self.begin(next, said)
    }

    /// Answers a message with tool calls: notes it, sorts its calls, and has those carried out that need it.
    fn begin_round(&mut self, said: Said<'_>, mut calls: Vec<ToolCall>) -> Phase {
        calls.truncate(MAX_CALLS);
        self.make_ids_unique(&mut calls);
        let content = said.text.map(str::to_owned);
        let message = Message::Assistant { content, tool_calls: calls.clone(), own: said.own.clone() };
        if message.has_own_fields() {
            self.authors.insert(self.messages.len(), self.model(said.by).to_owned());
        }
        self.messages.push(message);
        self.rounds += 1;
        for call in &mut calls {
            // They stand in the message; the round has no use for them.
            (call.own, call.function_own) = Default::default();
        }
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
        self.begin(next, Said::NOTHING)
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

    fn verify(&self, text: &str) -> Verified {
        citation::verify(text, &self.evidence)
    }

    fn finish(&mut self, verified: Verified, stop_reason: StopReason) -> Phase {
        // Nothing but markers is no answer.
        let blank = !without_markers(&verified.text).chars().any(|c| c.is_alphanumeric());
        let (text, citations) = if blank {
            let text = match stop_reason {
                StopReason::Truncated => CUT_OFF,
                StopReason::ContentFilter => FILTERED,
                _ => DONT_KNOW,
            };
            (text.to_owned(), Vec::new())
        } else {
            (verified.text, verified.citations)
        };
        let is_whole = !matches!(stop_reason, StopReason::Truncated | StopReason::ContentFilter);
        let outcome = if is_whole && unknown::says_unknown(&text, !citations.is_empty()) {
            Outcome::Unknown
        } else if citations.is_empty() {
            Outcome::Ungrounded
        } else {
            Outcome::Answered
        };
        let answer = Answer {
            text,
            decision: if self.searches() > 0 { Decision::UsedSearch } else { Decision::SkippedSearch },
            outcome,
            stop_reason,
            searches: self.searches(),
            rounds: self.rounds,
            usage: self.usage,
            removed_markers: verified.removed,
            small_talk: self.small_talk,
            citations,
        };
        let detail = AnswerDetail {
            decision: answer.decision,
            outcome,
            stop_reason,
            citations: answer.citations.len(),
            removed_markers: answer.removed_markers,
            evidence: self.evidence.len(),
            uncited: outcome == Outcome::Ungrounded && self.evidence.len() > 0,
        };
        self.steps.push(Step {
            round: self.model_round(),
            detail: Detail::Answer(detail),
            usage: Usage::default(),
            latency_ms: None,
        });
        Phase::Done(answer)
    }

    fn record_model_call(&mut self, said: Said<'_>, reply: &ChatReply, calls: &[ToolCall], latency_ms: Option<f64>) {
        let dropped = reply.dropped_calls + calls.len().saturating_sub(MAX_CALLS);
        let detail = ModelCallDetail {
            model: self.decision_model.is_some().then(|| self.model(said.by).to_owned()),
            messages: self.messages.len(),
            tool_choice: self.tool_choice(),
            told: self.just_told,
            content: said.text.map(str::to_owned),
            tool_calls: calls
                .iter()
                .take(MAX_CALLS)
                .map(|call| ToolCallDetail {
                    name: shorten(&call.name, 200),
                    arguments: shorten(&call.arguments, 2_000),
                })
                .collect(),
            tool_calls_dropped: Some(dropped).filter(|n| *n > 0),
            truncated: said.finish == Finish::Truncated,
            filtered: said.finish == Finish::Filtered,
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
        Message::Assistant { content: Some(text), .. } => Message::Assistant {
            content: Some(without_markers(&text).trim().to_owned()),
            tool_calls: Vec::new(),
            own: OwnFields::default(),
        },
        _ => return None,
    };
    let blank =
        matches!(&spoken, Message::User(text) | Message::Assistant { content: Some(text), .. } if text.is_empty());
    (!blank).then_some(spoken)
}

fn first_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| text[..end].trim_end())
}
