//! The capture triggers of a source: made, mended and removed as `rag_internal.capture_triggers` says.
//!
//! As a superuser, since nobody else may make a trigger of their function, and past event triggers of the database, which may run
//! as the owner only. Whoever calls this has checked that the owner, or a command of the owner's, asks for it.

use crate::pg::jsonb::Jsonb;
use crate::pg::quiet_ddl;
use crate::pg::role::ActingAs;
use crate::pg::spi::{self, Snapshot, arg};
use pgrx::pg_sys;

/// What is to be mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// When triggers fire that are enabled.
    Modes,
    /// That, what partitions miss, and what tables have that are no partitions any more.
    Partitions,
    /// Everything.
    All,
}

/// A trigger as it should be, and what is there of it.
struct Trigger {
    relation: pg_sys::Oid,
    name: String,
    /// It comes and goes with the one of the whole table.
    is_clone: bool,
    /// What makes it.
    definition: String,
    /// `pg_trigger.tgenabled` as it should be.
    mode: i8,
    found: Found,
    /// The trigger of its name, whatever that is.
    id: Option<pg_sys::Oid>,
}

#[derive(PartialEq, Eq)]
enum Found {
    Nothing,
    /// A trigger of its name that is another.
    Another,
    /// It, with this mode.
    Enabled(i8),
    Disabled,
}

impl Trigger {
    fn all(collection: i32) -> Vec<Self> {
        const SQL: &str = "SELECT t.relation, t.name, t.is_clone, t.definition, t.mode, t.found, t.id
            FROM rag_internal.capture_triggers($1) t ORDER BY t.is_clone, t.relation, t.name";
        spi::connect(|s| {
            let rows = s.query(Snapshot::New, SQL, &[arg(collection)]);
            let found = |mode: Option<i8>| match mode.map(|mode| (mode, mode as u8)) {
                None => Found::Nothing,
                Some((_, b'-')) => Found::Another,
                Some((_, b'D')) => Found::Disabled,
                Some((mode, _)) => Found::Enabled(mode),
            };
            rows.iter()
                .map(|row| Self {
                    relation: row.need_named("relation"),
                    name: row.need_named("name"),
                    is_clone: row.need_named("is_clone"),
                    definition: row.need_named("definition"),
                    mode: row.need_named("mode"),
                    found: found(row.named("found")),
                    id: row.named("id"),
                })
                .collect()
        })
    }

    fn is_there(&self) -> bool {
        matches!(self.found, Found::Enabled(_) | Found::Disabled)
    }
}

/// Makes the triggers of a collection as they should be.
pub fn restore(collection: i32, what: Repair) {
    let _acting = ActingAs::superuser();
    if what != Repair::Modes {
        remove_others(collection);
    }
    let is_of_partition = {
        let source = source(collection);
        move |t: &Trigger| Some(t.relation) != source
    };
    if what == Repair::All {
        let triggers = Trigger::all(collection);
        // What is not copied rightly is copied anew, with what it is a copy of.
        let is_spoilt = |t: &Trigger| {
            !is_of_partition(t) && triggers.iter().any(|copy| copy.is_clone && copy.name == t.name && !copy.is_there())
        };
        let spoilt = triggers.iter().filter(|t| !t.is_clone && (t.found == Found::Another || is_spoilt(t)));
        spoilt.filter_map(|t| t.id).for_each(quiet_ddl::drop_trigger);
    }
    if what != Repair::Modes {
        let missing =
            |t: &Trigger| !t.is_clone && t.found == Found::Nothing && (what == Repair::All || is_of_partition(t));
        for trigger in Trigger::all(collection).into_iter().filter(missing) {
            quiet_ddl::create_trigger(trigger.relation, &trigger.definition);
        }
    }
    for trigger in Trigger::all(collection) {
        let is_wrong = match trigger.found {
            Found::Enabled(mode) => mode != trigger.mode,
            Found::Disabled => what == Repair::All,
            Found::Nothing | Found::Another => false,
        };
        if is_wrong {
            quiet_ddl::set_trigger_mode(trigger.relation, &trigger.name, trigger.mode);
        }
    }
}

/// Removes all triggers of a collection.
pub fn remove(collection: i32) {
    let _acting = ActingAs::superuser();
    remove_others(collection);
    let own = Trigger::all(collection).into_iter().filter(|t| !t.is_clone && t.is_there());
    own.filter_map(|t| t.id).for_each(quiet_ddl::drop_trigger);
}

/// Removes triggers of a collection from where they should not be.
fn remove_others(collection: i32) {
    const SQL: &str = "SELECT l.id FROM rag_internal.collection c
        CROSS JOIN LATERAL rag_internal.capture_leftovers(c.id, c.source) l WHERE c.id = $1";
    let ids: Vec<pg_sys::Oid> =
        spi::connect(|s| s.query(Snapshot::New, SQL, &[arg(collection)]).iter().map(|row| row.need(1)).collect());
    ids.into_iter().for_each(quiet_ddl::drop_trigger);
}

fn source(collection: i32) -> Option<pg_sys::Oid> {
    const SQL: &str = "SELECT c.source::pg_catalog.oid FROM rag_internal.collection c WHERE c.id = $1";
    spi::connect(|s| s.query(Snapshot::New, SQL, &[arg(collection)]).one())
}

/// Forgets that capture of a collection was off.
pub fn close_gap(collection: i32) {
    const SQL: &str = "SELECT rag_internal.close_gap($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.run(SQL, &[arg(collection)]));
}

/// Triggers of a collection that are not as they should be.
pub struct Faults {
    /// How many.
    pub count: i64,
    /// One of them.
    pub example: Jsonb,
    /// What `rag_internal.capture_state` says.
    pub state: String,
}

/// The faults of a collection's triggers, if there are any, as the calling query sees them.
pub fn faults(collection: i32) -> Option<Faults> {
    const SQL: &str = "SELECT pg_catalog.count(*) AS count,
               pg_catalog.min(pg_catalog.jsonb_build_object('table', t.relation_name, 'trigger', t.name)::pg_catalog.text
                              COLLATE pg_catalog.\"C\")::pg_catalog.jsonb AS example,
               rag_internal.describe_capture($1) AS state
        FROM rag_internal.capture_triggers($1) t WHERE t.found IS DISTINCT FROM t.mode";
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Snapshot::Active, SQL, &[arg(collection)]);
        let row = rows.first()?;
        Some(Faults { count: row.need_named("count"), example: row.named("example")?, state: row.named("state")? })
    })
}

/// Whether changes of a collection's source are captured: `on`, or what is wrong. `None`: the source is gone.
pub fn state(collection: i32) -> Option<String> {
    const SQL: &str = "SELECT rag_internal.describe_capture($1)";
    let _acting = ActingAs::superuser();
    spi::connect(|s| s.query(Snapshot::Active, SQL, &[arg(collection)]).one())
}
