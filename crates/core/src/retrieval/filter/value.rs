//! The values of a filter, each of its column's type.

use super::ColumnType;
use serde_json::Value as Json;

/// A value to compare with, as a parameter of the statement takes it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `boolean`
    Boolean(bool),
    /// `bigint`
    Integer(i64),
    /// `numeric` or `double precision`, as it is written in JSON.
    Number(String),
    /// `text`, also that of a uuid, date, timestamp or enum: its form was checked, it is cast by the statement.
    Text(String),
    /// `jsonb`, as text.
    Json(String),
}

/// Longest number, in characters, and largest exponent: more than any type of PostgreSQL takes apart.
const LONGEST_NUMBER: usize = 100;
const LARGEST_EXPONENT: i32 = 300;

/// The value, if it is one of the type. NULL is none.
pub(super) fn value(json: &Json, column_type: &ColumnType) -> Option<Value> {
    match (column_type, json) {
        (ColumnType::Boolean, Json::Bool(b)) => Some(Value::Boolean(*b)),
        (ColumnType::Integer | ColumnType::Numeric | ColumnType::Float, Json::Number(n)) => {
            let written = n.to_string();
            match (column_type, n.as_i64()) {
                (ColumnType::Integer, Some(n)) => Some(Value::Integer(n)),
                _ => is_small(&written).then_some(Value::Number(written)),
            }
        }
        (ColumnType::Json, Json::Null) => None,
        (ColumnType::Json, any) => {
            let written = any.to_string();
            // PostgreSQL takes no NUL.
            (!written.contains("\\u0000")).then_some(Value::Json(written))
        }
        (text, Json::String(s)) => {
            let fits = match text {
                ColumnType::Text => true,
                ColumnType::Uuid => is_uuid(s),
                ColumnType::Date => is_date(s),
                ColumnType::Timestamp => is_timestamp(s, false),
                ColumnType::TimestampTz => is_timestamp(s, true),
                ColumnType::Enum(labels) => labels.contains(s),
                _ => false,
            };
            (fits && !s.contains('\0')).then(|| Value::Text(s.clone()))
        }
        _ => None,
    }
}

/// Whether a number, as JSON writes it, is of a size that every type takes.
fn is_small(written: &str) -> bool {
    let exponent = written.split_once(['e', 'E']).map_or(Some(0), |(_, e)| e.parse::<i32>().ok());
    written.len() <= LONGEST_NUMBER && exponent.is_some_and(|e| e.abs() <= LARGEST_EXPONENT)
}

fn is_uuid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 36
        && bytes
            .iter()
            .enumerate()
            .all(|(at, b)| if matches!(at, 8 | 13 | 18 | 23) { *b == b'-' } else { b.is_ascii_hexdigit() })
}

/// `YYYY-MM-DD`, the one form that every DateStyle reads alike.
fn is_date(text: &str) -> bool {
    let Some([year, month, day]) = numbers(text, '-', [4, 2, 2]) else { return false };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    year > 0 && (1..=12).contains(&month) && (1..=days).contains(&day)
}

/// A date, and behind a blank or T a time `HH:MM[:SS[.ffffff]]`, and behind it a zone `Z` or `±HH[:MM]` where there may be one.
fn is_timestamp(text: &str, has_zone: bool) -> bool {
    let Some((date, rest)) = text.split_at_checked(10) else { return false };
    if !is_date(date) {
        return false;
    }
    let Some(time) = rest.strip_prefix([' ', 'T']) else { return rest.is_empty() };
    let (time, zone) = match time.find(['Z', '+', '-']) {
        Some(at) => time.split_at(at),
        None => (time, ""),
    };
    let zone_fits = match zone {
        "" | "Z" => true,
        offset => {
            let offset = &offset[1..];
            let hours = numbers(offset, ':', [2]).map(|[h]| [h, 0]).or_else(|| numbers(offset, ':', [2, 2]));
            hours.is_some_and(|[h, m]| h <= 15 && m < 60)
        }
    };
    let (time, fraction) = time.split_once('.').map_or((time, None), |(time, fraction)| (time, Some(fraction)));
    let fraction_fits = fraction.is_none_or(|f| (1..=6).contains(&f.len()) && f.bytes().all(|b| b.is_ascii_digit()));
    let with_seconds = numbers(time, ':', [2, 2, 2]);
    let clock = with_seconds.or_else(|| numbers(time, ':', [2, 2]).map(|[h, m]| [h, m, 0]));
    (zone.is_empty() || has_zone)
        && zone_fits
        && fraction_fits
        && (fraction.is_none() || with_seconds.is_some())
        && clock.is_some_and(|[h, m, s]| h < 24 && m < 60 && s < 60)
}

/// Numbers of so many digits each, with a separator between them.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[u32; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        let fits = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
        *number = if fits { part.parse().ok()? } else { return None };
    }
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times_have_the_form_that_no_setting_changes() {
        for (text, date, timestamp, with_zone) in [
            ("2024-02-29", true, true, true),
            ("2023-02-29", false, false, false),
            ("2024-13-01", false, false, false),
            ("0000-01-01", false, false, false),
            ("24-01-01", false, false, false),
            ("01/02/2024", false, false, false),
            ("infinity", false, false, false),
            ("2024-01-31 12:30", false, true, true),
            ("2024-01-31T12:30:59.123456", false, true, true),
            ("2024-01-31T12:30Z", false, false, true),
            ("2024-01-31T12:30:00+02:00", false, false, true),
            ("2024-01-31T12:30-05", false, false, true),
            ("2024-01-31T24:00", false, false, false),
            ("2024-01-31T12:30.5", false, false, false),
            ("2024-01-31T12:30+2", false, false, false),
            ("2024-01-31T12:30 Europe/Berlin", false, false, false),
            ("2024-01-31T", false, false, false),
            ("日本語日本語日本語", false, false, false),
            ("", false, false, false),
        ] {
            assert_eq!(
                (is_date(text), is_timestamp(text, false), is_timestamp(text, true)),
                (date, timestamp, with_zone),
                "{text}"
            );
        }
    }

    #[test]
    fn numbers_are_taken_as_they_are_written_unless_no_type_takes_them() {
        let number = |text: &str, column_type| value(&serde_json::from_str(text).expect("JSON"), &column_type);
        assert_eq!(number("5", ColumnType::Integer), Some(Value::Integer(5)));
        assert_eq!(number("5.5", ColumnType::Integer), Some(Value::Number("5.5".into())));
        assert_eq!(number("5", ColumnType::Numeric), Some(Value::Number("5".into())));
        assert_eq!(number("1e-301", ColumnType::Numeric), None);
        assert_eq!(number("\"5\"", ColumnType::Numeric), None);
    }
}
