//! Chat models.

use super::{ModelName, local, remote, resolve};
use crate::error::Result;
use pgrx::pg_sys;
use ragent_core::model::{ChatReply, ChatRequest};
use ragent_core::provider::Transport;

/// One turn of a chat model as `role`.
///
/// # Errors
/// Those of [`resolve`], [`local::chat`] and [`remote::chat`].
pub fn chat(model: &ModelName, request: &ChatRequest, role: pg_sys::Oid) -> Result<ChatReply> {
    let provider = resolve(model, role)?;
    match provider.wire.transport() {
        Transport::InProcess => local::chat(&model.model, request),
        Transport::Http(wire) => remote::chat(&provider, wire, &model.model, request),
    }
}
