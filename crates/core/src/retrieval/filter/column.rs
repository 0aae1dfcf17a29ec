//! The columns that a filter may name.

/// A column of the source that is marked as metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type; of a domain, the base type.
    pub column_type: ColumnType,
}

/// What is known of a type, as far as filters go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnType {
    /// `boolean`
    Boolean,
    /// `smallint`, `integer`, `bigint`
    Integer,
    /// `numeric`
    Numeric,
    /// `real`, `double precision`
    Float,
    /// `text`, `varchar`, `char`, `name`
    Text,
    /// `uuid`
    Uuid,
    /// `date`
    Date,
    /// `timestamp`
    Timestamp,
    /// `timestamptz`
    TimestampTz,
    /// `jsonb`
    Json,
    /// An enum and its labels.
    Enum(Vec<String>),
    /// An array of one of the above.
    Array(Box<ColumnType>),
    /// Any other, by its name: it can be tested for NULL only.
    Other(String),
}

/// What is asked of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Equal to a value.
    Equal,
    /// Not equal to it, or NULL.
    NotEqual,
    /// Below it.
    Less,
    /// Not above it.
    AtMost,
    /// Above it.
    Greater,
    /// Not below it.
    AtLeast,
    /// One of several.
    In,
    /// None of several, or NULL.
    NotIn,
    /// Has all of several.
    Contains,
    /// Has one of several.
    Overlaps,
    /// Is NULL.
    IsNull,
}

impl Operator {
    const ALL: [Operator; 11] = [
        Self::Equal,
        Self::NotEqual,
        Self::Less,
        Self::AtMost,
        Self::Greater,
        Self::AtLeast,
        Self::In,
        Self::NotIn,
        Self::Contains,
        Self::Overlaps,
        Self::IsNull,
    ];

    /// As it is written in a filter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
            Self::In => "in",
            Self::NotIn => "not_in",
            Self::Contains => "contains",
            Self::Overlaps => "overlaps",
            Self::IsNull => "is_null",
        }
    }

    /// The operator of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operator| operator.name() == name)
    }

    /// Whether it takes a list of values.
    pub(super) fn takes_list(self) -> bool {
        matches!(self, Self::In | Self::NotIn | Self::Overlaps)
    }
}

impl ColumnType {
    /// What can be asked of such a column.
    pub(super) fn operators(&self) -> Vec<Operator> {
        let fits = |operator: &Operator| match operator {
            Operator::IsNull => true,
            Operator::Equal | Operator::NotEqual => !matches!(self, Self::Other(_) | Self::Array(_)),
            Operator::In | Operator::NotIn => !matches!(self, Self::Other(_) | Self::Array(_) | Self::Json),
            Operator::Less | Operator::AtMost | Operator::Greater | Operator::AtLeast => matches!(
                self,
                Self::Integer
                    | Self::Numeric
                    | Self::Float
                    | Self::Text
                    | Self::Date
                    | Self::Timestamp
                    | Self::TimestampTz
            ),
            Operator::Contains => matches!(self, Self::Array(_) | Self::Json),
            Operator::Overlaps => matches!(self, Self::Array(_)),
        };
        Operator::ALL.into_iter().filter(fits).collect()
    }

    /// As messages call it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Boolean => "boolean".into(),
            Self::Integer => "integer".into(),
            Self::Numeric => "numeric".into(),
            Self::Float => "double precision".into(),
            Self::Text => "text".into(),
            Self::Uuid => "uuid".into(),
            Self::Date => "date".into(),
            Self::Timestamp => "timestamp".into(),
            Self::TimestampTz => "timestamptz".into(),
            Self::Json => "jsonb".into(),
            Self::Enum(_) => "enum".into(),
            Self::Array(element) => format!("{}[]", element.name()),
            Self::Other(name) => name.clone(),
        }
    }

    /// What a value of it looks like in a filter.
    pub(super) fn expects(&self) -> String {
        match self {
            Self::Boolean => "true or false".into(),
            Self::Integer | Self::Numeric | Self::Float => "a number, without quotation marks".into(),
            Self::Text => "a text".into(),
            Self::Uuid => "a UUID, such as \"6f9619ff-8b86-d011-b42d-00cf4fc964ff\"".into(),
            Self::Date => "a date, such as \"2024-01-31\"".into(),
            Self::Timestamp => "a date and time, such as \"2024-01-31 12:30\"".into(),
            Self::TimestampTz => "a date and time, such as \"2024-01-31T12:30Z\"; without a zone it is UTC".into(),
            Self::Json => "any JSON".into(),
            Self::Enum(labels) => format!("one of: {}", super::error::listed(labels.iter().map(String::as_str))),
            Self::Array(element) => format!("for each element {}", element.expects()),
            Self::Other(_) => "nothing".into(),
        }
    }
}
