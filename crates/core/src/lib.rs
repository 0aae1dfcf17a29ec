//! The decisions of pg_ragent: pure Rust, no I/O, no PostgreSQL.
