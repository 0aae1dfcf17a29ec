//! What a capture trigger is told by PostgreSQL.

use super::catalog;
use crate::error::Error;
use pgrx::datum::DatumWithOid;
use pgrx::{PgTrigger, PgTriggerLevel, PgTriggerOperation, pg_sys};

unsafe extern "C-unwind" {
    // PostgreSQL's catalog/partition.h, which pgrx does not bind.
    fn get_partition_ancestors(relation: pg_sys::Oid) -> *mut pg_sys::List;
}

/// One call of a trigger function.
pub struct TriggerCall<'a>(&'a PgTrigger<'a>);

/// What happened to the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Rows came.
    Insert,
    /// Rows changed.
    Update,
    /// Rows went.
    Delete,
    /// All rows went.
    Truncate,
}

impl<'a> TriggerCall<'a> {
    /// Wraps pgrx's view of the call.
    pub fn new(trigger: &'a PgTrigger<'a>) -> Self {
        Self(trigger)
    }

    /// Raises SQLSTATE 42501 unless the trigger is on one of these tables of the extension's own (in `rag_internal`), whoever
    /// made it.
    pub fn expect_own(&self, function: &str, tables: &[&str]) {
        let relation = self.relation();
        if tables.iter().any(|name| catalog::relation("rag_internal", name) == Some(relation)) {
            return;
        }
        Error::denied(
            format!(
                "rag_internal.{function}() is a trigger of rag_internal.{}, not of {}",
                tables.join(" and rag_internal."),
                self.relation_name()
            ),
            "Drop this trigger.",
        )
        .raise()
    }

    /// The raw data, for SPI.
    pub fn as_ptr(&self) -> *mut pg_sys::TriggerData {
        std::ptr::from_ref(self.0.trigger_data()).cast_mut()
    }

    /// What happened.
    pub fn event(&self) -> Event {
        match self.0.op() {
            Ok(PgTriggerOperation::Insert) => Event::Insert,
            Ok(PgTriggerOperation::Update) => Event::Update,
            Ok(PgTriggerOperation::Delete) => Event::Delete,
            Ok(PgTriggerOperation::Truncate) => Event::Truncate,
            Err(e) => panic!("trigger without an operation: {e}"),
        }
    }

    /// Whether it is called for each row (partitioned tables) rather than for each statement.
    pub fn is_for_row(&self) -> bool {
        matches!(self.0.level(), PgTriggerLevel::Row)
    }

    /// The trigger's name.
    pub fn name(&self) -> String {
        self.0.name().map(str::to_owned).unwrap_or_default()
    }

    /// Whether the trigger runs after its event and, where it is called for each statement, has the rows before and after in
    /// transition tables of these names.
    pub fn comes_after_with_rows(&self, (old, new): (&str, &str)) -> bool {
        let data = self.0.trigger_data();
        // SAFETY: the trigger of the call under way; names are NULL or NUL-terminated.
        let (is_after, is_constraint, has_old, has_new) = unsafe {
            let trigger = &*data.tg_trigger;
            let is_called = |name: *mut std::ffi::c_char, wanted: &str| {
                !name.is_null() && std::ffi::CStr::from_ptr(name).to_bytes() == wanted.as_bytes()
            };
            (
                data.tg_event & pg_sys::TRIGGER_EVENT_TIMINGMASK == pg_sys::TRIGGER_EVENT_AFTER,
                trigger.tgconstraint != pg_sys::InvalidOid,
                is_called(trigger.tgoldtable, old),
                is_called(trigger.tgnewtable, new),
            )
        };
        let has_rows = match self.event() {
            _ if self.is_for_row() => true,
            Event::Truncate => true,
            Event::Insert => has_new,
            Event::Delete => has_old,
            Event::Update => has_old && has_new,
        };
        is_after && !is_constraint && has_rows
    }

    /// How many rows the statement touched, where they are in transition tables.
    pub fn row_count(&self) -> usize {
        let data = self.0.trigger_data();
        let table = if data.tg_newtable.is_null() { data.tg_oldtable } else { data.tg_newtable };
        if table.is_null() {
            return 0;
        }
        // SAFETY: a transition table of the call under way.
        unsafe { pg_sys::tuplestore_tuple_count(table) as usize }
    }

    /// The first of the arguments given in CREATE TRIGGER.
    pub fn first_argument(&self) -> Option<String> {
        self.0.extra_args().ok()?.into_iter().next()
    }

    /// The table (for a partition: the partition).
    pub fn relation(&self) -> pg_sys::Oid {
        self.0.relid().unwrap_or(pg_sys::InvalidOid)
    }

    /// Whether the table is a partition of `parent`, at whatever depth.
    pub fn is_of_partition_of(&self, parent: pg_sys::Oid) -> bool {
        // SAFETY: a catalog look-up inside a transaction, whose errors are passed on; the list is empty for a table that is
        // no partition.
        unsafe {
            let list = pg_sys::ffi::pg_guard_ffi_boundary(|| get_partition_ancestors(self.relation()));
            pgrx::PgList::<pg_sys::Oid>::from_pg(list).iter_oid().any(|ancestor| ancestor == parent)
        }
    }

    /// The table's name, for messages.
    pub fn relation_name(&self) -> String {
        self.0.table_name().unwrap_or_default()
    }

    /// Its schema and name, quoted.
    pub fn qualified_name(&self) -> String {
        let schema = self.0.table_schema().unwrap_or_default();
        format!("{}.{}", super::spi::quote(&schema), super::spi::quote(&self.relation_name()))
    }

    /// The row before and the row after, as composite values of the table's row type.
    pub fn rows(&self) -> (Option<DatumWithOid<'a>>, Option<DatumWithOid<'a>>) {
        let event = self.event();
        let old = matches!(event, Event::Update | Event::Delete).then(|| self.0.old()).flatten();
        let new = matches!(event, Event::Update | Event::Insert).then(|| self.0.new()).flatten();
        (old.and_then(|t| self.composite(t)), new.and_then(|t| self.composite(t)))
    }

    fn composite(
        &self,
        tuple: pgrx::heap_tuple::PgHeapTuple<'_, pgrx::pgbox::AllocatedByPostgres>,
    ) -> Option<DatumWithOid<'a>> {
        // SAFETY: a table has a row type, and the tuple is a row of that table. The conversion copies it into the
        // trigger's memory context, which outlives the call.
        unsafe {
            let row_type = pg_sys::get_rel_type_id(self.relation());
            Some(DatumWithOid::new(tuple, row_type))
        }
    }
}
