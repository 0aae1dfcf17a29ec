//! The wire format of OpenAI-compatible servers: embeddings and chat completions with tools.
//!
//! Writing is strict, to the published shape. Reading is liberal where servers differ without harm (content as parts,
//! arguments as an object, no ids, no usage) and strict where a guess would store wrong data: every embedding is
//! checked for its place, its length and every number in it.

mod chat;
mod embeddings;

use super::options::*;
use super::{Chat, Embeddings, HttpWire, Transport, Wire, bearer};

/// `api 'openai'`.
pub struct OpenAi;

/// Whether the wanted length of embeddings is sent along: many servers refuse the field.
const SEND_DIMENSIONS: OptionSpec = OptionSpec::of_server(
    "send_dimensions",
    OptionKind::Flag { default: false },
    "whether the wanted length of embeddings is sent along",
);

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
        ]
    }

    fn transport(&self) -> Transport {
        Transport::Http(&OpenAi)
    }
}

impl HttpWire for OpenAi {
    fn headers(&self, key: Option<&str>) -> Vec<(&'static str, String)> {
        key.map(bearer).into_iter().collect()
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
    use crate::provider::{FailureKind, Settings};

    /// The settings of a server with these options besides `api` and `base_url`.
    pub fn settings(options: &[(&str, &str)]) -> Settings {
        let all = [("api", "openai"), ("base_url", "http://h/v1/")].iter().chain(options);
        Settings::read(&OpenAi, all.map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()).unwrap()
    }

    #[test]
    fn a_key_is_sent_as_a_bearer_token_and_none_sends_no_header() {
        assert_eq!(OpenAi.headers(Some("sk-x")), [("authorization", "Bearer sk-x".to_owned())]);
        assert!(OpenAi.headers(None).is_empty());
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
