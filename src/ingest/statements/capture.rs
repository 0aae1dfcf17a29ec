//! Capture triggers: their DDL, and the statements they run.
//!
//! Ordinary tables get statement-level triggers with transition tables: one INSERT ... SELECT a statement. They run under the
//! writer's search_path, so every operator and function is named with its schema. Partitioned tables get row-level ones, which PostgreSQL clones to every partition, also to those attached later, so that
//! writing to a partition directly is captured too.

use crate::pg::spi::{Statement, quote};
use crate::pg::trigger::Event;
use crate::registry::Collection;
use crate::registry::statements::columns;
use pgrx::pg_sys;
use pgrx::spi::quote_literal;
use std::rc::Rc;

const EVENTS: [(Event, &str, &str); 4] = [
    (Event::Insert, "insert", "INSERT"),
    (Event::Update, "update", "UPDATE"),
    (Event::Delete, "delete", "DELETE"),
    (Event::Truncate, "truncate", "TRUNCATE"),
];

fn trigger_name(collection: &Collection, word: &str) -> String {
    quote(&format!("rag_capture_{}_{word}", collection.id))
}

/// DDL of a collection's triggers.
///
/// Rows that arrive by logical replication fire no statement-level triggers, so an ordinary table also gets row-level
/// ones that PostgreSQL runs only there (ENABLE REPLICA).
pub fn create_triggers(c: &Collection, partitioned: bool) -> String {
    let mut sql = String::new();
    for (event, word, keyword) in EVENTS {
        let transition_tables = match event {
            Event::Insert => "REFERENCING NEW TABLE AS rag_new",
            Event::Update => "REFERENCING OLD TABLE AS rag_old NEW TABLE AS rag_new",
            Event::Delete => "REFERENCING OLD TABLE AS rag_old",
            Event::Truncate => "",
        };
        let for_statement = format!("{transition_tables} FOR EACH STATEMENT");
        if event == Event::Truncate {
            sql.push_str(&create_trigger(c, word, keyword, &for_statement, "ALWAYS"));
        } else if partitioned {
            sql.push_str(&create_trigger(c, word, keyword, "FOR EACH ROW", "ALWAYS"));
        } else {
            sql.push_str(&create_trigger(c, word, keyword, &for_statement, ""));
            sql.push_str(&create_trigger(c, &replica(word), keyword, "FOR EACH ROW", "REPLICA"));
        }
    }
    sql
}

/// The word that names the row-level trigger for replicated rows.
fn replica(word: &str) -> String {
    format!("{word}_replica")
}

fn create_trigger(c: &Collection, word: &str, keyword: &str, level: &str, enable: &str) -> String {
    let source = &c.source.name;
    let name = trigger_name(c, word);
    let argument = quote_literal(c.id.to_string());
    format!(
        "CREATE TRIGGER {name} AFTER {keyword} ON {source} {level} EXECUTE FUNCTION rag_internal.capture({argument});
         ALTER TABLE {source} ENABLE {enable} TRIGGER {name};\n"
    )
}

/// DDL that removes them.
pub fn drop_triggers(c: &Collection) -> String {
    EVENTS
        .iter()
        .flat_map(|(_, word, _)| [(*word).to_owned(), replica(word)])
        .map(|word| format!("DROP TRIGGER IF EXISTS {} ON {};\n", trigger_name(c, &word), c.source.name))
        .collect()
}

/// Rows of one queue entry at most. Less than the numbers that stand between two entries, see sql/ingest.sql.
const MAX_KEYS: usize = 500;

/// `ROW(alias.a, alias.b)::record`: compared by its bytes, so that types without equality (json, point) work too.
fn image(alias: &str, c: &Collection) -> String {
    let watched: Vec<String> = c.content.iter().chain(&c.title).map(|column| column.name.clone()).collect();
    format!("ROW({})::pg_catalog.record", columns(alias, &watched))
}

fn key(alias: &str, c: &Collection) -> String {
    c.key.object(alias, &c.key.columns)
}

/// The keys of the rows a statement touched, as `SELECT ... AS key FROM ...` over its transition tables.
fn touched(c: &Collection, event: Event) -> String {
    match event {
        Event::Insert => format!("SELECT {} AS key FROM rag_new n", key("n", c)),
        Event::Delete | Event::Truncate => format!("SELECT {} AS key FROM rag_old o", key("o", c)),
        Event::Update => {
            // A key column is NULL only where a side of the join is missing. Not IS NULL, which is also true of a composite
            // value whose fields are all NULL.
            let first = quote(&c.key.columns[0]);
            let missing = |alias: &str| format!("{alias}.{first} IS NOT DISTINCT FROM NULL");
            format!(
                "SELECT CASE WHEN {new_missing} THEN {old_key} ELSE {new_key} END AS key
                 FROM rag_new n FULL JOIN rag_old o ON {same}
                 WHERE {new_missing} OR {old_missing} OR {new_image} OPERATOR(pg_catalog.*<>) {old_image}",
                new_missing = missing("n"),
                old_missing = missing("o"),
                old_key = key("o", c),
                new_key = key("n", c),
                same = c.key.join("n", &c.key.columns, "o", &c.key.columns),
                new_image = image("n", c),
                old_image = image("o", c),
            )
        }
    }
}

/// What a statement-level trigger runs when the statement touched few rows: an entry each. $1 is the collection's id.
pub fn statement(c: &Collection, event: Event) -> Rc<Statement> {
    let name = match event {
        Event::Insert => "capture inserted",
        Event::Update => "capture updated",
        Event::Delete | Event::Truncate => "capture deleted",
    };
    c.statement(name, 0, || {
        format!("INSERT INTO rag_internal.queue (collection, key) SELECT $1, t.key FROM ({}) t", touched(c, event))
    })
}

/// What it runs when they are many: an entry for each group of them.
pub fn bulk_statement(c: &Collection, event: Event) -> Rc<Statement> {
    let name = match event {
        Event::Insert => "capture many inserted",
        Event::Update => "capture many updated",
        Event::Delete | Event::Truncate => "capture many deleted",
    };
    c.statement(name, 0, || insert_in_groups(&touched(c, event)))
}

/// Queues many keys, those of `keys` (`SELECT ... AS key`), in groups. $1 is the collection's id.
pub fn insert_in_groups(keys: &str) -> String {
    format!(
        "INSERT INTO rag_internal.queue (collection, keys)
         SELECT $1, pg_catalog.array_agg(numbered.key)
         FROM (SELECT t.key, pg_catalog.row_number() OVER () AS place FROM ({keys}) t) numbered
         GROUP BY numbered.place OPERATOR(pg_catalog./) {MAX_KEYS}"
    )
}

/// What a row-level trigger of `relation` runs; $1 is the collection's id, then come the old row, the new row, or both.
pub fn row_statement(c: &Collection, event: Event, relation: pg_sys::Oid) -> Rc<Statement> {
    let insert = "INSERT INTO rag_internal.queue (collection, key) SELECT $1,";
    match event {
        Event::Insert => c.statement("capture inserted row", relation.to_u32(), || {
            format!("{insert} {} FROM (SELECT ($2).*) n", key("n", c))
        }),
        Event::Delete | Event::Truncate => c.statement("capture deleted row", relation.to_u32(), || {
            format!("{insert} {} FROM (SELECT ($2).*) o", key("o", c))
        }),
        Event::Update => c.statement("capture updated row", relation.to_u32(), || {
            format!(
                "{insert} changed.key FROM (SELECT ($2).*) o, (SELECT ($3).*) n,
                     LATERAL (SELECT {new} UNION SELECT {old}) AS changed (key)
                 WHERE {new} OPERATOR(pg_catalog.<>) {old} OR {new_image} OPERATOR(pg_catalog.*<>) {old_image}",
                new = key("n", c),
                old = key("o", c),
                new_image = image("n", c),
                old_image = image("o", c),
            )
        }),
    }
}
