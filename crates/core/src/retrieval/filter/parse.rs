//! JSON becomes a filter.

use super::value::value;
use super::{Column, Filter, FilterError, MAX_BYTES, MAX_DEPTH, MAX_SIZE, Operator, Test};
use serde_json::Value as Json;

/// Reads a filter and checks it against the columns.
///
/// ```
/// use ragent_core::retrieval::filter::{Column, ColumnType, Operator, Value, parse};
/// let columns = [Column { name: "price".into(), column_type: ColumnType::Integer }];
/// let filter = parse(r#"{"price": {"<": 100}}"#, &columns).unwrap();
/// assert_eq!((filter.tests()[0].operator, &filter.tests()[0].values[..]), (Operator::Less, &[Value::Integer(100)][..]));
///
/// let error = parse(r#"{"prise": 100}"#, &columns).unwrap_err();
/// assert_eq!(error.to_string(), r#"there is no metadata column "prise""#);
/// assert_eq!(error.hint(), "Columns to filter by are: price.");
/// ```
///
/// # Errors
/// The first thing that does not fit: no JSON object, a column, operator or value that cannot be, too deep or too large.
pub fn parse(json: &str, columns: &[Column]) -> Result<Filter, FilterError> {
    if json.len() > MAX_BYTES {
        return Err(FilterError::too_long(json.len()));
    }
    // The parser itself goes no deeper than 128 levels.
    let json: Json = serde_json::from_str(json).map_err(|_| FilterError::syntax())?;
    Parser { columns, size: 0 }.filter(&json, 0)
}

struct Parser<'a> {
    columns: &'a [Column],
    /// Tests and values so far.
    size: usize,
}

impl Parser<'_> {
    fn filter(&mut self, json: &Json, depth: usize) -> Result<Filter, FilterError> {
        let Json::Object(members) = json else { return Err(FilterError::shape(json)) };
        if depth > MAX_DEPTH {
            return Err(FilterError::too_deep());
        }
        let mut all = Vec::with_capacity(members.len());
        for (name, json) in members {
            match name.as_str() {
                "and" => all.push(Filter::All(self.parts(name, json, depth)?)),
                "or" => all.push(Filter::Any(self.parts(name, json, depth)?)),
                "not" if json.is_object() => all.push(Filter::Not(Box::new(self.filter(json, depth + 1)?))),
                "not" => return Err(FilterError::parts(name)),
                _ => self.column(name, json, &mut all)?,
            }
        }
        // One alone needs nothing around it.
        Ok(if all.len() == 1 { all.remove(0) } else { Filter::All(all) })
    }

    fn parts(&mut self, keyword: &str, json: &Json, depth: usize) -> Result<Vec<Filter>, FilterError> {
        match json {
            Json::Array(parts) if !parts.is_empty() => {
                self.grow(parts.len())?;
                parts.iter().map(|part| self.filter(part, depth + 1)).collect()
            }
            _ => Err(FilterError::parts(keyword)),
        }
    }

    /// Adds what is asked of a column.
    fn column(&mut self, name: &str, json: &Json, all: &mut Vec<Filter>) -> Result<(), FilterError> {
        let place = self.columns.iter().position(|c| c.name == name);
        let place = place.ok_or_else(|| FilterError::column(name, self.columns))?;
        let column = &self.columns[place];
        let test = match json {
            Json::Null => self.test(place, Operator::IsNull, &Json::Bool(true))?,
            Json::Array(_) => self.test(place, Operator::In, json)?,
            Json::Object(operators) => {
                if operators.is_empty() {
                    return Err(FilterError::no_operator(column));
                }
                for (name, json) in operators {
                    let operator = Operator::named(name).ok_or_else(|| FilterError::operator(name, column))?;
                    all.push(self.test(place, operator, json)?);
                }
                return Ok(());
            }
            one => self.test(place, Operator::Equal, one)?,
        };
        all.push(test);
        Ok(())
    }

    fn test(&mut self, place: usize, operator: Operator, json: &Json) -> Result<Filter, FilterError> {
        self.grow(1)?;
        let column = &self.columns[place];
        let column_type = &column.column_type;
        if !column_type.operators().contains(&operator) {
            return Err(FilterError::operator(operator.name(), column));
        }
        let wrong = |found: &Json| FilterError::value(column, operator, found, false);
        let element = match column_type {
            super::ColumnType::Array(element) => element,
            other => other,
        };
        let is_array = matches!(column_type, super::ColumnType::Array(_));
        let values = match json {
            Json::Bool(is_null) if operator == Operator::IsNull => {
                let test = Filter::Test(Test { column: place, operator, values: Vec::new() });
                return Ok(if *is_null { test } else { Filter::Not(Box::new(test)) });
            }
            _ if operator == Operator::IsNull => return Err(wrong(json)),
            Json::Array(list) if operator.takes_list() || (operator == Operator::Contains && is_array) => {
                self.grow(list.len())?;
                list.iter().map(|one| value(one, element).ok_or_else(|| wrong(one))).collect::<Result<_, _>>()?
            }
            _ if operator.takes_list() => return Err(FilterError::value(column, operator, json, true)),
            one => vec![value(one, element).ok_or_else(|| wrong(one))?],
        };
        let (operator, is_not) = match operator {
            Operator::NotEqual => (Operator::Equal, true),
            Operator::NotIn => (Operator::In, true),
            other => (other, false),
        };
        let test = Filter::Test(Test { column: place, operator, values });
        Ok(if is_not { Filter::Not(Box::new(test)) } else { test })
    }

    fn grow(&mut self, by: usize) -> Result<(), FilterError> {
        self.size += by;
        if self.size > MAX_SIZE { Err(FilterError::too_large()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ColumnType, Value};
    use super::*;

    fn columns() -> Vec<Column> {
        let labels = vec!["open".to_owned(), "closed".to_owned()];
        [
            ("version", ColumnType::Text),
            ("price", ColumnType::Integer),
            ("tags", ColumnType::Array(Box::new(ColumnType::Text))),
            ("seen", ColumnType::TimestampTz),
            ("status", ColumnType::Enum(labels)),
            ("is_public", ColumnType::Boolean),
            ("extra", ColumnType::Json),
            ("place", ColumnType::Other("point".into())),
        ]
        .map(|(name, column_type)| Column { name: name.into(), column_type })
        .into()
    }

    fn test(column: usize, operator: Operator, values: Vec<Value>) -> Filter {
        Filter::Test(Test { column, operator, values })
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn a_filter_is_a_tree_of_tests() {
        let not = |f| Filter::Not(Box::new(f));
        for (json, expected) in [
            ("{}", Filter::All(vec![])),
            (r#"{"version": "v4"}"#, test(0, Operator::Equal, vec![text("v4")])),
            (r#"{"version": null}"#, test(0, Operator::IsNull, vec![])),
            (r#"{"version": {"is_null": false}}"#, not(test(0, Operator::IsNull, vec![]))),
            (r#"{"version": ["a", "b"]}"#, test(0, Operator::In, vec![text("a"), text("b")])),
            (r#"{"version": {"not_in": []}}"#, not(test(0, Operator::In, vec![]))),
            (r#"{"price": {"!=": 5}}"#, not(test(1, Operator::Equal, vec![Value::Integer(5)]))),
            (
                r#"{"price": {">=": 10, "<": 99.5}}"#,
                Filter::All(vec![
                    test(1, Operator::Less, vec![Value::Number("99.5".into())]),
                    test(1, Operator::AtLeast, vec![Value::Integer(10)]),
                ]),
            ),
            (r#"{"tags": {"contains": "x"}}"#, test(2, Operator::Contains, vec![text("x")])),
            (r#"{"tags": {"contains": ["x", "y"]}}"#, test(2, Operator::Contains, vec![text("x"), text("y")])),
            (r#"{"tags": {"overlaps": ["x"]}}"#, test(2, Operator::Overlaps, vec![text("x")])),
            (
                r#"{"extra": {"contains": {"a": [1]}}}"#,
                test(6, Operator::Contains, vec![Value::Json(r#"{"a":[1]}"#.into())]),
            ),
            (r#"{"status": "open"}"#, test(4, Operator::Equal, vec![text("open")])),
            (
                r#"{"or": [{"is_public": true}, {"not": {"version": "v1"}}]}"#,
                Filter::Any(vec![
                    test(5, Operator::Equal, vec![Value::Boolean(true)]),
                    not(test(0, Operator::Equal, vec![text("v1")])),
                ]),
            ),
            (r#"{"place": null}"#, test(7, Operator::IsNull, vec![])),
        ] {
            let mut parsed = parse(json, &columns());
            // Members of JSON have no order.
            if let Ok(Filter::All(parts)) = &mut parsed {
                parts.sort_by_key(|p| format!("{p:?}").contains("AtLeast"));
            }
            assert_eq!(parsed, Ok(expected), "{json}");
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error_that_names_what_does() {
        for (json, message, hint) in [
            ("[1]", "a list is no filter", "Write it as an object"),
            ("{", "the filter is no JSON", "Write it as an object"),
            (
                r#"{"verison": "v4"}"#,
                "there is no metadata column \"verison\"",
                "Columns to filter by are: version, price, tags, seen, status, is_public, extra, place.",
            ),
            (
                r#"{"price": {"~": 5}}"#,
                "column \"price\" of type integer cannot be filtered by \"~\"",
                "Operators of such a column are: =, !=, <, <=, >, >=, in, not_in, is_null.",
            ),
            (
                r#"{"is_public": {"<": true}}"#,
                "column \"is_public\" of type boolean cannot be filtered by \"<\"",
                "Operators of such a column are: =, !=, in, not_in, is_null.",
            ),
            (
                r#"{"place": "(1,2)"}"#,
                "column \"place\" of type point cannot be filtered by \"=\"",
                "Operators of such a column are: is_null.",
            ),
            (
                r#"{"tags": "x"}"#,
                "column \"tags\" of type text[] cannot be filtered by \"=\"",
                "Operators of such a column are: contains, overlaps, is_null.",
            ),
            (
                r#"{"price": "5"}"#,
                "\"5\" is no value for \"=\" of column \"price\" of type integer",
                "Expected is a number, without quotation marks.",
            ),
            (
                r#"{"price": {"in": 5}}"#,
                "5 is no value for \"in\" of column \"price\" of type integer",
                "Expected is a list, and in it a number, without quotation marks.",
            ),
            (
                r#"{"price": {"in": [5, null]}}"#,
                "null is no value for \"in\" of column \"price\" of type integer",
                "Expected is a number, without quotation marks.",
            ),
            (
                r#"{"status": "opne"}"#,
                "\"opne\" is no value for \"=\" of column \"status\" of type enum",
                "Expected is one of: open, closed.",
            ),
            (
                r#"{"seen": {">": "yesterday"}}"#,
                "\"yesterday\" is no value for \">\" of column \"seen\" of type timestamptz",
                "Expected is a date and time",
            ),
            (r#"{"price": {}}"#, "the filter of column \"price\" is empty", "Operators of such a column are:"),
            (r#"{"or": {}}"#, "\"or\" of the filter has no filters", "Give it a list of objects"),
            (r#"{"not": [1]}"#, "\"not\" of the filter has no filters", "Give it an object"),
            (
                r#"{"version": {"is_null": 1}}"#,
                "1 is no value for \"is_null\" of column \"version\" of type text",
                "Expected is true or false.",
            ),
            (
                "{\"version\": \"a\\u0000b\"}",
                "\"a\\u0000b\" is no value for \"=\" of column \"version\" of type text",
                "Expected is a text.",
            ),
        ] {
            let error = parse(json, &columns()).expect_err(json);
            assert_eq!(error.to_string(), message, "{json}");
            assert!(error.hint().starts_with(hint), "{json}: {}", error.hint());
        }
        assert!(parse(r#"{"a": 1}"#, &[]).expect_err("no column").hint().contains("rag.create_collection"));
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let nested = |depth: usize| format!("{}{{}}{}", "{\"not\":".repeat(depth), "}".repeat(depth));
        assert!(parse(&nested(MAX_DEPTH), &columns()).is_ok());
        for depth in [MAX_DEPTH + 1, 100] {
            assert!(parse(&nested(depth), &columns()).unwrap_err().to_string().contains("nested deeper"));
        }
        assert!(parse(&nested(10_000), &columns()).is_err());
        let list = |n: usize| format!("{{\"price\": {:?}}}", vec![1; n]);
        assert!(parse(&list(MAX_SIZE - 1), &columns()).is_ok());
        assert!(parse(&list(MAX_SIZE), &columns()).unwrap_err().to_string().contains("more than 1000"));
        assert!(parse(&" ".repeat(MAX_BYTES + 1), &columns()).unwrap_err().to_string().contains("bytes"));
    }
}
