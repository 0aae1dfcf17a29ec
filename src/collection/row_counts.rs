//! How many rows and chunks a collection has, for `rag.status`.

use super::statements::{Counted, count};
use crate::pg::role::{self, ActingAs};
use crate::registry::{self, Asker, Collection};
use std::rc::Rc;

/// Rows of a collection's source and its chunks, as far as the current role may see them. None without the right to read,
/// and where counting would run code of an owner whom the role does not trust.
pub fn row_counts(c: &Rc<Collection>) -> Option<(i64, i64)> {
    if !c.source.is_readable() || c.check().is_err() || Asker::now().trust(c).is_none() {
        return None;
    }
    registry::attempt(c, |c| {
        // Where policies decide, they are asked on the role's behalf; else everything counts, and no code runs as the role.
        let _acting = if role::is_under_row_security(c.source.table) {
            ActingAs::guarded_self()
        } else {
            ActingAs::restricted(c.source.owner)
        };
        (count(c, Counted::Source), count(c, Counted::Chunks))
    })
}
