//! `rag_internal.may_read`; the trigger function `rag_internal.registry_changed`.

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

#[pg_trigger(sql = false)]
fn registry_changed<'a>(
    trigger: &'a pgrx::PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, AllocatedByPostgres>>, ErrorReport> {
    let call = TriggerCall::new(trigger);
    call.expect_own("registry_changed", &["collection", "generation"]);
    invalidation::announce(call.relation());
    Ok(None)
}
