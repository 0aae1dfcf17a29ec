//! Kinds of tool: what is offered to a model, how its calls are read, and what they report. Each kind is a file here and a
//! line of `kinds!`; its runner stands with the driver.

mod search;

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::search::{Hit, HitDetail, SearchCall, SearchDetail, SearchResult, SearchTool};
use super::Limits;
use super::evidence::Evidence;
use super::step::{self, DetailError};
use crate::model::ToolSpec;
use crate::prompt::instructions::ToolLine;
use crate::provider::json::mended;
use crate::text::shorten;

/// What a kind of tool says and does; implemented by what is offered.
trait Kind {
    /// A call to carry out.
    type Call;
    /// What a call brings; the default stands for a result that the driver left out.
    type Result: Default;
    /// What is recorded of a call in `rag.steps.detail`.
    type Detail;
    /// The word in `rag.steps.kind`; never changes.
    const NAME: &'static str;
    /// Heading in the system prompt.
    const SECTION: &'static str;
    /// Arguments as they should be, shown to a model that wrote something else.
    const EXAMPLE: &'static str;

    /// A good name for the model to call it by; it is made valid and unique.
    fn wanted_name(&self) -> String;
    /// What it is for, on one line of the system prompt.
    fn summary(&self) -> String;
    /// How it is offered under `name`.
    fn spec(&self, name: &str, limits: &Limits) -> ToolSpec;
    /// The call that a model's arguments ask for, or what is wrong with them, for the model to read.
    fn read(&self, arguments: &Map<String, Value>, limits: &Limits) -> Result<Self::Call, String>;

    /// Most calls of the kind that are carried out in a run.
    fn cap(limits: &Limits) -> u32;
    /// Calls with the same key are carried out once in a run; `None`: each is.
    fn key(call: &Self::Call) -> Option<String>;
    /// Reports what a call brought; without a result, what the call with its key found earlier, which `desk` remembers.
    fn report(call: &Self::Call, tool: &str, result: Option<Self::Result>, desk: &mut Desk<'_>)
    -> Report<Self::Detail>;
    /// What the model is told, and what is recorded, when the cap is reached.
    fn refuse(call: &Self::Call, tool: &str, limits: &Limits) -> (String, Self::Detail);
    /// What is recorded of a call that cannot be read.
    fn broken(tool: &str, arguments: &str, error: &str) -> Self::Detail;
    /// What is recorded of a call where no text is to be kept: numbers, and names that an administrator gave.
    fn without_texts(detail: Self::Detail) -> Self::Detail;
    /// A step's lines in a trace.
    fn trace(detail: &Self::Detail, say: &mut dyn FnMut(String));
}

/// What the calls of a run share.
pub(super) struct Desk<'a> {
    pub evidence: &'a mut Evidence,
    pub memory: &'a mut Memory,
    pub limits: &'a Limits,
}

/// Passages that calls found earlier, by number and score, under the calls' keys.
pub(super) type Memory = BTreeMap<String, Vec<(u32, f64)>>;

/// What came of a call.
pub(super) struct Report<D> {
    /// What the model gets to read.
    pub message: String,
    /// What is recorded.
    pub detail: D,
    /// Passages that were not known before, or how much else is new; a round that brings nothing new may be the last.
    pub new_evidence: u32,
}

/// The kinds, each with what is offered, its call, its result, and what is recorded of it.
macro_rules! kinds {
    ($($Kind:ident($Tool:ident, $Call:ident, $Result:ident, $Detail:ident)),+ $(,)?) => {
        /// A tool that a run may offer to its model.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Tool {
            $(#[doc = concat!("See [`", stringify!($Tool), "`].")] $Kind($Tool)),+
        }

        /// A tool call to carry out.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Call {
            $(#[doc = concat!("See [`", stringify!($Call), "`].")] $Kind($Call)),+
        }

        /// What a call brought.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum CallResult {
            $(#[doc = concat!("See [`", stringify!($Result), "`].")] $Kind($Result)),+
        }

        /// What is recorded of a call.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ToolDetail {
            $(#[doc = concat!("See [`", stringify!($Detail), "`].")] $Kind($Detail)),+
        }

        $(
            impl From<$Tool> for Tool {
                fn from(tool: $Tool) -> Tool {
                    Tool::$Kind(tool)
                }
            }

            impl TryFrom<Call> for $Call {
                type Error = Call;

                /// The call, if it is of this kind.
                fn try_from(call: Call) -> Result<$Call, Call> {
                    match call {
                        Call::$Kind(call) => Ok(call),
                        #[allow(unreachable_patterns)]
                        other => Err(other),
                    }
                }
            }

            impl From<$Result> for CallResult {
                fn from(result: $Result) -> CallResult {
                    CallResult::$Kind(result)
                }
            }
        )+

        impl Tool {
            fn kind(&self) -> &'static str {
                match self { $(Tool::$Kind(_) => $Tool::NAME),+ }
            }

            fn section(&self) -> &'static str {
                match self { $(Tool::$Kind(_) => $Tool::SECTION),+ }
            }

            fn wanted_name(&self) -> String {
                match self { $(Tool::$Kind(tool) => tool.wanted_name()),+ }
            }

            fn summary(&self) -> String {
                match self { $(Tool::$Kind(tool) => tool.summary()),+ }
            }

            fn spec(&self, name: &str, limits: &Limits) -> ToolSpec {
                match self { $(Tool::$Kind(tool) => tool.spec(name, limits)),+ }
            }

            fn read(&self, arguments: &Map<String, Value>, limits: &Limits) -> Result<Call, String> {
                match self { $(Tool::$Kind(tool) => tool.read(arguments, limits).map(Call::$Kind)),+ }
            }

            fn cap(&self, limits: &Limits) -> u32 {
                match self { $(Tool::$Kind(_) => $Tool::cap(limits)),+ }
            }

            fn example(&self) -> &'static str {
                match self { $(Tool::$Kind(_) => $Tool::EXAMPLE),+ }
            }

            fn broken(&self, name: &str, arguments: &str, error: &str) -> ToolDetail {
                match self { $(Tool::$Kind(_) => ToolDetail::$Kind($Tool::broken(name, arguments, error))),+ }
            }
        }

        impl Call {
            /// The kind of its tool.
            pub(super) fn kind(&self) -> &'static str {
                match self { $(Call::$Kind(_) => $Tool::NAME),+ }
            }

            /// Most calls of its kind that are carried out in a run.
            pub(super) fn cap(&self, limits: &Limits) -> u32 {
                match self { $(Call::$Kind(_) => $Tool::cap(limits)),+ }
            }

            /// Calls with the same key find the same.
            pub(super) fn key(&self) -> Option<String> {
                match self { $(Call::$Kind(call) => $Tool::key(call)),+ }
            }

            pub(super) fn report(
                &self,
                tool: &str,
                result: Option<CallResult>,
                desk: &mut Desk<'_>,
            ) -> Report<ToolDetail> {
                match self {
                    $(Call::$Kind(call) => {
                        let result = result.map(|result| match result {
                            CallResult::$Kind(result) => result,
                            #[allow(unreachable_patterns)]
                            _ => Default::default(),
                        });
                        let Report { message, detail, new_evidence } = $Tool::report(call, tool, result, desk);
                        Report { message, detail: ToolDetail::$Kind(detail), new_evidence }
                    }),+
                }
            }

            /// The result of a call that the driver left out.
            pub(super) fn no_result(&self) -> CallResult {
                match self { $(Call::$Kind(_) => CallResult::$Kind(Default::default())),+ }
            }

            pub(super) fn refuse(&self, tool: &str, limits: &Limits) -> (String, ToolDetail) {
                match self {
                    $(Call::$Kind(call) => {
                        let (message, detail) = $Tool::refuse(call, tool, limits);
                        (message, ToolDetail::$Kind(detail))
                    }),+
                }
            }
        }

        impl ToolDetail {
            /// The word in `rag.steps.kind`.
            pub fn kind(&self) -> &'static str {
                match self { $(ToolDetail::$Kind(_) => $Tool::NAME),+ }
            }

            /// What stands in `rag.steps.detail`.
            pub(super) fn to_json(&self) -> serde_json::Result<Value> {
                match self { $(ToolDetail::$Kind(detail) => serde_json::to_value(detail)),+ }
            }

            /// Reads `rag.steps.detail` of a tool call.
            pub(super) fn read(kind: &str, detail: Value) -> Result<ToolDetail, DetailError> {
                match kind {
                    $($Tool::NAME => step::read(kind, detail).map(ToolDetail::$Kind),)+
                    _ => Err(DetailError::Kind(kind.to_owned())),
                }
            }

            /// The same without any text.
            pub(super) fn without_texts(self) -> ToolDetail {
                match self { $(ToolDetail::$Kind(detail) => ToolDetail::$Kind($Tool::without_texts(detail))),+ }
            }

            /// The step's lines in a trace.
            pub(crate) fn trace(&self, say: &mut dyn FnMut(String)) {
                match self { $(ToolDetail::$Kind(detail) => $Tool::trace(detail, say)),+ }
            }
        }
    };
}

kinds! {
    Search(SearchTool, SearchCall, SearchResult, SearchDetail),
}

/// Most tools offered: providers refuse more than 128, and models lose their way long before.
const MAX_TOOLS: usize = 64;
/// Longest tool name that providers take.
const MAX_NAME: usize = 64;

/// The tools of a run, each under the name that the model knows it by.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Toolbox(Vec<NamedTool>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct NamedTool {
    /// `^[a-zA-Z0-9_-]{1,64}$`, unlike all others.
    name: String,
    tool: Tool,
}

/// A model's call of a tool that cannot be carried out.
pub(super) struct BrokenCall {
    /// What the model is told.
    pub error: String,
    /// What is recorded.
    pub detail: ToolDetail,
}

impl Toolbox {
    /// Names the tools. Those after the 64th are left out.
    pub(super) fn new(tools: Vec<Tool>) -> Toolbox {
        let mut taken = HashSet::new();
        let named = tools.into_iter().take(MAX_TOOLS);
        Toolbox(
            named.map(|tool| NamedTool { name: unique(&sanitise(&tool.wanted_name()), &mut taken), tool }).collect(),
        )
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a tool is offered under that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|named| named.name == name)
    }

    /// What the system prompt says of each.
    pub(super) fn lines(&self) -> Vec<ToolLine<'_>> {
        let lines = self.0.iter().map(|NamedTool { name, tool }| ToolLine {
            section: tool.section(),
            name,
            summary: tool.summary(),
        });
        lines.collect()
    }

    /// How each is offered to the model.
    pub(super) fn specs(&self, limits: &Limits) -> Vec<ToolSpec> {
        self.0.iter().map(|named| named.tool.spec(&named.name, limits)).collect()
    }

    /// The call that a model asks for.
    pub(super) fn read(&self, name: &str, arguments: &str, limits: &Limits) -> Result<Call, Box<BrokenCall>> {
        let Some(named) = self.0.iter().find(|named| named.name == name) else {
            let known: Vec<&str> = self.0.iter().map(|named| named.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let error = format!("there is no tool \"{}\"; available tools: {known}", shorten(name, MAX_NAME));
            // A tool that does not exist is of no kind; its call is recorded as a search.
            let detail = ToolDetail::Search(SearchTool::broken(name, arguments, &error));
            return Err(Box::new(BrokenCall { error, detail }));
        };
        let object = read_object(arguments, named.tool.example());
        object.and_then(|object| named.tool.read(&object, limits)).map_err(|error| {
            let detail = named.tool.broken(name, arguments, &error);
            Box::new(BrokenCall { error, detail })
        })
    }

    /// Whether `called` (calls carried out, by kind) has reached the cap of every kind that is offered.
    pub(super) fn is_used_up(&self, called: &BTreeMap<String, u32>, limits: &Limits) -> bool {
        self.0.iter().all(|NamedTool { tool, .. }| called.get(tool.kind()).copied().unwrap_or(0) >= tool.cap(limits))
    }
}

/// Searches among the calls carried out.
pub(super) fn searches(called: &BTreeMap<String, u32>) -> u32 {
    called.get(SearchTool::NAME).copied().unwrap_or(0)
}

fn sanitise(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
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

fn read_object(arguments: &str, example: &str) -> Result<Map<String, Value>, String> {
    let mut value: Value = serde_json::from_str(&mended(arguments))
        .map_err(|error| format!("the arguments are not valid JSON ({error}); expected {example}"))?;
    // Some models write the object as a string inside a string.
    if let Value::String(inner) = &value
        && let Ok(object) = serde_json::from_str(&mended(inner))
    {
        value = object;
    }
    match value {
        Value::Object(map) => Ok(map),
        other => Err(format!("the arguments must be a JSON object, got {}", shorten(&other.to_string(), 60))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sanitised_cut_and_unique() {
        let long = "x".repeat(100);
        let collections = ["manual", "Support desk", "Support.desk", "", "日本", "本日", &long, &(long.clone() + "y")];
        let search = |name: &&str| SearchTool { collection: (*name).into(), description: String::new() }.into();
        let tools = Toolbox::new(collections.iter().map(search).collect());
        let names: Vec<&str> = tools.0.iter().map(|t| t.name.as_str()).collect();
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
            assert!((1..=MAX_NAME).contains(&name.len()) && *name == sanitise(name), "{name}");
        }
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert_eq!(Toolbox::new(vec![search(&"a"); 100]).0.len(), MAX_TOOLS);
    }
}
