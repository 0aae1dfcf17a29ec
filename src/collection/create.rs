//! `rag.create_collection`: everything is checked before anything is made.

use super::chunk_table::{self, ChunkTable};
use super::recipe::Sizes;
use super::source::Table;
use super::statements::{self, leftover};
use crate::error::{Error, Result, excerpt};
use crate::pg::xact;
use crate::provider::{self, ModelName};
use crate::registry::{self, Embedding, MAX_DIMENSIONS, Recipe};
use pgrx::{PgSqlErrorCode, pg_sys};

/// The arguments of `rag.create_collection`, as given.
pub struct Request {
    /// Name of the collection.
    pub name: String,
    /// Table table.
    pub source: pg_sys::Oid,
    /// Content columns.
    pub content: Vec<Option<String>>,
    /// Title column.
    pub title: Option<String>,
    /// Link column.
    pub link: Option<String>,
    /// Metadata columns.
    pub metadata: Vec<Option<String>>,
    /// Embedding model; default `rag.embedding_model`.
    pub embedding_model: Option<String>,
    /// Length of its vectors; default: what the model says.
    pub dimensions: Option<i32>,
    /// Longest chunk in tokens.
    pub chunk_tokens: Option<i32>,
    /// Overlap of chunks in tokens.
    pub chunk_overlap: Option<i32>,
    /// What the collection is about.
    pub description: Option<String>,
    /// Name of the chunk table, possibly with a schema.
    pub chunk_table: Option<String>,
    /// Whether a row that changed is found by its old text until the new one is embedded.
    pub serve_stale: bool,
}

/// PostgreSQL's NAMEDATALEN - 1: longer identifiers would be cut silently.
pub(super) const MAX_IDENTIFIER: usize = 63;

/// Checks and creates.
///
/// Errors: 22023 bad argument, 42501 not the owner, 42P07/42710 name taken, 42703 unknown column, 42809 not a table,
/// 42P16 no primary key, and those of the model.
pub fn create(request: Request) -> Result<String> {
    check_snapshot("rag.create_collection")?;
    let name = request.name.trim().to_owned();
    check_name(&name)?;
    check_description(request.description.as_deref())?;
    if registry::by_name(&name).is_some() {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_DUPLICATE_OBJECT,
            format!("collection \"{name}\" already exists"),
            "Choose another name, or drop it first: SELECT rag.drop_collection(...).",
        ));
    }
    if leftover::half(&name).is_some() {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_DUPLICATE_OBJECT,
            format!("collection \"{name}\" already exists, but only a part of it is registered"),
            format!("Drop what is left of it first: SELECT rag.drop_collection({}).", pgrx::spi::quote_literal(&name)),
        ));
    }
    let source = Table::check(request.source)?;
    let content = source.check_columns("content", request.content)?;
    if content.is_empty() {
        return Err(Error::bad_argument(
            "no content columns given",
            "Name the columns whose text is to be searched: content => ARRAY['body'].",
        ));
    }
    let metadata = source.check_columns("metadata", request.metadata)?;
    for column in request.title.iter().chain(&request.link) {
        source.check_column(column)?;
    }
    let (chunk_schema, chunk_name, former) = chunk_table::check_name(&source, &name, request.chunk_table.as_deref())?;
    let model = ModelName::parse(&request.embedding_model.unwrap_or_else(crate::guc::embedding_model))?;
    let sizes = Sizes::check(request.chunk_tokens, request.chunk_overlap)?;
    check_dimensions(request.dimensions)?;
    // The worker asks the model as the owner, so the owner must be allowed to.
    let facts = provider::embedding_model_facts(&model, source.owner)?;
    let recipe = sizes.fitted(facts.max_tokens);
    let dimensions = dimensions(&model, facts.dimensions, request.dimensions, source.owner)?;
    let key_columns = chunk_table::key_names(&source.key.columns);
    let new = NewCollection {
        chunks: ChunkTable {
            collection: &name,
            source: &source,
            content: &content,
            schema: chunk_schema,
            name: chunk_name,
            key_columns,
            embedding: Embedding::new(dimensions),
        },
        title: request.title,
        link: request.link,
        metadata: metadata.into_iter().map(|c| c.name).collect(),
        model: model.to_string(),
        recipe,
        description: request.description.filter(|d| !d.trim().is_empty()),
        serve_stale: request.serve_stale,
    };
    statements::create(&new, former);
    registry::existing(&name)?.check_owner()?;
    Ok(name)
}

/// Checks that the transaction sees what is committed by now.
///
/// # Errors
/// 25001 it does not.
pub fn check_snapshot(function: &str) -> Result<()> {
    if xact::has_fixed_snapshot() {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_ACTIVE_SQL_TRANSACTION,
            format!("{function} cannot run in a REPEATABLE READ or SERIALIZABLE transaction"),
            "Rows committed since its snapshot would be missed. Call it outside of that transaction.",
        ));
    }
    Ok(())
}

/// What a new collection is made of. Everything is checked by then.
pub struct NewCollection<'a> {
    /// Its chunk table, with the source it is made for.
    pub chunks: ChunkTable<'a>,
    /// Title column.
    pub title: Option<String>,
    /// Link column.
    pub link: Option<String>,
    /// Metadata columns.
    pub metadata: Vec<String>,
    /// Embedding model, as `server/model`.
    pub model: String,
    /// How its text is cut.
    pub recipe: Recipe,
    /// What it is about.
    pub description: Option<String>,
    /// Whether a row that changed is found by its old text until the new one is embedded.
    pub serve_stale: bool,
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_IDENTIFIER || name.chars().any(char::is_control) {
        return Err(Error::bad_argument(
            format!("invalid collection name \"{}\"", excerpt(name)),
            format!("A name has 1 to {MAX_IDENTIFIER} bytes and no control characters."),
        ));
    }
    Ok(())
}

/// Every backend keeps it, and a model reads it with every question. No longer one comes out of the registry either.
const MAX_DESCRIPTION: usize = 4000;

/// Checks that a description is no longer than is kept.
///
/// # Errors
/// 54000 it is.
pub(super) fn check_description(description: Option<&str>) -> Result<()> {
    let length = description.map_or(0, |text| text.chars().count());
    if length <= MAX_DESCRIPTION {
        return Ok(());
    }
    Err(Error::new(
        PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
        format!("the description has {length} characters, more than {MAX_DESCRIPTION}"),
        "Say in a sentence or two what the collection is about.",
    ))
}

fn check_dimensions(dimensions: Option<i32>) -> Result<()> {
    match dimensions {
        Some(n) if !(1..=MAX_DIMENSIONS).contains(&n) => Err(Error::bad_argument(
            format!("dimensions is {n}"),
            format!("Give a number between 1 and {MAX_DIMENSIONS}, the most an index can hold."),
        )),
        _ => Ok(()),
    }
}

/// The length of the model's vectors: what its files say, what the caller says, or, asked for one, what it gives.
fn dimensions(model: &ModelName, known: Option<usize>, given: Option<i32>, role: pg_sys::Oid) -> Result<i32> {
    let found = match (known, given) {
        (Some(known), Some(given)) if known != given as usize => {
            return Err(Error::bad_argument(
                format!("dimensions is {given}, but model \"{model}\" has {known}"),
                "Leave dimensions out.",
            ));
        }
        (Some(known), _) => known,
        (None, Some(given)) => given as usize,
        (None, None) => {
            let vectors = provider::embed(model, &["How long is a vector?"], None, role)?;
            vectors.first().map_or(0, Vec::len)
        }
    };
    match i32::try_from(found) {
        Ok(n) if (1..=MAX_DIMENSIONS).contains(&n) => Ok(n),
        _ => Err(Error::new(
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            format!("model \"{model}\" has vectors of {found} dimensions, more than an index can hold"),
            format!(
                "Choose a model with at most {MAX_DIMENSIONS} dimensions, or one that can shorten its vectors: dimensions => ..., with the server's option send_dimensions 'true'."
            ),
        )),
    }
}
