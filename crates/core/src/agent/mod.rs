//! The agent: a state machine that decides when the model is called, when a search runs, when to stop, and what may be cited.
//!
//! It does no I/O. A driver (a backend, a worker, a test) hands in what happened and does what it is told next:
//!
//! ```
//! use ragent_core::agent::{Effect, Hit, Input, Run, RunRequest, SearchCall, SearchResult, SearchTool};
//!
//! let tool = SearchTool { collection: "facts".into(), description: "Facts about our office.".into() };
//! let request = RunRequest::new("When does the office open?", "local/extractive", vec![tool.into()]);
//! let mut run = Run::new(request);
//! let mut effect = run.next(Input::Start);
//! let answer = loop {
//!     effect = match effect {
//!         // Here the keyless model; a driver sends the request to the model that it names.
//!         Effect::CallModel(call) => run.next(Input::Model(ragent_core::extractive::reply(&call.request))),
//!         Effect::Call(calls) => run.next(Input::Called(calls.into_iter().map(|call| SearchResult {
//!             hits: vec![Hit {
//!                 collection: SearchCall::try_from(call).expect("only searches are offered").collection,
//!                 key: serde_json::json!({ "id": 1 }),
//!                 chunk: 1,
//!                 content: "The office opens at nine on weekdays.".into(),
//!                 title: None,
//!                 link: None,
//!                 score: 0.8,
//!             }],
//!         }.into()).collect())),
//!         Effect::Done(answer) => break answer,
//!     };
//! };
//! assert_eq!(answer.text, "The office opens at nine on weekdays. [1]");
//! assert_eq!(answer.citations[0].key, serde_json::json!({ "id": 1 }));
//! ```
//!
//! It can be stored after any step ([`Run::state`]) and read back ([`Run::restore`]); [`Input::Start`] then gives the effect
//! that is still open.
//!
//! What holds for every strategy:
//! - The caps of [`Limits`] are counted in [`Run`], whatever a model or a strategy does.
//! - Every tool call gets exactly one tool message. A broken call gets one that says what is wrong; it costs a round, never the run.
//! - Calls of one message run together. A query that was run before is answered from memory.
//! - A passage has one number in the whole run and is shown once.
//! - The last model call forbids tools; a model that calls them all the same is not listened to.
//! - An answer's markers are checked: what names no passage of this run is taken out and counted.
//! - An answer that cites nothing is [`Outcome::Ungrounded`], whatever it says. A model that answers without having searched is
//!   told to search, and one that cites nothing to cite, once each ([`RunRequest::require_grounding`]).
//! - Thoughts are no part of an answer, and a call that a model wrote as text is a call.
//!
//! What comes next is decided by a file of [`strategies`]; what a tool offers, reads and reports by a file of [`tools`].

mod answer;
mod citation;
mod evidence;
mod io;
mod limits;
mod request;
mod round;
mod run;
mod step;
pub mod strategies;
#[cfg(test)]
mod tests;
mod text_call;
mod thoughts;
pub mod tools;
mod unknown;

pub use answer::{Answer, Decision, Outcome, Status, StopReason};
pub use citation::Citation;
pub use io::{Effect, Input, ModelCall};
pub use limits::Limits;
pub use request::RunRequest;
pub use run::{RestoreError, Run};
pub use step::{AnswerDetail, Detail, DetailError, ModelCallDetail, Step, Told, ToolCallDetail};
pub use strategies::Strategy;
pub use tools::{
    Call, CallResult, Hit, HitDetail, SearchCall, SearchDetail, SearchResult, SearchTool, Tool, ToolDetail,
};
