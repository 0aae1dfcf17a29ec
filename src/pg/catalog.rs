//! Catalog look-ups that must not depend on anybody's search_path or privileges.

use pgrx::{PgSqlErrorCode, pg_sys};
use std::ffi::{CStr, CString, c_int};
use std::time::{Duration, Instant};

/// The OID of pgvector's `vector`. Raises SQLSTATE 42704 where pgvector is not installed.
pub fn vector_type() -> pg_sys::Oid {
    let none = pg_sys::Datum::from(0usize);
    let found = extension_schema(c"vector").map(|schema| {
        // SAFETY: a syscache look-up inside a transaction; the keys of this cache are a name and a schema, and the
        // first column of pg_type is its OID.
        unsafe {
            pg_sys::GetSysCacheOid(
                pg_sys::SysCacheIdentifier::TYPENAMENSP as c_int,
                pg_sys::Anum_pg_type_oid as i16,
                pg_sys::Datum::from(c"vector".as_ptr()),
                pg_sys::Datum::from(schema),
                none,
                none,
            )
        }
    });
    found.filter(|oid| *oid != pg_sys::InvalidOid).unwrap_or_else(|| no_vector())
}

/// The schema pgvector is in, quoted. Raises SQLSTATE 42704 where it is not installed.
pub fn vector_schema() -> String {
    extension_schema(c"vector").and_then(schema_name).map_or_else(|| no_vector(), |name| super::spi::quote(&name))
}

fn no_vector() -> ! {
    crate::error::Error::new(
        PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
        "type \"vector\" does not exist",
        "Install pgvector: CREATE EXTENSION vector.",
    )
    .raise()
}

/// The schema an extension was created in, if it is there.
fn extension_schema(name: &CStr) -> Option<pg_sys::Oid> {
    let mut schema = None;
    // SAFETY: as in `connectable_databases`. The scan is closed on every path.
    unsafe {
        let relation = pg_sys::table_open(pg_sys::ExtensionRelationId, pg_sys::AccessShareLock as i32);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        while schema.is_none() {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let form = pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_extension>(tuple);
            if CStr::from_ptr((*form).extname.data.as_ptr()) == name {
                schema = Some((*form).extnamespace);
            }
        }
        pg_sys::table_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
    }
    schema
}

fn schema_name(oid: pg_sys::Oid) -> Option<String> {
    // SAFETY: a syscache look-up inside a transaction; the result is NULL or a palloc'd string, copied at once.
    unsafe {
        let name = pg_sys::get_namespace_name(oid);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}

/// The OID of a table by its schema and name, if it is there.
pub fn relation(schema: &str, name: &str) -> Option<pg_sys::Oid> {
    let schema = CString::new(schema).expect("names have no NUL");
    let name = CString::new(name).expect("names have no NUL");
    // SAFETY: syscache look-ups inside a transaction, which answer InvalidOid for what is not there.
    let oid = unsafe {
        let schema = pg_sys::get_namespace_oid(schema.as_ptr(), true);
        pg_sys::get_relname_relid(name.as_ptr(), schema)
    };
    (oid != pg_sys::InvalidOid).then_some(oid)
}

/// Those of these numbers that a column of a table has in a row that the running statement sees. The column is the first of the
/// index, which is looked into once for each: a small part of what the shortest query costs. For tables of the extension: nobody's
/// rights are asked. None where one of them is not there.
pub fn present(schema: &str, table: &str, column: &std::ffi::CStr, index: &str, numbers: &[i32]) -> Vec<i32> {
    let (Some(table), Some(index)) = (relation(schema, table), relation(schema, index)) else { return Vec::new() };
    // SAFETY: inside a query, so there is an active snapshot. Scan and relation are closed in the order PostgreSQL wants; an error in
    // between leaves them to the transaction's abort. The scan's key lives on this stack until its end.
    unsafe {
        let attribute = pg_sys::get_attnum(table, column.as_ptr());
        let relation = pg_sys::table_open(table, pg_sys::AccessShareLock as i32);
        let is_present = |number: &&i32| {
            let mut key = pg_sys::ScanKeyData::default();
            let (equal, int4eq) = (pg_sys::BTEqualStrategyNumber as u16, pg_sys::Oid::from_u32(pg_sys::F_INT4EQ));
            pg_sys::ScanKeyInit(&mut key, attribute, equal, int4eq, pg_sys::Datum::from(**number));
            let scan = pg_sys::systable_beginscan(relation, index, true, pg_sys::GetActiveSnapshot(), 1, &mut key);
            let is_present = !pg_sys::systable_getnext(scan).is_null();
            pg_sys::systable_endscan(scan);
            is_present
        };
        let present = numbers.iter().filter(is_present).copied().collect();
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
        present
    }
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
    // SAFETY: syscache look-ups in a transaction.
    let base = unsafe { pg_sys::getBaseTypeAndTypmod(oid, &mut modifier) };
    type_name(base, modifier)
}

/// Whether a type is a domain over an enum, or over such a domain.
pub fn is_domain_over_enum(oid: pg_sys::Oid) -> bool {
    // SAFETY: syscache look-ups in a transaction; of a type that is not there, both say so.
    unsafe {
        let base = pg_sys::getBaseType(oid);
        base != oid && pg_sys::get_typtype(base) == pg_sys::TYPTYPE_ENUM as std::ffi::c_char
    }
}

/// A type's name as SQL, qualified; of a domain, the domain's.
pub fn type_name(oid: pg_sys::Oid, modifier: i32) -> String {
    let flags = pg_sys::FORMAT_TYPE_TYPEMOD_GIVEN | pg_sys::FORMAT_TYPE_FORCE_QUALIFY;
    // SAFETY: syscache look-ups in a transaction; the result is a palloc'd string, copied at once.
    unsafe {
        let name = pg_sys::format_type_extended(oid, modifier, flags as u16);
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

/// The types whose definition decides what a column of this type is: itself, the base types of domains, the elements of
/// arrays.
pub fn types_within(oid: pg_sys::Oid) -> Vec<pg_sys::Oid> {
    let mut types = Vec::new();
    let mut next = oid;
    while next != pg_sys::InvalidOid && !types.contains(&next) {
        types.push(next);
        // SAFETY: syscache look-ups in a transaction, which answer for a type that is not there.
        next = unsafe {
            let base = pg_sys::getBaseType(next);
            if base == next { pg_sys::get_base_element_type(next) } else { base }
        };
    }
    types
}

/// How many rows a table was last found to have; None where nobody looked.
pub fn estimated_rows(relation: pg_sys::Oid) -> Option<f64> {
    // SAFETY: a syscache look-up inside a transaction; the tuple is read before it is released.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::RELOID as c_int, pg_sys::Datum::from(relation));
        if tuple.is_null() {
            return None;
        }
        let rows = (*pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_class>(tuple)).reltuples;
        pg_sys::ReleaseSysCache(tuple);
        (rows >= 0.0).then_some(f64::from(rows))
    }
}

/// Keeps everybody from altering or dropping a relation until the transaction ends; waits for those who do so now.
pub fn keep_definition(relation: pg_sys::Oid) {
    // SAFETY: inside a transaction. The lock of a reader; a relation that is not there can be locked, too.
    unsafe { pg_sys::LockRelationOid(relation, pg_sys::AccessShareLock as i32) }
}

/// As [`keep_definition`], if that needs no waiting; whether it is kept.
pub fn keep_definition_if_free(relation: pg_sys::Oid) -> bool {
    // SAFETY: as in `keep_definition`.
    unsafe { pg_sys::ConditionalLockRelationOid(relation, pg_sys::AccessShareLock as i32) }
}

/// How many blocks a table or an index has, without what PostgreSQL stores apart from its rows; `None` where it is gone. It asks
/// the file system, not a catalog.
pub fn blocks(relation: pg_sys::Oid) -> Option<u32> {
    // SAFETY: inside a transaction; the relation is closed again, and its lock given back, before this returns.
    unsafe {
        let relation = pg_sys::try_relation_open(relation, pg_sys::AccessShareLock as i32);
        if relation.is_null() {
            return None;
        }
        let blocks = pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM);
        pg_sys::relation_close(relation, pg_sys::AccessShareLock as i32);
        Some(blocks)
    }
}

/// Has whoever alters this table, or waits for such an end, wait for the end of this transaction; readers and writers do not.
pub fn hold_alterations(relation: pg_sys::Oid) {
    // SAFETY: as in `keep_definition`; given up at the end of the transaction.
    unsafe { pg_sys::LockRelationOid(relation, pg_sys::ShareUpdateExclusiveLock as i32) }
}

/// How a table is locked by [`lock_politely`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableLock {
    /// Against everybody else's DDL and maintenance.
    Definition,
    /// Against everybody.
    All,
}

/// Between two attempts to get a lock without waiting in line.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// Locks relations until the end of the transaction, without waiting in line: asked for now and then, a lock takes part in no
/// deadlock. Whether all of them were had within `patience`.
pub fn lock_politely(relations: &[pg_sys::Oid], lock: TableLock, patience: Duration) -> bool {
    let mode = match lock {
        TableLock::Definition => pg_sys::ShareUpdateExclusiveLock,
        TableLock::All => pg_sys::AccessExclusiveLock,
    };
    let begin = Instant::now();
    for relation in relations {
        // SAFETY: inside a transaction, whose end releases it; a relation that is not there can be locked, too.
        while !unsafe { pg_sys::ConditionalLockRelationOid(*relation, mode as i32) } {
            if begin.elapsed() >= patience {
                return false;
            }
            super::interrupt::sleep(BETWEEN_ATTEMPTS);
        }
    }
    true
}

/// The owner of this database.
pub fn database_owner() -> pg_sys::Oid {
    // SAFETY: a syscache look-up inside a transaction; the key is this database, and the tuple is read before it is
    // released.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::DATABASEOID as c_int,
            pg_sys::Datum::from(pg_sys::MyDatabaseId),
        );
        if tuple.is_null() {
            return pg_sys::InvalidOid;
        }
        let owner = (*pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_database>(tuple)).datdba;
        pg_sys::ReleaseSysCache(tuple);
        owner
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
