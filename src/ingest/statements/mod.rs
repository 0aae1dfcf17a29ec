//! All SQL text of the room: capture, queue and claims, failures, chunk tables, restores.

pub mod capture;
pub mod chunks;
pub mod claim;
pub mod comparison;
pub mod copies;
pub mod death;
pub mod failure;
pub mod pause;
pub mod queue;
pub mod restore;
pub mod trigger;
pub mod waiting;
