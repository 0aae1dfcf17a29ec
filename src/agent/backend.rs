//! `rag.ask` and `rag.answer`: drives the agent of `ragent_core` in a backend.

use super::statements::{self, NewRun};
use crate::error::{Error, Result};
use crate::pg::{role, xact};
use crate::provider::{self, ModelName};
use crate::registry::Collection;
use crate::retrieval::{Found, Query, Scope, Search, search};
use ragent_core::agent::{Agent, Answer, Effect, Hit, Input, Limits, SearchCall, SearchResult, SearchTool};
use ragent_core::model::ChatReply;
use ragent_core::retrieval::{Bounds, Mode};
use std::time::Instant;

/// A finished run.
pub struct Run {
    /// Its identifier, also where it was not recorded.
    pub id: uuid::Uuid,
    /// Chat model.
    pub model: String,
    /// How it ended.
    pub answer: Answer,
    /// Milliseconds from question to answer.
    pub latency_ms: f64,
}

/// Longest question, in bytes.
const MAX_QUESTION: usize = 100_000;

/// Answers a question and records the run, where the transaction may write.
pub fn answer(question: &str, collection: Option<&str>, chat_model: Option<&str>) -> Result<Run> {
    check_question(question)?;
    let collections = Scope::of(collection).collections()?;
    let model = match chat_model {
        Some(model) => ModelName::parse(model)?,
        None => ModelName::parse(&crate::guc::chat_model())?,
    };
    let started = Instant::now();
    let tools = collections.iter().map(|c| tool(c)).collect();
    let mut agent = Agent::new(question, tools, Limits::default());
    let answer = drive(&mut agent, &model)?;
    let run = Run {
        id: uuid::Uuid::now_v7(),
        model: model.to_string(),
        answer,
        latency_ms: started.elapsed().as_secs_f64() * 1000.0,
    };
    if xact::may_write() {
        statements::record(&NewRun {
            id: run.id,
            role: role::name(role::current()),
            question,
            collection,
            model: run.model.clone(),
            answer: &run.answer,
            latency_ms: run.latency_ms,
            steps: agent.steps(),
        });
    }
    Ok(run)
}

fn check_question(question: &str) -> Result<()> {
    if question.trim().is_empty() {
        return Err(Error::bad_argument("the question is empty", "Ask something."));
    }
    if question.len() > MAX_QUESTION {
        return Err(Error::bad_argument(
            format!("the question has {} bytes, more than {MAX_QUESTION}", question.len()),
            "Ask a shorter question; put long texts into a table and search them.",
        ));
    }
    Ok(())
}

fn tool(c: &Collection) -> SearchTool {
    let description = c.description.clone().unwrap_or_else(|| format!("rows of the table {}", c.source.name));
    SearchTool { collection: c.name.clone(), description }
}

fn drive(agent: &mut Agent, model: &ModelName) -> Result<Answer> {
    let mut input = Input::Start;
    loop {
        let effect = agent.next(input);
        let started = Instant::now();
        input = match effect {
            Effect::Done(answer) => return Ok(answer),
            Effect::CallModel(request) => Input::Model(without_nul(provider::chat(model, &request, role::current())?)),
            Effect::Search(calls) => Input::Searched(run_searches(&calls)?),
        };
        agent.record_latency(started.elapsed().as_secs_f64() * 1000.0);
    }
}

/// Text in PostgreSQL cannot hold U+0000; models can write it.
fn without_nul(mut reply: ChatReply) -> ChatReply {
    reply.content = reply.content.map(|c| c.replace('\0', ""));
    for call in &mut reply.tool_calls {
        call.id = call.id.replace('\0', "");
        call.name = call.name.replace('\0', "");
        call.arguments = call.arguments.replace('\0', "").replace("\\u0000", "");
    }
    reply
}

fn run_searches(calls: &[SearchCall]) -> Result<Vec<SearchResult>> {
    let searches: Vec<Search<'_>> = calls
        .iter()
        .map(|call| Search {
            query: Query::Text(&call.query),
            scope: Scope::One(&call.collection),
            bounds: Bounds { k: call.k as usize, min_score: None },
            mode: Mode::default(),
        })
        .collect();
    let found = search(&searches)?;
    Ok(found.into_iter().map(|found| SearchResult { hits: found.into_iter().map(hit).collect() }).collect())
}

fn hit(f: Found) -> Hit {
    Hit {
        collection: f.collection,
        key: serde_json::from_str(&f.key.text()).expect("jsonb is JSON"),
        chunk: f.chunk,
        content: f.content,
        title: f.title,
        link: f.link,
        score: f.score,
    }
}

/// The answer with its sources, as `rag.ask` returns it.
pub fn with_sources(answer: &Answer) -> String {
    let mut text = answer.text.clone();
    if answer.citations.is_empty() {
        return text;
    }
    text.push_str("\n\nSources:");
    for c in &answer.citations {
        let key = match &c.key {
            serde_json::Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| match value {
                    serde_json::Value::String(s) => format!("{name}={s}"),
                    other => format!("{name}={other}"),
                })
                .collect::<Vec<_>>()
                .join(", "),
            other => other.to_string(),
        };
        let title = c.title.as_deref().map(|t| format!(": {t}")).unwrap_or_default();
        let link = c.link.as_deref().map(|l| format!(" <{l}>")).unwrap_or_default();
        text.push_str(&format!("\n[{}] {}{title} ({key}){link}", c.marker, c.collection));
    }
    text
}
