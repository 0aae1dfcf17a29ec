//! What of the searched collections changed and waits to be embedded: until then it is not found, or by its old text, and whoever
//! asks is told.
//!
//! Nobody learns more by that than they may know. Where policies decide, the keys that wait are looked up in the source as the
//! asker, and those rows count that the asker sees now; that some were not looked at is not told either.

use super::scope::MOST_NAMED;
use super::statements;
use crate::error::Error;
use crate::pg::role::{self, ActingAs, Settings};
use crate::pg::{catalog, xact};
use crate::registry::{self, Collection};
use pgrx::{PgLogLevel, PgSqlErrorCode};
use ragent_core::text::{self, list};
use std::cell::RefCell;
use std::rc::Rc;

/// So many entries of a collection's queue are looked at, and so many rows counted at most.
pub const MOST_COUNTED: usize = 1000;
/// For how long a collection's tables are waited for that somebody alters.
const PATIENCE_MS: u64 = 100;

/// What waits in one collection.
struct Part {
    collection: Rc<Collection>,
    /// Rows, as far as they were counted.
    rows: usize,
    /// Whether everything is to be compared, so that it is not known how many rows wait.
    is_compared: bool,
}

/// What waits in several collections.
pub struct Waiting(Vec<Part>);

thread_local! {
    /// When a statement began, and the collections it has told of.
    static TOLD: RefCell<(i64, Vec<i32>)> = const { RefCell::new((0, Vec::new())) };
}

impl Waiting {
    /// What waits in collections, as the statement sees it. `is_named`: the asker named them.
    pub fn of(collections: &[Rc<Collection>], is_named: bool) -> Self {
        let ids: Vec<i32> = collections.iter().map(|c| c.id).collect();
        // It is asked with every search, and usually there is nothing.
        let waiting = catalog::present("rag_internal", "queue", c"collection", "queue_pkey", &ids);
        let parts = collections.iter().filter(|c| waiting.contains(&c.id)).map(|c| part(c, is_named));
        Self(parts.filter(|part| part.rows > 0 || part.is_compared).collect())
    }

    /// How many rows, at most [`MOST_COUNTED`] of each collection; `None`: everything of one is to be compared first.
    pub fn rows(&self) -> Option<i64> {
        let rows = self.0.iter().map(|part| part.rows as i64).sum();
        (!self.0.iter().any(|part| part.is_compared)).then_some(rows)
    }

    /// Tells the asker of it, once a statement for each collection.
    pub fn tell(mut self) {
        TOLD.with_borrow_mut(|(statement, told)| {
            if *statement != xact::statement_start() {
                (*statement, *told) = (xact::statement_start(), Vec::new());
            }
            self.0.retain(|part| !told.contains(&part.collection.id));
            told.extend(self.0.iter().map(|part| part.collection.id));
        });
        if self.0.is_empty() {
            return;
        }
        let (stale, hidden): (Vec<&Part>, Vec<&Part>) = self.0.iter().partition(|part| part.collection.serve_stale);
        let detail = match (stale.is_empty(), hidden.is_empty()) {
            (true, _) => "Changed rows are not found until then.",
            (_, true) => "Changed rows are found by their old text until then.",
            _ => "Changed rows are not found until then, or by their old text where the collection is set to it.",
        };
        let named = match self.0.as_slice() {
            [part] => pgrx::spi::quote_literal(&part.collection.name),
            _ => String::new(),
        };
        let mut hint = format!("rag.wait_until_current({named}) waits for it.");
        if !hidden.is_empty() {
            hint.push_str(
                " With rag.alter_collection(..., serve_stale => true), rows are found by their old text meanwhile.",
            );
        }
        Error::new(PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, self.message(), hint)
            .with_detail(detail)
            .tell(PgLogLevel::NOTICE);
    }

    fn message(&self) -> String {
        let counted: Vec<&Part> = self.0.iter().filter(|part| part.rows > 0).collect();
        let compared: Vec<&Part> = self.0.iter().filter(|part| part.is_compared).collect();
        let mut said = Vec::new();
        if !counted.is_empty() {
            let rows: usize = counted.iter().map(|part| part.rows).sum();
            let verb = if rows == 1 { "waits" } else { "wait" };
            let is_more = counted.iter().any(|part| part.rows >= MOST_COUNTED);
            let rows = if is_more { format!("{rows} or more rows") } else { text::counted(rows as i64, "row", "rows") };
            said.push(format!("{rows} of {} changed and {verb} to be embedded", names(&counted)));
        }
        if !compared.is_empty() {
            let verb = if compared.len() == 1 { "waits" } else { "wait" };
            said.push(format!("{} {verb} to be compared with all rows", names(&compared)));
        }
        said.join("; ")
    }
}

/// Tells the asker what waits in collections that were searched, if that was not told before in this statement.
pub fn tell(collections: &[Rc<Collection>], is_named: bool) {
    let is_told = TOLD.with_borrow(|(statement, told)| {
        *statement == xact::statement_start() && collections.iter().all(|c| told.contains(&c.id))
    });
    if !is_told {
        Waiting::of(collections, is_named).tell();
    }
}

fn names(parts: &[&Part]) -> String {
    let names = list(parts.iter().map(|part| format!("\"{}\"", part.collection.name)), MOST_NAMED);
    format!("{} {names}", if parts.len() == 1 { "collection" } else { "collections" })
}

fn part(c: &Rc<Collection>, is_named: bool) -> Part {
    let collection = c.clone();
    if registry::sees_all_rows(c) {
        let (rows, is_compared) = statements::entries(c.id, MOST_COUNTED);
        return Part { collection, rows: rows.min(MOST_COUNTED), is_compared };
    }
    let (keys, is_compared) = statements::waiting_keys(c.id, MOST_COUNTED);
    let visible = |c: &Collection| {
        // Policies are asked on the asker's behalf, as in the search itself.
        let _acting = role::is_under_row_security(c.source.table).then(ActingAs::guarded_self);
        statements::count_visible(c, keys)
    };
    let _patience = Settings::with_lock_timeout(PATIENCE_MS);
    // What cannot be looked up, such as a key of a former type, is not counted; the search has said what is wrong besides.
    let rows = if is_named {
        xact::attempt(|| registry::held(c.clone()).filter(|c| c.check().is_ok()).map(|c| visible(&c))).ok().flatten()
    } else {
        registry::attempt_quietly(c, visible).ok().flatten()
    };
    Part { collection, rows: rows.unwrap_or(0), is_compared }
}
