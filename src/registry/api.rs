//! `rag_internal.may_read`, `rag_internal.problem`, `rag_internal.plain_text`, `rag_internal.plain_json`; the trigger function `rag_internal.registry_changed`.

use crate::pg::invalidation;
use crate::pg::role;
use crate::pg::trigger::TriggerCall;
use crate::pg::uniform::{self, PlainJson, PlainText};
use pgrx::heap_tuple::PgHeapTuple;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pgbox::AllocatedByPostgres;
use pgrx::prelude::*;

#[pg_extern(sql = false)]
fn may_read(collection: i32) -> Result<bool, ErrorReport> {
    Ok(super::by_id(collection).is_some_and(|c| c.source.is_readable()))
}

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn problem(
    collection: i32,
) -> Result<
    TableIterator<
        'static,
        (name!(is_unusable, Option<bool>), name!(error, Option<String>), name!(hint, Option<String>)),
    >,
    ErrorReport,
> {
    let Some(c) = super::by_id(collection) else { return Ok(TableIterator::once((None, None, None))) };
    let owns = super::must_own(&c).is_ok();
    let watches = owns || role::watches_server();
    if !watches && !c.source.is_readable() {
        return Ok(TableIterator::once((None, None, None)));
    }
    let problem = c.check().err().or_else(|| c.is_incomplete());
    let is_unusable = problem.is_some();
    let (error, hint) = problem.map(|e| (e.message, e.hint)).unzip();
    Ok(TableIterator::once((Some(is_unusable), error.filter(|_| owns), hint.filter(|_| watches))))
}

#[pg_extern(sql = false)]
fn plain_text(value: pg_sys::FunctionCallInfo) -> Result<PlainText, ErrorReport> {
    Ok(uniform::text(value))
}

#[pg_extern(sql = false)]
fn plain_json(value: pg_sys::FunctionCallInfo) -> Result<PlainJson, ErrorReport> {
    Ok(uniform::json(value))
}

#[pg_trigger(sql = false)]
fn registry_changed<'a>(
    trigger: &'a pgrx::PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, AllocatedByPostgres>>, ErrorReport> {
    let call = TriggerCall::new(trigger);
    call.expect_own("registry_changed", &["collection", "generation", "chunk_owner", "changed_hands"]);
    invalidation::announce(call.relation());
    Ok(None)
}
