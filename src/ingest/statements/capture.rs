//! Capture triggers: their DDL, and the statements they run.
//!
//! Ordinary tables get statement-level triggers with transition tables: one INSERT ... SELECT a statement. They run under the
//! writer's search_path, so every operator and function is named with its schema. Partitioned tables get row-level ones, which
//! PostgreSQL clones to every partition, also to those attached later, so that writing to a partition directly is captured too.

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

/// What the statements of statement-level triggers call the rows before and after.
pub const TRANSITION_TABLES: (&str, &str) = ("rag_old", "rag_new");

fn trigger_name(collection: &Collection, word: &str) -> String {
    quote(&format!("rag_capture_{}_{word}", collection.id))
}

/// The two statements that make one trigger.
pub struct Trigger {
    /// CREATE TRIGGER.
    pub create: String,
    /// ALTER TABLE, which says when it fires.
    pub enable: String,
}

/// A collection's triggers.
///
/// Rows that arrive by logical replication fire no statement-level triggers, so an ordinary table also gets row-level
/// ones that PostgreSQL runs only there (ENABLE REPLICA).
pub fn triggers(c: &Collection, partitioned: bool) -> Vec<Trigger> {
    let mut triggers = Vec::new();
    for (event, word, keyword) in EVENTS {
        let transition_tables = match event {
            Event::Insert => "REFERENCING NEW TABLE AS rag_new",
            Event::Update => "REFERENCING OLD TABLE AS rag_old NEW TABLE AS rag_new",
            Event::Delete => "REFERENCING OLD TABLE AS rag_old",
            Event::Truncate => "",
        };
        let for_statement = format!("{transition_tables} FOR EACH STATEMENT");
        if event == Event::Truncate {
            triggers.push(trigger(c, word, keyword, &for_statement, "ALWAYS"));
        } else if partitioned {
            triggers.push(trigger(c, word, keyword, "FOR EACH ROW", "ALWAYS"));
        } else {
            triggers.push(trigger(c, word, keyword, &for_statement, ""));
            triggers.push(trigger(c, &replica(word), keyword, "FOR EACH ROW", "REPLICA"));
        }
    }
    triggers
}

/// The word that names the row-level trigger for replicated rows.
fn replica(word: &str) -> String {
    format!("{word}_replica")
}

fn trigger(c: &Collection, word: &str, keyword: &str, level: &str, enable: &str) -> Trigger {
    let source = &c.source.name;
    let name = trigger_name(c, word);
    let argument = quote_literal(c.id.to_string());
    Trigger {
        create: format!(
            "CREATE TRIGGER {name} AFTER {keyword} ON {source} {level} EXECUTE FUNCTION rag_internal.capture({argument})"
        ),
        enable: format!("ALTER TABLE {source} ENABLE {enable} TRIGGER {name}"),
    }
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

/// The rows of a statement, as an SQL fragment that begins after SELECT's list, and an expression for each key column.
struct Touched {
    rows: String,
    key: Vec<String>,
}

impl Touched {
    /// Those in the transition tables of a trigger.
    fn by(c: &Collection, event: Event) -> Self {
        let of = |alias: &str| c.key.columns.iter().map(|name| format!("{alias}.{}", quote(name))).collect();
        match event {
            Event::Insert => Self { rows: "FROM rag_new n".to_owned(), key: of("n") },
            Event::Delete | Event::Truncate => Self { rows: "FROM rag_old o".to_owned(), key: of("o") },
            Event::Update => {
                // A key column is NULL only where a side of the join is missing; keys of row types, whose fields could all
                // be NULL, are refused.
                let first = quote(&c.key.columns[0]);
                let missing = |alias: &str| format!("{alias}.{first} IS NULL");
                let (new, old): (Vec<String>, Vec<String>) = (of("n"), of("o"));
                let either = |(n, o)| format!("CASE WHEN {} THEN {o} ELSE {n} END", missing("n"));
                Self {
                    rows: format!(
                        "FROM rag_new n FULL JOIN rag_old o ON {same}
                         WHERE {new_missing} OR {old_missing} OR {new_image} OPERATOR(pg_catalog.*<>) {old_image}",
                        same = c.key.join("n", &c.key.columns, "o", &c.key.columns),
                        new_missing = missing("n"),
                        old_missing = missing("o"),
                        new_image = image("n", c),
                        old_image = image("o", c),
                    ),
                    key: new.into_iter().zip(old).map(either).collect(),
                }
            }
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
        let Touched { rows, key } = Touched::by(c, event);
        let names = c.key.columns.iter().map(quote_literal);
        let pairs: Vec<String> = names.zip(&key).map(|(name, value)| format!("{name}, {value}")).collect();
        format!(
            "INSERT INTO rag_internal.queue (collection, key) SELECT $1, pg_catalog.jsonb_build_object({}) {rows}",
            pairs.join(", ")
        )
    })
}

/// What it runs when they are many: an entry for each group of them.
pub fn bulk_statement(c: &Collection, event: Event) -> Rc<Statement> {
    let name = match event {
        Event::Insert => "capture many inserted",
        Event::Update => "capture many updated",
        Event::Delete | Event::Truncate => "capture many deleted",
    };
    c.statement(name, 0, || insert_in_groups(c, &Touched::by(c, event)))
}

/// Queues rows of a collection's source, `s`, in groups. $1 is the collection's id.
pub fn insert_of_source(c: &Collection, condition: &str) -> String {
    let key = c.key.columns.iter().map(|name| format!("s.{}", quote(name))).collect();
    insert_in_groups(c, &Touched { rows: format!("FROM {} s WHERE {condition}", c.source.name), key })
}

/// An entry holds an array for each key column, so that the writer makes few values of many.
fn insert_in_groups(c: &Collection, touched: &Touched) -> String {
    let numbered: Vec<String> = touched.key.iter().zip(1..).map(|(value, n)| format!("{value} AS key_{n}")).collect();
    let arrays: Vec<String> = c
        .key
        .columns
        .iter()
        .zip(1..)
        .zip(&c.key.types)
        .map(|((name, n), sql_type)| format!("{}, {}", quote_literal(name), array_of(sql_type, n)))
        .collect();
    format!(
        "INSERT INTO rag_internal.queue (collection, keys, rows)
         SELECT $1, pg_catalog.jsonb_build_object({arrays}), pg_catalog.count(*)
         FROM (SELECT {numbered}, pg_catalog.row_number() OVER () AS place {rows}) t
         GROUP BY t.place OPERATOR(pg_catalog./) {MAX_KEYS}",
        arrays = arrays.join(", "),
        numbered = numbered.join(", "),
        rows = touched.rows,
    )
}

/// The values of a key column as one jsonb array. Those of array types (int2vector is one) have no array of their own.
fn array_of(sql_type: &str, n: i32) -> String {
    if sql_type.ends_with(']') || sql_type.ends_with("vector") {
        format!("pg_catalog.jsonb_agg(t.key_{n})")
    } else {
        format!("pg_catalog.to_jsonb(pg_catalog.array_agg(t.key_{n}))")
    }
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
