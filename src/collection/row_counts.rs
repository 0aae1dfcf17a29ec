//! How many rows and chunks a collection has, for `rag.status`.

use super::statements::count;
use crate::pg::role::{self, ActingAs};
use crate::registry::Collection;

/// Rows of a collection's source and its chunks, as far as the current role may see them; none without the right to read. Nor
/// where policies decide and the table is too large to count: an estimate would tell of rows that they hide.
pub fn row_counts(c: &Collection) -> (Option<i64>, Option<i64>) {
    if !c.source.is_readable() || c.check().is_err() {
        return (None, None);
    }
    // Where policies decide, they are asked on the role's behalf; else everything counts, and no code runs as the role.
    let sees_all = !role::is_under_row_security(c.source.table);
    let _acting = if sees_all { ActingAs::restricted(c.source.owner) } else { ActingAs::guarded_self() };
    let count = |table, name| count(table, name, sees_all);
    (count(c.source.table, &c.source.name), count(c.vectors.table, &c.vectors.table_name))
}
