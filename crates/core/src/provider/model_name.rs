//! The full name of a model.

use std::fmt;

use crate::text::shorten;

/// A model's full name: `server/model`. The model's own name may contain slashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelName {
    /// The foreign server.
    pub server: String,
    /// What the provider calls the model.
    pub model: String,
}

/// A text that is no [`ModelName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid model name \"{}\"", shorten(.0, 80))]
pub struct InvalidModelName(pub String);

impl ModelName {
    /// Splits at the first slash; white space around either part is dropped.
    ///
    /// # Errors
    /// [`InvalidModelName`] when there is no slash or nothing on one side of it.
    ///
    /// ```
    /// use ragent_core::provider::ModelName;
    /// assert_eq!(ModelName::parse("ollama/library/qwen3")?.model, "library/qwen3");
    /// # Ok::<(), ragent_core::provider::InvalidModelName>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, InvalidModelName> {
        match text.split_once('/').map(|(server, model)| (server.trim(), model.trim())) {
            Some((server, model)) if !server.is_empty() && !model.is_empty() => {
                Ok(Self { server: server.to_owned(), model: model.to_owned() })
            }
            _ => Err(InvalidModelName(text.to_owned())),
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.server, self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_server_a_slash_and_a_model() {
        for (text, server, model) in
            [("a/b", "a", "b"), (" a / b ", "a", "b"), ("a/b/c", "a", "b/c"), ("ä/b c", "ä", "b c")]
        {
            let name = ModelName::parse(text).unwrap();
            assert_eq!((name.server.as_str(), name.model.as_str()), (server, model));
            assert_eq!(ModelName::parse(&name.to_string()), Ok(name));
        }
        for text in ["", "a", "/", "a/", "/b", " / ", "a/ "] {
            assert_eq!(ModelName::parse(text).unwrap_err().to_string(), format!("invalid model name \"{text}\""));
        }
    }
}
