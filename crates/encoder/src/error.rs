//! What can go wrong with a model folder or a text.

use std::io;
use std::path::PathBuf;

use crate::Task;

/// Why a model could not be opened, prepared or used. Messages are lower case and name the file and the values.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncoderError {
    /// A file of the model folder is missing or could not be read, mapped or written.
    #[error("could not {action} {}: {source}", path.display())]
    File {
        /// What was being done: `read`, `map`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A JSON file is not JSON, or a field has the wrong type or is missing.
    #[error("{} is not valid: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What the parser says, with line and column.
        source: serde_json::Error,
    },
    /// A file is well formed but describes something this encoder does not compute, or contradicts itself.
    #[error("{}: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What was found and what would be accepted.
        reason: String,
    },
    /// The model is of another kind than was asked for.
    #[error("{} {}", path.display(), match task {
        Task::Embed(_) => "is a sentence encoder: it embeds texts and does not score pairs of them",
        Task::Rerank => "is a cross-encoder: it scores pairs of texts and does not embed",
    })]
    OtherTask {
        /// The model folder.
        path: PathBuf,
        /// What the model is for.
        task: Task,
    },
    /// The weights file is not a safetensors file, is cut short, or its header contradicts its length.
    #[error("{} is not a usable safetensors file: {reason}", path.display())]
    Weights {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor that the configuration calls for is not in the weights file.
    #[error("{} has no tensor \"{name}\"", path.display())]
    MissingTensor {
        /// The weights file.
        path: PathBuf,
        /// The tensor's name.
        name: String,
    },
    /// A tensor does not have the shape that the configuration calls for.
    #[error("tensor \"{name}\" in {} has shape {found:?}, expected {expected:?}", path.display())]
    TensorShape {
        /// The weights file.
        path: PathBuf,
        /// The tensor's name.
        name: String,
        /// The shape that `config.json` calls for.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// A tensor is not of 32-bit or 16-bit floating-point numbers.
    #[error("tensor \"{name}\" in {} has type {found}, expected F32, F16 or BF16", path.display())]
    TensorType {
        /// The weights file.
        path: PathBuf,
        /// The tensor's name.
        name: String,
        /// The type in the file, as safetensors names it.
        found: String,
    },
    /// The tokenizer file cannot be used, or does not fit the model.
    #[error("{} is not a usable tokenizer: {reason}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The tokenizer refused a text.
    #[error("could not tokenize a text of {bytes} bytes: {reason}")]
    Tokenize {
        /// The length of the text.
        bytes: usize,
        /// What the tokenizer says.
        reason: String,
    },
    /// The model gave a vector or score with NaN or infinite numbers, or a vector of length zero: its weights are damaged.
    #[error("{} gave numbers that are not finite: its weights are damaged", path.display())]
    NotFinite {
        /// The model folder.
        path: PathBuf,
    },
    /// The caller's `between` asked to stop.
    #[error("interrupted before all texts were embedded")]
    Interrupted,
}
