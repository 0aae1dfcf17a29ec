//! What pg_ragent does, seen from outside: one module a topic, one test a behaviour.
//!
//! `cargo test -p ragent-server-tests wait::` runs one topic. The extension must be installed in the PostgreSQL that
//! `PG_CONFIG` (or the path) names.

mod ask;
mod capture;
mod cluster;
mod collections;
mod docs;
mod embed;
mod fake_provider;
mod faults;
mod registry;
mod regress;
mod regressions;
mod search;
mod secrets;
mod security;
mod signatures;
mod wait;
mod worker;
