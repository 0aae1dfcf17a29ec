//! The statements that capture triggers run.
//!
//! Statement-level triggers have transition tables: one INSERT ... SELECT a statement. They run under the writer's search_path, so
//! every operator and function is named with its schema.

use crate::pg::spi::{Statement, quote};
use crate::pg::trigger::Event;
use crate::registry::Collection;
use crate::registry::statements::columns;
use pgrx::pg_sys;
use pgrx::spi::quote_literal;
use std::rc::Rc;

/// What the statements of statement-level triggers call the rows before and after.
pub const TRANSITION_TABLES: (&str, &str) = ("rag_old", "rag_new");

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

/// What a statement-level trigger runs when the statement touched few rows: an entry each. $1 is the collection's id, $2 whether its
/// transaction has changed many before.
pub fn statement(c: &Collection, event: Event) -> Rc<Statement> {
    let name = match event {
        Event::Insert => "capture inserted",
        Event::Update => "capture updated",
        Event::Delete | Event::Truncate => "capture deleted",
    };
    c.statement(name, 0, || {
        let Touched { rows, key } = Touched::by(c, event);
        let names = c.key.columns.iter().map(quote_literal).enumerate();
        let pairs: Vec<String> =
            names.zip(&key).map(|((place, name), value)| format!("{name}, {}", c.key.json(place, value))).collect();
        format!(
            "INSERT INTO rag_internal.queue (collection, is_bulk, key) SELECT $1, $2, pg_catalog.jsonb_build_object({}) {rows}",
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

/// Queues every row of a collection's source, in groups. $1 is the collection's id.
pub fn insert_of_source(c: &Collection) -> String {
    let key = c.key.columns.iter().map(|name| format!("s.{}", quote(name))).collect();
    insert_in_groups(c, &Touched { rows: format!("FROM {} s", c.source.name), key })
}

/// Queues rows in groups: those of an SQL fragment that begins after SELECT's list and gives their key as `key_1`, `key_2` ...
/// $1 is the collection's id.
pub fn insert_of(c: &Collection, alias: &str, rows: String) -> String {
    let key = (1..=c.key.columns.len()).map(|n| format!("{alias}.key_{n}")).collect();
    insert_in_groups(c, &Touched { rows, key })
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
        .map(|((name, n), sql_type)| format!("{}, {}", quote_literal(name), array_of(c, sql_type, n)))
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
fn array_of(c: &Collection, sql_type: &str, n: usize) -> String {
    if sql_type.ends_with(']') || sql_type.ends_with("vector") {
        return format!("pg_catalog.jsonb_agg({})", c.key.json(n - 1, &format!("t.key_{n}")));
    }
    let array = format!("pg_catalog.array_agg(t.key_{n})");
    let json = c.key.json(n - 1, &array);
    if json == array { format!("pg_catalog.to_jsonb({array})") } else { json }
}

/// What a row-level trigger of `relation` runs; $1 and $2 as above, then come the old row, the new row, or both.
pub fn row_statement(c: &Collection, event: Event, relation: pg_sys::Oid) -> Rc<Statement> {
    let insert = "INSERT INTO rag_internal.queue (collection, is_bulk, key) SELECT $1, $2,";
    match event {
        Event::Insert => c.statement("capture inserted row", relation.to_u32(), || {
            format!("{insert} {} FROM (SELECT ($3).*) n", key("n", c))
        }),
        Event::Delete | Event::Truncate => c.statement("capture deleted row", relation.to_u32(), || {
            format!("{insert} {} FROM (SELECT ($3).*) o", key("o", c))
        }),
        Event::Update => c.statement("capture updated row", relation.to_u32(), || {
            format!(
                "{insert} changed.key FROM (SELECT ($3).*) o, (SELECT ($4).*) n,
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
