//! Models that run in the process that asks: sentence encoders from files, and the extractive answerer.

use super::{OptionSpec, Transport, Wire};

/// `api 'local'`. The process that asks opens the encoders; [`crate::extractive`] answers.
pub struct Local;

/// The only chat model.
pub const EXTRACTIVE: &str = "extractive";

impl Wire for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn description(&self) -> &'static str {
        "the database server itself"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn transport(&self) -> Transport {
        Transport::InProcess
    }
}

/// Whether a model's name can be that of a folder directly below the models' directory.
pub fn is_folder_name(model: &str) -> bool {
    !model.is_empty()
        && !model.starts_with('.')
        && model.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_name_leads_to_no_other_folder() {
        for (name, fits) in [
            ("all-MiniLM-L6-v2", true),
            ("a_b.c", true),
            ("", false),
            (".", false),
            ("..", false),
            (".hidden", false),
            ("../../etc", false),
            ("a/b", false),
            ("ä", false),
        ] {
            assert_eq!(is_folder_name(name), fits, "{name:?}");
        }
    }
}
