//! Strategy `tools`: the model is offered the tools and decides which to call, and when it knows enough.
//!
//! A round that brings nothing new is the last. Where the run has a decision model, that one calls the tools; when it calls none
//! any more, the chat model is asked for the answer, with what was found.

use super::{Decide, Event, Next, Slot};
use crate::agent::{Run, StopReason};
use crate::prompt::instructions::DONT_KNOW;

/// The strategy.
pub(super) struct Tools;

impl Decide for Tools {
    fn name(&self) -> &'static str {
        "tools"
    }

    fn next(&self, run: &Run, event: Event<'_>) -> Next {
        match event {
            Event::Began => ask(run, None),
            Event::Replied { calls, .. } if run.may_call() && !calls.is_empty() => Next::Call(calls),
            Event::Replied { by: Slot::Decision, .. } => ask(run, Some(StopReason::Answered)),
            Event::Replied { text: Some(text), .. } => {
                Next::Answer(text.to_owned(), run.last_because().unwrap_or(StopReason::Answered))
            }
            Event::Replied { calls, .. } if !calls.is_empty() => {
                Next::Answer(DONT_KNOW.into(), run.last_because().unwrap_or(StopReason::EmptyReply))
            }
            Event::Replied { .. } if run.was_nudged() => Next::Answer(DONT_KNOW.into(), StopReason::EmptyReply),
            Event::Replied { .. } => Next::Nudge,
            Event::Called { new_evidence: 0, correctable: false, .. } => ask(run, Some(StopReason::NoNewEvidence)),
            Event::Called { cap, .. } => ask(run, cap),
        }
    }
}

fn ask(run: &Run, last: Option<StopReason>) -> Next {
    let model = if last.is_some() || !run.has_tools() { Slot::Chat } else { Slot::Decision };
    Next::Ask { model, last }
}
