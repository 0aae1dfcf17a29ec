//! What went wrong, and what a person can do about it.

use std::fmt;
use std::io;
use std::path::Path;

/// An error as it is printed: `error: ...`, and a line with a hint.
#[derive(Debug)]
pub struct Failure {
    message: String,
    hint: String,
}

impl Failure {
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { message: message.into(), hint: hint.into() }
    }

    /// A file or folder with which something could not be done.
    pub fn of_file(action: &str, path: &Path, error: &io::Error) -> Failure {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "Run this as whoever may write there (root, usually), or name another folder with --dir."
            }
            io::ErrorKind::StorageFull => "Make room there, or name another folder with --dir.",
            _ => "Look at the folder, or name another one with --dir.",
        };
        Failure::new(format!("could not {action} {}: {error}", path.display()), hint)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\nhint: {}", self.message, self.hint)
    }
}
