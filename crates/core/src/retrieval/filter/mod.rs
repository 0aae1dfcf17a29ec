//! Which rows a search may find: a filter over a collection's metadata columns, written as JSON.
//!
//! ```json
//! {"version": "v4", "price": {">=": 10, "<": 100}, "tags": {"contains": "sso"}, "or": [{"team": null}, {"team": ["a", "b"]}]}
//! ```
//!
//! | JSON | holds where |
//! |---|---|
//! | `{"a": 1, "b": {…}}` | all of its members hold; so do all operators of `{…}`. `{}` holds everywhere |
//! | `"column": value` | the column is equal to the value; `null`: it is NULL; a list: it is one of the list |
//! | `"column": {"=": v}`, `!=`, `<`, `<=`, `>`, `>=` | as it says |
//! | `"column": {"in": [v, …]}`, `not_in` | it is one of the list, or not |
//! | `"column": {"contains": v}` | an array has the value, or all of a list; a jsonb contains it, as `@>` does |
//! | `"column": {"overlaps": [v, …]}` | an array has one of the list |
//! | `"column": {"is_null": true}` | it is NULL, or with `false` is not |
//! | `"and": [{…}, …]`, `"or": […]`, `"not": {…}` | as they say; columns that have these names cannot be filtered by |
//!
//! There are two truth values: a test of a NULL does not hold, so its `not`, `!=` and `not_in` do.
//!
//! A filter is checked against the columns' types before anything runs, and is then a small tree with values of the right
//! type, from which the shell writes SQL with parameters. No text of a filter is ever SQL.

mod column;
mod error;
mod parse;
mod value;

pub use column::{Column, ColumnType, Operator};
pub use error::FilterError;
pub use parse::parse;
pub use value::Value;

/// Deepest nesting of `and`, `or` and `not`.
pub const MAX_DEPTH: usize = 16;
/// Most tests and values of a filter together.
pub const MAX_SIZE: usize = 1000;
/// Longest filter, in bytes of JSON.
pub const MAX_BYTES: usize = 256 << 10;

/// A filter that fits its columns.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// All hold; true for none.
    All(Vec<Filter>),
    /// One holds at least; false for none.
    Any(Vec<Filter>),
    /// It does not hold.
    Not(Box<Filter>),
    /// What a column is tested for.
    Test(Test),
}

/// A column, an operator, and values that fit both.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// Place of the column among those the filter was checked against.
    pub column: usize,
    /// What is asked; never [`Operator::NotEqual`] or [`Operator::NotIn`], which are [`Filter::Not`].
    pub operator: Operator,
    /// One value, or those of a list; of [`Operator::IsNull`] none.
    pub values: Vec<Value>,
}

impl Filter {
    /// Whether it holds for every row.
    pub fn is_empty(&self) -> bool {
        matches!(self, Filter::All(all) if all.is_empty())
    }

    /// Its tests, in order.
    pub fn tests(&self) -> Vec<&Test> {
        match self {
            Filter::All(parts) | Filter::Any(parts) => parts.iter().flat_map(Filter::tests).collect(),
            Filter::Not(part) => part.tests(),
            Filter::Test(test) => vec![test],
        }
    }
}
