//! Commands of our own that must be carried out as a superuser although event triggers of the database may not run as one
//! at somebody else's bidding: their code is found by the caller's search_path. So these go past them.

use pgrx::pg_sys;
use std::ffi::CString;

/// Creates a trigger on `table` (and on its partitions, if it is partitioned), by one CREATE TRIGGER statement whose own
/// table name is not looked at.
pub fn create_trigger(table: pg_sys::Oid, sql: &str) {
    let text = CString::new(sql).expect("statements of ours have no NUL");
    let none = pg_sys::InvalidOid;
    // SAFETY: the parse tree is that of a CREATE TRIGGER, which needs no analysis before it is carried out, and lives in the
    // current memory context as the text lives in this function; `table` is locked by the callee, which raises an error
    // where it is gone.
    unsafe {
        let statement = parse(&text, pg_sys::NodeTag::T_CreateTrigStmt);
        pg_sys::CreateTrigger(
            statement.cast(),
            text.as_ptr(),
            table,
            none,
            none,
            none,
            none,
            none,
            std::ptr::null_mut(),
            false,
            false,
        );
        pg_sys::CommandCounterIncrement();
    }
}

/// Drops a trigger, with its copies on partitions.
pub fn drop_trigger(trigger: pg_sys::Oid) {
    let address = pg_sys::ObjectAddress { classId: pg_sys::TriggerRelationId, objectId: trigger, objectSubId: 0 };
    // SAFETY: the address lives for the call; the callee locks the table, and raises an error where the trigger is gone.
    unsafe {
        pg_sys::performDeletion(
            &address,
            pg_sys::DropBehavior::DROP_RESTRICT,
            pg_sys::PERFORM_DELETION_INTERNAL as std::ffi::c_int,
        );
        pg_sys::CommandCounterIncrement();
    }
}

/// Says when a trigger of a table fires: `mode` is a value of `pg_trigger.tgenabled`.
pub fn set_trigger_mode(table: pg_sys::Oid, name: &str, mode: i8) {
    const LOCK: pg_sys::LOCKMODE = pg_sys::ShareRowExclusiveLock as pg_sys::LOCKMODE;
    let name = CString::new(name).expect("names have no NUL");
    // SAFETY: the table is opened with the lock that ALTER TABLE takes for this, which is kept until the transaction ends; the
    // callee raises an error where there is no such trigger.
    unsafe {
        let relation = pg_sys::table_open(table, LOCK);
        #[cfg(feature = "pg15")]
        pg_sys::EnableDisableTrigger(relation, name.as_ptr(), mode as std::ffi::c_char, false, LOCK);
        #[cfg(not(feature = "pg15"))]
        pg_sys::EnableDisableTrigger(
            relation,
            name.as_ptr(),
            pg_sys::InvalidOid,
            mode as std::ffi::c_char,
            false,
            false,
            LOCK,
        );
        pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        pg_sys::CommandCounterIncrement();
    }
}

/// The parse tree of a text that is one statement of that kind.
///
/// # Safety
/// Must be called in a transaction; the tree lives as long as the current memory context.
unsafe fn parse(text: &CString, kind: pg_sys::NodeTag) -> *mut pg_sys::Node {
    // SAFETY: the text is NUL-terminated; the list has RawStmt nodes, each with a statement.
    let statements = unsafe {
        pgrx::PgList::<pg_sys::RawStmt>::from_pg(pg_sys::pg_parse_query(text.as_ptr()))
            .iter_ptr()
            .map(|raw| (*raw).stmt)
            .collect::<Vec<_>>()
    };
    match statements[..] {
        // SAFETY: each node begins with its tag.
        [statement] if unsafe { (*statement).type_ } == kind => statement,
        _ => crate::error::Error::new(
            pgrx::PgSqlErrorCode::ERRCODE_SYNTAX_ERROR,
            "this is not the one statement that was expected",
            "This is called by pg_ragent only.",
        )
        .raise(),
    }
}
