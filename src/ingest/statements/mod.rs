//! All SQL text of the room: capture, queue, chunk tables.

pub mod capture;
pub mod chunks;
pub mod queue;
