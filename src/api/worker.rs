//! `rag.start_worker`, `rag.wait_until_current`, `rag.retry_failures`, `rag.row_counts`.

use super::required;
use crate::actions::{self, wait};
use crate::error::Error;
use crate::pg::{role, wake, worker};
use crate::store::{collection, queue, source};
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::time::Duration;

#[pg_extern(sql = false)]
fn start_worker() -> Result<bool, ErrorReport> {
    if worker::is_running() || !worker::may_start() {
        return Ok(false);
    }
    wake::at_commit();
    Ok(true)
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
            let c = actions::existing_collection(&name)?;
            actions::must_own(&c)?;
            vec![c.id]
        }
        None => {
            collection::all(role::current()).iter().filter(|c| actions::must_own(c).is_ok()).map(|c| c.id).collect()
        }
    };
    Ok(queue::retry_failures(&ids))
}

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn row_counts(
    collection: i32,
) -> Result<TableIterator<'static, (name!(rows, Option<i64>), name!(chunks, Option<i64>))>, ErrorReport> {
    let counts = collection::by_id_as(collection, role::current()).and_then(|c| source::row_counts(&c));
    Ok(TableIterator::once((counts.map(|c| c.0), counts.map(|c| c.1))))
}
