//! Locks of our own: advisory ones that no SQL function can take, so that nobody keeps the workers away. SQL sees them:
//! `rag_internal.worker_pids` finds the workers by these numbers.

use pgrx::pg_sys;
use std::cell::Cell;

/// "rag\0" in ASCII, in the second field of every lock of ours.
const CLASS: u32 = 0x7261_6700;
/// "ra" in ASCII: SQL's advisory locks have 1 or 2 in the fourth field.
const KIND: u16 = 0x7261;
/// "rc" in ASCII: that of the locks of copies, whose third field is a collection's number.
const KIND_OF_COPIES: u16 = 0x7263;
/// "rg" in ASCII: that of the locks of grants, in the same way.
const KIND_OF_GRANTS: u16 = 0x7267;
/// What the third field of a worker's lock begins at: "wrkr" in ASCII. The claims of collections are below it.
const FIRST_SLOT: u32 = 0x7772_6b72;

thread_local! {
    /// The lock that this process keeps.
    static KEPT: Cell<Option<Lock>> = const { Cell::new(None) };
}

/// Gives up the advisory locks that code of a table's owner left with this process, and takes again the one that it keeps.
pub fn release_left() {
    // SAFETY: releases locks of the session. No cleanup of PostgreSQL's own depends on those of this kind.
    unsafe { pg_sys::LockReleaseSession(pg_sys::USER_LOCKMETHOD as pg_sys::LOCKMETHODID) };
    if let Some(lock) = KEPT.get() {
        lock.keep();
    }
}

/// A lock in this database.
#[derive(Debug, Clone, Copy)]
pub struct Lock {
    number: u32,
    kind: u16,
}

impl Lock {
    /// Held by the worker of that place for its life.
    pub fn worker(slot: u32) -> Self {
        Self { number: FIRST_SLOT + slot, kind: KIND }
    }

    /// Held by whoever claims entries of a collection, until the end of the transaction.
    pub fn claims(collection: i32) -> Self {
        Self { number: collection.unsigned_abs() % (FIRST_SLOT - 1), kind: KIND }
    }

    /// Held by whoever makes copies of a collection's chunks or takes away chunks that may have some, until the end of the
    /// transaction.
    pub fn copies(collection: i32) -> Self {
        Self { number: collection.unsigned_abs(), kind: KIND_OF_COPIES }
    }

    /// Held by whoever makes the grants of a collection's chunk table, until the end of the transaction, which can be its owner's.
    pub fn grants(collection: i32) -> Self {
        Self { number: collection.unsigned_abs(), kind: KIND_OF_GRANTS }
    }

    fn tag(self) -> pg_sys::LOCKTAG {
        // SAFETY: reads a static.
        self.tag_in(unsafe { pg_sys::MyDatabaseId }.to_u32())
    }

    fn tag_in(self, database: u32) -> pg_sys::LOCKTAG {
        pg_sys::LOCKTAG {
            locktag_field1: database,
            locktag_field2: CLASS,
            locktag_field3: self.number,
            locktag_field4: self.kind,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        }
    }

    /// Whether another process holds it.
    pub fn is_taken(self) -> bool {
        !is_free(&self.tag(), pg_sys::ShareLock)
    }

    /// Whether a process holds the lock of that name of another database.
    pub fn is_taken_in(self, database: u32) -> bool {
        !is_free(&self.tag_in(database), pg_sys::ShareLock)
    }

    /// Takes it for the life of this process, if nobody else holds it; whether this process holds it now.
    ///
    /// To be asked for again now and then: code of a table's owner can make the process give up its advisory locks.
    pub fn keep(self) -> bool {
        let (tag, mode) = (self.tag(), pg_sys::ExclusiveLock as i32);
        // SAFETY: inside a transaction; a session lock, released by the end of the process. One that was held already is
        // counted twice, so one count is given back.
        let is_kept = unsafe {
            match pg_sys::LockAcquire(&tag, mode, true, true) {
                pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL => false,
                pg_sys::LockAcquireResult::LOCKACQUIRE_OK => true,
                _ => {
                    pg_sys::LockRelease(&tag, mode, true);
                    true
                }
            }
        };
        if is_kept {
            KEPT.set(Some(self));
        }
        is_kept
    }

    /// Takes it until the end of the transaction, if nobody else holds it; whether this process holds it now.
    pub fn hold_if_free(self) -> bool {
        let tag = self.tag();
        // SAFETY: inside a transaction, whose end releases it.
        let result = unsafe { pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as i32, false, true) };
        result != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }

    /// Takes it until the end of the transaction, waiting for whoever has it (`lock_timeout` ends that with an error).
    pub fn hold(self) {
        let tag = self.tag();
        // SAFETY: inside a transaction, whose end releases it.
        unsafe { pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as i32, false, false) };
    }
}

/// What is done to a database right now, which its workers would be in the way of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseIs {
    /// It is renamed, moved or dropped, or read as a template.
    Used,
    /// It is renamed, moved or dropped.
    Altered,
}

/// Whether something is done to a database, as its lock tells. Runs in a transaction.
pub fn database_is(what: DatabaseIs, database: u32) -> bool {
    let tag = pg_sys::LOCKTAG {
        locktag_field1: 0,
        locktag_field2: pg_sys::DatabaseRelationId.to_u32(),
        locktag_field3: database,
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    };
    !is_free(&tag, if what == DatabaseIs::Used { pg_sys::RowExclusiveLock } else { pg_sys::AccessShareLock })
}

/// Whether a lock could be had in a mode. Runs in a transaction.
fn is_free(tag: &pg_sys::LOCKTAG, mode: u32) -> bool {
    // SAFETY: a lock that was granted is released at once.
    unsafe {
        match pg_sys::LockAcquire(tag, mode as i32, false, true) {
            pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL => false,
            _ => {
                pg_sys::LockRelease(tag, mode as i32, false);
                true
            }
        }
    }
}
