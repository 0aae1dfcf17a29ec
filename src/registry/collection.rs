//! A registered collection.

use super::facts::{Column, Source};
use super::{Generation, Key, Vectors};
use crate::pg::spi::Statement;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A collection as registered, with the facts of the tables it names. What it says holds while nobody alters them: it
/// is handed out by this room's look-ups, and not to be kept from one statement to the next.
#[derive(Debug)]
pub struct Collection {
    /// Number of the collection.
    pub id: i32,
    /// Name, as people give it.
    pub name: String,
    /// What it is about, if its owner said so.
    pub description: Option<String>,
    /// Whether a row that changed is found by its old text until the new one is embedded.
    pub serve_stale: bool,
    /// Whether the worker noted an error.
    pub has_error: bool,
    /// The table whose rows are searched.
    pub source: Source,
    /// The source's primary key.
    pub key: Key,
    /// Columns whose text is chunked and embedded; at least one.
    pub content: Vec<Column>,
    /// Column shown as title and embedded with each chunk.
    pub title: Option<Column>,
    /// Column shown as link.
    pub link: Option<Column>,
    /// Columns returned as metadata.
    pub metadata: Vec<Column>,
    /// The generation that is serving.
    pub generation: Generation,
    /// Its vectors.
    pub vectors: Vectors,
    /// Whether reading source and chunks runs nobody's code: key, columns and operators are PostgreSQL's own, and nothing
    /// that the planner would evaluate is attached to the tables.
    pub reading_runs_no_code: bool,
    /// Statements made from all of this.
    pub(super) statements: RefCell<HashMap<(&'static str, u32), Rc<Statement>>>,
}

/// Beyond so many statements of one collection they are made anew: a bound on memory, since a table may have thousands of
/// partitions.
const MAX_STATEMENTS: usize = 128;

/// Bytes that a value made of several can have (`MaxAllocSize`), with room for what stands between them.
const MAX_TEXT: i64 = (1 << 30) - (1 << 16);

impl Collection {
    /// Each content column as text.
    pub fn content_as_text(&self, alias: &str) -> Vec<String> {
        self.content.iter().map(|column| column.as_text(alias)).collect()
    }

    /// The columns of which a source row is embedded: title and content.
    fn embedded(&self) -> impl Iterator<Item = &Column> {
        self.title.iter().chain(&self.content)
    }

    /// Each of the columns of which a source row is embedded, title and content, as text.
    pub fn embedded_as_text(&self, alias: &str) -> Vec<String> {
        self.embedded().map(|column| column.as_text(alias)).collect()
    }

    /// A 64-bit hash of what is embedded of a source row, title and content: a chunk whose row has another one by now is out of
    /// date.
    pub fn content_hash(&self, alias: &str) -> String {
        super::statements::hash_of_texts(&self.embedded_as_text(alias))
    }

    /// [`Self::content_hash`], or NULL for a row of more text than PostgreSQL can put into one value: nothing was ever made of
    /// it, and to ask for its hash would be an error, to whoever finds what the row had before.
    pub fn hash_if_any(&self, alias: &str) -> String {
        let hash = self.content_hash(alias);
        let lengths: Vec<String> = self.embedded().filter_map(|column| column.length_of_text(alias)).collect();
        if lengths.is_empty() {
            return hash;
        }
        let lengths: Vec<String> = lengths.iter().map(|length| format!("coalesce({length}, 0)")).collect();
        let sum = lengths.join(" OPERATOR(pg_catalog.+) ");
        format!("CASE WHEN {sum} OPERATOR(pg_catalog.<) {MAX_TEXT} THEN {hash} END")
    }

    /// Whether a source row still is what a chunk was made of, whose hash is `hash`: a chunk is shown only while it is. Names
    /// title and content columns, so that whoever asks needs the right to read them.
    pub fn is_as_embedded(&self, alias: &str, hash: &str) -> String {
        format!("{} OPERATOR(pg_catalog.=) {hash}", self.hash_if_any(alias))
    }

    /// A statement made from these facts, with its plan; `build` writes its text when it is first asked for. `variant` is
    /// what else decides its text or the types of its arguments, such as a limit or a relation's OID; 0 where nothing does.
    pub fn statement(&self, name: &'static str, variant: u32, build: impl FnOnce() -> String) -> Rc<Statement> {
        let key = (name, variant);
        if let Some(kept) = self.statements.borrow().get(&key) {
            return kept.clone();
        }
        let made = Rc::new(Statement::new(build()));
        let mut statements = self.statements.borrow_mut();
        if statements.len() >= MAX_STATEMENTS {
            statements.clear();
        }
        statements.insert(key, made.clone());
        made
    }
}
