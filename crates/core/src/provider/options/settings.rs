//! What a server's options say.

use std::time::Duration;

use super::spec::{parse_count, parse_flag, parse_seconds};
use super::validate::check_value;
use super::*;
use crate::provider::Wire;

/// What a server's options say, with the defaults of those that are not set.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Option `base_url`; empty where the API takes none.
    pub base_url: String,
    /// For one whole exchange.
    pub timeout: Duration,
    /// For connecting; at most `timeout`.
    pub connect_timeout: Duration,
    /// How often a transient failure is tried again.
    pub max_retries: u32,
    /// Most texts in one embedding request.
    pub max_batch_items: usize,
    /// Most tokens in one embedding request.
    pub max_batch_tokens: usize,
    /// Most requests under way at a time from one process.
    pub max_in_flight: usize,
    /// Longest response that is read, in bytes.
    pub max_response_bytes: usize,
    options: Options,
}

impl Settings {
    /// Reads the stored options of a server.
    ///
    /// # Errors
    /// [`OptionError`] for a value that [`validate()`] would refuse.
    pub fn read(wire: &dyn Wire, options: Options) -> Result<Self, OptionError> {
        for spec in wire.options() {
            if let Some(value) = options.get(spec.name) {
                check_value(&[], spec, value)?;
            }
        }
        let timeout = seconds(&TIMEOUT, &options);
        let size = |spec| usize::try_from(count(spec, &options)).unwrap_or(usize::MAX);
        Ok(Self {
            base_url: options.get(BASE_URL.name).cloned().unwrap_or_default(),
            timeout,
            connect_timeout: seconds(&CONNECT_TIMEOUT, &options).min(timeout),
            max_retries: count(&MAX_RETRIES, &options) as u32,
            max_batch_items: size(&MAX_BATCH_ITEMS),
            max_batch_tokens: size(&MAX_BATCH_TOKENS),
            max_in_flight: size(&MAX_IN_FLIGHT),
            max_response_bytes: size(&MAX_RESPONSE_BYTES),
            options,
        })
    }

    /// A flag of an API's own.
    ///
    /// # Panics
    /// When `spec` is no flag.
    pub fn flag(&self, spec: &OptionSpec) -> bool {
        let OptionKind::Flag { default } = spec.kind else { panic!("option {} is no flag", spec.name) };
        self.options.get(spec.name).and_then(|v| parse_flag(v)).unwrap_or(default)
    }
}

impl Settings {
    /// A choice of an API's own.
    ///
    /// # Panics
    /// When `spec` is no choice.
    pub fn choice(&self, spec: &OptionSpec) -> &'static str {
        let OptionKind::Choice { values, default } = spec.kind else { panic!("option {} is no choice", spec.name) };
        let set = self.options.get(spec.name);
        values.iter().find(|value| set.is_some_and(|set| set == *value)).copied().unwrap_or(default)
    }

    /// A word of an API's own, if it is set.
    pub fn word(&self, spec: &OptionSpec) -> Option<&str> {
        self.options.get(spec.name).map(String::as_str)
    }
}

// `read` has checked the values: what does not parse here is not there.

fn seconds(spec: &OptionSpec, options: &Options) -> Duration {
    let OptionKind::Seconds { default } = spec.kind else { panic!("option {} is no time", spec.name) };
    Duration::from_secs_f64(options.get(spec.name).and_then(|v| parse_seconds(v)).unwrap_or(default))
}

fn count(spec: &OptionSpec, options: &Options) -> u64 {
    let OptionKind::Count { min, max, default } = spec.kind else { panic!("option {} is no number", spec.name) };
    options.get(spec.name).and_then(|v| parse_count(v, min, max)).unwrap_or(default)
}
