//! Searching a collection: the first kind of tool, one for each collection that the asking role may read.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Desk, Kind, Report};
use crate::agent::Limits;
use crate::agent::evidence::{Added, Evidence};
use crate::model::ToolSpec;
use crate::prompt::passages::{self, Passage, SearchReport, ToolMessage};
use crate::text::{counted, normalise, one_line, shorten};

/// A collection that the asking role can read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchTool {
    /// Its name, as [`SearchCall`] will say it.
    pub collection: String,
    /// What it holds, for the model to decide; may be empty.
    pub description: String,
}

/// One search to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchCall {
    /// A collection of a [`SearchTool`]; never a name that the model made up.
    pub collection: String,
    /// What to search for: trimmed, not empty.
    pub query: String,
    /// How many hits are wanted, 1 to [`Limits::max_k`].
    pub k: u32,
}

/// What one search found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// Best first; empty when nothing was found.
    pub hits: Vec<Hit>,
}

/// One chunk found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    /// Its collection.
    pub collection: String,
    /// Key of its source row, an object of key columns.
    pub key: Value,
    /// Its number within the row, from 1.
    pub chunk: i32,
    /// Its text.
    pub content: String,
    /// Title of the row, if the collection has one.
    pub title: Option<String>,
    /// Link of the row, if the collection has one.
    pub link: Option<String>,
    /// Similarity, higher is better.
    pub score: f64,
}

/// What is recorded of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SearchDetail {
    /// It was run, or answered from memory.
    Done {
        /// Name by which the model called it.
        tool: String,
        /// Collection searched.
        collection: String,
        /// What for.
        query: String,
        /// How many hits were wanted.
        k: u32,
        /// Whether the same query had been run before.
        from_memory: bool,
        /// What was found, best first.
        hits: Vec<HitDetail>,
        /// Passages that were not known before.
        new_evidence: u32,
    },
    /// No search was left for it.
    Refused {
        /// Name by which the model called it.
        tool: String,
        /// What the model was told.
        error: String,
        /// Collection it would have searched.
        collection: String,
        /// What for.
        query: String,
    },
    /// It could not be read.
    Broken {
        /// Name by which the model called it.
        tool: String,
        /// What the model was told.
        error: String,
        /// What the model wrote; at most 500 characters.
        arguments: String,
    },
}

/// One hit, as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HitDetail {
    /// Key of its source row.
    pub key: Value,
    /// Its number within the row, from 1.
    pub chunk: i32,
    /// Title of the row.
    pub title: Option<String>,
    /// Its score for this query.
    pub score: f64,
    /// Whether it was not known before.
    pub new: bool,
    /// Its number in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker: Option<u32>,
    /// Whether it was left out because the run's limit of text is reached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub omitted: bool,
}

/// Longest query passed on, in characters.
const MAX_QUERY: usize = 2_000;

impl Kind for SearchTool {
    type Call = SearchCall;
    type Result = SearchResult;
    type Detail = SearchDetail;
    const NAME: &'static str = "search";
    const SECTION: &'static str = "Collections";
    const EXAMPLE: &'static str = r#"{"query": "what to search for"}"#;

    fn wanted_name(&self) -> String {
        let collection = if self.collection.is_empty() { "collection" } else { &self.collection };
        format!("search_{collection}")
    }

    fn summary(&self) -> String {
        self.describe(300)
    }

    fn spec(&self, name: &str, limits: &Limits) -> ToolSpec {
        let (most, default) = (limits.max_k.max(1), default_k(limits));
        ToolSpec {
            name: name.to_owned(),
            description: format!(
                "Search the collection \"{}\" for passages that answer a query. {}",
                shorten(&self.collection, 100),
                self.describe(700)
            ),
            parameters: json!({
                "type": "object",
                "properties": {
                    "query": { "type": "string", "description": "What to look for, in a few words of the text itself." },
                    "k": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": most,
                        "description": format!("How many passages to return; {default} if left out."),
                    },
                },
                "required": ["query"],
                "additionalProperties": false,
            }),
        }
    }

    /// A `k` above the limit is taken as the limit.
    fn read(&self, arguments: &Map<String, Value>, limits: &Limits) -> Result<SearchCall, String> {
        let query = match arguments.get("query") {
            Some(Value::String(query)) if !query.trim().is_empty() => shorten(query.trim(), MAX_QUERY),
            Some(Value::String(_)) => return Err("argument \"query\" is empty; say what to search for".into()),
            Some(other) => {
                return Err(format!("argument \"query\" must be a string, got {}", shorten(&other.to_string(), 60)));
            }
            None => return Err(format!("argument \"query\" is missing; expected {}", Self::EXAMPLE)),
        };
        Ok(SearchCall { collection: self.collection.clone(), query, k: read_k(arguments.get("k"), limits)? })
    }

    fn cap(limits: &Limits) -> u32 {
        limits.max_searches
    }

    fn key(call: &SearchCall) -> Option<String> {
        // JSON of a list, so that no name can run into the query.
        Some(json!([call.collection, normalise(&call.query)]).to_string())
    }

    fn report(
        call: &SearchCall,
        tool: &str,
        result: Option<SearchResult>,
        desk: &mut Desk<'_>,
    ) -> Report<SearchDetail> {
        let from_memory = result.is_none();
        let Found { passages, hits, omitted, new_evidence } = match result {
            Some(result) => found_now(call, result.hits, desk),
            None => found_before(call, desk),
        };
        let report = SearchReport {
            collection: call.collection.clone(),
            query: call.query.clone(),
            passages,
            omitted,
            notice: None,
        };
        let detail = SearchDetail::Done {
            tool: recorded_name(tool),
            collection: call.collection.clone(),
            query: call.query.clone(),
            k: call.k,
            from_memory,
            hits,
            new_evidence,
        };
        Report { message: passages::render(&ToolMessage::Results(report)), detail, new_evidence }
    }

    fn refuse(call: &SearchCall, tool: &str, limits: &Limits) -> (String, SearchDetail) {
        let error = format!("not searched: the limit of {} searches for this question is reached", limits.max_searches);
        let detail = SearchDetail::Refused {
            tool: recorded_name(tool),
            error: error.clone(),
            collection: call.collection.clone(),
            query: call.query.clone(),
        };
        (error, detail)
    }

    fn broken(tool: &str, arguments: &str, error: &str) -> SearchDetail {
        SearchDetail::Broken { tool: recorded_name(tool), error: error.to_owned(), arguments: shorten(arguments, 500) }
    }

    fn without_texts(detail: SearchDetail) -> SearchDetail {
        match detail {
            SearchDetail::Done { tool, collection, k, from_memory, hits, new_evidence, .. } => SearchDetail::Done {
                tool,
                collection,
                query: String::new(),
                k,
                from_memory,
                hits: hits.into_iter().map(|hit| HitDetail { key: Value::Null, title: None, ..hit }).collect(),
                new_evidence,
            },
            SearchDetail::Refused { tool, error, collection, .. } => {
                SearchDetail::Refused { tool, error, collection, query: String::new() }
            }
            // The tool, too, is what the model wrote.
            SearchDetail::Broken { .. } => {
                SearchDetail::Broken { tool: String::new(), error: String::new(), arguments: String::new() }
            }
        }
    }

    fn trace(detail: &SearchDetail, say: &mut dyn FnMut(String)) {
        // No query is empty: one that is was not recorded.
        let searched = |collection: &str, query: &str| match query {
            "" => one_line(collection, MAX_SHOWN),
            query => format!("{}: \"{}\"", one_line(collection, MAX_SHOWN), one_line(query, MAX_SHOWN)),
        };
        match detail {
            SearchDetail::Done { collection, query, k, from_memory, hits, new_evidence, .. } => {
                let from_memory = if *from_memory { ", answered from memory" } else { "" };
                say(format!("{}, k {k}{from_memory}", searched(collection, query)));
                say(format!("{}, {new_evidence} new", counted(hits.len() as i64, "passage", "passages")));
                for hit in hits.iter().take(MAX_HITS_SHOWN) {
                    say(hit.line());
                }
                if hits.len() > MAX_HITS_SHOWN {
                    say(format!("and {} more", hits.len() - MAX_HITS_SHOWN));
                }
            }
            SearchDetail::Refused { error, collection, query, .. } => {
                say(searched(collection, query));
                say(format!("refused: {}", one_line(error, MAX_SHOWN * 2)));
            }
            SearchDetail::Broken { error, .. } if error.is_empty() => say("refused".to_owned()),
            SearchDetail::Broken { tool, error, arguments } => {
                say(format!("{} {}", one_line(tool, MAX_SHOWN), one_line(arguments, MAX_SHOWN)).trim_end().to_owned());
                say(format!("refused: {}", one_line(error, MAX_SHOWN * 2)));
            }
        }
    }
}

/// Most hits of a search in a trace.
const MAX_HITS_SHOWN: usize = 12;
/// Longest text in a line of a trace, in characters.
const MAX_SHOWN: usize = 160;

impl HitDetail {
    fn line(&self) -> String {
        let marker = self.marker.map_or_else(|| "left out".to_owned(), |n| format!("[{n}]"));
        let title = self.title.as_deref().filter(|t| !t.trim().is_empty());
        let title = title.map(|t| format!(" \"{}\"", one_line(t, MAX_SHOWN))).unwrap_or_default();
        let seen = if !self.new && self.marker.is_some() { ", seen before" } else { "" };
        let key =
            if self.key.is_null() { String::new() } else { format!(" {}", one_line(&self.key.to_string(), MAX_SHOWN)) };
        format!("{marker} {:.3}{title}{key} chunk {}{seen}", self.score, self.chunk)
    }
}

impl SearchTool {
    /// What the collection holds, at most `max` characters on one line.
    fn describe(&self, max: usize) -> String {
        let words = self.description.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.is_empty() {
            format!("the collection \"{}\"", shorten(&self.collection, 100))
        } else {
            shorten(&words, max)
        }
    }
}

fn recorded_name(tool: &str) -> String {
    shorten(tool, super::MAX_NAME)
}

fn default_k(limits: &Limits) -> u32 {
    limits.default_k.clamp(1, limits.max_k.max(1))
}

fn read_k(k: Option<&Value>, limits: &Limits) -> Result<u32, String> {
    let most = limits.max_k.max(1);
    match k {
        None | Some(Value::Null) => Ok(default_k(limits)),
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

/// What a search found, for the model and for the record.
#[derive(Default)]
struct Found {
    passages: Vec<Passage>,
    hits: Vec<HitDetail>,
    omitted: u32,
    new_evidence: u32,
}

/// Takes hits into the evidence, and remembers them.
fn found_now(call: &SearchCall, hits: Vec<Hit>, desk: &mut Desk<'_>) -> Found {
    let mut found = Found::default();
    let mut remembered: Vec<(u32, f64)> = Vec::new();
    // A driver that returns more than was asked for does not widen the prompt.
    for hit in hits.into_iter().take(call.k as usize) {
        let score = if hit.score.is_finite() { hit.score } else { 0.0 };
        let mut detail = HitDetail {
            key: hit.key.clone(),
            chunk: hit.chunk,
            title: hit.title.clone(),
            score,
            new: false,
            marker: None,
            omitted: false,
        };
        match desk.evidence.add(Hit { score, ..hit }, desk.limits) {
            Added::New(number) => {
                found.new_evidence += 1;
                remembered.push((number, score));
                detail.marker = Some(number);
                detail.new = true;
                found.passages.extend(show(number, score, desk.evidence, desk.limits));
            }
            Added::Known(number) => {
                detail.marker = Some(number);
                // The same text under two keys is mentioned once.
                if !remembered.iter().any(|(known, _)| *known == number) {
                    remembered.push((number, score));
                    found.passages.push(Passage::Shown { number, score });
                }
            }
            Added::Omitted => {
                detail.omitted = true;
                found.omitted += 1;
            }
        }
        found.hits.push(detail);
    }
    desk.memory.extend(SearchTool::key(call).map(|key| (key, remembered)));
    found
}

/// What the same query found earlier.
fn found_before(call: &SearchCall, desk: &Desk<'_>) -> Found {
    let mut found = Found::default();
    let remembered = SearchTool::key(call).and_then(|key| desk.memory.get(&key));
    for &(number, score) in remembered.into_iter().flatten() {
        found.passages.push(Passage::Shown { number, score });
        found.hits.extend(desk.evidence.get(number).map(|hit| HitDetail {
            key: hit.key.clone(),
            chunk: hit.chunk,
            title: hit.title.clone(),
            score,
            new: false,
            marker: Some(number),
            omitted: false,
        }));
    }
    found
}

/// A passage as it is shown the first time.
fn show(number: u32, score: f64, evidence: &Evidence, limits: &Limits) -> Option<Passage> {
    let hit = evidence.get(number)?;
    let end = hit.content.char_indices().nth(limits.max_hit_chars).map(|(i, _)| i);
    Some(Passage::New {
        number,
        title: hit.title.clone(),
        score,
        text: hit.content[..end.unwrap_or(hit.content.len())].to_owned(),
        cut: end.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tools::Toolbox;

    fn read(arguments: &str) -> Result<SearchCall, String> {
        let tool = SearchTool { collection: "manual".into(), description: String::new() };
        let read = Toolbox::new(vec![tool.into()]).read("search_manual", arguments, &Limits::default());
        read.map(|call| call.try_into().expect("a search")).map_err(|broken| broken.error)
    }

    #[test]
    fn sound_calls_are_read_and_k_is_bounded() {
        let read = |arguments: &str| read(arguments).unwrap();
        assert_eq!(
            read(r#"{"query":" vacuum "}"#),
            SearchCall { collection: "manual".into(), query: "vacuum".into(), k: 5 }
        );
        assert_eq!(read(r#"{"query":"a\u0000b"}"#).query, "a\u{fffd}b");
        assert_eq!(read(r#"{"query":"\u00\u000000","\ud83d":1}"#).query, "\u{fffd}\u{fffd}00");
        assert_eq!(read(r#"{"query":"a \ud83d"}"#).query, "a \u{fffd}");
        assert_eq!(read(r#""{\"query\":\"a\\u0000\"}""#).query, "a\u{fffd}");
        assert_eq!(read(r#"{"query":"a","k":3,"x":1}"#).k, 3);
        assert_eq!(read(r#"{"query":"a","k":3.0}"#).k, 3);
        assert_eq!(read(r#"{"query":"a","k":null}"#).k, 5);
        assert_eq!(read(r#"{"query":"a","k":99999999999999999999}"#).k, 10);
        assert_eq!(read(r#""{\"query\":\"a\"}""#).query, "a");
        assert_eq!(read(&format!(r#"{{"query":"{}"}}"#, "a".repeat(9000))).query.chars().count(), MAX_QUERY);
    }

    #[test]
    fn wrong_calls_are_told_what_is_wrong() {
        for (arguments, words) in [
            ("{\"query\": \"a", "not valid JSON"),
            ("", "not valid JSON"),
            ("[1]", "must be a JSON object, got [1]"),
            ("{}", "\"query\" is missing"),
            (r#"{"query":"  "}"#, "\"query\" is empty"),
            (r#"{"query":["a"]}"#, "must be a string, got [\"a\"]"),
            (r#"{"query":"a","k":"5"}"#, "integer from 1 to 10, got \"5\""),
            (r#"{"query":"a","k":-1}"#, "got -1"),
            (r#"{"query":"a","k":0}"#, "got 0"),
            (r#"{"query":"a","k":1.5}"#, "got 1.5"),
        ] {
            let error = read(arguments).unwrap_err();
            assert!(error.contains(words), "{arguments}: {error}");
        }
        for name in ["search_web", ""] {
            let tool = SearchTool { collection: "manual".into(), description: String::new() };
            let broken = Toolbox::new(vec![tool.into()]).read(name, "{}", &Limits::default()).unwrap_err();
            assert_eq!(broken.error, format!("there is no tool \"{name}\"; available tools: search_manual"));
        }
    }

    #[test]
    fn a_tool_is_offered_with_its_limits() {
        let tool = SearchTool { collection: "manual".into(), description: "The\n manual.".into() };
        assert_eq!(tool.summary(), "The manual.");
        let spec = tool.spec("search_manual", &Limits::default());
        assert_eq!(spec.parameters["properties"]["k"]["maximum"], 10);
        assert_eq!(spec.parameters["required"], json!(["query"]));
    }

    #[test]
    fn details_are_read_back_as_what_they_were() {
        let hit = HitDetail {
            key: json!({"id": 1}),
            chunk: 1,
            title: None,
            score: 0.5,
            new: false,
            marker: None,
            omitted: true,
        };
        for detail in [
            SearchDetail::Done {
                tool: "t".into(),
                collection: "c".into(),
                query: "q".into(),
                k: 5,
                from_memory: true,
                hits: vec![hit],
                new_evidence: 0,
            },
            SearchDetail::Refused { tool: "t".into(), error: "e".into(), collection: "c".into(), query: "q".into() },
            SearchTool::broken("t", "{", "e"),
        ] {
            let json = serde_json::to_value(&detail).unwrap();
            assert_eq!(serde_json::from_value::<SearchDetail>(json).unwrap(), detail);
        }
    }
}
