//! `rag.runs` and `rag.steps`.

use super::recorder::NewRun;
use crate::error::{Error, Result};
use crate::pg::role::{self, ActingAs};
use crate::pg::spi::{self, Row, Snapshot, arg};
use pgrx::{JsonB, PgSqlErrorCode, Uuid, pg_sys};
use ragent_core::agent::{Answer, Citation, Detail, Status, Step};
use ragent_core::model::Usage;
use ragent_core::trace::{RunError, RunRow};

/// Records that `asker` began a run so many milliseconds ago.
pub fn begin(
    id: Uuid,
    asker: pg_sys::Oid,
    new: &NewRun<'_>,
    has_texts: bool,
    scope: Option<&serde_json::Value>,
    ago_ms: f64,
) {
    const BEGIN: &str =
        "INSERT INTO rag.runs (id, role, role_oid, question, collection, model, status, started_at, record, scope)
        VALUES ($1, $2::pg_catalog.name, $3, $4, $5, $6, $7,
                pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $8 / 1000),
                CASE WHEN $9 THEN 'on' ELSE 'metadata' END, $10)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        s.run(
            BEGIN,
            &[
                arg(id),
                arg(role::name(asker)),
                arg(asker),
                arg(has_texts.then(|| new.question.to_owned())),
                arg(new.collection.map(str::to_owned)),
                arg(new.model.to_owned()),
                arg(Status::Running.as_str().to_owned()),
                arg(ago_ms),
                arg(has_texts),
                arg(scope.cloned().map(JsonB)),
            ],
        );
    });
}

/// Records the step of that number.
pub fn append(id: Uuid, number: i32, step: &Step, has_texts: bool, scope: Option<&serde_json::Value>) {
    const STEP: &str =
        "INSERT INTO rag.steps (run_id, number, kind, round, detail, input_tokens, output_tokens, latency_ms, scope)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let _acting = ActingAs::superuser();
    let detail = if has_texts { step.detail.clone() } else { step.detail.clone().without_texts() };
    let args = [
        arg(id),
        arg(number),
        arg(detail.kind().to_owned()),
        arg(step.round as i32),
        arg(JsonB(detail.to_json())),
        arg(step.usage.input_tokens as i64),
        arg(step.usage.output_tokens as i64),
        arg(step.latency_ms),
        arg(scope.cloned().map(JsonB)),
    ];
    spi::connect(|s| s.run(STEP, &args));
}

/// Records how a run ended.
pub fn finish(id: Uuid, answer: &Answer, has_texts: bool, latency_ms: f64) {
    const FINISH: &str =
        "UPDATE rag.runs SET status = $2, answer = $3, citations = $4, decision = $5, stop_reason = $6,
            searches = $7, rounds = $8, input_tokens = $9, output_tokens = $10, latency_ms = $11,
            finished_at = pg_catalog.clock_timestamp(), state = NULL, state_version = NULL
        WHERE id OPERATOR(pg_catalog.=) $1";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        s.run(
            FINISH,
            &[
                arg(id),
                arg(Status::from(answer.outcome).as_str().to_owned()),
                arg(has_texts.then(|| answer.text.clone())),
                arg(JsonB(if has_texts { answer.citations_json() } else { answer.citations_without_texts() })),
                arg(answer.decision.as_str().to_owned()),
                arg(answer.stop_reason.as_str().to_owned()),
                arg(answer.searches as i32),
                arg(answer.rounds as i32),
                arg(answer.usage.input_tokens as i64),
                arg(answer.usage.output_tokens as i64),
                arg(latency_ms),
            ],
        );
    });
}

/// A run that the current role sees.
///
/// # Errors
/// It was recorded by a version that wrote something else.
pub fn run(id: Uuid) -> Result<Option<RunRow>> {
    const RUN: &str =
        "SELECT id::pg_catalog.text, question, model, status, decision, stop_reason, answer, citations, error,
            error_sqlstate, error_hint, searches, rounds, input_tokens, output_tokens, latency_ms,
            started_at::pg_catalog.text
        FROM rag.runs WHERE id OPERATOR(pg_catalog.=) $1";
    spi::connect(|s| s.query(Snapshot::Active, RUN, &[arg(id)]).first().map(|row| run_row(&row)).transpose())
}

fn run_row(row: &Row<'_>) -> Result<RunRow> {
    let id: String = row.need_named("id");
    let status: String = row.need_named("status");
    let status = Status::named(&status).ok_or_else(|| unreadable(&id, format!("its status is \"{status}\"")))?;
    let citations: Vec<Citation> = match row.named::<JsonB>("citations") {
        Some(JsonB(citations)) => {
            serde_json::from_value(citations).map_err(|e| unreadable(&id, format!("its citations: {e}")))?
        }
        None => Vec::new(),
    };
    let error = row.named("error").map(|message| RunError {
        message,
        sqlstate: row.named("error_sqlstate"),
        hint: row.named("error_hint"),
    });
    Ok(RunRow {
        id,
        question: row.named("question"),
        model: row.need_named("model"),
        status,
        decision: row.named("decision"),
        stop_reason: row.named("stop_reason"),
        answer: row.named("answer"),
        citations,
        error,
        searches: row.need_named::<i32>("searches") as u32,
        rounds: row.need_named::<i32>("rounds") as u32,
        usage: usage(row),
        latency_ms: row.named("latency_ms"),
        started_at: row.need_named("started_at"),
    })
}

/// The steps of a run that the current role sees, in order.
///
/// # Errors
/// One was recorded by a version that wrote something else.
pub fn steps(run_id: Uuid) -> Result<Vec<Step>> {
    const STEPS: &str = "SELECT kind, round, detail, input_tokens, output_tokens, latency_ms
        FROM rag.steps WHERE run_id OPERATOR(pg_catalog.=) $1 ORDER BY number";
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, STEPS, &[arg(run_id)]);
        rows.iter()
            .map(|row| {
                let detail = Detail::read(&row.need_named::<String>("kind"), row.need_named::<JsonB>("detail").0)
                    .map_err(|e| unreadable(&run_id.to_string(), e.to_string()))?;
                Ok(Step {
                    round: row.need_named::<i32>("round") as u32,
                    detail,
                    usage: usage(&row),
                    latency_ms: row.named("latency_ms"),
                })
            })
            .collect()
    })
}

fn usage(row: &Row<'_>) -> Usage {
    Usage {
        input_tokens: row.need_named::<i64>("input_tokens") as u64,
        output_tokens: row.need_named::<i64>("output_tokens") as u64,
    }
}

fn unreadable(id: &str, why: String) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_DATA_CORRUPTED,
        format!("run {id} cannot be read: {why}"),
        "Another version of pg_ragent, or somebody else, wrote it; look at rag.runs and rag.steps themselves.",
    )
}
