//! Capture: what a source's triggers do when rows change, in the writer's transaction and as the writer.

use super::permit::Permit;
use super::statements::{capture, queue, restore};
use super::wake;
use crate::error::Error;
use crate::pg::role::{self, Settings};
use crate::pg::spi::{self, Snapshot, arg, quote};
use crate::pg::trigger::{Event, TriggerCall};
use crate::pg::xact;
use crate::registry::{self, Collection};
use pgrx::{PgLogLevel, PgSqlErrorCode};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::mem::ManuallyDrop;
use std::rc::{Rc, Weak};

/// A statement that touches more rows writes them to the queue in groups.
pub(super) const MOST_SINGLE_ROWS: usize = 50;
/// Beyond so many known partitions they are looked up anew.
const MAX_PARTITIONS: usize = 4096;

/// Partitions by collection and OID, as known while the collection's facts are the same.
type Partitions = HashMap<(i32, u32), Weak<Collection>>;

/// Of so many tables a session is told at most.
const MAX_TOLD: usize = 1000;

thread_local! {
    /// When a transaction began, a collection, and how many rows of it were captured in entries of their own.
    static CAPTURED: Cell<(i64, i32, usize)> = const { Cell::new((0, 0, 0)) };
    static TOLD: RefCell<HashSet<u32>> = RefCell::default();
    static PARTITIONS: ManuallyDrop<RefCell<Partitions>> = ManuallyDrop::new(RefCell::default());
}

/// Queues the rows a trigger call is about. False: the trigger belongs to no collection, or is none that
/// `rag.create_collection` makes: anybody may make triggers of this function.
pub fn capture(call: &TriggerCall<'_>) -> bool {
    if !call.comes_after_with_rows(capture::TRANSITION_TABLES) {
        return false;
    }
    let Some(c) = call.first_argument().and_then(|id| id.parse().ok()).and_then(registry::by_id) else { return false };
    if c.source.table != call.relation() && !is_partition(&c, call) {
        return false;
    }
    let _settings = Settings::for_capture();
    let _permit = Permit::give(c.id);
    spi::connect(|s| {
        if c.check().is_err() {
            // Its key or its content is no longer what it was. The table must stay writable; when the collection can be
            // used again, everything is compared.
            queue::compare_all(s, c.id);
        } else if call.is_for_row() {
            let (old, new) = call.rows();
            let args: Vec<_> = [arg(c.id), arg(is_of_many(c.id, 1))].into_iter().chain(old).chain(new).collect();
            s.query_kept(Snapshot::New, &capture::row_statement(&c, call.event(), call.relation()), &args);
        } else if call.event() == Event::Truncate {
            queue::compare_all(s, c.id);
        } else {
            s.register_trigger_data(call);
            match call.row_count() {
                0 => return,
                rows @ 1..=MOST_SINGLE_ROWS => {
                    let args = [arg(c.id), arg(is_of_many(c.id, rows))];
                    s.query_kept(Snapshot::New, &capture::statement(&c, call.event()), &args);
                }
                _ => {
                    s.query_kept(Snapshot::New, &capture::bulk_statement(&c, call.event()), &[arg(c.id)]);
                }
            }
        }
        wake::at_commit();
    });
    true
}

/// Whether these rows of a collection are beyond the first few that a transaction changes a few at a time, as where each row is
/// captured by itself, or a loop changes them.
fn is_of_many(collection: i32, rows: usize) -> bool {
    let transaction = xact::transaction_start();
    let before = match CAPTURED.get() {
        (known, of, rows) if (known, of) == (transaction, collection) => rows,
        _ => 0,
    };
    let all = before.saturating_add(rows);
    CAPTURED.set((transaction, collection, all));
    all > MOST_SINGLE_ROWS
}

/// Warns, once a session for each table, of a trigger that belongs to no collection. A dump of the table without what
/// pg_ragent has registered brings such triggers, and the table must stay writable.
pub fn tell_of_nothing(call: &TriggerCall<'_>) {
    let is_told = TOLD.with(|told| {
        let mut told = told.borrow_mut();
        told.len() >= MAX_TOLD || !told.insert(call.relation().to_u32())
    });
    // A restore may bring the collection after its table.
    if is_told || role::setting("application_name").is_some_and(|name| name == restore::PROGRAM) {
        return;
    }
    let (table, trigger) = (call.qualified_name(), quote(&call.name()));
    Error::new(
        PgSqlErrorCode::ERRCODE_WARNING,
        format!("capture trigger {trigger} of {table} belongs to no collection: changes are not noted"),
        format!(
            "To search the table: SELECT rag.create_collection(...), which removes what is left of former collections. Else: DROP TRIGGER {trigger} ON {table}."
        ),
    )
    .tell(PgLogLevel::WARNING);
}

/// Whether the table a trigger fires on is a partition of a collection's source.
fn is_partition(c: &Rc<Collection>, call: &TriggerCall<'_>) -> bool {
    let key = (c.id, call.relation().to_u32());
    // A partition that was detached has lost its triggers, so what is known stays true of those that fire.
    let known = PARTITIONS.with(|p| p.borrow().get(&key).is_some_and(|known| known.as_ptr() == Rc::as_ptr(c)));
    if known {
        return true;
    }
    let is_one = call.is_of_partition_of(c.source.table);
    if is_one {
        PARTITIONS.with(|p| {
            let mut partitions = p.borrow_mut();
            if partitions.len() >= MAX_PARTITIONS {
                partitions.clear();
            }
            partitions.insert(key, Rc::downgrade(c));
        });
    }
    is_one
}
