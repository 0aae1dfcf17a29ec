//! Providers: their APIs, their options, and what a failure means.
//!
//! An API is a folder with a type that implements [`Wire`], and a line in [`WIRES`]. Its options, their validation, the
//! hints of errors and the tables of `docs/providers.md` follow from that.
//!
//! - [`openai`], [`local`]: the APIs.
//! - [`validate`], [`Settings`]: options of servers and user mappings.
//! - [`FailureKind`], [`pause_before_retry`]: what a failure means, and whether and when to try again.
//! - [`ReplyError`], [`error_message`]: what is wrong with a reply, and what a provider says of it.
//! - [`redact()`]: keeps a secret out of a message.

mod batch;
mod failure;
pub(crate) mod json;
pub mod local;
mod message;
mod model_name;
pub mod openai;
mod options;
mod redact;
mod reply;
mod retry;
mod url;
mod wire;

pub use batch::{BatchLimits, batches, halves};
pub use failure::{FailureKind, classify, classify_words, may_send_again, status_named};
pub use message::error_message;
pub use model_name::{InvalidModelName, ModelName};
pub use options::*;
pub use redact::{Redactor, redact};
pub use reply::ReplyError;
pub use retry::{LONGEST_PAUSE, MAX_BACKOFF, MAX_RETRY_AFTER, backoff, pause_before_retry, retry_after};
pub use url::{check_base_url, join_url};
pub use wire::{
    Call, Chat, Embedded, Embeddings, HttpWire, Rerank, Streaming, StructuredOutput, Transport, Wire, bearer,
};

/// Every API there is.
pub const WIRES: &[&dyn Wire] = &[&local::Local, &openai::OpenAi];
