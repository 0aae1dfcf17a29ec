//! The search tools a model is offered, one per collection, and how its calls of them are read.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Limits, SearchCall};
use crate::prompt::NamedTool;
use crate::text::shorten;

/// A collection that the asking role can read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchTool {
    /// Its name, as [`super::SearchCall`] will say it.
    pub collection: String,
    /// What it holds, for the model to decide; may be empty.
    pub description: String,
}

/// Most tools offered: providers refuse more than 128, and models lose their way long before.
const MAX_TOOLS: usize = 64;
/// Longest tool name that providers take.
const MAX_NAME: usize = 64;
/// Longest query passed on, in characters.
const MAX_QUERY: usize = 2_000;

/// Gives each collection a tool name `search_<collection>` of the form `^[a-zA-Z0-9_-]{1,64}$`, all different.
/// Collections after the 64th get no tool.
pub(super) fn name_tools(tools: Vec<SearchTool>) -> Vec<NamedTool> {
    let mut taken = HashSet::new();
    tools
        .into_iter()
        .take(MAX_TOOLS)
        .map(|SearchTool { collection, description }| NamedTool {
            name: unique(&format!("search_{}", sanitise(&collection)), &mut taken),
            collection,
            description,
        })
        .collect()
}

fn sanitise(collection: &str) -> String {
    let name: String =
        collection.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    if name.is_empty() { "collection".into() } else { name }
}

fn unique(name: &str, taken: &mut HashSet<String>) -> String {
    // ASCII by now, so bytes are characters.
    let mut candidate = name[..name.len().min(MAX_NAME)].to_owned();
    let mut number = 2;
    while !taken.insert(candidate.clone()) {
        let suffix = format!("_{number}");
        candidate = format!("{}{suffix}", &name[..name.len().min(MAX_NAME - suffix.len())]);
        number += 1;
    }
    candidate
}

/// The search that a tool call asks for.
///
/// # Errors
/// What is wrong with it, for the model to read: an unknown tool, arguments that are no JSON object, a query that is missing,
/// empty or no string, a `k` that is no positive integer. A `k` above the limit is taken as the limit.
pub(super) fn read_call(
    name: &str,
    arguments: &str,
    tools: &[NamedTool],
    limits: &Limits,
) -> Result<SearchCall, String> {
    let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
        let known: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(format!("there is no tool \"{}\"; available tools: {known}", shorten(name, 64)));
    };
    let arguments = read_object(arguments)?;
    let query = match arguments.get("query") {
        Some(Value::String(query)) if !query.trim().is_empty() => shorten(query.trim(), MAX_QUERY),
        Some(Value::String(_)) => {
            return Err("argument \"query\" is empty; say what to search for".into());
        }
        Some(other) => {
            return Err(format!("argument \"query\" must be a string, got {}", shorten(&other.to_string(), 60)));
        }
        None => {
            return Err("argument \"query\" is missing; expected {\"query\": \"what to search for\"}".into());
        }
    };
    let k = read_k(arguments.get("k"), limits)?;
    Ok(SearchCall { collection: tool.collection.clone(), query, k })
}

fn read_object(arguments: &str) -> Result<serde_json::Map<String, Value>, String> {
    let mut value: Value = serde_json::from_str(arguments).map_err(|error| {
        format!("the arguments are not valid JSON ({error}); expected {{\"query\": \"what to search for\"}}")
    })?;
    // Some models write the object as a string inside a string.
    if let Value::String(inner) = &value
        && let Ok(object) = serde_json::from_str(inner)
    {
        value = object;
    }
    match value {
        Value::Object(map) => Ok(map),
        other => Err(format!("the arguments must be a JSON object, got {}", shorten(&other.to_string(), 60))),
    }
}

fn read_k(k: Option<&Value>, limits: &Limits) -> Result<u32, String> {
    let most = limits.max_k.max(1);
    match k {
        None | Some(Value::Null) => Ok(limits.default_k.clamp(1, most)),
        Some(Value::Number(number)) => {
            let whole = number.as_f64().filter(|k| *k >= 1.0 && k.fract() == 0.0);
            whole
                .map(|k| k.min(f64::from(most)) as u32)
                .ok_or_else(|| format!("argument \"k\" must be an integer from 1 to {most}, got {number}"))
        }
        Some(other) => {
            Err(format!("argument \"k\" must be an integer from 1 to {most}, got {}", shorten(&other.to_string(), 60)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(names: &[&str]) -> Vec<NamedTool> {
        name_tools(names.iter().map(|n| SearchTool { collection: (*n).into(), description: String::new() }).collect())
    }

    #[test]
    fn names_are_sanitised_cut_and_unique() {
        let long = "x".repeat(100);
        let named =
            tools(&["manual", "Support desk", "Support.desk", "", "日本", "本日", &long, &(long.clone() + "y")]);
        let names: Vec<&str> = named.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(
            names[..6],
            [
                "search_manual",
                "search_Support_desk",
                "search_Support_desk_2",
                "search_collection",
                "search___",
                "search____2"
            ]
        );
        for name in &names {
            assert!(
                (1..=64).contains(&name.len())
                    && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'),
                "{name}"
            );
        }
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert_eq!(named[1].collection, "Support desk");
        assert_eq!(tools(&vec!["a"; 100]).len(), MAX_TOOLS);
    }

    #[test]
    fn sound_calls_are_read_and_k_is_bounded() {
        let tools = tools(&["manual"]);
        let read = |arguments: &str| read_call("search_manual", arguments, &tools, &Limits::default()).unwrap();
        assert_eq!(
            read(r#"{"query":" vacuum "}"#),
            SearchCall { collection: "manual".into(), query: "vacuum".into(), k: 5 }
        );
        assert_eq!(read(r#"{"query":"a","k":3,"x":1}"#).k, 3);
        assert_eq!(read(r#"{"query":"a","k":3.0}"#).k, 3);
        assert_eq!(read(r#"{"query":"a","k":null}"#).k, 5);
        assert_eq!(read(r#"{"query":"a","k":99999999999999999999}"#).k, 10);
        assert_eq!(read(r#""{\"query\":\"a\"}""#).query, "a");
        assert_eq!(read(&format!(r#"{{"query":"{}"}}"#, "a".repeat(9000))).query.chars().count(), MAX_QUERY);
    }

    #[test]
    fn wrong_calls_are_told_what_is_wrong() {
        let tools = tools(&["manual"]);
        for (name, arguments, words) in [
            ("search_web", "{}", "there is no tool \"search_web\"; available tools: search_manual"),
            ("", "{}", "there is no tool \"\""),
            ("search_manual", "{\"query\": \"a", "not valid JSON"),
            ("search_manual", "", "not valid JSON"),
            ("search_manual", "[1]", "must be a JSON object, got [1]"),
            ("search_manual", "{}", "\"query\" is missing"),
            ("search_manual", r#"{"query":"  "}"#, "\"query\" is empty"),
            ("search_manual", r#"{"query":["a"]}"#, "must be a string, got [\"a\"]"),
            ("search_manual", r#"{"query":"a","k":"5"}"#, "integer from 1 to 10, got \"5\""),
            ("search_manual", r#"{"query":"a","k":-1}"#, "got -1"),
            ("search_manual", r#"{"query":"a","k":0}"#, "got 0"),
            ("search_manual", r#"{"query":"a","k":1.5}"#, "got 1.5"),
        ] {
            let error = read_call(name, arguments, &tools, &Limits::default()).unwrap_err();
            assert!(error.contains(words), "{arguments}: {error}");
        }
    }
}
