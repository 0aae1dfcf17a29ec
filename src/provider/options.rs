//! The options of servers and user mappings, checked when DDL sets them.

use crate::error::{Error, Result};
use pgrx::PgSqlErrorCode;
use std::collections::BTreeMap;

/// The wire protocol a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Models that run in the backend itself.
    Local,
    /// Any OpenAI-compatible server.
    OpenAi,
}

impl Api {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "local" => Some(Self::Local),
            "openai" => Some(Self::OpenAi),
            _ => None,
        }
    }
}

/// What an option belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// CREATE FOREIGN DATA WRAPPER.
    Wrapper,
    /// CREATE SERVER.
    Server,
    /// CREATE USER MAPPING.
    UserMapping,
    /// CREATE FOREIGN TABLE: rag_provider has none.
    ForeignTable,
}

/// The kind of value an option takes.
enum Kind {
    Api,
    Url,
    Secret,
    /// Name of an environment variable of the server process.
    Environment,
    /// Absolute path of a file on the server.
    File,
    Seconds,
    Count {
        min: u64,
        max: u64,
    },
    Bool,
}

struct OptionSpec {
    name: &'static str,
    owners: &'static [Owner],
    kind: Kind,
    superuser_only: bool,
}

const BOTH: &[Owner] = &[Owner::Server, Owner::UserMapping];
const SERVER: &[Owner] = &[Owner::Server];

/// Every option there is. `docs/providers.md` describes them for people.
const OPTIONS: &[OptionSpec] = &[
    OptionSpec { name: "api", owners: SERVER, kind: Kind::Api, superuser_only: false },
    OptionSpec { name: "base_url", owners: SERVER, kind: Kind::Url, superuser_only: true },
    OptionSpec { name: "api_key", owners: &[Owner::UserMapping], kind: Kind::Secret, superuser_only: false },
    OptionSpec { name: "api_key_env", owners: BOTH, kind: Kind::Environment, superuser_only: true },
    OptionSpec { name: "api_key_file", owners: BOTH, kind: Kind::File, superuser_only: true },
    OptionSpec { name: "timeout", owners: SERVER, kind: Kind::Seconds, superuser_only: false },
    OptionSpec { name: "connect_timeout", owners: SERVER, kind: Kind::Seconds, superuser_only: false },
    OptionSpec { name: "max_retries", owners: SERVER, kind: Kind::Count { min: 0, max: 10 }, superuser_only: false },
    OptionSpec {
        name: "max_batch_items",
        owners: SERVER,
        kind: Kind::Count { min: 1, max: 2048 },
        superuser_only: false,
    },
    OptionSpec {
        name: "max_batch_tokens",
        owners: SERVER,
        kind: Kind::Count { min: 100, max: 10_000_000 },
        superuser_only: false,
    },
    OptionSpec { name: "max_in_flight", owners: SERVER, kind: Kind::Count { min: 1, max: 64 }, superuser_only: false },
    OptionSpec {
        name: "max_response_bytes",
        owners: SERVER,
        kind: Kind::Count { min: 1024, max: 1 << 30 },
        superuser_only: false,
    },
    OptionSpec { name: "send_dimensions", owners: SERVER, kind: Kind::Bool, superuser_only: false },
];

/// Checks the options of one DDL statement.
///
/// Errors: HV00D for an unknown or misplaced option, 22023 for a value out of its type or range, 42501 for one that
/// needs a superuser, HV00B for one that is missing.
///
/// PostgreSQL hands over all options of the object, also those a statement leaves alone: one that is `stored` already, in
/// an object the role owns, is no new one.
pub fn validate(
    options: &BTreeMap<String, String>,
    owner: Owner,
    is_superuser: bool,
    stored: impl Fn(&str, &str) -> bool,
) -> Result<()> {
    for (name, value) in options {
        let spec =
            OPTIONS.iter().find(|o| o.name == name && o.owners.contains(&owner)).ok_or_else(|| unknown(name, owner))?;
        if spec.superuser_only && !is_superuser && !stored(name, value) {
            return Err(Error::denied(
                format!("must be superuser to set option \"{name}\""),
                "It decides where this server's process sends data or which of its secrets it reads. Ask a superuser to set it; a role with USAGE on the server may set its own api_key.",
            ));
        }
        check(spec, value)?;
    }
    if owner == Owner::Server {
        check_server(options)?;
    }
    Ok(())
}

fn check_server(options: &BTreeMap<String, String>) -> Result<()> {
    let missing =
        |message: &str, hint: &str| Err(Error::new(PgSqlErrorCode::ERRCODE_FDW_OPTION_NAME_NOT_FOUND, message, hint));
    match options.get("api").and_then(|a| Api::parse(a)) {
        None => missing(
            "option \"api\" is required",
            "Say which protocol the server speaks: OPTIONS (api 'openai', base_url 'https://.../v1').",
        ),
        Some(Api::OpenAi) if !options.contains_key("base_url") => missing(
            "option \"base_url\" is required with api 'openai'",
            "Give the address up to and including the version, for example base_url 'https://api.openai.com/v1'.",
        ),
        Some(Api::Local) if options.len() > 1 => {
            let other = options.keys().find(|k| *k != "api").map_or("", String::as_str);
            Err(Error::new(
                PgSqlErrorCode::ERRCODE_FDW_INVALID_OPTION_NAME,
                format!("option \"{other}\" does not apply to api 'local'"),
                "Local models run in the server process; their directory is the setting rag.model_dir.",
            ))
        }
        Some(_) => Ok(()),
    }
}

fn unknown(name: &str, owner: Owner) -> Error {
    let valid: Vec<&str> = OPTIONS.iter().filter(|o| o.owners.contains(&owner)).map(|o| o.name).collect();
    if name == "api_key" && owner == Owner::Server {
        return Error::new(
            PgSqlErrorCode::ERRCODE_FDW_INVALID_OPTION_NAME,
            "option \"api_key\" is not allowed on a server",
            "Every role can read a server's options. Put the key in a user mapping: CREATE USER MAPPING FOR ... SERVER ... OPTIONS (api_key '...').",
        );
    }
    let hint = if valid.is_empty() {
        "There are no valid options here.".to_owned()
    } else {
        format!("Valid options here are: {}.", valid.join(", "))
    };
    Error::new(
        PgSqlErrorCode::ERRCODE_FDW_INVALID_OPTION_NAME,
        format!("invalid option \"{}\"", super::excerpt(name)),
        hint,
    )
}

fn check(spec: &OptionSpec, value: &str) -> Result<()> {
    let name = spec.name;
    let bad = |hint: String| {
        // What may hold a secret, by mistake too, is not repeated.
        let message = match spec.kind {
            Kind::Url | Kind::Secret | Kind::Environment | Kind::File => {
                format!("invalid value for option \"{name}\"")
            }
            _ => format!("invalid value for option \"{name}\": \"{}\"", super::excerpt(value)),
        };
        Err(Error::bad_argument(message, hint))
    };
    match spec.kind {
        Kind::Api => match Api::parse(value) {
            Some(_) => Ok(()),
            None => bad("Valid values are: local, openai.".into()),
        },
        Kind::Url => match check_url(value) {
            Ok(()) => Ok(()),
            Err(why) => bad(why.into()),
        },
        Kind::Secret => {
            if value.trim().is_empty() || value.chars().any(char::is_control) {
                return bad("A key is not empty and has no control characters.".into());
            }
            Ok(())
        }
        Kind::Environment => {
            let fits = !value.is_empty()
                && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !value.starts_with(|c: char| c.is_ascii_digit());
            if fits {
                Ok(())
            } else {
                bad("Give the name of an environment variable, for example OPENAI_API_KEY.".into())
            }
        }
        Kind::File => {
            if std::path::Path::new(value).is_absolute() {
                Ok(())
            } else {
                bad("Give the absolute path of a file that the server process can read.".into())
            }
        }
        Kind::Seconds => match value.parse::<f64>() {
            Ok(s) if (0.05..=3600.0).contains(&s) => Ok(()),
            _ => bad("Give seconds between 0.05 and 3600.".into()),
        },
        Kind::Count { min, max } => match value.parse::<u64>() {
            Ok(n) if (min..=max).contains(&n) => Ok(()),
            _ => bad(format!("Give a whole number between {min} and {max}.")),
        },
        Kind::Bool => match parse_bool(value) {
            Some(_) => Ok(()),
            None => bad("Valid values are: true, false.".into()),
        },
    }
}

/// What is wrong with a base URL, if anything.
fn check_url(value: &str) -> std::result::Result<(), &'static str> {
    const FORM: &str = "Write it as http://host[:port]/path or https://host[:port]/path.";
    let url = url::Url::parse(value).map_err(|_| FORM)?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(FORM);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "Leave user names and passwords out of the URL; every role can read it. Keys belong in a user mapping.",
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(
            "Leave out everything from \"?\" or \"#\" on; every role can read the URL, and keys belong in a user mapping.",
        );
    }
    Ok(())
}

/// A boolean as PostgreSQL writes and reads it.
pub fn parse_bool(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Some(true),
        "false" | "off" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// Splits `name=value` as PostgreSQL stores options.
pub fn split(stored: impl IntoIterator<Item = String>) -> BTreeMap<String, String> {
    stored.into_iter().filter_map(|o| o.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()))).collect()
}

/// The protocol of a server whose options were checked when it was made.
pub fn api(options: &BTreeMap<String, String>) -> Option<Api> {
    options.get("api").and_then(|a| Api::parse(a))
}
