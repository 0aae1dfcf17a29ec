//! What pg_ragent has to know of a provider's API. One implementation a folder; all of them stand in [`super::WIRES`].

use serde_json::Value;

use super::{FailureKind, OptionSpec, ReplyError, Settings, classify_words, error_message};
use crate::model::{ChatReply, ChatRequest, Usage};

/// An API that providers speak: the value of a server's option `api`.
pub trait Wire: Sync {
    /// The value of option `api` that selects it: lower case, no two the same.
    fn name(&self) -> &'static str;

    /// Who speaks it, a noun phrase for hints and for `docs/providers.md`.
    fn description(&self) -> &'static str;

    /// The options of servers and user mappings it takes besides `api`, in the order in which people should read them.
    fn options(&self) -> &'static [OptionSpec];

    /// How its models are reached.
    fn transport(&self) -> Transport;
}

/// How models are reached.
#[derive(Clone, Copy)]
pub enum Transport {
    /// They run in the process that asks: no address, no key, nothing to retry.
    InProcess,
    /// By JSON over HTTP.
    Http(&'static dyn HttpWire),
}

/// Requests and replies of an API over HTTP. What an API does not offer stays `None`.
pub trait HttpWire: Sync {
    /// The headers of every request, made from the key where there is one. Their values are treated as secrets.
    fn headers(&self, settings: &Settings, key: Option<&str>) -> Vec<(&'static str, String)>;

    /// Chat models.
    fn chat(&self) -> Option<&dyn Chat> {
        None
    }

    /// Embedding models.
    fn embeddings(&self) -> Option<&dyn Embeddings> {
        None
    }

    /// Reranking models.
    fn rerank(&self) -> Option<&dyn Rerank> {
        None
    }

    /// What a reply means whose HTTP status is not a success, and the provider's own words about it in one line.
    fn failure(&self, status: u16, body: &[u8]) -> (FailureKind, String) {
        let words = error_message(body);
        // A code such as "context_length_exceeded" stands beside the words.
        let head = String::from_utf8_lossy(&body[..body.len().min(4096)]);
        (classify_words(status, &format!("{words} {head}")), words)
    }
}

/// A request body and where to POST it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Absolute URL.
    pub url: String,
    /// JSON.
    pub body: Vec<u8>,
}

/// Chat with tools.
pub trait Chat: Sync {
    /// The request for one turn of `model`.
    fn request(&self, settings: &Settings, model: &str, chat: &ChatRequest) -> Call;

    /// The turn in a successful reply.
    ///
    /// # Errors
    /// [`ReplyError`] for a body without a turn in it.
    fn reply(&self, body: &[u8]) -> Result<ChatReply, ReplyError>;

    /// Turns that come piece by piece.
    fn streaming(&self) -> Option<&dyn Streaming> {
        None
    }

    /// Turns whose text is JSON of a given schema.
    fn structured_output(&self) -> Option<&dyn StructuredOutput> {
        None
    }
}

/// A turn that comes piece by piece, as server-sent events.
pub trait Streaming: Sync {
    /// The request of [`Chat::request`] that asks for events.
    fn request(&self, settings: &Settings, model: &str, chat: &ChatRequest) -> Call;

    /// Adds what one event says to the reply so far. `data` is the event's `data` field.
    ///
    /// # Errors
    /// [`ReplyError`] for an event that cannot be read, or that reports an error.
    fn event(&self, data: &str, reply: &mut ChatReply) -> Result<(), ReplyError>;
}

/// A turn whose text is JSON of a given schema.
pub trait StructuredOutput: Sync {
    /// The request of [`Chat::request`] that binds the reply to a JSON schema.
    fn request(&self, settings: &Settings, model: &str, chat: &ChatRequest, schema: &Value) -> Call;
}

/// Texts to vectors.
pub trait Embeddings: Sync {
    /// The request for `texts`, in their order. `dimensions` is the length of vectors wanted, if it is known.
    fn request(&self, settings: &Settings, model: &str, texts: &[&str], dimensions: Option<usize>) -> Call;

    /// Vectors for `texts` texts, in their order, all of one length.
    ///
    /// # Errors
    /// [`ReplyError`] for a wrong number of vectors, a length other than `dimensions`, or a number that is not finite.
    fn reply(&self, body: &[u8], texts: usize, dimensions: Option<usize>) -> Result<Embedded, ReplyError>;
}

/// Texts as vectors.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    /// One for each text.
    pub vectors: Vec<Vec<f32>>,
    /// What it cost.
    pub usage: Usage,
}

/// How well texts answer a query.
pub trait Rerank: Sync {
    /// The request to score `texts`, in their order, against `query`.
    fn request(&self, settings: &Settings, model: &str, query: &str, texts: &[&str]) -> Call;

    /// One score for each of `texts` texts, in their order; higher is better.
    ///
    /// # Errors
    /// [`ReplyError`] for a wrong number of scores or a number that is not finite.
    fn reply(&self, body: &[u8], texts: usize) -> Result<Vec<f32>, ReplyError>;
}

/// The header most APIs take a key in.
pub fn bearer(key: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {key}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::ToolChoice;
    use crate::provider::options::*;
    use crate::provider::reply::parse_json;
    use crate::provider::{WIRES, join_url};

    /// An API that exists nowhere and offers everything but embeddings: what adding one takes.
    struct Sample;

    const REGION: OptionSpec =
        OptionSpec::of_server("region", OptionKind::Count { min: 1, max: 9, default: 1 }, "the data centre");

    impl Wire for Sample {
        fn name(&self) -> &'static str {
            "sample"
        }

        fn description(&self) -> &'static str {
            "nobody"
        }

        fn options(&self) -> &'static [OptionSpec] {
            &[BASE_URL, API_KEY, REGION]
        }

        fn transport(&self) -> Transport {
            Transport::Http(&Sample)
        }
    }

    impl HttpWire for Sample {
        fn headers(&self, _settings: &Settings, key: Option<&str>) -> Vec<(&'static str, String)> {
            let key = key.map(|key| ("x-api-key", key.to_owned()));
            key.into_iter().chain([("x-version", "1".to_owned())]).collect()
        }

        fn chat(&self) -> Option<&dyn Chat> {
            Some(self)
        }

        fn rerank(&self) -> Option<&dyn Rerank> {
            Some(self)
        }
    }

    fn call(settings: &Settings, path: &str, body: Value) -> Call {
        Call { url: join_url(&settings.base_url, path), body: body.to_string().into_bytes() }
    }

    impl Chat for Sample {
        fn request(&self, settings: &Settings, model: &str, _chat: &ChatRequest) -> Call {
            call(settings, "/chat", json!({ "model": model }))
        }

        fn reply(&self, body: &[u8]) -> Result<ChatReply, ReplyError> {
            Ok(ChatReply { content: Some(parse_json(body)?), ..ChatReply::default() })
        }

        fn streaming(&self) -> Option<&dyn Streaming> {
            Some(self)
        }

        fn structured_output(&self) -> Option<&dyn StructuredOutput> {
            Some(self)
        }
    }

    impl Streaming for Sample {
        fn request(&self, settings: &Settings, model: &str, _chat: &ChatRequest) -> Call {
            call(settings, "/chat", json!({ "model": model, "stream": true }))
        }

        fn event(&self, data: &str, reply: &mut ChatReply) -> Result<(), ReplyError> {
            let piece: String = parse_json(data.as_bytes())?;
            reply.content.get_or_insert_default().push_str(&piece);
            Ok(())
        }
    }

    impl StructuredOutput for Sample {
        fn request(&self, settings: &Settings, model: &str, _chat: &ChatRequest, schema: &Value) -> Call {
            call(settings, "/chat", json!({ "model": model, "schema": schema }))
        }
    }

    impl Rerank for Sample {
        fn request(&self, settings: &Settings, model: &str, query: &str, texts: &[&str]) -> Call {
            call(settings, "/rerank", json!({ "model": model, "query": query, "texts": texts }))
        }

        fn reply(&self, body: &[u8], texts: usize) -> Result<Vec<f32>, ReplyError> {
            let scores: Vec<f32> = parse_json(body)?;
            match scores.len() {
                n if n == texts => Ok(scores),
                got => Err(ReplyError::Shape(format!("{got} scores for {texts} texts"))),
            }
        }
    }

    const WITH_SAMPLE: &[&dyn Wire] = &[&crate::provider::local::Local, &crate::provider::openai::OpenAi, &Sample];

    fn options(pairs: &[(&str, &str)]) -> Options {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn the_options_and_hints_of_an_added_api_follow_from_its_declaration() {
        let check =
            |pairs: &[(&str, &str)]| validate(WITH_SAMPLE, &options(pairs), ForeignObject::Server, true, |_, _| false);
        assert_eq!(check(&[("api", "sample"), ("base_url", "http://h"), ("region", "3")]), Ok(()));
        let error = check(&[("api", "sample"), ("base_url", "http://h"), ("timeout", "3")]).unwrap_err();
        assert_eq!(error.message, "option \"timeout\" does not apply to api 'sample'");
        assert_eq!(error.hint, "Options with api 'sample' are: base_url, region.");
        let error = check(&[("api", "openai"), ("base_url", "http://h"), ("region", "3")]).unwrap_err();
        assert_eq!(error.message, "option \"region\" does not apply to api 'openai'");
        assert_eq!(check(&[("api", "x")]).unwrap_err().hint, "Valid values are: local, openai, sample.");
        assert_eq!(
            check(&[("api", "sample")]).unwrap_err().message,
            "option \"base_url\" is required with api 'sample'"
        );
        let unknown = check(&[("regoin", "3")]).unwrap_err().hint;
        assert!(unknown.starts_with("Valid options here are: api, base_url, ") && unknown.ends_with(", region."));
    }

    #[test]
    fn what_an_api_offers_is_reached_through_its_transport() {
        let wire = selected_wire(WITH_SAMPLE, &options(&[("api", "sample")])).unwrap();
        let Transport::Http(http) = wire.transport() else { panic!("it has an address") };
        let settings = Settings::read(wire, options(&[("base_url", "http://h/")])).unwrap();
        let chat =
            ChatRequest { messages: vec![], tools: vec![], tool_choice: ToolChoice::None, max_output_tokens: None };
        assert_eq!(http.headers(&settings, Some("k")), [("x-api-key", "k".to_owned()), ("x-version", "1".to_owned())]);
        assert!(http.embeddings().is_none());

        let offered = http.chat().unwrap();
        assert_eq!(offered.request(&settings, "m", &chat).url, "http://h/chat");
        assert_eq!(offered.reply(b"\"hello\"").unwrap().content.as_deref(), Some("hello"));

        let streaming = offered.streaming().unwrap();
        assert!(String::from_utf8(streaming.request(&settings, "m", &chat).body).unwrap().contains("\"stream\":true"));
        let mut reply = ChatReply::default();
        for event in ["\"hel\"", "\"lo\""] {
            streaming.event(event, &mut reply).unwrap();
        }
        assert_eq!(reply.content.as_deref(), Some("hello"));
        assert!(streaming.event("nonsense", &mut reply).is_err());

        let structured = offered.structured_output().unwrap();
        let body = structured.request(&settings, "m", &chat, &json!({ "type": "array" })).body;
        assert!(String::from_utf8(body).unwrap().contains("\"schema\":{\"type\":\"array\"}"));

        let rerank = http.rerank().unwrap();
        assert_eq!(rerank.request(&settings, "m", "q", &["a", "b"]).url, "http://h/rerank");
        assert_eq!(rerank.reply(b"[0.5, 0.25]", 2), Ok(vec![0.5, 0.25]));
        assert_eq!(
            rerank.reply(b"[0.5]", 2).unwrap_err().to_string(),
            "reply has an unexpected shape: 1 scores for 2 texts"
        );
    }

    #[test]
    fn names_are_unique_and_an_option_of_several_apis_is_one_and_the_same() {
        let mut names: Vec<&str> = WIRES.iter().map(|wire| wire.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WIRES.len());
        let specs: Vec<&OptionSpec> = WIRES.iter().flat_map(|wire| wire.options()).collect();
        for (i, spec) in specs.iter().enumerate() {
            assert!(specs[i + 1..].iter().all(|other| other.name != spec.name || other == spec), "{}", spec.name);
        }
    }

    #[test]
    fn models_in_the_process_have_no_address_and_no_options() {
        for wire in WIRES {
            let takes_url = wire.options().iter().any(|spec| spec.kind == OptionKind::Url);
            match wire.transport() {
                Transport::InProcess => assert!(wire.options().is_empty(), "{}", wire.name()),
                Transport::Http(_) => assert!(takes_url, "{}", wire.name()),
            }
        }
    }
}
