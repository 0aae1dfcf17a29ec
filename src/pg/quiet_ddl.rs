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
