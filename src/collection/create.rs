//! `rag.create_collection`: everything is checked before anything is made.

use super::chunk_table::{self, ChunkTable};
use super::source::Table;
use super::statements;
use crate::error::{Error, Result};
use crate::pg::{role, xact};
use crate::provider::{self, ModelName, excerpt};
use crate::registry::{self, Column, Embedding, MAX_DIMENSIONS, Recipe};
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
}

/// The chunker of new collections.
const CHUNKER: &str = "prose";
const DEFAULT_CHUNK_TOKENS: i32 = 400;
const DEFAULT_CHUNK_OVERLAP: i32 = 50;
const MIN_CHUNK_TOKENS: i32 = 16;
const MAX_CHUNK_TOKENS: i32 = 8000;
/// PostgreSQL's NAMEDATALEN - 1: longer identifiers would be cut silently.
const MAX_IDENTIFIER: usize = 63;

/// Checks and creates.
///
/// Errors: 22023 bad argument, 42501 not the owner, 42P07/42710 name taken, 42703 unknown column, 42809 not a table,
/// 42P16 no primary key, and those of the model.
pub fn create(request: Request) -> Result<String> {
    if xact::has_fixed_snapshot() {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_ACTIVE_SQL_TRANSACTION,
            "rag.create_collection cannot run in a REPEATABLE READ or SERIALIZABLE transaction",
            "Rows committed since its snapshot would be missed. Call it outside of that transaction.",
        ));
    }
    let name = request.name.trim().to_owned();
    check_name(&name)?;
    if registry::by_name(&name).is_some() {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_DUPLICATE_OBJECT,
            format!("collection \"{name}\" already exists"),
            "Choose another name, or drop it first: SELECT rag.drop_collection(...).",
        ));
    }
    let source = check_source(request.source)?;
    let content = check_columns(&source, "content", request.content)?;
    if content.is_empty() {
        return Err(Error::bad_argument(
            "no content columns given",
            "Name the columns whose text is to be searched: content => ARRAY['body'].",
        ));
    }
    let metadata = check_columns(&source, "metadata", request.metadata)?;
    for column in request.title.iter().chain(&request.link) {
        check_column(&source, column)?;
    }
    let (chunk_schema, chunk_name) = check_chunk_table(&source, &name, request.chunk_table.as_deref())?;
    let model = ModelName::parse(&request.embedding_model.unwrap_or_else(crate::guc::embedding_model))?;
    let sizes = Sizes::check(request.chunk_tokens, request.chunk_overlap, request.dimensions)?;
    // The worker asks the model as the owner, so the owner must be allowed to.
    let facts = provider::embedding_model_facts(&model, source.owner)?;
    let (chunk_tokens, chunk_overlap) = sizes.fitted(facts.max_tokens);
    let dimensions = dimensions(&model, facts.dimensions, request.dimensions, source.owner)?;
    let key_columns = chunk_table::key_names(&source.key.columns);
    statements::create(&NewCollection {
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
        recipe: Recipe { chunker: CHUNKER.to_owned(), tokens: chunk_tokens, overlap: chunk_overlap },
        description: request.description.filter(|d| !d.trim().is_empty()),
    });
    Ok(name)
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

fn check_source(oid: pg_sys::Oid) -> Result<Table> {
    let Some(source) = statements::source::table(oid) else {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_UNDEFINED_TABLE,
            format!("there is no table with OID {oid}"),
            "Give the table by its name.",
        ));
    };
    let table = &source.name;
    if !matches!(source.kind, 'r' | 'p') {
        let what = match source.kind {
            'v' => "a view",
            'm' => "a materialized view",
            'f' => "a foreign table",
            _ => "not a table",
        };
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
            format!("{table} is {what}"),
            "Only tables can be collections: changes of others cannot be noted by triggers. Register the tables behind it.",
        ));
    }
    if source.is_temporary || source.is_system {
        let what = if source.is_temporary { "temporary" } else { "a system table" };
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
            format!("{table} is {what}"),
            "Register an ordinary table.",
        ));
    }
    if !role::is_superuser() && !role::has_privileges_of(source.owner) {
        return Err(Error::denied(
            format!("must be owner of table {table}"),
            format!("Ask its owner, {}, or a superuser.", role::name(source.owner)),
        ));
    }
    if source.shares_rows {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            format!("{table} is a partition, or has parents or children by inheritance"),
            "Rows that come through another table would be missed. Register the partitioned table itself; tables in inheritance cannot be registered.",
        ));
    }
    if source.key.columns.is_empty() {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_INVALID_TABLE_DEFINITION,
            format!("table {table} has no primary key"),
            format!("Citations and updates find rows by it: ALTER TABLE {table} ADD PRIMARY KEY (...)."),
        ));
    }
    if let Some(k) = source.key_columns.iter().find(|k| k.is_composite) {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            format!("primary key column \"{}\" of {table} has the row type {}", k.name, k.sql_type),
            "Keys of several columns are fine; one column of a row type is not. Use columns of ordinary types.",
        ));
    }
    Ok(source)
}

fn check_columns(source: &Table, role: &str, names: Vec<Option<String>>) -> Result<Vec<Column>> {
    let mut checked: Vec<Column> = Vec::new();
    for name in names {
        let Some(name) = name else {
            return Err(Error::bad_argument(format!("{role} has a null element"), "Give column names only."));
        };
        let column = check_column(source, &name)?;
        if checked.iter().any(|c| c.name == name) {
            return Err(Error::new(
                PgSqlErrorCode::ERRCODE_DUPLICATE_COLUMN,
                format!("column \"{name}\" is named twice in {role}"),
                "Name each column once.",
            ));
        }
        checked.push(column);
    }
    Ok(checked)
}

fn check_column(source: &Table, name: &str) -> Result<Column> {
    if let Some(column) = source.columns.iter().find(|c| c.name == name) {
        return Ok(column.clone());
    }
    let names: Vec<&str> = source.columns.iter().map(|c| c.name.as_str()).collect();
    Err(Error::new(
        PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
        format!("column \"{}\" of {} does not exist", excerpt(name), source.name),
        format!("Its columns are: {}. Names are taken as they are, without quotes.", excerpt_list(&names)),
    ))
}

fn excerpt_list(names: &[&str]) -> String {
    const MOST: usize = 20;
    let mut text = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text.push_str(", ...");
    }
    text
}

fn check_chunk_table(source: &Table, name: &str, given: Option<&str>) -> Result<(String, String)> {
    let parts = match given {
        Some(text) if !text.trim().is_empty() => statements::source::parse_name(text),
        _ => vec![default_chunk_name(name)],
    };
    let (schema, table) = match parts.as_slice() {
        [table] => (source.schema.clone(), table.clone()),
        [schema, table] => (schema.clone(), table.clone()),
        _ => {
            return Err(Error::bad_argument(
                format!("invalid chunk table name \"{}\"", excerpt(given.unwrap_or_default())),
                "Write it as table or schema.table.",
            ));
        }
    };
    if table.len() > MAX_IDENTIFIER {
        return Err(Error::bad_argument(
            format!("chunk table name \"{}\" is longer than {MAX_IDENTIFIER} bytes", excerpt(&table)),
            "Give a shorter one with chunk_table => '...'.",
        ));
    }
    if matches!(schema.as_str(), "rag" | "rag_internal") || schema.starts_with("pg_") || schema == "information_schema"
    {
        return Err(Error::bad_argument(
            format!("chunk tables cannot be in schema \"{schema}\""),
            "Name a schema of your own.",
        ));
    }
    let owner = role::name(source.owner);
    match statements::source::may_create_in(&schema, source.owner) {
        None => {
            return Err(Error::new(
                PgSqlErrorCode::ERRCODE_INVALID_SCHEMA_NAME,
                format!("schema \"{}\" does not exist", excerpt(&schema)),
                "Create it first, or leave the schema out for the source's own.",
            ));
        }
        Some(false) => {
            return Err(Error::denied(
                format!("role \"{owner}\" may not create tables in schema \"{schema}\""),
                format!(
                    "The chunk table belongs to the source's owner. GRANT CREATE ON SCHEMA {} TO {}, or name another schema with chunk_table => 'schema.table'.",
                    crate::pg::spi::quote(&schema),
                    crate::pg::spi::quote(&owner)
                ),
            ));
        }
        Some(true) => {}
    }
    if statements::source::relation_exists(&schema, &table) {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_DUPLICATE_TABLE,
            format!("relation \"{schema}.{table}\" already exists"),
            "Give the chunk table another name with chunk_table => '...'.",
        ));
    }
    Ok((schema, table))
}

/// `<collection>_chunks`, cut at a character so that it fits.
fn default_chunk_name(name: &str) -> String {
    const SUFFIX: &str = "_chunks";
    let mut end = name.len().min(MAX_IDENTIFIER - SUFFIX.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{SUFFIX}", &name[..end])
}

/// Sizes asked for, in range.
struct Sizes {
    tokens: Option<i32>,
    overlap: Option<i32>,
}

impl Sizes {
    fn check(tokens: Option<i32>, overlap: Option<i32>, dimensions: Option<i32>) -> Result<Self> {
        if let Some(n) = tokens
            && !(MIN_CHUNK_TOKENS..=MAX_CHUNK_TOKENS).contains(&n)
        {
            return Err(Error::bad_argument(
                format!("chunk_tokens is {n}"),
                format!(
                    "Give a number between {MIN_CHUNK_TOKENS} and {MAX_CHUNK_TOKENS}; the default is {DEFAULT_CHUNK_TOKENS}."
                ),
            ));
        }
        let most = tokens.unwrap_or(DEFAULT_CHUNK_TOKENS) / 2;
        if let Some(n) = overlap
            && !(0..=most).contains(&n)
        {
            return Err(Error::bad_argument(
                format!("chunk_overlap is {n}"),
                format!("Give a number between 0 and half of chunk_tokens, {most}."),
            ));
        }
        if let Some(n) = dimensions
            && !(1..=MAX_DIMENSIONS).contains(&n)
        {
            return Err(Error::bad_argument(
                format!("dimensions is {n}"),
                format!("Give a number between 1 and {MAX_DIMENSIONS}, the most an index can hold."),
            ));
        }
        Ok(Self { tokens, overlap })
    }

    /// The sizes to use: no chunk is longer than what the model reads, since the rest would not be found.
    fn fitted(&self, model_limit: Option<usize>) -> (i32, i32) {
        let mut tokens = self.tokens.unwrap_or(DEFAULT_CHUNK_TOKENS);
        if let Some(limit) = model_limit.and_then(|n| i32::try_from(n).ok())
            && tokens > limit
        {
            if self.tokens.is_some() {
                pgrx::notice!("chunk_tokens is reduced from {tokens} to {limit}, the longest text the model reads");
            }
            tokens = limit;
        }
        (tokens, self.overlap.unwrap_or(DEFAULT_CHUNK_OVERLAP).min(tokens / 2))
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
