//! How many rows and chunks a collection has, for `rag.status`.

use super::statements::count;
use crate::pg::role::{self, ActingAs};
use crate::registry::Collection;

/// Rows of a collection's source and its chunks, as far as the current role may see them; none without the right to read.
pub fn row_counts(c: &Collection) -> Option<(i64, i64)> {
    if !c.source.is_readable() || c.check().is_err() {
        return None;
    }
    // Where policies decide, they are asked on the role's behalf; else everything counts, and no code runs as the role.
    let _acting = if role::is_under_row_security(c.source.table) {
        ActingAs::guarded_self()
    } else {
        ActingAs::restricted(c.source.owner)
    };
    Some((count(c.source.table, &c.source.name), count(c.vectors.table, &c.vectors.table_name)))
}
