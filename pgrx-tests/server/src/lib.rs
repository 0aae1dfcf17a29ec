//! Tests of pg_ragent from outside the server, and what they stand on.
//!
//! - [`provider`]: an OpenAI-compatible provider made of nothing but a socket, with programmable latency, faults and
//!   counters. Also a binary, `fake-provider`, for people and benchmarks.
//! - [`cluster`]: a private PostgreSQL cluster that is gone when the test process is, however that ends.
//! - [`database`]: one database of a shared cluster with the extension and a provider of its own: what most tests use.
//! - [`session`]: a connection whose answers and errors are easy to check.
//!
//! The tests themselves are in `tests/behaviours`, one module a topic.

pub mod cluster;
pub mod database;
pub mod installation;
pub mod provider;
pub mod random;
pub mod session;
pub mod wait;
