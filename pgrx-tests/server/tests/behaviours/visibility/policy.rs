//! Policies: who sees which rows.

use ragent_server_tests::database::{literal, quote};
use ragent_server_tests::random::Random;

use super::names;
use super::table::{TENANTS, Table};

/// What policies call and read, in the schema `helpers`. `reading` is a list of documents by their first key column as text; `seats`
/// says which tenants a role sees. `find_seat` finds its table by the caller's search_path, as careless policies do.
pub const HELPING_OBJECTS: &str = "
    CREATE SCHEMA helpers;
    GRANT USAGE ON SCHEMA helpers TO PUBLIC;
    CREATE TABLE helpers.reading (document text, reader text);
    CREATE TABLE helpers.seats (reader text, tenant text);
    GRANT SELECT ON helpers.reading, helpers.seats TO PUBLIC;
    CREATE FUNCTION helpers.has_seat(wanted text) RETURNS boolean LANGUAGE sql STABLE AS
        $$ SELECT EXISTS (SELECT FROM helpers.seats s WHERE s.tenant = wanted AND s.reader = current_user) $$;
    CREATE FUNCTION helpers.has_seat_by_definer(wanted text, who text) RETURNS boolean
        LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog AS
        $$ BEGIN RETURN EXISTS (SELECT FROM helpers.seats s WHERE s.tenant = wanted AND s.reader = who); END $$;
    CREATE FUNCTION helpers.find_seat(wanted text) RETURNS boolean LANGUAGE plpgsql STABLE AS
        $$ BEGIN RETURN EXISTS (SELECT FROM seats s WHERE s.tenant = wanted AND s.reader = current_user); END $$;";

/// A policy of a table.
#[derive(Debug)]
pub struct Policy {
    pub name: String,
    pub restrictive: bool,
    /// Quoted names of roles, or PUBLIC.
    pub to: Vec<String>,
    pub condition: String,
}

impl Policy {
    /// A policy for some of these roles, whose name is none of the table's other policies'.
    pub fn random(random: &mut Random, table: &Table, roles: &[String]) -> Policy {
        let to = match random.below(3) {
            0 => vec!["PUBLIC".to_owned()],
            _ => (0..1 + random.below(2)).map(|_| quote(random.pick(roles).as_str())).collect(),
        };
        Policy {
            name: names::new(random, &table.policies),
            restrictive: random.below(4) == 0,
            to,
            condition: condition(random, table, roles),
        }
    }

    /// The statement that creates it.
    pub fn create(&self, table: &Table) -> String {
        let kind = if self.restrictive { "RESTRICTIVE" } else { "PERMISSIVE" };
        format!(
            "CREATE POLICY {} ON {} AS {kind} FOR SELECT TO {} USING ({})",
            quote(&self.name),
            table.sql(),
            self.to.join(", "),
            self.condition
        )
    }
}

/// What a policy asks of a row.
pub fn condition(random: &mut Random, table: &Table, roles: &[String]) -> String {
    let (tenant, author, level) = (table.column(table.tenant), table.column(table.author), table.column(table.level));
    let (key, content) = (table.column(table.keys[0]), table.column(table.content[0]));
    let number = random.below(6);
    let one = match random.below(20) {
        0 | 1 => format!("{tenant} = current_setting('app.tenant', true)"),
        // An error where nobody ever set it.
        2 => format!("{tenant} = current_setting('app.tenant')"),
        3 | 4 => format!("{author} = current_user"),
        5 => format!("{author} = session_user"),
        6 => format!("{level} < {number}"),
        7 => format!("{level} % 2 = {}", number % 2),
        8 => format!("{key}::text IN (SELECT r.document FROM helpers.reading r WHERE r.reader = current_user)"),
        9 => format!(
            "EXISTS (SELECT FROM helpers.reading r WHERE r.document = {}.{key}::text AND r.reader = current_user)",
            quote(&table.name)
        ),
        10 => format!("helpers.has_seat({tenant})"),
        11 => format!("helpers.has_seat_by_definer({tenant}, current_user)"),
        12 => format!("helpers.find_seat({tenant})"),
        13 => format!("pg_has_role(current_user, {author}::name, 'MEMBER')"),
        14 => format!("pg_has_role(current_user, {author}::name, 'USAGE')"),
        15 => format!("{content} LIKE '%red%'"),
        16 => format!("{tenant} = ANY (string_to_array(current_setting('app.tenants', true), ','))"),
        17 => format!("current_user = {}", literal(random.pick(roles).as_str())),
        18 => "true".into(),
        _ => (*random.pick(&["false", "NULL::boolean"])).into(),
    };
    match random.below(5) {
        0 | 1 => format!("({one}) OR {level} = {number}"),
        2 => format!("({one}) AND {tenant} <> {}", literal(random.choose(&TENANTS))),
        _ => one,
    }
}
