//! Background work, as a room offers it and a database's workers serve it.

use crate::error::Result;
use std::time::Duration;

/// Work of one room that is done in the background. What is due is written in tables, so that several workers share it and
/// nothing is lost with a process; a duty remembers no more than what it started itself.
pub trait Duty {
    /// What it is called in the log.
    fn name(&self) -> &'static str;

    /// A worker begins: gives back what processes that are gone had claimed.
    fn begin(&mut self) -> Result<()>;

    /// Takes what finished since it was last asked. Whether anything did.
    fn finish(&mut self) -> bool;

    /// Starts what is due and there is room for, without waiting for anything slow. Whether anything was.
    ///
    /// # Errors
    /// Those of SQL: its tables cannot be read.
    fn start(&mut self) -> Result<bool>;

    /// How long nothing will be due by itself; `None`: until a commit wakes the worker.
    fn wait(&self) -> Option<Duration>;

    /// The worker ends in good order: gives back what it claimed.
    fn end(&mut self);
}
