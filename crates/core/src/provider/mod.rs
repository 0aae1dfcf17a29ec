//! Providers: wire formats, one file or folder each, and what a failure means.
//!
//! - [`openai`]: every OpenAI-compatible server.
//! - [`classify`], [`FailureKind`]: what an HTTP status says, and whether trying again can help.
//! - [`retry_after`], [`backoff`]: how long to wait before that.
//! - [`redact`]: keeps a secret out of a message.

mod failure;
pub mod openai;
mod redact;
mod retry;

pub use failure::{FailureKind, classify};
pub use redact::redact;
pub use retry::{MAX_BACKOFF, MAX_RETRY_AFTER, backoff, retry_after};
