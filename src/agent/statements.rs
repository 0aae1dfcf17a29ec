//! `rag.runs` and `rag.steps`.

use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Mode, arg};
use pgrx::{JsonB, Uuid};
use ragent_core::agent::{Answer, Step};
use ragent_core::trace::{RunRow, StepRow};

/// A finished run.
pub struct NewRun<'a> {
    /// Its identifier.
    pub id: uuid::Uuid,
    /// Who asked.
    pub role: String,
    /// What.
    pub question: &'a str,
    /// The collection it was limited to.
    pub collection: Option<&'a str>,
    /// Chat model.
    pub model: String,
    /// How it ended.
    pub answer: &'a Answer,
    /// Milliseconds.
    pub latency_ms: f64,
    /// What was done.
    pub steps: &'a [Step],
}

/// Records a run and its steps.
pub fn record(run: &NewRun<'_>) {
    const RUN: &str =
        "INSERT INTO rag.runs (id, role, question, collection, model, answer, citations, decision, outcome,
            stop_reason, searches, rounds, input_tokens, output_tokens, latency_ms, started_at)
        VALUES ($1, $2::pg_catalog.name, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $15 / 1000))";
    const STEP: &str =
        "INSERT INTO rag.steps (run_id, number, kind, round, detail, input_tokens, output_tokens, latency_ms)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let answer = run.answer;
    let citations = serde_json::to_value(&answer.citations).unwrap_or_default();
    let id = Uuid::from_bytes(*run.id.as_bytes());
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        s.run(
            RUN,
            &[
                arg(id),
                arg(run.role.clone()),
                arg(run.question.to_owned()),
                arg(run.collection.map(str::to_owned)),
                arg(run.model.clone()),
                arg(answer.text.clone()),
                arg(JsonB(citations)),
                arg(answer.decision.as_str().to_owned()),
                arg(answer.outcome.as_str().to_owned()),
                arg(answer.stop_reason.as_str().to_owned()),
                arg(answer.searches as i32),
                arg(answer.rounds as i32),
                arg(answer.usage.input_tokens as i64),
                arg(answer.usage.output_tokens as i64),
                arg(run.latency_ms),
            ],
        );
        for (i, step) in run.steps.iter().enumerate() {
            s.run(
                STEP,
                &[
                    arg(id),
                    arg(i as i32 + 1),
                    arg(step.kind.as_str().to_owned()),
                    arg(step.round as i32),
                    arg(JsonB(step.detail.clone())),
                    arg(step.usage.input_tokens as i64),
                    arg(step.usage.output_tokens as i64),
                    arg(step.latency_ms),
                ],
            );
        }
    });
}

/// A run of the current role (a superuser: anybody's) and its steps.
pub fn load(id: Uuid) -> Option<(RunRow, Vec<StepRow>)> {
    const RUN: &str = "SELECT id::pg_catalog.text, question, model, decision, outcome, stop_reason, answer, citations,
            searches::pg_catalog.int8, rounds::pg_catalog.int8, input_tokens, output_tokens, latency_ms,
            started_at::pg_catalog.text
        FROM rag.runs WHERE id OPERATOR(pg_catalog.=) $1";
    const STEPS: &str =
        "SELECT number::pg_catalog.int8, kind, round::pg_catalog.int8, detail, input_tokens, output_tokens, latency_ms
        FROM rag.steps WHERE run_id OPERATOR(pg_catalog.=) $1 ORDER BY number";
    spi::connect(|s| {
        let rows = s.query(Mode::Read, RUN, &[arg(id)]);
        let row = rows.first()?;
        let run = RunRow {
            id: row.need(1),
            question: row.need(2),
            model: row.need(3),
            decision: row.get(4),
            outcome: row.get(5),
            stop_reason: row.get(6),
            answer: row.get(7),
            error: None,
            citations: row.need::<JsonB>(8).0,
            searches: row.need(9),
            rounds: row.need(10),
            input_tokens: row.need(11),
            output_tokens: row.need(12),
            latency_ms: row.get(13),
            started_at: row.get(14),
        };
        let steps = s
            .query(Mode::Read, STEPS, &[arg(id)])
            .iter()
            .map(|row| StepRow {
                number: row.need(1),
                kind: row.need(2),
                round: row.need(3),
                detail: row.need::<JsonB>(4).0,
                input_tokens: row.need(5),
                output_tokens: row.need(6),
                latency_ms: row.get(7),
            })
            .collect();
        Some((run, steps))
    })
}
