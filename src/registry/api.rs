//! `rag_internal.may_read`, `rag_internal.problem`; the trigger function `rag_internal.registry_changed`.

use crate::pg::invalidation;
use crate::pg::trigger::TriggerCall;
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
) -> Result<TableIterator<'static, (name!(error, Option<String>), name!(hint, Option<String>))>, ErrorReport> {
    let owned = super::by_id(collection).filter(|c| super::must_own(c).is_ok());
    let problem = owned.and_then(|c| c.check().err().or_else(|| c.is_incomplete()));
    Ok(TableIterator::once((problem.as_ref().map(|e| e.message.clone()), problem.map(|e| e.hint))))
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
