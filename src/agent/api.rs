//! `rag.ask`, `rag.answer`, `rag.trace`.

use super::{backend, trace};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{JsonB, Uuid};

#[pg_extern(sql = false)]
fn ask(
    question: Option<String>,
    collection: Option<String>,
    chat_model: Option<String>,
) -> Result<Option<String>, ErrorReport> {
    let Some(question) = question else { return Ok(None) };
    let run = backend::answer(&question, collection.as_deref(), chat_model.as_deref())?;
    Ok(Some(run.answer.with_sources()))
}

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn answer(
    question: Option<String>,
    collection: Option<String>,
    chat_model: Option<String>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(answer, String),
            name!(citations, JsonB),
            name!(decision, String),
            name!(outcome, String),
            name!(stop_reason, String),
            name!(searches, i32),
            name!(rounds, i32),
            name!(input_tokens, i64),
            name!(output_tokens, i64),
            name!(latency_ms, f64),
            name!(model, String),
            name!(run_id, Option<Uuid>),
            name!(pending, Option<i64>),
        ),
    >,
    ErrorReport,
> {
    let Some(question) = question else { return Ok(TableIterator::new(std::iter::empty())) };
    let run = backend::answer(&question, collection.as_deref(), chat_model.as_deref())?;
    let citations = run.answer.citations_json();
    let a = run.answer;
    Ok(TableIterator::once((
        a.text,
        JsonB(citations),
        a.decision.as_str().to_owned(),
        a.outcome.as_str().to_owned(),
        a.stop_reason.as_str().to_owned(),
        a.searches as i32,
        a.rounds as i32,
        a.usage.input_tokens as i64,
        a.usage.output_tokens as i64,
        run.latency_ms,
        run.model,
        run.id,
        run.pending,
    )))
}

#[pg_extern(sql = false)]
fn trace(run_id: Uuid) -> Result<String, ErrorReport> {
    Ok(trace::of(run_id)?)
}
