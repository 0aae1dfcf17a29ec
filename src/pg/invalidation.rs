//! What changed in the catalogs, by this process or another, since it was last asked: what PostgreSQL's own caches are
//! told, kept for a cache of ours.

use pgrx::pg_sys;
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::mem::ManuallyDrop;

/// Something that a cache must no longer rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Whatever it holds.
    Everything,
    /// A table, index or view: its definition, its columns, its triggers, its statistics.
    Relation(pg_sys::Oid),
    /// A type, by the hash [`type_hash`] gives.
    Type(u32),
}

/// Beyond so many changes at a time they count as [`Change::Everything`].
const MAX_CHANGES: usize = 128;

thread_local! {
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static OVERFLOWN: Cell<bool> = const { Cell::new(false) };
    static CHANGES: ManuallyDrop<RefCell<Vec<Change>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// The changes since the last call, those that other processes have committed by now among them. The first call returns
/// none: nothing can have been cached before.
///
/// Runs inside a transaction.
pub fn take() -> Vec<Change> {
    register();
    // SAFETY: in a transaction, as at every lock PostgreSQL takes.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    if OVERFLOWN.replace(false) {
        CHANGES.with(|changes| changes.borrow_mut().clear());
        return vec![Change::Everything];
    }
    CHANGES.with(|changes| {
        let mut changes = changes.borrow_mut();
        let taken = changes.clone();
        changes.clear();
        taken
    })
}

/// How many changes this process has learned of. When it differs after something was read from the catalogs, what was
/// read may be out of date.
pub fn count() -> u64 {
    COUNT.get()
}

/// Tells every process, this one included, that it must read anew what it knows of a relation: others when this
/// transaction commits, this one after the current command.
pub fn announce(relation: pg_sys::Oid) {
    // SAFETY: inside a transaction; an error for a relation that is not there ends it.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(relation) }
}

/// The hash by which [`Change::Type`] names a type.
pub fn type_hash(oid: pg_sys::Oid) -> u32 {
    let none = pg_sys::Datum::from(0usize);
    // SAFETY: the key of this cache is one OID.
    unsafe {
        pg_sys::GetSysCacheHashValue(
            pg_sys::SysCacheIdentifier::TYPEOID as c_int,
            pg_sys::Datum::from(oid),
            none,
            none,
            none,
        )
    }
}

fn register() {
    if REGISTERED.replace(true) {
        return;
    }
    CHANGES.with(|changes| changes.borrow_mut().reserve_exact(MAX_CHANGES));
    let none = pg_sys::Datum::from(0usize);
    // SAFETY: registered once in this process, for its life; the callbacks follow the rules for such.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(relation_changed), none);
        for cache in [
            pg_sys::SysCacheIdentifier::TYPEOID,
            pg_sys::SysCacheIdentifier::OPEROID,
            pg_sys::SysCacheIdentifier::NAMESPACEOID,
            // A plan has the policies for the roles whose privileges the asker had when it was made; PostgreSQL keeps it
            // when that changes.
            pg_sys::SysCacheIdentifier::AUTHMEMROLEMEM,
            pg_sys::SysCacheIdentifier::AUTHOID,
        ] {
            pg_sys::CacheRegisterSyscacheCallback(cache as c_int, Some(catalog_changed), none);
        }
    }
}

// The callbacks run wherever PostgreSQL reads its messages, also while a transaction aborts: they look at no catalog,
// allocate nothing and raise nothing.

unsafe extern "C-unwind" fn relation_changed(_argument: pg_sys::Datum, relation: pg_sys::Oid) {
    note(if relation == pg_sys::InvalidOid { Change::Everything } else { Change::Relation(relation) });
}

unsafe extern "C-unwind" fn catalog_changed(_argument: pg_sys::Datum, cache: c_int, hash: u32) {
    // Operators, schemas and roles change rarely, types with every temporary table. A hash of 0 means all.
    let is_type = cache == pg_sys::SysCacheIdentifier::TYPEOID as c_int;
    note(if is_type && hash != 0 { Change::Type(hash) } else { Change::Everything });
}

fn note(change: Change) {
    COUNT.set(COUNT.get().wrapping_add(1));
    CHANGES.with(|changes| match changes.try_borrow_mut() {
        Ok(changes) if changes.last() == Some(&change) => {}
        Ok(mut changes) if change != Change::Everything && changes.len() < MAX_CHANGES => changes.push(change),
        _ => OVERFLOWN.set(true),
    });
}
