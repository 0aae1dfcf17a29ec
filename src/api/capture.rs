//! The trigger functions: `rag.capture`, `rag.wake_worker`, `rag.wake_at_commit`, `rag.is_capturing`.

use crate::pg::trigger::TriggerCall;
use crate::pg::wake;
use crate::store::{collection, queue};
use pgrx::heap_tuple::PgHeapTuple;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pgbox::AllocatedByPostgres;
use pgrx::prelude::*;

type TriggerResult<'a> = Result<Option<PgHeapTuple<'a, AllocatedByPostgres>>, ErrorReport>;

#[pg_trigger(sql = false)]
fn capture<'a>(trigger: &'a pgrx::PgTrigger<'a>) -> TriggerResult<'a> {
    let call = TriggerCall::new(trigger);
    let id = call.arguments().first().and_then(|a| a.parse().ok()).unwrap_or(-1);
    let collection = collection::by_id_now(id).filter(|c| queue::belongs_to(c, call.relation()));
    match collection {
        Some(collection) => queue::capture(&collection, &call),
        // A copy of the table's definition (LIKE ... INCLUDING ALL does not copy triggers, a restore without the
        // extension's data does): the table must stay writable.
        None => pgrx::warning!(
            "capture trigger of {} belongs to no collection; drop it or create the collection anew",
            call.relation_name()
        ),
    }
    Ok(None)
}

#[pg_trigger(sql = false)]
fn wake_worker<'a>(_trigger: &'a pgrx::PgTrigger<'a>) -> TriggerResult<'a> {
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
    Ok(queue::is_capturing(collection))
}
