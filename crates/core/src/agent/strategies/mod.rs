//! Strategies: what comes next in a run. Each is a file here and a line of [`LIST`].
//!
//! A strategy decides from the run and what just happened, and keeps nothing itself, so a run can be stored after any step.
//! Caps are not its business: [`super::Run`] holds them whatever it says.

mod tools;

use serde::{Deserialize, Serialize};

use super::{Run, StopReason};
use crate::model::ToolCall;

/// All strategies; the first is the default.
const LIST: &[&dyn Decide] = &[&tools::Tools];

/// What a strategy does.
pub(super) trait Decide: Sync {
    /// The name under which it is stored and chosen; never changes.
    fn name(&self) -> &'static str;

    /// What comes after `event`.
    fn next(&self, run: &Run, event: Event<'_>) -> Next;
}

/// What just happened.
pub(super) enum Event<'a> {
    /// The run began.
    Began,
    /// A model replied.
    Replied {
        /// Which one.
        by: Slot,
        /// What it said; `None` when that is blank.
        text: Option<&'a str>,
        /// What it wants to call, whether it may or not.
        calls: Vec<ToolCall>,
    },
    /// Tool calls were carried out.
    Called {
        /// Passages that were not known before.
        new_evidence: u32,
        /// Whether one was broken in a way that the model can correct.
        correctable: bool,
        /// The cap that is reached, if one is: the next model call is the last then, whatever the strategy says.
        cap: Option<StopReason>,
    },
}

/// What comes next.
pub(super) enum Next {
    /// A model is asked.
    Ask {
        /// Which one.
        model: Slot,
        /// Why it may call no more tools, if so.
        last: Option<StopReason>,
    },
    /// The same model is asked again after it was told that its reply was empty. Once in a run.
    Nudge,
    /// Tools are called: those the model asked for, or others. Ignored when no calls are allowed any more.
    Call(Vec<ToolCall>),
    /// The run ends with this text.
    Answer(String, StopReason),
}

/// One of a run's models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Slot {
    /// Writes the answer.
    Chat,
    /// Decides what to look for; the chat model where the run has no other.
    Decision,
}

/// A strategy, stored and compared by its name.
///
/// ```
/// use ragent_core::agent::Strategy;
/// assert_eq!(Strategy::named("tools"), Some(Strategy::default()));
/// assert_eq!(Strategy::named("guess"), None);
/// ```
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Strategy(&'static dyn Decide);

impl Strategy {
    /// The strategy of that name.
    pub fn named(name: &str) -> Option<Strategy> {
        LIST.iter().find(|strategy| strategy.name() == name).map(|strategy| Strategy(*strategy))
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    pub(super) fn next(&self, run: &Run, event: Event<'_>) -> Next {
        self.0.next(run, event)
    }
}

impl Default for Strategy {
    fn default() -> Strategy {
        Strategy(LIST[0])
    }
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Strategy {
    fn eq(&self, other: &Strategy) -> bool {
        self.name() == other.name()
    }
}

impl From<Strategy> for String {
    fn from(strategy: Strategy) -> String {
        strategy.name().to_owned()
    }
}

impl TryFrom<String> for Strategy {
    type Error = String;

    fn try_from(name: String) -> Result<Strategy, String> {
        Strategy::named(&name).ok_or_else(|| format!("there is no strategy \"{name}\""))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_different_and_stored() {
        let names: HashSet<&str> = LIST.iter().map(|s| s.name()).collect();
        assert_eq!(names.len(), LIST.len());
        for name in names {
            let strategy = Strategy::named(name).unwrap();
            let stored = serde_json::to_value(strategy).unwrap();
            assert_eq!(stored, name);
            assert_eq!(serde_json::from_value::<Strategy>(stored).unwrap(), strategy);
        }
        let error = serde_json::from_value::<Strategy>("guess".into()).unwrap_err();
        assert!(error.to_string().contains("there is no strategy \"guess\""), "{error}");
    }
}
