//! The key of a source row: its primary key, as columns, as jsonb, as a join.

use crate::pg::catalog;
use crate::pg::spi::quote;
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
}

impl Key {
    /// A key of columns with types (and their modifiers) and equality operators, written as `OPERATOR(schema.=)`.
    pub fn new(columns: Vec<String>, types: &[(pg_sys::Oid, i32)], equality: Vec<String>) -> Self {
        let is_built_in = types.iter().all(|(oid, _)| catalog::is_built_in_type(*oid))
            && equality.iter().all(|operator| operator.starts_with("OPERATOR(pg_catalog."));
        let types = types.iter().map(|(oid, modifier)| catalog::base_type_name(*oid, *modifier)).collect();
        Self { columns, types, equality, is_built_in }
    }

    /// `left.id = right.id AND ...` with the operators of the primary key; each side has names of its own.
    pub fn join(&self, left: &str, left_names: &[String], right: &str, right_names: &[String]) -> String {
        left_names
            .iter()
            .zip(right_names)
            .zip(&self.equality)
            .map(|((l, r), operator)| format!("{left}.{} {operator} {right}.{}", quote(l), quote(r)))
            .collect::<Vec<_>>()
            .join(" AND ")
    }

    /// `jsonb_build_object('id', alias.id, ...)`: the key as people see it, from columns called `names` there.
    pub fn object(&self, alias: &str, names: &[String]) -> String {
        let pairs: Vec<String> = self
            .columns
            .iter()
            .zip(names)
            .map(|(shown, name)| format!("{}, {alias}.{}", pgrx::spi::quote_literal(shown), quote(name)))
            .collect();
        format!("pg_catalog.jsonb_build_object({})", pairs.join(", "))
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
