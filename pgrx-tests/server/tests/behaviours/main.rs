//! What pg_ragent does, seen from outside: one module a room, one test a behaviour; and some that
//! concern all rooms.
//!
//! `cargo test -p ragent-server-tests retrieval::` runs one module. The extension must be installed in the PostgreSQL that
//! `PG_CONFIG` (or the path) names.

mod agent;
mod bounds;
mod cluster;
mod collection;
mod compare;
mod copies;
mod docs;
mod dumps;
mod fake_provider;
mod hunt;
mod ingest;
mod interrupts;
mod local_models;
mod monitor;
mod provider;
mod registry;
mod regress;
mod regressions;
mod replies;
mod retrieval;
mod scope;
mod secrets;
mod security;
mod signatures;
mod text;
mod trust;
mod visibility;
mod waiting;
mod worker;
