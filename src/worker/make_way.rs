//! Before CREATE DATABASE ... TEMPLATE, DROP, RENAME and SET TABLESPACE: the workers of that database leave.

use super::statements;
use crate::pg::{interrupt, role};
use std::time::{Duration, Instant};

/// PostgreSQL itself waits five seconds for others to leave.
const PATIENCE: Duration = Duration::from_secs(3);

/// Ends the workers of a database and waits until they are gone. They are started again a second later, and then wait at the
/// door until the command is over.
pub fn end_workers(database: &str) {
    let begin = Instant::now();
    while statements::end_workers(database, role::current()) > 0 && begin.elapsed() < PATIENCE {
        interrupt::sleep(Duration::from_millis(20));
    }
}
