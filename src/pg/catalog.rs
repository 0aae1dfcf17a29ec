//! Catalog look-ups that must not depend on anybody's search_path or privileges.

use super::role::ActingAs;
use super::spi::{self, Mode};
use pgrx::{PgSqlErrorCode, pg_sys};

/// The OID of pgvector's `vector`.
pub fn vector_type() -> pg_sys::Oid {
    match vector_extension() {
        Some((oid, _, _)) => oid,
        None => crate::error::Error::new(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            "type \"vector\" does not exist",
            "Install pgvector: CREATE EXTENSION vector.",
        )
        .raise(),
    }
}

/// The schema pgvector is in, quoted, and its version.
pub fn vector_schema() -> (String, String) {
    match vector_extension() {
        Some((_, schema, version)) => (schema, version),
        None => {
            vector_type();
            unreachable!("vector_type raises")
        }
    }
}

fn vector_extension() -> Option<(pg_sys::Oid, String, String)> {
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(Mode::Read, crate::provider::statements::VECTOR_EXTENSION, &[]);
        rows.first().map(|row| (row.need(1), row.need(2), row.need(3)))
    })
}

/// The databases of the cluster that accept connections, for a process that is connected to none.
pub fn connectable_databases() -> Vec<(pg_sys::Oid, String)> {
    let mut databases = Vec::new();
    // SAFETY: pg_database is a shared catalog, readable without a database, inside a transaction. The scan and the
    // relation are closed in the order PostgreSQL wants; an error in between ends the launcher.
    unsafe {
        let relation = pg_sys::table_open(pg_sys::DatabaseRelationId, pg_sys::AccessShareLock as i32);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let form = pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_database>(tuple);
            if (*form).datallowconn && !(*form).datistemplate {
                let name = std::ffi::CStr::from_ptr((*form).datname.data.as_ptr());
                databases.push(((*form).oid, name.to_string_lossy().into_owned()));
            }
        }
        pg_sys::table_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
    }
    databases
}

/// PostgreSQL's share directory.
pub fn share_dir() -> std::path::PathBuf {
    let mut path = [0 as std::ffi::c_char; pg_sys::MAXPGPATH as usize];
    // SAFETY: my_exec_path is set at server start; the callee writes at most MAXPGPATH bytes, NUL included.
    let path = unsafe {
        pg_sys::get_share_path((&raw const pg_sys::my_exec_path).cast(), path.as_mut_ptr());
        std::ffi::CStr::from_ptr(path.as_ptr())
    };
    std::path::PathBuf::from(path.to_string_lossy().into_owned())
}

/// Makes a misspelt `rag....` setting an error rather than a silent placeholder.
pub fn reserve_setting_prefix() {
    // SAFETY: a NUL-terminated constant.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"rag".as_ptr()) }
}

/// A type's name as SQL, qualified; of a domain, its base type's.
pub fn base_type_name(oid: pg_sys::Oid, mut modifier: i32) -> String {
    // SAFETY: syscache look-ups in a transaction; the result is a palloc'd string, copied at once.
    unsafe {
        let base = pg_sys::getBaseTypeAndTypmod(oid, &mut modifier);
        let flags = pg_sys::FORMAT_TYPE_TYPEMOD_GIVEN | pg_sys::FORMAT_TYPE_FORCE_QUALIFY;
        let name = pg_sys::format_type_extended(base, modifier, flags as u16);
        std::ffi::CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}

/// Whether a type, its elements and its base are PostgreSQL's own: whether no code of anybody else belongs to it.
pub fn is_built_in_type(oid: pg_sys::Oid) -> bool {
    // A column that is gone has none.
    if oid == pg_sys::InvalidOid {
        return true;
    }
    // SAFETY: syscache look-ups in a transaction.
    unsafe {
        let base = pg_sys::getBaseType(oid);
        let element = pg_sys::get_base_element_type(base);
        let innermost = if element == pg_sys::InvalidOid { base } else { pg_sys::getBaseType(element) };
        innermost.to_u32() < pg_sys::FirstNormalObjectId
    }
}

/// Makes `dependent` go when `referenced` is dropped, without CASCADE.
pub fn depend_on(dependent: pg_sys::Oid, referenced: pg_sys::Oid) {
    let address = |oid| pg_sys::ObjectAddress { classId: pg_sys::RelationRelationId, objectId: oid, objectSubId: 0 };
    // SAFETY: both addresses name relations that exist and live for the call.
    unsafe {
        pg_sys::recordDependencyOn(&address(dependent), &address(referenced), pg_sys::DependencyType::DEPENDENCY_AUTO);
    }
}
