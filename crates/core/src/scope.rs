//! The scope of what is recorded: values of settings that tell people apart who share one role.
//!
//! Many applications connect as one role and say whom they serve in a setting, such as `app.tenant`, by which policies of
//! their tables go. What such a role leaves behind (runs, steps) is kept with the values it had then and shown where they are
//! the same now.

use std::collections::BTreeMap;

use serde_json::Value;

/// The settings that a list such as `app.tenant, app.user_id` names: in lower case, as names of settings are the same in any, each
/// once. One that is blank stays, as a setting that nobody can set: a slip in the list shows nothing rather than everything.
pub fn names(list: &str) -> Vec<String> {
    if list.trim().is_empty() {
        return Vec::new();
    }
    let mut names: Vec<String> = list.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Longest value that tells people apart, in bytes: it is stored with every step.
const MAX_VALUE: usize = 1_000;

/// What a session's scope is at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// No setting is named: the role alone decides.
    Role,
    /// A setting that is named is unset, empty or longer than [`MAX_VALUE`].
    Nothing,
    /// The settings that are named, with their values.
    Values(BTreeMap<String, String>),
}

impl Scope {
    /// The scope of the settings in `list`, whose values are asked of `value`.
    pub fn of(list: &str, value: impl Fn(&str) -> Option<String>) -> Scope {
        let names = names(list);
        if names.is_empty() {
            return Scope::Role;
        }
        let values = names.into_iter().map(|name| {
            let value = value(&name).filter(|value| (1..=MAX_VALUE).contains(&value.len()))?;
            Some((name, value))
        });
        values.collect::<Option<_>>().map_or(Scope::Nothing, Scope::Values)
    }

    /// What is recorded: NULL, an empty object, or the settings with their values.
    pub fn to_json(&self) -> Option<Value> {
        let values = match self {
            Scope::Role => return None,
            Scope::Nothing => return Some(Value::Object(serde_json::Map::new())),
            Scope::Values(values) => values,
        };
        Some(values.iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect())
    }

    /// Whether what was recorded with a scope may be shown now: every setting that is named now has the value it had then. Where
    /// none is named, what has a scope is not shown: a copy of the data whose setting was forgotten shows nothing.
    pub fn admits(&self, recorded: Option<&Value>) -> bool {
        match (self, recorded) {
            (Scope::Role, None) => true,
            (Scope::Values(now), Some(Value::Object(then))) => {
                now.iter().all(|(name, value)| then.get(name).and_then(Value::as_str) == Some(value))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scope(list: &str, set: &[(&str, &str)]) -> Scope {
        Scope::of(list, |name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn names_are_those_of_a_list_and_a_slip_names_what_cannot_be_set() {
        for (list, expected) in [
            ("", &[][..]),
            (" \n", &[]),
            ("app.tenant", &["app.tenant"]),
            (" App.User ,app.tenant, app.user", &["app.tenant", "app.user"]),
            ("app.tenant,", &["", "app.tenant"]),
            (",", &[""]),
        ] {
            assert_eq!(names(list), expected, "{list:?}");
        }
        assert_eq!(scope("app.tenant,", &[("app.tenant", "1")]), Scope::Nothing);
    }

    #[test]
    fn what_is_recorded_is_shown_where_every_named_setting_has_the_same_value() {
        let (a, b) = ([("app.tenant", "a")], [("app.tenant", "b"), ("app.user", "u")]);
        for (now, recorded, shown) in [
            (scope("", &a), None, true),
            (scope("", &a), Some(json!({"app.tenant": "a"})), false),
            (scope("", &a), Some(json!({})), false),
            (scope("app.tenant", &a), None, false),
            (scope("app.tenant", &a), Some(json!({"app.tenant": "a"})), true),
            (scope("app.tenant", &a), Some(json!({"app.tenant": "a", "app.user": "u"})), true),
            (scope("app.tenant", &a), Some(json!({"app.tenant": "b"})), false),
            (scope("app.tenant", &a), Some(json!({"app.tenant": ["a"]})), false),
            (scope("app.tenant", &a), Some(json!({})), false),
            (scope("app.tenant", &a), Some(json!(null)), false),
            (scope("app.tenant", &a), Some(json!("a")), false),
            (scope("app.tenant", &[]), Some(json!({})), false),
            (scope("app.tenant", &[("app.tenant", "")]), Some(json!({"app.tenant": ""})), false),
            (scope("app.tenant,app.user", &a), Some(json!({"app.tenant": "a"})), false),
            (scope("app.tenant,app.user", &b), Some(json!({"app.tenant": "b", "app.user": "u"})), true),
            (scope("app.tenant,app.user", &b), Some(json!({"app.tenant": "b"})), false),
        ] {
            assert_eq!(now.admits(recorded.as_ref()), shown, "{now:?} {recorded:?}");
        }
        // What is recorded now is shown now, unless a setting is missing.
        for now in [scope("", &a), scope("app.tenant", &a), scope("app.user, app.tenant", &b)] {
            assert!(now.admits(now.to_json().as_ref()), "{now:?}");
        }
        assert!(!Scope::Nothing.admits(Scope::Nothing.to_json().as_ref()));
        let long = "é".repeat(501);
        assert_eq!(scope("app.tenant", &[("app.tenant", &long)]), Scope::Nothing);
        assert_ne!(scope("app.tenant", &[("app.tenant", &long[2..])]), Scope::Nothing);
    }
}
