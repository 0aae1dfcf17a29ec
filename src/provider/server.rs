//! A server as one role sees it: what it speaks, its settings, the role's key.

use super::{ModelName, statements};
use crate::error::{Error, Result, excerpt};
use crate::pg::role;
use crate::pg::spi::quote;
use pgrx::{PgSqlErrorCode, pg_sys};
use ragent_core::provider::{
    KeySource, Settings, Transport, WIRES, Wire, key_source, selected_wire, unvouched, wire_names,
};

/// A server as one role sees it.
#[derive(Clone)]
pub struct Provider {
    /// Name of the foreign server.
    pub name: String,
    /// The API it speaks.
    pub wire: &'static dyn Wire,
    /// What its options say.
    pub settings: Settings,
    /// The role's key, if it has one. It leaves this struct only for a request's header.
    pub key: Option<String>,
}

impl Provider {
    /// Whether its models run in the process that asks.
    pub fn runs_in_process(&self) -> bool {
        matches!(self.wire.transport(), Transport::InProcess)
    }
}

/// Finds the server of `model` and checks that `role` may use it.
///
/// # Errors
/// 42704 no such server, 42809 a server of another wrapper, 42501 no USAGE, or an option that only a superuser may set and none
/// did, 22023 options that the server's API does not
/// take, 28000 a key that cannot be read.
pub fn resolve(model: &ModelName, role: pg_sys::Oid) -> Result<Provider> {
    let name = &model.server;
    let server = statements::provider(name, role).ok_or_else(|| {
        Error::undefined(
            format!("server \"{}\" does not exist", excerpt(name)),
            format!("Create it: CREATE SERVER {} FOREIGN DATA WRAPPER rag_provider OPTIONS (api '...', ...), or see pg_foreign_server for those there are.", quote(name)),
        )
    })?;
    if !server.is_provider {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
            format!("server \"{name}\" is not a model provider"),
            "Name a server of the foreign data wrapper rag_provider.",
        ));
    }
    if !server.may_use {
        return Err(Error::denied(
            format!("permission denied for foreign server \"{name}\""),
            format!(
                "GRANT USAGE ON FOREIGN SERVER {} TO {}; lets the role use it.",
                quote(name),
                quote(&role::name(role))
            ),
        ));
    }
    if let Some(option) = unvouched(WIRES, &server.options, &server.vouched) {
        let statement = format!("ALTER SERVER {} OPTIONS (SET {option} '...')", quote(name));
        return Err(not_vouched(option, &format!("server \"{name}\""), &statement));
    }
    if let Some(option) = unvouched(WIRES, &server.mapping, &server.mapping_vouched) {
        let (whom, whose) = match server.mapped {
            Some(role) if role != pg_sys::InvalidOid => (quote(&role::name(role)), format!("\"{}\"", role::name(role))),
            _ => ("PUBLIC".to_owned(), "PUBLIC".to_owned()),
        };
        let statement = format!("ALTER USER MAPPING FOR {whom} SERVER {} OPTIONS (SET {option} '...')", quote(name));
        return Err(not_vouched(option, &format!("the user mapping of {whose} for server \"{name}\""), &statement));
    }
    let wire = selected_wire(WIRES, &server.options).ok_or_else(|| {
        Error::bad_argument(
            format!("server \"{name}\" does not say which API it speaks"),
            format!("ALTER SERVER {} OPTIONS (ADD api '...'), one of: {}.", quote(name), wire_names(WIRES)),
        )
    })?;
    let key = match key_source(&server.mapping, &server.options) {
        Some(KeySource::Given(key)) => Some(key.to_owned()),
        Some(KeySource::File(path)) => Some(file_key(name, path)?),
        Some(KeySource::Environment(variable)) => Some(environment_key(name, variable)?),
        None => None,
    };
    Ok(Provider { name: name.clone(), wire, settings: Settings::read(wire, server.options)?, key })
}

/// An option that only a superuser may set, and that none is known to have set on this object.
fn not_vouched(option: &str, of: &str, statement: &str) -> Error {
    Error::denied(
        format!("option \"{option}\" of {of} was not set by a superuser"),
        format!(
            "It decides where this server's process sends data or which of its secrets it reads. A superuser who looked at it sets it anew: {statement}."
        ),
    )
}

fn unreadable(server: &str, what: &str, hint: &str) -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION,
        format!("could not read the API key of server \"{server}\": {what}"),
        hint,
    )
}

fn file_key(server: &str, path: &str) -> Result<String> {
    const HINT: &str =
        "The file named by api_key_file holds the key alone, on its first line, and is readable by the server process.";
    const MAX_BYTES: u64 = 65_536;
    let read = || -> std::io::Result<String> {
        use std::io::Read;
        let mut text = String::new();
        std::fs::File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|e| unreadable(server, &e.to_string(), HINT))?;
    match text.lines().next().map(str::trim) {
        Some(key) if !key.is_empty() => Ok(key.to_owned()),
        _ => Err(unreadable(server, "the file is empty", HINT)),
    }
}

fn environment_key(server: &str, variable: &str) -> Result<String> {
    match std::env::var(variable) {
        Ok(key) if !key.trim().is_empty() => Ok(key.trim().to_owned()),
        _ => Err(unreadable(
            server,
            &format!("environment variable {variable} is not set"),
            "Set it in the environment the server is started with (pg_ctl, systemd unit), then restart; or use api_key_file or a user mapping.",
        )),
    }
}
