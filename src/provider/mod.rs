//! Providers: foreign servers of the wrapper `rag_provider`, and what is asked of them.
//!
//! What an API is — its options, requests, replies — is a `Wire` of `ragent_core::provider`; this room knows none by name.
//! `options` checks what DDL says, `server` reads it back for a role, `local` runs models in the process, `remote` talks
//! HTTP. `embedding` and `chat` are what other rooms ask for.

// pgrx raises an ErrorReport with its SQLSTATE and HINT only when it comes unboxed.
#[allow(clippy::result_large_err)]
mod api;
mod chat;
mod deadline;
mod embedding;
mod failure;
pub mod input;
pub mod local;
mod options;
pub mod remote;
mod server;
pub mod statements;

pub use chat::chat;
pub use deadline::{Deadline, check as check_deadline};
pub use embedding::{
    EmbeddingModelFacts, InputType, TokenCounter, embed, embedding_model_facts, token_counter, wrong_dimensions,
};
pub use failure::Failure;
pub use ragent_core::provider::ModelName;
pub use server::{Provider, resolve};
