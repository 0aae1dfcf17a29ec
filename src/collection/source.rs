//! The table that is to become a source.

use crate::registry::{Column, Key};
use pgrx::pg_sys;

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
    /// Its type as SQL, qualified; of a domain, the domain.
    pub sql_type: String,
    /// ` COLLATE schema.name`, where it is not the type's own.
    pub collation: String,
    /// Whether its type is a row type, or an array of one.
    pub is_composite: bool,
}
