//! How many rows and chunks a collection has, for `rag.status`.

use super::statements::{Counted, count};
use crate::pg::role::{self, ActingAs};
use crate::registry::{self, Asker, Collection};
use std::rc::Rc;

/// Rows of a collection's source and its chunks, as far as the current role may see them. None without the right to read, and
/// where counting would run code of an owner whom the role does not trust. Nor where policies decide and the table is too large
/// to count: an estimate would tell of rows that they hide.
pub fn row_counts(c: &Rc<Collection>) -> (Option<i64>, Option<i64>) {
    if !c.source.is_readable() || c.check().is_err() || Asker::now().trust(c).is_none() {
        return (None, None);
    }
    let counts = registry::attempt(c, |c| {
        // Where policies decide, they are asked on the role's behalf; else everything counts, and no code runs as the role.
        let sees_all = !role::is_under_row_security(c.source.table);
        let _acting = if sees_all { ActingAs::restricted(c.source.owner) } else { ActingAs::guarded_self() };
        (count(c, Counted::Source, sees_all), count(c, Counted::Chunks, sees_all))
    });
    counts.unwrap_or((None, None))
}
