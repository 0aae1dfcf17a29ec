//! `rag.embed`, `rag_internal.provider_validator`, `rag_internal.check_options`.

use super::{embedding, options};
use crate::pg::vector::Vector;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use ragent_core::provider::split_options;

#[pg_extern(sql = false)]
fn provider_validator(options: Vec<String>, catalog: pg_sys::Oid) -> Result<(), ErrorReport> {
    Ok(options::validate(&split_options(options), catalog)?)
}

#[pg_extern(sql = false)]
fn check_options(is_mapping: bool, object: pg_sys::Oid) -> Result<(), ErrorReport> {
    Ok(options::check_changed(is_mapping, object)?)
}

#[pg_extern(sql = false)]
fn embed(
    input: Option<String>,
    model: Option<String>,
    input_type: Option<String>,
) -> Result<Option<Vector>, ErrorReport> {
    let mut vectors = embedding::of_inputs(&[input], model.as_deref(), input_type.as_deref())?;
    Ok(vectors.pop().flatten().map(Vector))
}

#[pg_extern(sql = false)]
fn embed_array(
    inputs: Option<Vec<Option<String>>>,
    model: Option<String>,
    input_type: Option<String>,
) -> Result<Option<Vec<Option<Vector>>>, ErrorReport> {
    let Some(inputs) = inputs else { return Ok(None) };
    let vectors = embedding::of_inputs(&inputs, model.as_deref(), input_type.as_deref())?;
    Ok(Some(vectors.into_iter().map(|v| v.map(Vector)).collect()))
}
