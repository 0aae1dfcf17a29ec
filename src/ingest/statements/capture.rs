//! Capture triggers: their DDL, and the statements they run.
//!
//! Ordinary tables get statement-level triggers with transition tables: one INSERT ... SELECT a statement. Partitioned
//! tables get row-level ones, which PostgreSQL clones to every partition, also to those attached later, so that
//! writing to a partition directly is captured too.

use crate::pg::spi::quote;
use crate::pg::trigger::Event;
use crate::registry::Collection;
use crate::registry::statements::columns;
use pgrx::spi::quote_literal;

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

/// `ROW(alias.a, alias.b)::record`: compared by its bytes, so that types without equality (json, point) work too.
fn image(alias: &str, c: &Collection) -> String {
    let watched: Vec<String> = c.content.iter().chain(&c.title).map(|column| column.name.clone()).collect();
    format!("ROW({})::pg_catalog.record", columns(alias, &watched))
}

/// What a statement-level trigger runs; $1 is the collection's id.
pub fn statement_sql(c: &Collection, event: Event) -> String {
    let insert = "INSERT INTO rag_internal.queue (collection, key)";
    match event {
        Event::Insert => format!("{insert} SELECT $1, {} FROM rag_new n", c.key.object("n", &c.key.columns)),
        Event::Delete => format!("{insert} SELECT $1, {} FROM rag_old o", c.key.object("o", &c.key.columns)),
        Event::Truncate => format!("{insert} VALUES ($1, NULL)"),
        Event::Update => {
            let first = quote(&c.key.columns[0]);
            format!(
                "{insert} SELECT $1, CASE WHEN n.{first} IS NULL THEN {old_key} ELSE {new_key} END
                 FROM rag_new n FULL JOIN rag_old o ON {same}
                 WHERE n.{first} IS NULL OR o.{first} IS NULL
                    OR {new_image} OPERATOR(pg_catalog.*<>) {old_image}",
                old_key = c.key.object("o", &c.key.columns),
                new_key = c.key.object("n", &c.key.columns),
                same = c.key.join("n", &c.key.columns, "o", &c.key.columns),
                new_image = image("n", c),
                old_image = image("o", c),
            )
        }
    }
}

/// What a row-level trigger runs; $1 is the collection's id, then come the old row, the new row, or both.
pub fn row_sql(c: &Collection, event: Event) -> String {
    let insert = "INSERT INTO rag_internal.queue (collection, key)";
    let key = |alias: &str| c.key.object(alias, &c.key.columns);
    match event {
        Event::Insert => format!("{insert} SELECT $1, {} FROM (SELECT ($2).*) n", key("n")),
        Event::Delete => format!("{insert} SELECT $1, {} FROM (SELECT ($2).*) o", key("o")),
        Event::Truncate => statement_sql(c, event),
        Event::Update => format!(
            "{insert} SELECT $1, changed.key FROM (SELECT ($2).*) o, (SELECT ($3).*) n,
                 LATERAL (SELECT {new} UNION SELECT {old}) AS changed (key)
             WHERE {new} OPERATOR(pg_catalog.<>) {old} OR {new_image} OPERATOR(pg_catalog.*<>) {old_image}",
            new = key("n"),
            old = key("o"),
            new_image = image("n", c),
            old_image = image("o", c),
        ),
    }
}
