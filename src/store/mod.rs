//! All SQL text that runs from Rust. Identifiers are quoted by [`quote`], values are parameters.

pub mod capture;
pub mod catalog;
pub mod chunks;
pub mod collection;
pub mod queue;
pub mod runs;
pub mod search;
pub mod source;

/// An identifier, quoted where it must be.
pub fn quote(identifier: &str) -> String {
    pgrx::spi::quote_identifier(identifier)
}

/// `alias.column` for each column, separated by commas.
fn columns(alias: &str, names: &[String]) -> String {
    names.iter().map(|n| format!("{alias}.{}", quote(n))).collect::<Vec<_>>().join(", ")
}

/// A value as an argument of a statement.
fn arg<'a, T: pgrx::IntoDatum>(value: T) -> crate::pg::spi::Arg<'a> {
    value.into()
}
