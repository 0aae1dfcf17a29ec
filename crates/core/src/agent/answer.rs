//! How a run ended.

use serde::{Deserialize, Serialize};

use super::Citation;
use crate::model::Usage;

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The answer with its markers `[1]`, `[2]`, … in the order of their first appearance; never empty.
    pub text: String,
    /// One entry for each marker in the text, in their order.
    pub citations: Vec<Citation>,
    /// Whether the model searched.
    pub decision: Decision,
    /// Whether it knew.
    pub outcome: Outcome,
    /// Why the run ended.
    pub stop_reason: StopReason,
    /// Searches run.
    pub searches: u32,
    /// Messages with tool calls that were answered.
    pub rounds: u32,
    /// Tokens of all model calls together.
    pub usage: Usage,
    /// Markers taken out of the text because they name nothing that was retrieved in this run.
    pub removed_markers: u32,
    /// Whether the question was a greeting or the like, which no data answers.
    pub small_talk: bool,
}

impl Answer {
    /// The citations as an array, as `rag.answer` and `rag.runs` have them.
    ///
    /// # Panics
    /// Never: everything in a citation can be written as JSON.
    pub fn citations_json(&self) -> serde_json::Value {
        serde_json::to_value(&self.citations).expect("citations can be written as JSON")
    }

    /// The citations as they are recorded where no text is to be kept: which rows, and nothing of what they say.
    pub fn citations_without_texts(&self) -> serde_json::Value {
        let citation = |c: &Citation| Citation { title: None, link: None, quote: String::new(), ..c.clone() };
        serde_json::to_value(self.citations.iter().map(citation).collect::<Vec<_>>())
            .expect("citations can be written as JSON")
    }

    /// The text and, where something is cited, a list of the sources, one a line, as `rag.ask` returns it. An answer that does not
    /// rest on the data, or that is not whole, says so.
    pub fn with_sources(&self) -> String {
        let mut text = self.text.clone();
        let is_our_own = [CUT_OFF, FILTERED].contains(&self.text.as_str());
        let notes = [
            (self.stop_reason == StopReason::Truncated).then_some(NOTE_CUT_OFF),
            (self.stop_reason == StopReason::ContentFilter).then_some(NOTE_FILTERED),
            (self.outcome == Outcome::Ungrounded && !self.small_talk).then_some(NOTE_UNGROUNDED),
        ];
        for note in notes.into_iter().flatten().filter(|_| !is_our_own) {
            text.push_str("\n\n");
            text.push_str(note);
        }
        for (i, citation) in self.citations.iter().enumerate() {
            text.push_str(if i == 0 { "\n\nSources:\n" } else { "\n" });
            text.push_str(&citation.source());
        }
        text
    }
}

/// The answer of a model whose reply was cut before it began.
pub(super) const CUT_OFF: &str = "There is no answer: the model reached its limit of output before it began one.";
/// The answer of a model whose reply the provider's filter took away.
pub(super) const FILTERED: &str = "There is no answer: the provider's content filter withheld it.";
const NOTE_CUT_OFF: &str = "Note: this answer is cut off at the model's limit of output.";
const NOTE_FILTERED: &str = "Note: the provider's content filter ended this answer.";
const NOTE_UNGROUNDED: &str = "Note: this answer cites nothing of the data, so nothing of the data supports it.";

/// Whether the model searched before it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// At least one search was run.
    UsedSearch,
    /// None was run.
    SkippedSearch,
}

impl Decision {
    /// The word in `rag.answer` and `rag.runs`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Decision::UsedSearch => "used_search",
            Decision::SkippedSearch => "skipped_search",
        }
    }
}

/// Whether there is an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The text answers the question from the data: it cites what was found.
    Answered,
    /// The text says that the data does not tell.
    Unknown,
    /// The text cites nothing, so nothing of the data supports it: a greeting, or what a model made up.
    Ungrounded,
}

impl Outcome {
    /// The word in `rag.answer` and `rag.runs`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Answered => "answered",
            Outcome::Unknown => "unknown",
            Outcome::Ungrounded => "ungrounded",
        }
    }
}

/// Why the run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model answered by itself.
    Answered,
    /// The model wanted more rounds than [`super::Limits::max_rounds`]; it was asked for its answer.
    MaxRounds,
    /// [`super::Limits::max_searches`] was reached; the model was asked for its answer.
    MaxSearches,
    /// A round brought no passage that was not known already; the model was asked for its answer.
    NoNewEvidence,
    /// The model's reply was empty, twice.
    EmptyReply,
    /// The model's answer was cut at a limit of length.
    Truncated,
    /// The provider's content filter ended the model's answer.
    ContentFilter,
}

impl StopReason {
    /// The word in `rag.answer` and `rag.runs`.
    pub fn as_str(&self) -> &'static str {
        match self {
            StopReason::Answered => "answered",
            StopReason::MaxRounds => "max_rounds",
            StopReason::MaxSearches => "max_searches",
            StopReason::NoNewEvidence => "no_new_evidence",
            StopReason::EmptyReply => "empty_reply",
            StopReason::Truncated => "truncated",
            StopReason::ContentFilter => "content_filter",
        }
    }
}

/// Where a run stands: the column `status` of `rag.runs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It has an effect open.
    Running,
    /// It waits for a person to allow a tool call.
    AwaitingApproval,
    /// It is over, and there is an answer.
    Answered,
    /// It is over, and the data does not tell.
    Unknown,
    /// It is over, and nothing of the data supports what was said.
    Ungrounded,
    /// An error ended it.
    Failed,
    /// A person ended it.
    Cancelled,
}

impl Status {
    const ALL: [Status; 7] = [
        Status::Running,
        Status::AwaitingApproval,
        Status::Answered,
        Status::Unknown,
        Status::Ungrounded,
        Status::Failed,
        Status::Cancelled,
    ];

    /// The word in `rag.runs`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::AwaitingApproval => "awaiting_approval",
            Status::Answered => "answered",
            Status::Unknown => "unknown",
            Status::Ungrounded => "ungrounded",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        }
    }

    /// The status of that word.
    pub fn named(word: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

impl From<Outcome> for Status {
    fn from(outcome: Outcome) -> Status {
        match outcome {
            Outcome::Answered => Status::Answered,
            Outcome::Unknown => Status::Unknown,
            Outcome::Ungrounded => Status::Ungrounded,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(sources: &[(Value, Option<&str>, Option<&str>)]) -> Answer {
        let citations = sources.iter().zip(1..).map(|((key, title, link), marker)| Citation {
            marker,
            collection: "desk".into(),
            key: key.clone(),
            chunk: 1,
            title: title.map(str::to_owned),
            link: link.map(str::to_owned),
            quote: "q".into(),
        });
        Answer {
            text: "So it is.".into(),
            citations: citations.collect(),
            decision: Decision::UsedSearch,
            outcome: Outcome::Answered,
            stop_reason: StopReason::Answered,
            searches: 1,
            rounds: 1,
            usage: Usage::default(),
            removed_markers: 0,
            small_talk: false,
        }
    }

    #[test]
    fn an_answer_without_support_or_end_says_so() {
        let said = |change: fn(&mut Answer)| {
            let mut answer = answer(&[]);
            change(&mut answer);
            answer.with_sources()
        };
        assert_eq!(said(|a| a.outcome = Outcome::Ungrounded), format!("So it is.\n\n{NOTE_UNGROUNDED}"));
        assert_eq!(said(|a| (a.outcome, a.small_talk) = (Outcome::Ungrounded, true)), "So it is.");
        assert_eq!(said(|a| a.outcome = Outcome::Unknown), "So it is.");
        assert_eq!(said(|a| a.stop_reason = StopReason::Truncated), format!("So it is.\n\n{NOTE_CUT_OFF}"));
        let cut = said(|a| {
            (a.stop_reason, a.outcome, a.text) = (StopReason::Truncated, Outcome::Ungrounded, CUT_OFF.into());
        });
        assert_eq!(cut, CUT_OFF);
    }

    #[test]
    fn sources_stand_below_the_text_one_a_line() {
        for (sources, text) in [
            (vec![], "So it is."),
            (vec![(json!({"id": 7}), None, None)], "So it is.\n\nSources:\n[1] desk (id=7)"),
            (
                vec![(json!({"a": "x", "b": null}), Some("T"), Some("https://e.org")), (json!([1]), None, None)],
                "So it is.\n\nSources:\n[1] desk: T (a=x, b=null) <https://e.org>\n[2] desk ([1])",
            ),
        ] {
            assert_eq!(answer(&sources).with_sources(), text);
        }
    }

    #[test]
    fn every_status_has_a_word_of_its_own() {
        for status in Status::ALL {
            assert_eq!(Status::named(status.as_str()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        assert_eq!(Status::named("asleep"), None);
    }
}
