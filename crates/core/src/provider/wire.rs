//! What pg_ragent has to know of a provider's API. One implementation a folder; all of them stand in [`super::WIRES`].

use serde_json::Value;

use super::{FailureKind, OptionSpec, ReplyError, Settings, classify, error_message};
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
    fn headers(&self, key: Option<&str>) -> Vec<(&'static str, String)>;

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
        (classify(status), error_message(body))
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
