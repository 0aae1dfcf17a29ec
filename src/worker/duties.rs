//! What a database's workers do.

use crate::collection::duty::Grants;
use crate::duty::Duty;
use crate::ingest::duty::Ingest;

/// Every duty there is.
pub fn all() -> Vec<Box<dyn Duty>> {
    vec![Box::new(Ingest::default()), Box::new(Grants::default())]
}
