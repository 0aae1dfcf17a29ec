//! `rag.wait_until_current`, `rag.retry_failures`, `rag.verify`; the trigger functions `rag_internal.capture`,
//! `rag_internal.wake_worker`; `rag_internal.wake_at_commit`, `rag_internal.is_capturing`, `rag_internal.restore_capture`,
//! `rag_internal.capture_state`, `rag_internal.has_text`.

use super::statements::trigger::{self, Repair};
use super::statements::{failure, pause, waiting};
use super::verify as verifying;
use super::{wait, wake};
use crate::error::{Error, required};
use crate::pg::interrupt;
use crate::pg::jsonb::Jsonb;
use crate::pg::role;
use crate::pg::trigger::TriggerCall;
use crate::registry;
use pgrx::datum::Interval;
use pgrx::heap_tuple::PgHeapTuple;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pgbox::AllocatedByPostgres;
use pgrx::prelude::*;
use std::time::Duration;

type TriggerResult<'a> = Result<Option<PgHeapTuple<'a, AllocatedByPostgres>>, ErrorReport>;

#[pg_trigger(sql = false)]
fn capture<'a>(trigger: &'a pgrx::PgTrigger<'a>) -> TriggerResult<'a> {
    let call = TriggerCall::new(trigger);
    if !super::capture::capture(&call) {
        super::capture::tell_of_nothing(&call);
    }
    Ok(None)
}

#[pg_trigger(sql = false)]
fn wake_worker<'a>(trigger: &'a pgrx::PgTrigger<'a>) -> TriggerResult<'a> {
    TriggerCall::new(trigger).expect_own("wake_worker", &["queue", "collection", "grants_due"]);
    wake::at_commit();
    Ok(None)
}

#[pg_extern(sql = false)]
fn wake_at_commit() -> Result<(), ErrorReport> {
    wake::at_commit();
    Ok(())
}

#[pg_extern(sql = false)]
fn is_capturing(collection: i32) -> Result<bool, ErrorReport> {
    Ok(super::permit::is_given(collection))
}

#[pg_extern(sql = false)]
fn wait_until_current(collection: Option<String>, timeout: Option<Interval>) -> Result<bool, ErrorReport> {
    let timeout = required(timeout, "timeout")?;
    let microseconds = timeout.as_micros();
    let timeout = u64::try_from(microseconds).map(Duration::from_micros).map_err(|_| {
        Error::bad_argument("timeout is negative or too long", "Give an interval such as '10 minutes'.")
    })?;
    Ok(wait::until_current(collection.as_deref(), timeout)?)
}

#[pg_extern(sql = false)]
fn retry_failures(collection: Option<String>) -> Result<i64, ErrorReport> {
    let ids = match collection {
        Some(name) => {
            let c = registry::existing(&name)?;
            registry::must_own(&c)?;
            vec![c.id]
        }
        None => registry::all().iter().filter(|c| registry::must_own(c).is_ok()).map(|c| c.id).collect(),
    };
    pause::end(&ids, role::is_superuser());
    waiting::end_of(&ids, role::is_superuser());
    wake::at_commit();
    Ok(failure::queue_again(&ids))
}

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn verify(
    collection: Option<String>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(problem, String),
            name!(rows, Option<i64>),
            name!(example, Option<Jsonb>),
            name!(detail, String),
            name!(hint, String),
        ),
    >,
    ErrorReport,
> {
    let findings = verifying::verify(&required(collection, "collection")?)?;
    Ok(TableIterator::new(findings.into_iter().map(|f| (f.problem, f.rows, f.example, f.detail, f.hint))))
}

#[pg_extern(sql = false)]
fn restore_capture(of_collection: Option<i32>, what: Option<String>) -> Result<(), ErrorReport> {
    let what = match required(what, "what")?.as_str() {
        "modes" => Repair::Modes,
        "partitions" => Repair::Partitions,
        _ => Repair::All,
    };
    trigger::restore(required(of_collection, "of_collection")?, what);
    Ok(())
}

#[pg_extern(sql = false)]
fn has_text(value: Option<String>) -> Result<bool, ErrorReport> {
    Ok(value.is_some_and(|text| !ragent_core::text::is_blank_within(&text, &interrupt::check)))
}

#[pg_extern(sql = false)]
fn capture_state(of_collection: i32) -> Result<Option<String>, ErrorReport> {
    Ok(trigger::state(of_collection))
}
