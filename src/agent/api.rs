//! `rag.ask`, `rag.answer`, `rag.trace`.

use super::{backend, statements};
use crate::error::{Error, required};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{JsonB, Uuid};

#[pg_extern(sql = false)]
fn ask(
    question: Option<String>,
    collection: Option<String>,
    chat_model: Option<String>,
) -> Result<String, ErrorReport> {
    let question = required(question, "question")?;
    let run = backend::answer(&question, collection.as_deref(), chat_model.as_deref())?;
    Ok(backend::with_sources(&run.answer))
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
            name!(run_id, Uuid),
        ),
    >,
    ErrorReport,
> {
    let question = required(question, "question")?;
    let run = backend::answer(&question, collection.as_deref(), chat_model.as_deref())?;
    let a = run.answer;
    Ok(TableIterator::once((
        a.text,
        JsonB(serde_json::to_value(&a.citations).unwrap_or_default()),
        a.decision.as_str().to_owned(),
        a.outcome.as_str().to_owned(),
        a.stop_reason.as_str().to_owned(),
        a.searches as i32,
        a.rounds as i32,
        a.usage.input_tokens as i64,
        a.usage.output_tokens as i64,
        run.latency_ms,
        run.model,
        Uuid::from_bytes(*run.id.as_bytes()),
    )))
}

#[pg_extern(sql = false)]
fn trace(run_id: Uuid) -> Result<String, ErrorReport> {
    let (run, steps) = statements::load(run_id).ok_or_else(|| {
        Error::undefined(
            format!("run {run_id} does not exist"),
            "See rag.runs for yours. A run in a read-only transaction is not recorded, and one that failed is rolled back.",
        )
    })?;
    Ok(ragent_core::trace::render(&run, &steps))
}
