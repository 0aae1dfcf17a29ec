//! What options there are: those that APIs over HTTP share. An API's own stand in its folder.

use super::ForeignObject;

/// The values an option takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptionKind {
    /// The name of a [`Wire`](crate::provider::Wire).
    Api,
    /// An `http` or `https` address without user, query or fragment.
    Url,
    /// Not empty, no control characters; never repeated in a message.
    Secret,
    /// The name of an environment variable of the server process.
    EnvironmentVariable,
    /// The absolute path of a file on the server.
    File,
    /// Seconds, with fractions, from [`MIN_SECONDS`] to [`MAX_SECONDS`].
    Seconds {
        /// Where the option is not set.
        default: f64,
    },
    /// A whole number.
    Count {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
        /// Where the option is not set.
        default: u64,
    },
    /// One of a few words.
    Choice {
        /// The words.
        values: &'static [&'static str],
        /// Where the option is not set.
        default: &'static str,
    },
    /// Letters, digits, `.`, `_` and `-`; at most 64.
    Word,
    /// A boolean as PostgreSQL writes it.
    Flag {
        /// Where the option is not set.
        default: bool,
    },
}

/// The shortest time an option takes, in seconds.
pub const MIN_SECONDS: f64 = 0.05;
/// The longest time an option takes, in seconds.
pub const MAX_SECONDS: f64 = 3600.0;

/// One option of servers or user mappings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptionSpec {
    /// Its name in `OPTIONS (...)`.
    pub name: &'static str,
    /// The kinds of object that it may be set on.
    pub objects: &'static [ForeignObject],
    /// The values it takes, and its default.
    pub kind: OptionKind,
    /// Whether every server must have it.
    pub required: bool,
    /// Whether only a superuser may set it: it decides where the server process connects to, or which of its secrets
    /// it reads.
    pub superuser_only: bool,
    /// What it is, a noun phrase in Markdown.
    pub description: &'static str,
}

const SERVER: &[ForeignObject] = &[ForeignObject::Server];
const USER_MAPPING: &[ForeignObject] = &[ForeignObject::UserMapping];
const BOTH: &[ForeignObject] = &[ForeignObject::Server, ForeignObject::UserMapping];

impl OptionSpec {
    /// An option of servers that any owner may set and that has a default.
    pub const fn of_server(name: &'static str, kind: OptionKind, description: &'static str) -> Self {
        Self { name, objects: SERVER, kind, required: false, superuser_only: false, description }
    }

    const fn count(name: &'static str, min: u64, max: u64, default: u64, description: &'static str) -> Self {
        Self::of_server(name, OptionKind::Count { min, max, default }, description)
    }

    /// The values it takes, as a phrase: `0.05 to 3600`. `None` where its description says it.
    pub fn range(&self) -> Option<String> {
        match self.kind {
            OptionKind::Seconds { .. } => Some(format!("{MIN_SECONDS} to {MAX_SECONDS}")),
            OptionKind::Count { min, max, .. } => Some(format!("{min} to {max}")),
            _ => None,
        }
    }

    /// What holds where it is not set.
    pub fn default(&self) -> Option<String> {
        match self.kind {
            OptionKind::Seconds { default } => Some(default.to_string()),
            OptionKind::Count { default, .. } => Some(default.to_string()),
            OptionKind::Flag { default } => Some(default.to_string()),
            OptionKind::Choice { default, .. } => Some(default.to_owned()),
            _ => None,
        }
    }
}

/// Selects the [`Wire`](crate::provider::Wire): the one option that every server has.
pub const API: OptionSpec =
    OptionSpec { required: true, ..OptionSpec::of_server("api", OptionKind::Api, "the API that the server speaks") };

/// The address of a provider.
pub const BASE_URL: OptionSpec = OptionSpec {
    required: true,
    superuser_only: true,
    ..OptionSpec::of_server(
        "base_url",
        OptionKind::Url,
        "address up to and including the version, for example `https://api.openai.com/v1`",
    )
};

/// A key, given to one role or to PUBLIC.
pub const API_KEY: OptionSpec = OptionSpec {
    name: "api_key",
    objects: USER_MAPPING,
    kind: OptionKind::Secret,
    required: false,
    superuser_only: false,
    description: "the role's key",
};

/// A key in the environment.
pub const API_KEY_ENV: OptionSpec = OptionSpec {
    name: "api_key_env",
    objects: BOTH,
    kind: OptionKind::EnvironmentVariable,
    required: false,
    superuser_only: true,
    description: "name of an environment variable of the server process that holds the key",
};

/// A key in a file.
pub const API_KEY_FILE: OptionSpec = OptionSpec {
    name: "api_key_file",
    kind: OptionKind::File,
    description: "absolute path of a file on the server, the key on its first line",
    ..API_KEY_ENV
};

/// For one whole exchange, from connecting to the last byte.
pub const TIMEOUT: OptionSpec =
    OptionSpec::of_server("timeout", OptionKind::Seconds { default: 60.0 }, "seconds for one whole request");

/// For connecting, TLS included.
pub const CONNECT_TIMEOUT: OptionSpec =
    OptionSpec::of_server("connect_timeout", OptionKind::Seconds { default: 10.0 }, "seconds for connecting");

/// Retries of a transient failure.
pub const MAX_RETRIES: OptionSpec =
    OptionSpec::count("max_retries", 0, 10, 2, "how often a request that may succeed later is repeated");

/// Most texts in one embedding request.
pub const MAX_BATCH_ITEMS: OptionSpec =
    OptionSpec::count("max_batch_items", 1, 2048, 64, "texts in one embedding request");

/// Most tokens in one embedding request.
pub const MAX_BATCH_TOKENS: OptionSpec =
    OptionSpec::count("max_batch_tokens", 100, 10_000_000, 100_000, "tokens in one embedding request");

/// Most requests under way at a time from one process.
pub const MAX_IN_FLIGHT: OptionSpec =
    OptionSpec::count("max_in_flight", 1, 64, 4, "requests under way at a time, from one process");

/// Longest response that is read.
pub const MAX_RESPONSE_BYTES: OptionSpec =
    OptionSpec::count("max_response_bytes", 1024, 1 << 30, 16 << 20, "bytes of the longest response that is read");

pub(super) fn parse_seconds(value: &str) -> Option<f64> {
    value.parse().ok().filter(|s| (MIN_SECONDS..=MAX_SECONDS).contains(s))
}

pub(super) fn parse_count(value: &str, min: u64, max: u64) -> Option<u64> {
    value.parse().ok().filter(|n| (min..=max).contains(n))
}

pub(super) fn is_word(value: &str) -> bool {
    (1..=64).contains(&value.len()) && value.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

pub(super) fn parse_flag(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Some(true),
        "false" | "off" | "no" | "0" => Some(false),
        _ => None,
    }
}
