//! How many rows and chunks a collection has, for `rag.status`.

use super::statements::{self, Counted, count};
use crate::pg::role::{self, ActingAs};
use crate::registry::{self, Asker, Collection};
use std::rc::Rc;

/// What is in a collection's tables, as far as it is told.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Rows of the source.
    pub rows: Option<i64>,
    /// Chunks.
    pub chunks: Option<i64>,
    /// Whether rows with text have no chunks, queued ones included.
    pub is_emptied: Option<bool>,
}

/// Rows of a collection's source and its chunks, as far as the current role may see them. None without the right to read, and
/// where counting would run code of an owner whom the role does not trust. Nor where policies decide and the table is too large
/// to count: an estimate would tell of rows that they hide. Who watches the server gets the catalogs' estimates instead, which
/// run nobody's code and which that role could read anyway.
pub fn row_counts(c: &Rc<Collection>) -> Counts {
    if c.check().is_err() {
        return Counts::default();
    }
    let counts = if c.source.is_readable() && Asker::now().trust(c).is_some() {
        registry::attempt(c, counted).unwrap_or_default()
    } else {
        Counts::default()
    };
    if !role::watches_server() {
        return counts;
    }
    // Also a glance at a table waits for who locks it: an owner must not keep those who watch the server from seeing the others.
    registry::attempt_watching(c, |c| {
        let rows = counts.rows.or_else(|| statements::estimate(c, Counted::Source));
        let chunks = counts.chunks.or_else(|| statements::estimate(c, Counted::Chunks));
        let may_look = counts.is_emptied.is_none() && c.reading_runs_no_code;
        let is_emptied = if may_look { is_emptied(c, rows) } else { counts.is_emptied };
        Counts { rows, chunks, is_emptied }
    })
    .unwrap_or(counts)
}

fn counted(c: &Collection) -> Counts {
    // Where policies decide, they are asked on the role's behalf; else everything counts, and no code runs as the role.
    let sees_all = !role::is_under_row_security(c.source.table);
    let (rows, chunks) = {
        let _acting = if sees_all { ActingAs::restricted(c.source.owner) } else { ActingAs::guarded_self() };
        (count(c, Counted::Source, sees_all), count(c, Counted::Chunks, sees_all))
    };
    let is_emptied = if sees_all { is_emptied(c, rows) } else { None };
    Counts { rows, chunks, is_emptied }
}

fn is_emptied(c: &Collection, rows: Option<i64>) -> Option<bool> {
    if rows == Some(0) {
        return Some(false);
    }
    // Also where there are chunks: rows that were written since have theirs.
    let _acting = ActingAs::restricted(c.source.owner);
    Some(statements::is_emptied(c))
}
