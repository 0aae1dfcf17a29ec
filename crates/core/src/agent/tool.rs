//! The search tools a model is offered, one per collection.

use serde::{Deserialize, Serialize};

/// A collection that the asking role can read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchTool {
    /// Its name, as [`super::SearchCall`] will say it.
    pub collection: String,
    /// What it holds, for the model to decide; may be empty.
    pub description: String,
}
