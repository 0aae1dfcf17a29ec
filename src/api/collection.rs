//! `rag.create_collection`, `rag.drop_collection`.

use super::required;
use crate::actions::{self, create_collection};
use crate::store::collection;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments)]
fn create_collection(
    name: Option<String>,
    source: Option<pg_sys::Oid>,
    content: Option<Vec<Option<String>>>,
    title: Option<String>,
    link: Option<String>,
    metadata: Option<Vec<Option<String>>>,
    embedding_model: Option<String>,
    dimensions: Option<i32>,
    chunk_tokens: Option<i32>,
    chunk_overlap: Option<i32>,
    description: Option<String>,
    chunk_table: Option<String>,
) -> Result<String, ErrorReport> {
    Ok(create_collection::create(create_collection::Request {
        name: required(name, "name")?,
        source: required(source, "source")?,
        content: required(content, "content")?,
        title,
        link,
        metadata: metadata.unwrap_or_default(),
        embedding_model,
        dimensions,
        chunk_tokens,
        chunk_overlap,
        description,
        chunk_table,
    })?)
}

#[pg_extern(sql = false)]
fn drop_collection(name: Option<String>, if_exists: Option<bool>) -> Result<(), ErrorReport> {
    let name = required(name, "name")?;
    match actions::existing_collection(&name) {
        Ok(c) => {
            actions::must_own(&c)?;
            collection::drop(&c);
        }
        Err(_) if if_exists == Some(true) => {
            pgrx::notice!("collection \"{name}\" does not exist, skipping");
        }
        Err(e) => return Err(e.into()),
    }
    Ok(())
}
