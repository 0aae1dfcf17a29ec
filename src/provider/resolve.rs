//! From a model's name to where and how to reach it, as one role.

use super::options::{self, Api};
use super::{ModelName, excerpt, statements};
use crate::error::{Error, Result};
use crate::pg::role;
use crate::pg::spi::quote;
use pgrx::{PgSqlErrorCode, pg_sys};
use std::collections::BTreeMap;
use std::time::Duration;

/// A server as one role sees it. The key never leaves this struct but into a request's header.
#[derive(Clone)]
pub struct Provider {
    /// Name of the foreign server.
    pub name: String,
    /// What it speaks.
    pub api: Api,
    /// Where it is; empty for `local`.
    pub base_url: String,
    /// The role's key, if it has one.
    pub key: Option<String>,
    /// For one whole exchange.
    pub timeout: Duration,
    /// For connecting.
    pub connect_timeout: Duration,
    /// How often a transient failure is tried again.
    pub max_retries: u32,
    /// Most texts in one embedding request.
    pub max_batch_items: usize,
    /// Most tokens in one embedding request.
    pub max_batch_tokens: usize,
    /// Most requests under way at a time from one process.
    pub max_in_flight: usize,
    /// Longest response that is read.
    pub max_response_bytes: usize,
    /// Whether the wished-for dimension is sent along.
    pub send_dimensions: bool,
}

/// Finds the server of `model` and checks that `role` may use it.
///
/// Errors: 42704 no such server, 42809 a server of another wrapper, 42501 no USAGE, 28000 a key that cannot be read.
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
    let Some(api) = options::api(&server.options) else {
        return Err(Error::bad_argument(
            format!("server \"{name}\" has no option \"api\""),
            format!("ALTER SERVER {} OPTIONS (ADD api 'openai').", quote(name)),
        ));
    };
    let number =
        |option: &str, default: usize| server.options.get(option).and_then(|v| v.parse().ok()).unwrap_or(default);
    let seconds = |option: &str, default: f64| {
        let s = server.options.get(option).and_then(|v| v.parse().ok()).unwrap_or(default);
        Duration::from_secs_f64(s)
    };
    Ok(Provider {
        name: name.clone(),
        api,
        base_url: server.options.get("base_url").cloned().unwrap_or_default(),
        key: key(name, &server.mapping, &server.options)?,
        timeout: seconds("timeout", 60.0),
        connect_timeout: seconds("connect_timeout", 10.0),
        max_retries: number("max_retries", 2) as u32,
        max_batch_items: number("max_batch_items", 64),
        max_batch_tokens: number("max_batch_tokens", 100_000),
        max_in_flight: number("max_in_flight", 4),
        max_response_bytes: number("max_response_bytes", 16 << 20),
        send_dimensions: server.options.get("send_dimensions").and_then(|v| options::parse_bool(v)).unwrap_or(false),
    })
}

/// The role's key: its mapping's own, then what its mapping or the server points to.
fn key(server: &str, mapping: &BTreeMap<String, String>, options: &BTreeMap<String, String>) -> Result<Option<String>> {
    if let Some(key) = mapping.get("api_key") {
        return Ok(Some(key.trim().to_owned()));
    }
    for source in [mapping, options] {
        if let Some(path) = source.get("api_key_file") {
            return file_key(server, path).map(Some);
        }
        if let Some(variable) = source.get("api_key_env") {
            return environment_key(server, variable).map(Some);
        }
    }
    Ok(None)
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
    let text = read().map_err(|e| unreadable(server, &e.kind().to_string(), HINT))?;
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
