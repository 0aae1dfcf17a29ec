//! What is wrong with a filter.

use super::{Column, ColumnType, MAX_BYTES, MAX_DEPTH, MAX_SIZE, Operator};

/// Most names that a hint lists.
const MOST_LISTED: usize = 40;
/// Longest piece of a filter that a message repeats, in characters.
const LONGEST_SHOWN: usize = 60;

/// A filter that cannot be used. The message says what is wrong, the hint what is right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FilterError {
    message: String,
    hint: String,
}

impl FilterError {
    /// What to do.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    fn new(message: String, hint: impl Into<String>) -> Self {
        Self { message, hint: hint.into() }
    }

    pub(super) fn syntax() -> Self {
        Self::new("the filter is no JSON".into(), SHAPE)
    }

    pub(super) fn shape(found: &serde_json::Value) -> Self {
        Self::new(format!("{} is no filter", shown(found)), SHAPE)
    }

    pub(super) fn parts(keyword: &str) -> Self {
        let hint = if keyword == "not" { "Give it an object: {\"not\": {\"status\": \"draft\"}}." } else { LIST };
        Self::new(format!("\"{keyword}\" of the filter has no filters"), hint)
    }

    pub(super) fn too_deep() -> Self {
        Self::new(
            format!("the filter is nested deeper than {MAX_DEPTH} levels"),
            "Write it with fewer \"and\", \"or\" and \"not\".",
        )
    }

    pub(super) fn too_large() -> Self {
        Self::new(
            format!("the filter has more than {MAX_SIZE} tests and values"),
            "For long lists, filter by a column that says what they have in common.",
        )
    }

    pub(super) fn too_long(bytes: usize) -> Self {
        Self::new(format!("the filter has {bytes} bytes"), format!("It can have at most {MAX_BYTES}."))
    }

    pub(super) fn column(name: &str, columns: &[Column]) -> Self {
        let hint = if columns.is_empty() {
            "The collection has no metadata columns: name them with metadata => '{...}' in rag.create_collection."
                .to_owned()
        } else {
            format!("Columns to filter by are: {}.", listed(columns.iter().map(|c| c.name.as_str())))
        };
        Self::new(format!("there is no metadata column \"{}\"", shortened(name)), hint)
    }

    pub(super) fn operator(name: &str, column: &Column) -> Self {
        Self::new(
            format!(
                "column \"{}\" of type {} cannot be filtered by \"{}\"",
                column.name,
                column.column_type.name(),
                shortened(name)
            ),
            Self::operators(&column.column_type),
        )
    }

    pub(super) fn no_operator(column: &Column) -> Self {
        Self::new(format!("the filter of column \"{}\" is empty", column.name), Self::operators(&column.column_type))
    }

    fn operators(column_type: &ColumnType) -> String {
        let names: Vec<&str> = column_type.operators().into_iter().map(Operator::name).collect();
        format!("Operators of such a column are: {}.", names.join(", "))
    }

    /// A value that does not fit, or that should be a list.
    pub(super) fn value(column: &Column, operator: Operator, found: &serde_json::Value, needs_list: bool) -> Self {
        let expected = match operator {
            Operator::IsNull => "true or false".to_owned(),
            _ if needs_list => format!("a list, and in it {}", column.column_type.expects()),
            _ => column.column_type.expects(),
        };
        Self::new(
            format!(
                "{} is no value for \"{}\" of column \"{}\" of type {}",
                shown(found),
                operator.name(),
                column.name,
                column.column_type.name()
            ),
            format!("Expected is {expected}."),
        )
    }
}

const SHAPE: &str =
    "Write it as an object: {\"version\": \"v4\", \"price\": {\"<\": 100}, \"tags\": {\"contains\": \"x\"}}.";
const LIST: &str = "Give it a list of objects: {\"or\": [{\"status\": \"draft\"}, {\"status\": null}]}.";

/// Names, separated by commas, not too many.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<String> = names.map(shortened).collect();
    let more = names.len().saturating_sub(MOST_LISTED);
    names.truncate(MOST_LISTED);
    let list = names.join(", ");
    if more > 0 { format!("{list}, and {more} more") } else { list }
}

fn shortened(text: &str) -> String {
    crate::text::one_line(text, LONGEST_SHOWN)
}

fn shown(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(_) => "a list".into(),
        serde_json::Value::Object(_) => "an object".into(),
        other => shortened(&other.to_string()),
    }
}
