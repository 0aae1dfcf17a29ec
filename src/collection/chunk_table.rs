//! The table that is to hold a collection's chunks.

use super::create::MAX_IDENTIFIER;
use super::leftover::Former;
use super::source::Table;
use super::statements::{self, leftover};
use crate::error::{Error, Result, excerpt};
use crate::pg::catalog;
use crate::pg::role;
use crate::pg::spi::quote;
use crate::registry::{Column, Embedding};
use pgrx::PgSqlErrorCode;

/// A chunk table to be made beside a source.
pub struct ChunkTable<'a> {
    /// Name of the collection.
    pub collection: &'a str,
    /// The source.
    pub source: &'a Table,
    /// Content columns of the source.
    pub content: &'a [Column],
    /// Schema of the chunk table, not quoted.
    pub schema: String,
    /// Name of the chunk table, not quoted.
    pub name: String,
    /// The source's key columns as they are called in it.
    pub key_columns: Vec<String>,
    /// Its embeddings.
    pub embedding: Embedding,
}

/// Columns of a chunk table besides the key.
const OWN_COLUMNS: [&str; 9] =
    ["chunk", "chunk_id", "content", "content_hash", "model", "source_xmin", "source_hash", "embedding", "is_copy"];

impl ChunkTable<'_> {
    /// Schema and name, quoted.
    pub fn qualified_name(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.name))
    }
}

/// The key's names in the chunk table: the source's, unless one of the chunk table's own columns is called the same.
pub fn key_names(key: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for column in key {
        let mut name = column.clone();
        while OWN_COLUMNS.contains(&name.as_str()) || names.contains(&name) || (name != *column && key.contains(&name))
        {
            name = format!("key_{name}");
        }
        names.push(name);
    }
    names
}

/// Schema and name of a new chunk table, as given or after the collection's name; and the table that a former collection left
/// under that name.
///
/// # Errors
/// 22023 a name nobody can use, 3F000 no such schema, 42501 the source's owner may not create in it, 42P07 it is taken.
pub fn check_name(source: &Table, name: &str, given: Option<&str>) -> Result<(String, String, Option<Former>)> {
    let parts = match given {
        Some(text) if !text.trim().is_empty() => statements::source::parse_name(text),
        _ => vec![default_chunk_name(name, "")],
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
                    "{} Or name another schema with chunk_table => 'schema.table'.",
                    may_create_hint(&schema, &owner)
                ),
            ));
        }
        Some(true) => {}
    }
    let Some(oid) = catalog::relation(&schema, &table) else { return Ok((schema, table, None)) };
    let key_columns = key_names(&source.key.columns);
    match leftover::why_not(oid, source.owner, &key_columns, Some(source.key_types())) {
        None => {
            let name = format!("{}.{}", quote(&schema), quote(&table));
            Ok((schema, table, Some(Former { table: oid, name, owner: source.owner, key_columns })))
        }
        Some(why) => Err(Error::new(
            PgSqlErrorCode::ERRCODE_DUPLICATE_TABLE,
            format!("relation \"{schema}.{table}\" already exists"),
            format!(
                "It is not taken over: {why}. Drop it, or give the chunk table another name with chunk_table => '...'."
            ),
        )),
    }
}

fn may_create_hint(schema: &str, owner: &str) -> String {
    format!(
        "The chunk table belongs to the source's owner: GRANT CREATE ON SCHEMA {} TO {}.",
        quote(schema),
        quote(owner)
    )
}

/// Schema and name for a chunk table that is made anew: those of the former one, where the source's owner may create there
/// and the name is free; else a name after the collection's, beside the source.
///
/// # Errors
/// As [`check_name`].
pub fn free_name(source: &Table, collection: &str, former: &str) -> Result<(String, String)> {
    let check = |name: &str| match check_name(source, collection, Some(name))? {
        (schema, table, None) => Ok((schema, table)),
        (schema, table, Some(_)) => Err(Error::new(
            PgSqlErrorCode::ERRCODE_DUPLICATE_TABLE,
            format!("relation \"{schema}.{table}\" already exists"),
            "Drop it if nobody needs it.",
        )),
    };
    let beside = |n: u32| {
        let suffix = if n == 1 { String::new() } else { format!("_{n}") };
        let name = default_chunk_name(collection, &suffix);
        check(&format!("{}.{}", quote(&source.schema), quote(&name)))
    };
    if !former.is_empty()
        && let Ok(found) = check(former)
    {
        return Ok(found);
    }
    let is_taken = |e: &Error| e.code == PgSqlErrorCode::ERRCODE_DUPLICATE_TABLE;
    let found = (1..100).map(beside).find(|found| !found.as_ref().is_err_and(is_taken)).unwrap_or_else(|| beside(1));
    found.map_err(|e| Error { hint: may_create_hint(&source.schema, &role::name(source.owner)), ..e })
}

/// `<collection>_chunks`, cut at a character so that it fits.
fn default_chunk_name(name: &str, more: &str) -> String {
    const SUFFIX: &str = "_chunks";
    let mut end = name.len().min(MAX_IDENTIFIER - SUFFIX.len() - more.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{SUFFIX}{more}", &name[..end])
}
