//! The key of a source row: its primary key, as columns, as jsonb, as a join.

use crate::pg::catalog;
use crate::pg::role::Settings;
use crate::pg::spi::quote;
use crate::pg::uniform::{self, Writing};
use pgrx::pg_sys;

/// The primary key's columns in a source, in the order the collection names them.
#[derive(Debug, Clone)]
pub struct Key {
    /// Names in the source, which are also the names in the key as jsonb.
    pub columns: Vec<String>,
    /// Their types as SQL, of domains the base type: a domain's check is somebody's code, which a search must not run.
    pub types: Vec<String>,
    /// Equality operators of the primary key's index, as `OPERATOR(schema.=)`.
    pub equality: Vec<String>,
    /// Whether all types and operators are PostgreSQL's own, so that comparing and reading keys runs nobody's code.
    pub is_built_in: bool,
    /// Their types as the catalog has them, domains as domains.
    pub oids: Vec<pg_sys::Oid>,
    /// Whether it is a domain over an enum: PostgreSQL finds no operator that compares its values as they are.
    is_enum_domain: Vec<bool>,
    /// What decides how their values are written.
    writing: Vec<Writing>,
    is_read_alike: bool,
}

impl Key {
    /// A key of columns with types (and their modifiers) and equality operators, written as `OPERATOR(schema.=)`.
    pub fn new(columns: Vec<String>, types: &[(pg_sys::Oid, i32)], equality: Vec<String>) -> Self {
        let is_built_in = types.iter().all(|(oid, _)| catalog::is_built_in_type(*oid))
            && equality.iter().all(|operator| operator.starts_with("OPERATOR(pg_catalog."));
        let oids: Vec<pg_sys::Oid> = types.iter().map(|(oid, _)| *oid).collect();
        let types = types.iter().map(|(oid, modifier)| catalog::base_type_name(*oid, *modifier)).collect();
        let writing = oids.iter().map(|oid| uniform::writing(*oid)).collect();
        let is_enum_domain = oids.iter().map(|oid| catalog::is_domain_over_enum(*oid)).collect();
        let is_read_alike = oids.iter().all(|oid| uniform::is_read_alike(*oid));
        Self { columns, types, equality, is_built_in, oids, is_enum_domain, writing, is_read_alike }
    }

    /// `left.id = right.id AND ...` with the operators of the primary key; each side has names of its own.
    pub fn join(&self, left: &str, left_names: &[String], right: &str, right_names: &[String]) -> String {
        left_names
            .iter()
            .zip(right_names)
            .take(self.equality.len())
            .enumerate()
            .map(|(place, (l, r))| self.equal(place, &format!("{left}.{}", quote(l)), &format!("{right}.{}", quote(r))))
            .collect::<Vec<_>>()
            .join(" AND ")
    }

    /// Whether two values of the column at a place of the key are the same.
    pub fn equal(&self, place: usize, left: &str, right: &str) -> String {
        let operator = &self.equality[place];
        if self.is_enum_domain[place] {
            let base = &self.types[place];
            return format!("{left}::{base} {operator} {right}::{base}");
        }
        format!("{left} {operator} {right}")
    }

    /// `jsonb_build_object('id', alias.id, ...)`: the key as people see it, from columns called `names` there.
    pub fn object(&self, alias: &str, names: &[String]) -> String {
        let pairs: Vec<String> = self
            .columns
            .iter()
            .zip(names)
            .enumerate()
            .map(|(place, (shown, name))| {
                let value = self.json(place, &format!("{alias}.{}", quote(name)));
                format!("{}, {value}", pgrx::spi::quote_literal(shown))
            })
            .collect();
        format!("pg_catalog.jsonb_build_object({})", pairs.join(", "))
    }

    /// A value of the column at a place of the key, or an array of such values, as JSON: the same whoever writes it.
    pub fn json(&self, place: usize, value: &str) -> String {
        // A collection whose key is not there any more has no types of it.
        match self.writing.get(place) {
            None | Some(Writing::Alike) => value.to_owned(),
            Some(Writing::BySettings | Writing::ByNames) => format!("rag_internal.plain_json({value})"),
        }
    }

    /// The settings under which keys are taken apart as they were written, where that depends on settings.
    pub fn settings(&self) -> Option<Settings> {
        (!self.is_read_alike).then(Settings::for_keys)
    }

    /// `pg_catalog.jsonb_to_record(value) AS alias (id bigint, ...)`: a jsonb key taken apart into typed columns.
    pub fn record(&self, value: &str, alias: &str) -> String {
        let fields: Vec<String> = self
            .columns
            .iter()
            .zip(&self.types)
            .map(|(name, sql_type)| format!("{} {sql_type}", quote(name)))
            .collect();
        format!("pg_catalog.jsonb_to_record({value}) AS {alias} ({})", fields.join(", "))
    }
}
