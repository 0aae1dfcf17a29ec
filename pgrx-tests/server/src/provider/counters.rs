//! What the provider saw.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

/// Everything counted since the start or the last reset.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Connections that brought at least one request to the provider.
    pub connections: u64,
    /// Requests being answered now.
    pub in_flight: u64,
    /// The most requests ever being answered at once.
    pub max_in_flight: u64,
    /// Requests now held up by a fault that hangs or drips.
    pub stalled: u64,
    /// Requests ever held up by such a fault.
    pub stalls: u64,
    /// Requests whose client went away before the response was complete.
    pub aborted: u64,
    /// Requests by path.
    pub requests: BTreeMap<String, u64>,
    /// How many texts each embedding request had, in order.
    pub items: Vec<usize>,
    /// How often each text was embedded in a good response.
    pub texts: HashMap<String, u64>,
    /// [`fingerprint`] of the last `Authorization` header.
    pub last_authorization: Option<String>,
    /// [`fingerprint`] of the last `api-key` header.
    pub last_api_key: Option<String>,
    /// What followed the question mark of the last request.
    pub last_query: String,
}

impl Counters {
    /// Requests to `/v1/embeddings`.
    pub fn embedding_requests(&self) -> u64 {
        self.requests.get("/v1/embeddings").copied().unwrap_or(0)
    }

    /// Requests to `/v1/chat/completions`.
    pub fn chat_requests(&self) -> u64 {
        self.requests.get("/v1/chat/completions").copied().unwrap_or(0)
    }

    /// How many texts were embedded, repetitions included.
    pub fn texts_embedded(&self) -> u64 {
        self.texts.values().sum()
    }

    /// As JSON; the texts themselves only if asked for.
    pub fn to_json(&self, with_texts: bool) -> Value {
        let mut all = json!({
            "connections": self.connections, "in_flight": self.in_flight, "max_in_flight": self.max_in_flight,
            "stalled": self.stalled, "stalls": self.stalls, "aborted": self.aborted, "requests": self.requests, "items": self.items,
            "texts_embedded": self.texts_embedded(), "distinct_texts": self.texts.len(),
            "last_authorization": self.last_authorization,
        });
        if with_texts {
            all["texts"] = json!(self.texts);
        }
        all
    }
}

/// A short name for a secret, so that it can be compared without being kept: FNV-1a in hexadecimal.
pub fn fingerprint(secret: &str) -> String {
    format!("{:016x}", fnv1a(secret.as_bytes()))
}

/// FNV-1a, 64 bits (Fowler, Noll and Vo).
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
