//! What a test can tell the provider to do.

use serde::Deserialize;
use serde_json::Value;

/// A control message: what is absent stays as it is; faults and replies are appended to their queues.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// Milliseconds before the head of every response.
    pub latency_ms: Option<u64>,
    /// What goes wrong, in order.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// Replies of the chat endpoint, used once each, before the model's own policy.
    #[serde(default)]
    pub replies: Vec<ScriptedReply>,
}

/// Something that goes wrong with the next requests.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Fault {
    /// Which requests it strikes.
    #[serde(default)]
    pub endpoint: Endpoint,
    /// How it goes wrong.
    #[serde(flatten)]
    pub kind: FaultKind,
    /// For how many requests.
    #[serde(default = "once")]
    pub times: u64,
}

fn once() -> u64 {
    1
}

/// The part of the provider a request is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// Both.
    #[default]
    Any,
    /// `POST /v1/embeddings`.
    Embeddings,
    /// `POST /v1/chat/completions`.
    Chat,
}

impl Endpoint {
    /// Whether a fault for `self` strikes a request to `other`.
    pub fn covers(self, other: Endpoint) -> bool {
        self == Endpoint::Any || self == other
    }
}

/// How a request goes wrong.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FaultKind {
    /// 429, with a `Retry-After` header if given (seconds or an HTTP date).
    #[serde(rename = "status_429")]
    Status429 {
        /// The header's value.
        retry_after: Option<String>,
    },
    /// 500 with an error body.
    #[serde(rename = "status_500")]
    Status500,
    /// 401 with an error body that repeats the API key, as some providers do.
    #[serde(rename = "status_401")]
    Status401,
    /// An answer that repeats the API key: in `body`, `KEY` stands for it as it came, `KEY_JSON` for it as it looks inside
    /// of JSON, `KEY_URL` in a URL, `KEY_UPPER` in upper case.
    EchoKey {
        /// The status.
        status: u16,
        /// The body.
        body: String,
    },
    /// 404: no such model.
    #[serde(rename = "status_404")]
    Status404,
    /// The request is read and nothing is answered until released.
    HangBeforeHeaders,
    /// The head and half the body are sent, the rest when released.
    HangMidBody,
    /// The head and half the body are sent and the connection is closed.
    CutBody,
    /// The body is sent a byte at a time until released.
    SlowDrip {
        /// Milliseconds between two bytes.
        #[serde(default = "drip_interval")]
        interval_ms: u64,
    },
    /// 200 and a web page, as a captive portal or a wrong URL gives.
    Html,
    /// Vectors one element longer than asked for.
    WrongDimension,
    /// The last vector is one element shorter than the others (or than asked for, if it is alone).
    MixedDimension,
    /// One vector fewer than texts.
    WrongCount,
    /// A vector with a bare `NaN`, which is not JSON but what some servers send.
    Nan,
    /// A vector with `null` in it, what others send for NaN.
    NullElement,
    /// A body of 20 MiB.
    #[serde(rename = "body_20mb")]
    Body20Mb {
        /// Whether the head declares the length; otherwise it comes in chunks with no length known before.
        #[serde(default)]
        declared: bool,
    },
    /// 302 to a path that counts whoever follows.
    Redirect,
    /// 200 and nothing.
    EmptyBody,
    /// The connection is closed without a byte.
    CloseBeforeHeaders,
    /// 404 when this model is asked for.
    UnknownModel {
        /// The model that is gone.
        model: String,
    },
    /// 400 when an input text contains this.
    RejectTextContaining {
        /// What is refused.
        text: String,
    },
    /// This status and body.
    Answer {
        /// 200 for an error in a success body.
        status: u16,
        /// The body, word for word.
        body: String,
    },
    /// 400 when more texts than this come together, in the words of a provider that takes no more.
    TooManyTexts {
        /// Most texts of a request.
        limit: usize,
    },
    /// Embeddings without their index.
    WithoutIndex,
}

fn drip_interval() -> u64 {
    50
}

/// A reply of the chat endpoint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedReply {
    /// The text of the message.
    pub content: Option<String>,
    /// The tools it calls.
    #[serde(default)]
    pub tool_calls: Vec<ScriptedCall>,
    /// The whole message, instead of the two above; "TOOL" in it stands for the first offered tool's name.
    pub message: Option<Value>,
    /// Why it ends, if not as the message tells.
    pub finish_reason: Option<String>,
}

/// A tool call of a scripted reply.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// The tool's name; the first offered tool's if absent.
    pub name: Option<String>,
    /// The arguments as raw text, so that they can be broken.
    pub arguments: String,
}
