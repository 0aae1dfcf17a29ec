//! Tests that run in a backend: what can only be seen from inside. Everything a client can see is in `../server`.

mod catalog;
mod invalidation;
mod jsonb;
mod role;
mod spi;
mod vector;
