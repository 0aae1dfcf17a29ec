//! The SQL surface, one file for each noun of `sql/`: each function parses its arguments, calls an action, maps the
//! result. Signatures, defaults, privileges and comments stand in `sql/`, so nothing is generated from here.

mod answer;
mod capture;
mod collection;
mod embed;
mod provider;
mod search;
mod worker;

use crate::error::{Error, Result};

/// An argument that must not be NULL.
fn required<T>(value: Option<T>, name: &str) -> Result<T> {
    value.ok_or_else(|| {
        Error::new(
            pgrx::PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            format!("{name} must not be null"),
            format!("Give a value for {name}."),
        )
    })
}

/// JSON text as a value; the text comes from PostgreSQL's own jsonb.
fn json(text: &str) -> pgrx::JsonB {
    pgrx::JsonB(serde_json::from_str(text).unwrap_or_default())
}
