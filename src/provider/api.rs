//! `rag.embed`, `rag_internal.provider_validator`.

use crate::error::{Error, Result};
use crate::pg::role;
use crate::pg::vector::Vector;
use crate::provider::options::{self, Owner};
use crate::provider::statements;
use crate::provider::{self, ModelName};
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(sql = false)]
fn provider_validator(options: Vec<String>, catalog: pg_sys::Oid) -> Result<(), ErrorReport> {
    let owner = if catalog == pg_sys::ForeignServerRelationId {
        Owner::Server
    } else if catalog == pg_sys::UserMappingRelationId {
        Owner::UserMapping
    } else if catalog == pg_sys::ForeignDataWrapperRelationId {
        Owner::Wrapper
    } else {
        Owner::ForeignTable
    };
    let role = role::current();
    let stored = |name: &str, value: &str| statements::has_option(role, name, value);
    Ok(options::validate(&options::split(options), owner, role::is_superuser(), stored)?)
}

#[pg_extern(sql = false)]
fn embed(input: Option<String>, model: Option<String>) -> Result<Option<Vector>, ErrorReport> {
    let mut vectors = embed_all(vec![input], model)?;
    Ok(vectors.pop().flatten())
}

#[pg_extern(sql = false)]
fn embed_array(
    inputs: Option<Vec<Option<String>>>,
    model: Option<String>,
) -> Result<Option<Vec<Option<Vector>>>, ErrorReport> {
    Ok(inputs.map(|inputs| embed_all(inputs, model)).transpose()?)
}

/// NULLs stay NULL; everything else is checked before anything is asked of the model.
fn embed_all(inputs: Vec<Option<String>>, model: Option<String>) -> Result<Vec<Option<Vector>>> {
    let model = ModelName::parse(&model.unwrap_or_else(crate::guc::embedding_model))?;
    let texts: Vec<&str> = inputs.iter().flatten().map(String::as_str).collect();
    if texts.iter().any(|t| t.trim().is_empty()) {
        return Err(Error::bad_argument(
            "cannot embed an empty text",
            "Leave empty texts out, or pass NULL for a NULL result.",
        ));
    }
    if texts.is_empty() {
        return Ok(inputs.iter().map(|_| None).collect());
    }
    let mut vectors = provider::embed(&model, &texts, None, role::current())?.into_iter();
    Ok(inputs.iter().map(|i| i.as_ref().and_then(|_| vectors.next()).map(Vector)).collect())
}
