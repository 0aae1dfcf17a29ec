//! The keyless deterministic model `local/extractive`.
//!
//! It is no language model: it never writes a sentence about the data. It speaks the same protocol as a real model, sees
//! the same [`ChatRequest`] and nothing else, and makes the whole loop run on a machine with no key and no network:
//!
//! 1. A greeting, thanks or a question about itself is answered at once (`question.rs`).
//! 2. Otherwise the question is split into its parts, and each is searched for, all in one message (`plan.rs`).
//! 3. It looks at which words of the question no passage covers and searches for those, once or twice, never repeating a query.
//! 4. It answers with the one to four sentences that cover the question best, each with the marker of its passage, or with the
//!    don't-know sentence when what was found covers too little of the question (`answer.rs`).
//!
//! The same request always gives the same reply.

mod answer;
mod conversation;
mod cues;
mod passage;
mod plan;
mod question;

use crate::model::{ChatReply, ChatRequest, ToolChoice};
use crate::prompt::instructions::DONT_KNOW;
use conversation::Conversation;
use passage::Found;
use question::Question;

/// Answers one request. It counts no tokens: [`crate::model::Usage`] stays zero.
pub fn reply(r: &ChatRequest) -> ChatReply {
    interruptible_reply(r, &|| ())
}

/// As [`reply`]; `pulse` is called for each sentence that is looked at: where the caller wants it to stop, it does not return.
pub fn interruptible_reply(r: &ChatRequest, pulse: &dyn Fn()) -> ChatReply {
    let conversation = Conversation::read(r);
    let question = Question::read(conversation.question);
    if let Some(words) = question.small_talk() {
        return say(words.to_owned());
    }
    let found = Found::collect(&conversation, pulse);
    if r.tool_choice == ToolChoice::Auto {
        let calls = plan::calls(&question, &conversation, &found, &r.tools);
        if !calls.is_empty() {
            return ChatReply { tool_calls: calls, ..ChatReply::default() };
        }
    }
    say(answer::compose(&question, &found).unwrap_or_else(|| DONT_KNOW.to_owned()))
}

/// Whether a question is a greeting, thanks or about the one who is asked: no data answers it.
pub fn is_small_talk(question: &str) -> bool {
    // What is longer is no greeting, and need not be taken apart.
    question.len() <= 200 && Question::read(question).small_talk().is_some()
}

fn say(content: String) -> ChatReply {
    ChatReply { content: Some(content), ..ChatReply::default() }
}
