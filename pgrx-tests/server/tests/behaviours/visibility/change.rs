//! What changes between two searches: rights, policies, roles, rows, names.

use ragent_server_tests::database::{literal, quote};
use ragent_server_tests::random::Random;

use super::model::Model;
use super::names;
use super::policy::{self, Policy};
use super::table::{Kind, TENANTS, Table};

/// What a change means for the chunks that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// They stay as they are.
    None,
    /// The worker makes some anew.
    Embedding,
}

/// One change.
#[derive(Debug)]
pub struct Change {
    pub sql: String,
    pub effect: Effect,
}

impl Change {
    fn of(sql: String) -> Change {
        Change { sql, effect: Effect::None }
    }

    fn embedding(sql: String) -> Change {
        Change { sql, effect: Effect::Embedding }
    }

    /// A change of a table, or of what its policies look at; the model is changed alike.
    pub fn random(random: &mut Random, model: &mut Model, place: usize) -> Change {
        match random.below(20) {
            0..3 => row_security(random, &model.tables[place]),
            3..8 => policies(random, model, place),
            8..11 => grants(random, model, place),
            11..13 => roles(random, model),
            13..15 => helping_rows(random, model, place),
            15 | 16 => rows(random, model, place),
            17 => texts(random, model, place),
            18 => definition(random, model, place),
            _ => Change::of("SELECT 1".into()),
        }
    }

    /// A change that is undone by the end of its transaction, so that it may be a rough one.
    pub fn rough(random: &mut Random, table: &Table) -> Change {
        match (random.below(3), table.partitions.as_slice()) {
            (0, [first, ..]) => Change::embedding(format!("ALTER TABLE {} DETACH PARTITION {first}", table.sql())),
            (1, _) => Change::embedding(format!("TRUNCATE {}", table.sql())),
            _ => Change::embedding(format!("DELETE FROM {} WHERE {}", table.sql(), table.some_rows(random))),
        }
    }
}

fn row_security(random: &mut Random, table: &Table) -> Change {
    let what = random.choose(&["ENABLE", "ENABLE", "ENABLE", "ENABLE", "DISABLE", "FORCE", "NO FORCE"]);
    // Policies of a partition do not count for those who come through its parent.
    let partition = table.partitions.first().filter(|_| random.below(4) == 0);
    let table = partition.cloned().unwrap_or_else(|| table.sql());
    Change::of(format!("ALTER TABLE {table} {what} ROW LEVEL SECURITY"))
}

fn policies(random: &mut Random, model: &mut Model, place: usize) -> Change {
    let names = model.roles.clone();
    let table = &mut model.tables[place];
    let old = table.policies.get(random.below(table.policies.len().max(1))).cloned();
    let enable = format!("ALTER TABLE {} ENABLE ROW LEVEL SECURITY", table.sql());
    match (random.below(6), old) {
        (0, Some(old)) => {
            table.policies.retain(|p| *p != old);
            Change::of(format!("DROP POLICY {} ON {}", quote(&old), table.sql()))
        }
        (1, Some(old)) => {
            let condition = policy::condition(random, table, &names);
            Change::of(format!("ALTER POLICY {} ON {} USING ({condition})", quote(&old), table.sql()))
        }
        (2, Some(old)) => {
            let to = match random.below(3) {
                0 => "PUBLIC".to_owned(),
                _ => quote(random.pick(&names).as_str()),
            };
            Change::of(format!("ALTER POLICY {} ON {} TO {to}", quote(&old), table.sql()))
        }
        (3, Some(old)) => {
            let new = names::new(random, &table.policies);
            table.policies.retain(|p| *p != old);
            table.policies.push(new.clone());
            Change::of(format!("ALTER POLICY {} ON {} RENAME TO {}", quote(&old), table.sql(), quote(&new)))
        }
        (_, Some(old)) if table.policies.len() > 4 => {
            table.policies.retain(|p| *p != old);
            Change::of(format!("DROP POLICY {} ON {}", quote(&old), table.sql()))
        }
        _ => {
            let new = Policy::random(random, table, &names);
            table.policies.push(new.name.clone());
            Change::of(format!("{}; {enable}", new.create(table)))
        }
    }
}

fn grants(random: &mut Random, model: &Model, place: usize) -> Change {
    let table = &model.tables[place];
    let to = match random.below(5) {
        0 => "PUBLIC".to_owned(),
        _ => quote(random.pick(&model.roles).as_str()),
    };
    let (sql, columns) = (table.sql(), table.some_used(random));
    // Owners keep their own rights: it is with them that chunks are made and found.
    let owns = model.tables.iter().filter_map(|t| t.owner).any(|owner| to == quote(&model.roles[owner]));
    Change::of(match random.below(if owns { 7 } else { 12 }) {
        0..5 => format!("GRANT SELECT ON {sql} TO {to}"),
        5 | 6 => format!("GRANT SELECT {columns} ON {sql} TO {to}"),
        7 => format!("REVOKE SELECT ON {sql} FROM {to}"),
        8 => format!("REVOKE SELECT ON {sql} FROM {to}; GRANT SELECT {columns} ON {sql} TO {to}"),
        9 => format!("REVOKE SELECT {columns} ON {sql} FROM {to}"),
        10 => {
            let what = random.choose(&["GRANT USAGE ON SCHEMA $ TO", "REVOKE USAGE ON SCHEMA $ FROM"]);
            format!("{} {to}", what.replace('$', &quote(&table.schema)))
        }
        _ => (random.choose(&[
            "REVOKE SELECT ON helpers.reading FROM PUBLIC",
            "GRANT SELECT ON helpers.reading, helpers.seats TO PUBLIC",
        ]))
        .to_owned(),
    })
}

fn roles(random: &mut Random, model: &Model) -> Change {
    let names = model.roles.clone();
    // One way only, or there could be a circle.
    let lower = random.below(names.len() - 1);
    let higher = lower + 1 + random.below(names.len() - lower - 1);
    let (lower, higher) = (quote(&names[lower]), quote(&names[higher]));
    Change::of(match random.below(7) {
        0 | 1 => format!("GRANT {lower} TO {higher}"),
        2 | 3 => format!("REVOKE {lower} FROM {higher}"),
        4 => format!("ALTER ROLE {higher} {}", random.choose(&["INHERIT", "NOINHERIT"])),
        5 => format!("ALTER ROLE {higher} {}", random.choose(&["BYPASSRLS", "NOBYPASSRLS"])),
        _ => format!("ALTER ROLE {higher} NOBYPASSRLS INHERIT"),
    })
}

fn helping_rows(random: &mut Random, model: &Model, place: usize) -> Change {
    let table = &model.tables[place];
    let reader = literal(random.pick(&model.roles).as_str());
    Change::of(match random.below(6) {
        0 | 1 => format!(
            "INSERT INTO helpers.reading SELECT {}::text, {reader} FROM {} WHERE {}",
            table.column(table.keys[0]),
            table.sql(),
            table.some_rows(random)
        ),
        2 => format!("DELETE FROM helpers.reading WHERE reader = {reader}"),
        3 => format!("INSERT INTO helpers.seats VALUES ({reader}, {})", literal(random.choose(&TENANTS))),
        4 => format!("DELETE FROM helpers.seats WHERE reader = {reader}"),
        _ => format!("ALTER TABLE helpers.reading {} ROW LEVEL SECURITY", random.choose(&["ENABLE", "DISABLE"])),
    })
}

/// Rows change in what policies or results show of them; their text stays.
fn rows(random: &mut Random, model: &Model, place: usize) -> Change {
    let table = &model.tables[place];
    let mut effect = Effect::None;
    let set = match random.below(4) {
        0 => format!("{} = {}", table.column(table.author), literal(random.pick(&model.roles).as_str())),
        1 => {
            // Where the tenant is part of the key, rows move.
            if table.kind == Kind::ByTenant {
                effect = Effect::Embedding;
            }
            format!("{} = {}", table.column(table.tenant), literal(random.choose(&TENANTS)))
        }
        2 => match table.new_metadata(random) {
            Some((column, value)) => format!("{column} = {value}"),
            None => return Change::of("SELECT 1".into()),
        },
        _ => format!("{0} = ({0} + 1) % 6", table.column(table.level)),
    };
    Change { sql: format!("UPDATE {} SET {set} WHERE {}", table.sql(), table.some_rows(random)), effect }
}

/// Rows come, go, get another text or another key.
fn texts(random: &mut Random, model: &mut Model, place: usize) -> Change {
    let authors = model.roles.clone();
    let table = &mut model.tables[place];
    let content = table.column(table.content[0]);
    Change::embedding(match random.below(6) {
        0 | 1 => {
            let text = table.new_content(random);
            format!("UPDATE {} SET {content} = {text} WHERE {}", table.sql(), table.some_rows(random))
        }
        2 => format!("UPDATE {0} SET {1} = {1} || ' again' WHERE {2}", table.sql(), content, table.some_rows(random)),
        3 => {
            let count = 1 + random.below(4);
            table.insert(random, count, &authors)
        }
        4 => format!(
            "DELETE FROM {0} WHERE (tableoid, ctid) IN (SELECT tableoid, ctid FROM {0} ORDER BY {1}::text LIMIT 2)",
            table.sql(),
            table.column(table.keys[0])
        ),
        _ => {
            let value = table.new_key();
            format!(
                "UPDATE {0} SET {1} = {value} WHERE (tableoid, ctid) IN (SELECT tableoid, ctid FROM {0} ORDER BY {1}::text LIMIT 1)",
                table.sql(),
                table.column(table.keys[0])
            )
        }
    })
}

/// The table is renamed, or a column; or it gets a column that the collection does not use.
fn definition(random: &mut Random, model: &mut Model, place: usize) -> Change {
    let taken: Vec<String> = model.tables.iter().map(|t| t.name.clone()).collect();
    let table = &mut model.tables[place];
    let before = table.sql();
    match random.below(5) {
        0 => {
            table.name = names::new(random, &taken);
            Change::of(format!("ALTER TABLE {before} RENAME TO {}", quote(&table.name)))
        }
        1 | 2 => {
            let column = random.below(table.columns.len());
            let taken: Vec<String> = table.columns.iter().map(|c| c.name.clone()).collect();
            let old = table.column(column);
            table.columns[column].name = names::new(random, &taken);
            Change::of(format!("ALTER TABLE {before} RENAME COLUMN {old} TO {}", table.column(column)))
        }
        3 => Change::of(format!(
            "ALTER TABLE {before} DROP COLUMN IF EXISTS spare; ALTER TABLE {before} ADD COLUMN spare int DEFAULT 7"
        )),
        _ => Change::of(format!("ANALYZE {before}; ANALYZE {}", table.chunk_table)),
    }
}
