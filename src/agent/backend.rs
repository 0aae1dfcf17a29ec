//! The driver of `rag.ask` and `rag.answer`: a run from question to answer in one backend and one transaction.

use super::recorder::{NewRun, Recorder};
use super::search;
use crate::error::{Error, Result};
use crate::pg::interrupt;
use crate::pg::role;
use crate::provider::{self, Deadline, ModelName, input};
use crate::retrieval::Scope;
use crate::retrieval::waiting::Waiting;
use pgrx::Uuid;
use ragent_core::agent::{Answer, Call, CallResult, Effect, Input, Run, RunRequest, SearchCall};
use std::time::Instant;

/// A run that is over.
pub struct Finished {
    /// Its identifier; `None` where it is not recorded.
    pub id: Option<Uuid>,
    /// Chat model.
    pub model: String,
    /// How it ended.
    pub answer: Answer,
    /// Milliseconds from question to answer.
    pub latency_ms: f64,
    /// How many rows of the collections changed and wait to be embedded; see [`Waiting::rows`].
    pub pending: Option<i64>,
}

/// Longest question, in bytes: it goes to the model in each round, and into the record of the run.
const MAX_QUESTION: usize = 100_000;

/// Answers a question and records the run, where the transaction may write.
pub fn answer(question: &str, collection: Option<&str>, chat_model: Option<&str>) -> Result<Finished> {
    check_question(question)?;
    let _deadline = Deadline::begin(crate::guc::ask_timeout());
    let collections = Scope::of(collection).collections()?;
    let tools = search::tools(&collections);
    let model = match chat_model {
        Some(model) => ModelName::parse(model)?,
        None => ModelName::parse(&crate::guc::chat_model())?,
    }
    .to_string();
    let request = RunRequest::new(question, &model, tools);
    let mut run = Run::new(RunRequest { require_grounding: crate::guc::require_grounding(), ..request });
    let mut recorder = Recorder::begin(NewRun { question, collection, model: &model });
    let answer = drive(&mut run, &mut recorder, collection.is_some())?;
    let (id, latency_ms) = recorder.finish(&answer);
    // At the end: no table is kept from being altered while a model is waited for.
    let waiting = Waiting::of(&collections, collection.is_some());
    let pending = waiting.rows();
    waiting.tell();
    Ok(Finished { id, model, answer, latency_ms, pending })
}

fn check_question(question: &str) -> Result<()> {
    if ragent_core::text::is_blank_within(question, &interrupt::check) {
        return Err(Error::bad_argument("the question is empty", "Ask something."));
    }
    input::check_within("the question", question, MAX_QUESTION)
}

fn drive(run: &mut Run, recorder: &mut Recorder<'_>, is_named: bool) -> Result<Answer> {
    let mut input = Input::Start;
    loop {
        let effect = interrupt::watched("run", || run.next(input));
        recorder.append(run);
        if !matches!(effect, Effect::Done(_)) {
            provider::check_deadline()?;
        }
        let started = Instant::now();
        input = match effect {
            Effect::Done(answer) => return Ok(answer),
            Effect::CallModel(call) => {
                let model = ModelName::parse(&call.model)?;
                Input::Model(provider::chat(&model, &call.request, role::current())?)
            }
            Effect::Call(calls) => Input::Called(carry_out(&calls, is_named)?),
        };
        run.record_latency(started.elapsed().as_secs_f64() * 1000.0);
    }
}

/// Calls of one kind go to its runner together.
fn carry_out(calls: &[Call], is_named: bool) -> Result<Vec<CallResult>> {
    let searches: Vec<&SearchCall> = calls.iter().map(|Call::Search(call)| call).collect();
    Ok(search::run(&searches, is_named)?.into_iter().map(CallResult::from).collect())
}
