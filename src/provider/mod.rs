//! Providers: foreign servers of the wrapper `rag_provider`, and what is asked of them.
//!
//! `options` checks what DDL says, `resolve` reads it back for a role, `local` runs models in the process,
//! `remote` talks HTTP. A new API is one file in `ragent_core::provider` and one arm in [`Provider::api`]'s matches.

// pgrx raises an ErrorReport with its SQLSTATE and HINT only when it comes unboxed.
#[allow(clippy::result_large_err)]
mod api;
pub mod local;
pub mod options;
pub mod remote;
mod resolve;
pub mod statements;

pub use resolve::{Provider, resolve};

use crate::error::{Error, Result};
use crate::pg::vector::MAX_DIMENSIONS;
use pgrx::pg_sys;
use ragent_core::model::{ChatReply, ChatRequest};

/// A model's full name: `server/model`. The model's own name may contain slashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelName {
    /// Name of the foreign server.
    pub server: String,
    /// What the provider calls the model.
    pub model: String,
}

impl ModelName {
    /// Splits at the first slash. SQLSTATE 22023 for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        match text.split_once('/') {
            Some((server, model)) if !server.trim().is_empty() && !model.trim().is_empty() => {
                Ok(Self { server: server.trim().to_owned(), model: model.trim().to_owned() })
            }
            _ => Err(Error::bad_argument(
                format!("invalid model name \"{}\"", excerpt(text)),
                "Write it as 'server/model', for example 'local/all-MiniLM-L6-v2'; servers are those of CREATE SERVER ... FOREIGN DATA WRAPPER rag_provider.",
            )),
        }
    }
}

impl std::fmt::Display for ModelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.server, self.model)
    }
}

/// What an embedding model is like, as far as it is known without asking it for vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingModelFacts {
    /// Length of its vectors.
    pub dimensions: Option<usize>,
    /// Longest text it reads, in tokens of content.
    pub max_tokens: Option<usize>,
}

/// Embeds texts as `role`: one vector for each, in order, all of one dimension.
///
/// Blank texts must have been refused before. Errors: those of [`resolve`], [`local`] and [`remote`].
pub fn embed(model: &ModelName, texts: &[&str], dimensions: Option<usize>, role: pg_sys::Oid) -> Result<Vec<Vec<f32>>> {
    let provider = resolve(model, role)?;
    let vectors = match provider.api {
        options::Api::Local => local::embed(&model.model, texts)?,
        options::Api::OpenAi => remote::embed(&provider, &model.model, texts, dimensions)?,
    };
    let got = vectors.first().map_or(0, Vec::len);
    if got > MAX_DIMENSIONS {
        return Err(Error::new(
            pgrx::PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            format!("model \"{model}\" returned vectors of {got} dimensions, more than a vector can have"),
            format!("A vector has at most {MAX_DIMENSIONS} dimensions; choose another model."),
        ));
    }
    if let Some(wanted) = dimensions
        && !vectors.is_empty()
        && wanted != got
    {
        return Err(wrong_dimensions(model, wanted, got));
    }
    Ok(vectors)
}

/// The error for vectors of a length the collection does not have.
pub fn wrong_dimensions(model: &ModelName, wanted: usize, got: usize) -> Error {
    Error::new(
        pgrx::PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION,
        format!("model \"{model}\" returned vectors of {got} dimensions where {wanted} were expected"),
        "Check that the server still serves the model the collection was created with.",
    )
}

/// What is known of an embedding model.
pub fn embedding_model_facts(model: &ModelName, role: pg_sys::Oid) -> Result<EmbeddingModelFacts> {
    match resolve(model, role)?.api {
        options::Api::Local => local::facts(&model.model),
        options::Api::OpenAi => Ok(EmbeddingModelFacts { dimensions: None, max_tokens: None }),
    }
}

/// Counts the tokens of a text.
pub type TokenCounter = Box<dyn Fn(&str) -> usize>;

/// How to count the tokens of a text for `model`: exactly for a local one, approximately for a remote one.
pub fn token_counter(provider: &Provider, model: &str) -> Result<TokenCounter> {
    match provider.api {
        options::Api::Local => {
            let count = local::token_counter(model)?;
            // To a WordPiece tokenizer anything without blanks, however long, is one unknown token.
            Ok(Box::new(move |text| count(text).max(text.len() / MAX_BYTES_OF_A_TOKEN)))
        }
        options::Api::OpenAi => Ok(Box::new(ragent_core::ingest::chunk::approximate_tokens)),
    }
}

/// One turn of a chat model as `role`.
pub fn chat(model: &ModelName, request: &ChatRequest, role: pg_sys::Oid) -> Result<ChatReply> {
    let provider = resolve(model, role)?;
    match provider.api {
        options::Api::Local => local::chat(&model.model, request),
        options::Api::OpenAi => remote::chat(&provider, &model.model, request),
    }
}

/// A chunk is never longer than so many bytes for each of its tokens.
const MAX_BYTES_OF_A_TOKEN: usize = 12;

/// The beginning of a text that somebody gave us, for an error message.
pub fn excerpt(text: &str) -> String {
    const MAX: usize = 80;
    let mut short: String = text.chars().take(MAX).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
