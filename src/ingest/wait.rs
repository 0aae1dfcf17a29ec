//! `rag.wait_until_current`.

use super::statements::{failure, queue};
use super::wake;
use crate::error::{Error, Result};
use crate::pg::{interrupt, role, spi, worker, xact};
use crate::registry::{self, Collection};
use pgrx::PgSqlErrorCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often the queue is looked at. The worker has no way to tell a waiting backend.
const LOOK: Duration = Duration::from_millis(20);
/// How long a worker that was asked for may take to appear.
const WORKER_PATIENCE: Duration = Duration::from_secs(10);
/// How often it is made sure that there is anything to wait for.
const CHECK: Duration = Duration::from_secs(1);
/// How often progress is told.
const TELL: Duration = Duration::from_secs(5);

/// Waits until the entries queued by now are processed. False: `timeout` was over before.
///
/// Errors: 25001 the snapshot is fixed or the transaction itself queued entries, 55000 no worker runs, or the collection that was
/// named cannot be used.
pub fn until_current(collection: Option<&str>, timeout: Duration) -> Result<bool> {
    if xact::has_fixed_snapshot() {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_ACTIVE_SQL_TRANSACTION,
            "rag.wait_until_current cannot run in a REPEATABLE READ or SERIALIZABLE transaction",
            "Its results would not be visible there. Call it outside of that transaction.",
        ));
    }
    let collections: Vec<Rc<Collection>> = match collection {
        Some(name) => {
            let c = registry::readable(name)?;
            c.check()?;
            vec![c]
        }
        // Nobody waits for what somebody else has to do, unless it was named.
        None => {
            let unnamed = registry::unnamed();
            // Waiting reads no table, so having an owner's privileges is enough, also where only a superuser has them.
            let others = unnamed.left_out.into_iter().filter(|c| role::has_privileges_of(c.source.owner));
            unnamed.trusted.into_iter().map(|(_, c)| c).chain(others).filter(|c| is_served(c)).collect()
        }
    };
    let mut ids: Vec<i32> = collections.iter().map(|c| c.id).collect();
    // Numbers count rows that policies hide, so they are told of collections only whose rows the role sees all.
    let counted: Vec<i32> = collections.iter().filter(|c| registry::sees_all_rows(c)).map(|c| c.id).collect();
    let (mut up_to, mut comparing) = spi::with_latest_snapshot(|| queue::last_id(&ids));
    // It may not have been told of all: of rows that a prepared transaction brought, say.
    crate::pg::wake::now();
    let begin = Instant::now();
    let mut told = begin;
    let mut without_worker: Option<Instant> = None;
    let mut has_looked_again = false;
    let mut checked = begin;
    loop {
        let (left, own) = spi::with_latest_snapshot(|| queue::left(&ids, up_to));
        if !left && comparing {
            // What the comparison found missing was queued by it.
            (up_to, comparing) = spi::with_latest_snapshot(|| queue::last_id(&ids));
            continue;
        }
        if !left && !std::mem::replace(&mut has_looked_again, true) {
            // An entry whose key could not be read has everything compared: its row is found by that.
            let (last, is_asked_for) = spi::with_latest_snapshot(|| queue::last_id(&ids));
            if is_asked_for {
                (up_to, comparing) = (last, true);
                continue;
            }
        }
        if !left {
            warn_of_failures(&counted);
            return Ok(true);
        }
        if own {
            return Err(Error::new(
                PgSqlErrorCode::ERRCODE_ACTIVE_SQL_TRANSACTION,
                "rows changed by this transaction are not committed yet",
                "The worker sees them after COMMIT; call rag.wait_until_current then.",
            ));
        }
        if checked.elapsed() >= CHECK {
            checked = Instant::now();
            for c in ids.clone().into_iter().filter_map(registry::by_id) {
                match c.check() {
                    Err(e) if collection.is_some() => return Err(e),
                    Err(e) => {
                        registry::warn(&c.name, &e);
                        ids.retain(|id| *id != c.id);
                    }
                    Ok(()) => {}
                }
            }
        }
        if begin.elapsed() >= timeout {
            return Ok(false);
        }
        if wake::is_served() {
            without_worker = None;
        } else if let Some(since) = without_worker {
            if since.elapsed() > WORKER_PATIENCE {
                return Err(no_worker());
            }
        } else {
            without_worker = Some(Instant::now());
            if !wake::may_start() || !worker::start_for_this_database() {
                crate::pg::launcher_call::ask();
                return Err(no_worker());
            }
        }
        if told.elapsed() > TELL {
            told = Instant::now();
            if counted.len() == ids.len() {
                let rows = spi::with_latest_snapshot(|| queue::count_left(&ids, up_to));
                match rows {
                    1 => pgrx::notice!("1 row is still to be embedded"),
                    _ => pgrx::notice!("{rows} rows are still to be embedded"),
                }
            } else {
                pgrx::notice!("rows are still to be embedded");
            }
        }
        interrupt::wait(None, Some(LOOK.min(timeout.saturating_sub(begin.elapsed()))));
    }
}

/// Whether the worker works on a collection at all: not where its tables are not as it needs them.
fn is_served(c: &Collection) -> bool {
    c.check().inspect_err(|e| registry::warn(&c.name, e)).is_ok()
}

fn no_worker() -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "no worker runs in this database",
        "See the column hint of rag.status; usually max_worker_processes has no free slot, or rag.worker is off.",
    )
}

fn warn_of_failures(ids: &[i32]) {
    let failed = spi::with_latest_snapshot(|| failure::count(ids));
    match failed {
        0 => {}
        1 => pgrx::warning!("1 row could not be embedded, see rag.failures"),
        _ => pgrx::warning!("{failed} rows could not be embedded, see rag.failures"),
    }
}
