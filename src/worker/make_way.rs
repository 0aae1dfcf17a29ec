//! Before CREATE DATABASE ... TEMPLATE, DROP, RENAME and SET TABLESPACE: the worker of that database leaves.

use crate::ingest::statements::queue;
use crate::pg::{interrupt, role};
use std::time::{Duration, Instant};

/// PostgreSQL itself waits five seconds for others to leave.
const PATIENCE: Duration = Duration::from_secs(3);

/// Ends the worker of a database and waits until it is gone. It is started again a second later, and then waits at the
/// door until the command is over.
pub fn end_worker(database: &str) {
    let begin = Instant::now();
    while queue::end_workers(database, role::current()) > 0 && begin.elapsed() < PATIENCE {
        interrupt::sleep(Duration::from_millis(20));
    }
}
