//! Following what happens to registered tables.

pub mod burst;
