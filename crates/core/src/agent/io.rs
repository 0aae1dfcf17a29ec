//! What goes into the agent and what comes out of it.

use serde::{Deserialize, Serialize};

use super::Answer;
use crate::model::{ChatReply, ChatRequest};

/// What the driver hands in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Begins the run, or (after a crash, on an agent read back) asks again for the effect that is still open.
    Start,
    /// The reply to [`Effect::CallModel`].
    Model(ChatReply),
    /// The results of [`Effect::Search`]: one for each call, in the same order.
    Searched(Vec<SearchResult>),
}

/// What the driver has to do next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Ask the chat model; answer with [`Input::Model`].
    CallModel(ChatRequest),
    /// Run these searches, together if possible; answer with [`Input::Searched`].
    Search(Vec<SearchCall>),
    /// The run is over. Any further input gives the same answer again.
    Done(Answer),
}

/// One search to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchCall {
    /// A collection of [`super::SearchTool`]; never a name that the model made up.
    pub collection: String,
    /// What to search for: trimmed, not empty.
    pub query: String,
    /// How many hits are wanted, 1 to [`super::Limits::max_k`].
    pub k: u32,
}

/// What one search found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// Best first; empty when nothing was found.
    pub hits: Vec<Hit>,
}

/// One chunk found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    /// Its collection.
    pub collection: String,
    /// Key of its source row, an object of key columns.
    pub key: serde_json::Value,
    /// Its number within the row, from 1.
    pub chunk: i32,
    /// Its text.
    pub content: String,
    /// Title of the row, if the collection has one.
    pub title: Option<String>,
    /// Link of the row, if the collection has one.
    pub link: Option<String>,
    /// Similarity, higher is better.
    pub score: f64,
}
