//! Models of server `local`: sentence encoders from files, and the extractive answerer.

use super::{EmbeddingModelFacts, InputType, TokenCounter};
use crate::error::{Error, Result, excerpt};
use crate::pg::interrupt;
use pgrx::PgSqlErrorCode;
use ragent_core::extractive::interruptible_reply;
use ragent_core::model::{ChatReply, ChatRequest};
use ragent_core::provider::local::{EXTRACTIVE, is_folder_name};
use ragent_encoder::{Encoder, EncoderError};
use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::rc::Rc;

type Shared = Rc<RefCell<Encoder>>;

thread_local! {
    // A few megabytes each; the weights are mapped and shared between processes.
    static ENCODERS: ManuallyDrop<RefCell<HashMap<PathBuf, Shared>>> = ManuallyDrop::new(RefCell::default());
}

/// A chunk is never longer than so many bytes for each of its tokens.
const MAX_BYTES_OF_A_TOKEN: usize = 12;

/// Embeds texts that are to be found, with the model's document prefix before each, looking for interrupts every few
/// milliseconds.
///
/// # Errors
/// 42704 no such model, 22023 a model that does not embed, XX001 a broken model file.
pub fn embed(model: &str, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
    embed_as(model, texts, InputType::Document)
}

/// As [`embed`], with the prefix of either type.
///
/// # Errors
/// Those of [`embed`].
pub fn embed_as(model: &str, texts: &[&str], input_type: InputType) -> Result<Vec<Vec<f32>>> {
    let encoder = open(model)?;
    let mut encoder = encoder.borrow_mut();
    let embedded = interrupt::watched("embed", || match input_type {
        InputType::Query => encoder.embed_queries(texts, &mut pulse),
        InputType::Document => encoder.embed_documents(texts, &mut pulse),
    });
    embedded.map_err(|e| broken(model, &e))
}

/// What the model's own files say of it.
///
/// # Errors
/// Those of [`embed`].
pub fn facts(model: &str) -> Result<EmbeddingModelFacts> {
    let encoder = open(model)?;
    let encoder = encoder.borrow();
    Ok(EmbeddingModelFacts { dimensions: Some(encoder.dimensions()), max_tokens: Some(encoder.document_tokens()) })
}

/// Counts tokens as the model does, looking for interrupts, but for text without blanks: to a WordPiece tokenizer it is one
/// unknown token, however long it is.
///
/// # Errors
/// Those of [`embed`].
pub fn token_counter(model: &str) -> Result<TokenCounter> {
    let encoder = open(model)?;
    Ok(Box::new(move |text| {
        let counted = encoder.borrow().count_tokens(text, &mut pulse);
        counted.unwrap_or(text.len()).max(text.len() / MAX_BYTES_OF_A_TOKEN)
    }))
}

/// What the encoder calls between its steps: an interrupt leaves it by an error.
fn pulse() -> bool {
    interrupt::check();
    true
}

/// One turn of a local chat model.
///
/// # Errors
/// 42704 no such model.
pub fn chat(model: &str, request: &ChatRequest) -> Result<ChatReply> {
    if model == EXTRACTIVE {
        return Ok(interrupt::watched("extractive", || interruptible_reply(request, &interrupt::check)));
    }
    Err(Error::undefined(
        format!("chat model \"local/{}\" does not exist", excerpt(model)),
        "Server \"local\" has one chat model, local/extractive. Name a model of another server, or CREATE SERVER ... FOREIGN DATA WRAPPER rag_provider for one.",
    ))
}

fn open(model: &str) -> Result<Shared> {
    if model == EXTRACTIVE {
        return Err(Error::bad_argument(
            "model \"local/extractive\" answers questions; it does not embed",
            "Use an embedding model, for example local/all-MiniLM-L6-v2.",
        ));
    }
    let root = crate::guc::model_dir();
    let dir = root.join(model);
    if !is_folder_name(model) || !dir.is_dir() {
        return Err(missing(model, &root));
    }
    if let Some(encoder) = ENCODERS.with(|e| e.borrow().get(&dir).cloned()) {
        return Ok(encoder);
    }
    let encoder = Encoder::open(&dir).map_err(|e| broken(model, &e))?;
    let encoder = Rc::new(RefCell::new(encoder));
    ENCODERS.with(|e| e.borrow_mut().insert(dir, encoder.clone()));
    Ok(encoder)
}

fn missing(model: &str, root: &std::path::Path) -> Error {
    let mut names: Vec<String> = std::fs::read_dir(root)
        .map(|entries| {
            entries
                .flatten()
                .filter(|e| e.path().is_dir())
                .map(|e| e.file_name().to_string_lossy().into_owned())
                // One that is being added is not there yet.
                .filter(|name| is_folder_name(name))
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    let hint = if names.is_empty() {
        "There is no model in the directory rag.model_dir names; \"make install\" puts all-MiniLM-L6-v2 there, \"ragent-model add\" others."
            .to_owned()
    } else {
        format!(
            "Models in the directory rag.model_dir names: {}. \"ragent-model add\" puts others there.",
            names.join(", ")
        )
    };
    Error::undefined(format!("embedding model \"local/{}\" does not exist", excerpt(model)), hint)
}

fn broken(model: &str, e: &EncoderError) -> Error {
    if let EncoderError::OtherTask { .. } = e {
        return Error::bad_argument(
            format!("model \"local/{model}\" reranks; it does not embed"),
            "Use an embedding model, for example local/all-MiniLM-L6-v2; \"ragent-model list\" says what each model is for.",
        );
    }
    Error::new(
        PgSqlErrorCode::ERRCODE_DATA_CORRUPTED,
        format!("could not use embedding model \"local/{model}\": {e}"),
        "Put the model's files in place again (\"make install\" does it for all-MiniLM-L6-v2, \"ragent-model add --replace\" for others), then reconnect.",
    )
}
