//! Embedding models.

use super::{ModelName, Provider, input, local, remote, resolve};
use crate::error::{Error, Result, excerpt};
use crate::pg::interrupt;
use crate::pg::role;
use crate::pg::vector::MAX_DIMENSIONS;
use pgrx::{PgSqlErrorCode, pg_sys};
use ragent_core::ingest::chunk::approximate_tokens;
use ragent_core::provider::Transport;
use ragent_core::text::is_blank_within;

/// What an embedding model is like, as far as it is known without asking it for vectors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EmbeddingModelFacts {
    /// Length of its vectors.
    pub dimensions: Option<usize>,
    /// Longest text it reads, in tokens of content.
    pub max_tokens: Option<usize>,
}

/// What a text is for. Many models want other words before a query than before a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputType {
    /// Something is looked for with it.
    Query,
    /// It is to be found.
    Document,
}

impl InputType {
    /// # Errors
    /// 22023 for another word than `query` and `document`.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "query" => Ok(Self::Query),
            "document" => Ok(Self::Document),
            _ => Err(Error::bad_argument(
                format!("input_type \"{}\" is not supported", excerpt(name)),
                "It is query, for a text with which something is looked for, or document, for one that is to be found.",
            )),
        }
    }
}

/// Counts the tokens of a text.
pub type TokenCounter = Box<dyn Fn(&str) -> usize>;

/// Embeds queries as `role`: one vector for each, in order, all of one dimension. Blank texts must have been refused before.
///
/// # Errors
/// Those of [`embed_as`].
pub fn embed(model: &ModelName, texts: &[&str], dimensions: Option<usize>, role: pg_sys::Oid) -> Result<Vec<Vec<f32>>> {
    embed_as(model, texts, InputType::Query, dimensions, role)
}

/// As [`embed`], of texts of either type.
///
/// # Errors
/// 54000 for vectors that are longer than pgvector's can be, 08P01 for a length other than `dimensions`; those of
/// [`resolve`], [`local::embed`] and [`remote::embed`].
fn embed_as(
    model: &ModelName,
    texts: &[&str],
    input_type: InputType,
    dimensions: Option<usize>,
    role: pg_sys::Oid,
) -> Result<Vec<Vec<f32>>> {
    let provider = resolve(model, role)?;
    let vectors = match provider.wire.transport() {
        Transport::InProcess => local::embed_as(&model.model, texts, input_type)?,
        Transport::Http(_) => remote::embed(&provider, &model.model, texts, dimensions)?,
    };
    let Some(got) = vectors.first().map(Vec::len) else { return Ok(vectors) };
    if got > MAX_DIMENSIONS {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            format!("model \"{model}\" returned vectors of {got} dimensions, more than a vector can have"),
            format!("A vector has at most {MAX_DIMENSIONS} dimensions; choose another model."),
        ));
    }
    match dimensions {
        Some(wanted) if wanted != got => Err(wrong_dimensions(model, wanted, got)),
        _ => Ok(vectors),
    }
}

/// Embeds what a caller of `rag.embed` gave, as the current role. `None` stays `None`; `model` is `rag.embedding_model`
/// unless given, `input_type` is `query`.
///
/// # Errors
/// 54000 for too long a text and 22023 for a blank one or another `input_type`, before anything is asked of the model; those of [`embed`].
pub fn of_inputs(
    inputs: &[Option<String>],
    model: Option<&str>,
    input_type: Option<&str>,
) -> Result<Vec<Option<Vec<f32>>>> {
    let input_type = input_type.map_or(Ok(InputType::Query), InputType::parse)?;
    let model = match model {
        Some(model) => ModelName::parse(model)?,
        None => ModelName::parse(&crate::guc::embedding_model())?,
    };
    let texts: Vec<&str> = inputs.iter().flatten().map(String::as_str).collect();
    input::check_all(&texts)?;
    if texts.iter().any(|t| is_blank_within(t, &interrupt::check)) {
        return Err(Error::bad_argument(
            "cannot embed an empty text",
            "Leave empty texts out, or pass NULL for a NULL result.",
        ));
    }
    if texts.is_empty() {
        return Ok(vec![None; inputs.len()]);
    }
    let mut vectors = embed_as(&model, &texts, input_type, None, role::current())?.into_iter();
    Ok(inputs.iter().map(|i| i.as_ref().and_then(|_| vectors.next())).collect())
}

/// The error for vectors of a length the collection does not have. SQLSTATE 08P01.
pub fn wrong_dimensions(model: &ModelName, wanted: usize, got: usize) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION,
        format!("model \"{model}\" returned vectors of {got} dimensions where {wanted} were expected"),
        "Check that the server still serves the model the collection was created with.",
    )
}

/// What is known of an embedding model without asking it: all of one that runs here, nothing of a remote one.
///
/// # Errors
/// Those of [`resolve`] and [`local::facts`].
pub fn embedding_model_facts(model: &ModelName, role: pg_sys::Oid) -> Result<EmbeddingModelFacts> {
    match resolve(model, role)?.wire.transport() {
        Transport::InProcess => local::facts(&model.model),
        Transport::Http(_) => Ok(EmbeddingModelFacts::default()),
    }
}

/// How to count the tokens of a text for `model`: exactly for one that runs here, approximately for a remote one.
///
/// # Errors
/// Those of [`local::token_counter`].
pub fn token_counter(provider: &Provider, model: &str) -> Result<TokenCounter> {
    match provider.wire.transport() {
        Transport::InProcess => local::token_counter(model),
        Transport::Http(_) => Ok(Box::new(|text| {
            interrupt::check();
            approximate_tokens(text)
        })),
    }
}
