//! Collections as this process knows them, read once and kept until something they are made of changes.

use super::{Collection, statements};
use crate::pg::catalog;
use crate::pg::invalidation::{self, Change};
use crate::pg::role;
use pgrx::pg_sys;
use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::rc::Rc;

#[derive(Default)]
struct Cache {
    collections: HashMap<i32, Rc<Collection>>,
    /// Numbers of collections by their chunk tables, as far as those were asked for.
    by_chunk_table: HashMap<pg_sys::Oid, i32>,
    /// Numbers of all collections with their sources, by name.
    all: Option<Vec<(i32, pg_sys::Oid)>>,
    /// `rag_internal.collection`, `generation`, `chunk_owner` and `changed_hands`, whose rows the above were read from.
    registry: Vec<pg_sys::Oid>,
}

thread_local! {
    // Never dropped: plans must not be freed while the process is already exiting.
    static CACHE: ManuallyDrop<RefCell<Cache>> = ManuallyDrop::new(RefCell::default());
}

/// The collection of that number.
pub fn by_id(id: i32) -> Option<Rc<Collection>> {
    refresh();
    let kept = CACHE.with(|cache| cache.borrow().collections.get(&id).cloned());
    kept.or_else(|| read(|| statements::by_id(id)))
}

/// The collection of that name.
pub fn by_name(name: &str) -> Option<Rc<Collection>> {
    refresh();
    let kept = CACHE.with(|cache| cache.borrow().collections.values().find(|c| c.name == name).cloned());
    kept.or_else(|| read(|| statements::by_name(name)))
}

/// The collection whose chunks, of the generation that serves, are in this table.
pub fn by_chunk_table(table: pg_sys::Oid) -> Option<Rc<Collection>> {
    refresh();
    let kept = CACHE.with(|cache| {
        let cache = cache.borrow();
        cache.collections.get(cache.by_chunk_table.get(&table)?).filter(|c| c.vectors.table == table).cloned()
    });
    kept.or_else(|| {
        let found = by_id(statements::id_by_chunk_table(table)?)?;
        CACHE.with(|cache| cache.borrow_mut().by_chunk_table.insert(table, found.id));
        Some(found)
    })
}

/// All collections, by name.
pub fn all() -> Vec<Rc<Collection>> {
    ids().into_iter().filter_map(|(id, _)| by_id(id)).collect()
}

/// All collections the current role may read, by name. What is known of the others is not read for that: it costs milliseconds
/// for each.
pub fn all_readable() -> Vec<Rc<Collection>> {
    let may_be_readable = ids().into_iter().filter(|(_, source)| role::may_select_any(*source));
    may_be_readable.filter_map(|(id, _)| by_id(id)).filter(|c| c.source.is_readable()).collect()
}

fn ids() -> Vec<(i32, pg_sys::Oid)> {
    refresh();
    let known = CACHE.with(|cache| cache.borrow().all.clone());
    known.unwrap_or_else(|| {
        let before = begin();
        let ids = statements::ids();
        if invalidation::count() == before {
            CACHE.with(|cache| cache.borrow_mut().all = Some(ids.clone()));
        }
        ids
    })
}

/// Reads a collection, and keeps it if it can be used and nothing changed meanwhile. One that cannot be used is read anew
/// each time: what would mend it is not always announced.
fn read(reader: impl FnOnce() -> Option<Collection>) -> Option<Rc<Collection>> {
    let before = begin();
    let found = Rc::new(reader()?);
    if invalidation::count() == before && found.check().is_ok() {
        CACHE.with(|cache| cache.borrow_mut().collections.insert(found.id, found.clone()));
    }
    Some(found)
}

/// Before something is read: which tables it comes from, and how many changes are known by then.
fn begin() -> u64 {
    let tables = ["collection", "generation", "chunk_owner", "changed_hands"];
    let registry = tables.iter().filter_map(|name| catalog::relation("rag_internal", name)).collect();
    CACHE.with(|cache| {
        let mut cache = cache.borrow_mut();
        if cache.registry != registry {
            *cache = Cache { registry, ..Cache::default() };
        }
    });
    invalidation::count()
}

/// Forgets what changed.
fn refresh() {
    let changes = invalidation::take();
    if changes.is_empty() {
        return;
    }
    CACHE.with(|cache| {
        let mut cache = cache.borrow_mut();
        for change in changes {
            cache.forget(change);
        }
    });
}

impl Cache {
    fn forget(&mut self, change: Change) {
        match change {
            Change::Everything => *self = Self::default(),
            Change::Relation(oid) if self.registry.contains(&oid) => *self = Self::default(),
            Change::Relation(oid) => self.collections.retain(|_, c| c.source.table != oid && c.vectors.table != oid),
            Change::Type(hash) => self.collections.retain(|_, c| !c.source.types.contains(&hash)),
        }
    }
}
