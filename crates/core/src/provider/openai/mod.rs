//! The wire format of OpenAI-compatible servers: embeddings and chat completions with tools.
//!
//! Writing is strict, to the published shape. Reading is liberal where servers differ without harm (content as parts,
//! arguments as an object, no ids, no usage) and strict where a guess would store wrong data: every embedding is
//! checked for its place, its length and every number in it.

mod chat;
mod embeddings;

use serde_json::value::RawValue;

use super::json::{Fields, First};
use super::options::*;
use super::reply::parse_json;
use super::{Chat, Embeddings, HttpWire, ReplyError, Settings, Transport, Wire, bearer, join_url};

/// `api 'openai'`.
pub struct OpenAi;

/// Whether the wanted length of embeddings is sent along: many servers refuse the field.
const SEND_DIMENSIONS: OptionSpec = OptionSpec::of_server(
    "send_dimensions",
    OptionKind::Flag { default: false },
    "whether the wanted length of embeddings is sent along",
);

/// How the key is sent.
const AUTH_HEADER: OptionSpec = OptionSpec::of_server(
    "auth_header",
    OptionKind::Choice { values: &["authorization", "api-key", "x-api-key"], default: "authorization" },
    "header that carries the key: `authorization` (as `Bearer KEY`), `api-key` (Azure) or `x-api-key`",
);

/// What Azure's address of a deployment ends with.
const API_VERSION: OptionSpec = OptionSpec::of_server(
    "api_version",
    OptionKind::Word,
    "value of the parameter `api-version` that is added to every address (Azure)",
);

/// The address of an endpoint.
fn url(settings: &Settings, path: &str) -> String {
    let url = join_url(&settings.base_url, path);
    match settings.word(&API_VERSION) {
        Some(version) => format!("{url}?api-version={version}"),
        None => url,
    }
}

/// The reply, also where it stands alone in a list.
fn one(text: &str) -> Result<Fields<'_>, ReplyError> {
    if text.trim_start().starts_with('[') {
        let list: First<&RawValue, 1> = parse_json(text.as_bytes())?;
        if let Some(fields) = list.items.first().and_then(|item| Fields::of(item)) {
            return Ok(fields);
        }
    }
    parse_json(text.as_bytes())
}

impl Wire for OpenAi {
    fn name(&self) -> &'static str {
        "openai"
    }

    fn description(&self) -> &'static str {
        "any OpenAI-compatible server"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[
            BASE_URL,
            API_KEY,
            API_KEY_ENV,
            API_KEY_FILE,
            TIMEOUT,
            CONNECT_TIMEOUT,
            MAX_RETRIES,
            MAX_BATCH_ITEMS,
            MAX_BATCH_TOKENS,
            MAX_IN_FLIGHT,
            MAX_RESPONSE_BYTES,
            SEND_DIMENSIONS,
            AUTH_HEADER,
            API_VERSION,
        ]
    }

    fn transport(&self) -> Transport {
        Transport::Http(&OpenAi)
    }
}

impl HttpWire for OpenAi {
    fn headers(&self, settings: &Settings, key: Option<&str>) -> Vec<(&'static str, String)> {
        let header = |key: &str| match settings.choice(&AUTH_HEADER) {
            "authorization" => bearer(key),
            other => (other, key.to_owned()),
        };
        key.map(header).into_iter().collect()
    }

    fn chat(&self) -> Option<&dyn Chat> {
        Some(self)
    }

    fn embeddings(&self) -> Option<&dyn Embeddings> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::FailureKind;

    /// The settings of a server with these options besides `api` and `base_url`.
    pub fn settings(options: &[(&str, &str)]) -> Settings {
        let all = [("api", "openai"), ("base_url", "http://h/v1/")].iter().chain(options);
        Settings::read(&OpenAi, all.map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()).unwrap()
    }

    #[test]
    fn a_key_is_sent_as_a_bearer_token_and_none_sends_no_header() {
        let plain = settings(&[]);
        assert_eq!(OpenAi.headers(&plain, Some("sk-x")), [("authorization", "Bearer sk-x".to_owned())]);
        assert!(OpenAi.headers(&plain, None).is_empty());
    }

    #[test]
    fn azure_takes_its_key_in_a_header_and_a_version_in_the_address() {
        let azure = settings(&[("auth_header", "api-key"), ("api_version", "2024-10-21")]);
        assert_eq!(OpenAi.headers(&azure, Some("k")), [("api-key", "k".to_owned())]);
        assert_eq!(url(&azure, "/embeddings"), "http://h/v1/embeddings?api-version=2024-10-21");
        assert_eq!(url(&settings(&[]), "/embeddings"), "http://h/v1/embeddings");
    }

    #[test]
    fn a_failed_reply_gives_its_kind_and_the_servers_words() {
        for (status, body, kind, words) in [
            (401, r#"{"error":{"message":"bad key"}}"#, FailureKind::Auth, "bad key"),
            (429, r#"{"error":"slow down"}"#, FailureKind::RateLimited, "slow down"),
            (502, "<title>Bad Gateway</title>", FailureKind::Unavailable, "Bad Gateway"),
        ] {
            assert_eq!(OpenAi.failure(status, body.as_bytes()), (kind, words.to_owned()));
        }
    }

    #[test]
    fn it_offers_chat_and_embeddings_and_no_more() {
        assert!(OpenAi.embeddings().is_some() && OpenAi.rerank().is_none());
        let chat = OpenAi.chat().unwrap();
        assert!(chat.streaming().is_none() && chat.structured_output().is_none());
    }
}
