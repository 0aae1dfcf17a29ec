//! The table that is to become a source.

use super::statements;
use crate::error::{Error, Result, excerpt};
use crate::pg::role;
use crate::registry::{Column, Key};
use pgrx::{PgSqlErrorCode, pg_sys};
use ragent_core::text::list;

/// So many columns of a table are named.
const MOST_NAMED: usize = 20;

/// A table that may become a source.
pub struct Table {
    /// The table.
    pub oid: pg_sys::Oid,
    /// Its schema, not quoted.
    pub schema: String,
    /// Schema and name, quoted.
    pub name: String,
    /// `pg_class.relkind`.
    pub kind: char,
    /// Whether it lives as long as its session.
    pub is_temporary: bool,
    /// Whether it is in a schema of PostgreSQL or of this extension.
    pub is_system: bool,
    /// Its owner.
    pub owner: pg_sys::Oid,
    /// Whether rows of it can come and go through a parent, or through children: a partition, or inheritance.
    pub shares_rows: bool,
    /// Its columns, in their order.
    pub columns: Vec<Column>,
    /// Its primary key; without columns where it has none.
    pub key: Key,
    /// More about each column of the key, in the key's order.
    pub key_columns: Vec<KeyColumn>,
}

/// What a chunk table needs to know of one column of a primary key.
pub struct KeyColumn {
    /// Name of the column.
    pub name: String,
    /// Its type; of a domain, the domain.
    pub type_oid: pg_sys::Oid,
    /// Its type as SQL, qualified; of a domain, the domain.
    pub sql_type: String,
    /// ` COLLATE schema.name`, where it is not the type's own.
    pub collation: String,
    /// Whether its type is a row type, or an array of one.
    pub is_composite: bool,
}

impl Table {
    /// The table of an OID, if it may become a source.
    ///
    /// # Errors
    /// 42P01 there is none, 42809 it is not an ordinary table, 42501 the current role does not own it, 0A000 its rows are another's,
    /// or its key is of a row type, 42P16 it has no primary key.
    pub fn check(oid: pg_sys::Oid) -> Result<Self> {
        let Some(source) = statements::source::table(oid) else {
            return Err(Error::new(
                PgSqlErrorCode::ERRCODE_UNDEFINED_TABLE,
                format!("there is no table with OID {oid}"),
                "Give the table by its name.",
            ));
        };
        let table = &source.name;
        if !matches!(source.kind, 'r' | 'p') {
            let what = match source.kind {
                'v' => "a view",
                'm' => "a materialized view",
                'f' => "a foreign table",
                _ => "not a table",
            };
            return Err(Error::new(
                PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
                format!("{table} is {what}"),
                "Only tables can be collections: changes of others cannot be noted by triggers. Register the tables behind it.",
            ));
        }
        if source.is_temporary || source.is_system {
            let what = if source.is_temporary { "temporary" } else { "a system table" };
            return Err(Error::new(
                PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
                format!("{table} is {what}"),
                "Register an ordinary table.",
            ));
        }
        if !role::is_superuser() && !role::has_privileges_of(source.owner) {
            return Err(Error::denied(
                format!("must be owner of table {table}"),
                format!("Ask its owner, {}, or a superuser.", role::name(source.owner)),
            ));
        }
        if source.shares_rows {
            return Err(Error::new(
                PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
                format!("{table} is a partition, or has parents or children by inheritance"),
                "Rows that come through another table would be missed. Register the partitioned table itself; tables in inheritance cannot be registered.",
            ));
        }
        if source.key.columns.is_empty() {
            return Err(Error::new(
                PgSqlErrorCode::ERRCODE_INVALID_TABLE_DEFINITION,
                format!("table {table} has no primary key"),
                format!("Citations and updates find rows by it: ALTER TABLE {table} ADD PRIMARY KEY (...)."),
            ));
        }
        if let Some(k) = source.key_columns.iter().find(|k| k.is_composite) {
            return Err(Error::new(
                PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
                format!("primary key column \"{}\" of {table} has the row type {}", k.name, k.sql_type),
                "Keys of several columns are fine; one column of a row type is not. Use columns of ordinary types.",
            ));
        }
        Ok(source)
    }

    /// The types of the key's columns, in the key's order.
    pub fn key_types(&self) -> Vec<pg_sys::Oid> {
        self.key_columns.iter().map(|column| column.type_oid).collect()
    }

    /// The columns of these names; `argument` is what they were given as.
    ///
    /// # Errors
    /// 22023 a null name, 42703 no such column, 42701 one that is named twice.
    pub fn check_columns(&self, argument: &str, names: Vec<Option<String>>) -> Result<Vec<Column>> {
        let mut checked: Vec<Column> = Vec::new();
        for name in names {
            let Some(name) = name else {
                return Err(Error::bad_argument(format!("{argument} has a null element"), "Give column names only."));
            };
            let column = self.check_column(&name)?;
            if checked.iter().any(|c| c.name == name) {
                return Err(Error::new(
                    PgSqlErrorCode::ERRCODE_DUPLICATE_COLUMN,
                    format!("column \"{name}\" is named twice in {argument}"),
                    "Name each column once.",
                ));
            }
            checked.push(column);
        }
        Ok(checked)
    }

    /// The column of that name.
    ///
    /// # Errors
    /// 42703 there is none.
    pub fn check_column(&self, name: &str) -> Result<Column> {
        if let Some(column) = self.columns.iter().find(|c| c.name == name) {
            return Ok(column.clone());
        }
        let names = list(self.columns.iter().map(|c| c.name.as_str()), MOST_NAMED);
        Err(Error::new(
            PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
            format!("column \"{}\" of {} does not exist", excerpt(name), self.name),
            format!("Its columns are: {names}. Names are taken as they are, without quotes."),
        ))
    }
}
