//! pg_ragent: agentic retrieval-augmented generation inside PostgreSQL.
//!
//! This is the front door: the magic block, what happens when the library is loaded, the order of the SQL files, and
//! the entry points of background processes. ARCHITECTURE.md describes the house.

mod agent;
mod collection;
mod duty;
mod error;
mod guc;
mod ingest;
#[allow(unsafe_code)]
mod pg;
mod provider;
mod registry;
mod retrieval;
mod scope;
mod worker;

use pgrx::prelude::*;

pgrx::pg_module_magic!(name, version);

extension_sql_file!("../sql/provider.sql", name = "provider");
extension_sql_file!("../sql/scope.sql", name = "scope", requires = ["provider"]);
extension_sql_file!("../sql/registry.sql", name = "registry", requires = ["scope"]);
extension_sql_file!("../sql/ingest.sql", name = "ingest", requires = ["registry"]);
extension_sql_file!("../sql/collection.sql", name = "collection", requires = ["ingest"]);
extension_sql_file!("../sql/retrieval.sql", name = "retrieval", requires = ["collection"]);
extension_sql_file!("../sql/agent.sql", name = "agent", requires = ["retrieval"]);
extension_sql_file!("../sql/worker.sql", name = "worker", requires = ["agent"]);

/// Called by PostgreSQL when the library is loaded.
#[allow(unsafe_code)]
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    pg::backtrace::keep_out_of_errors();
    guc::register();
    if pg::worker::is_preloading() && !pg::worker::is_upgrading() {
        pg::worker::register_launcher();
        pg::database_ddl::install(worker::make_way::end_workers);
    }
}

/// Entry point of a database's worker.
#[allow(unsafe_code)]
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_ragent_worker_main(argument: pg_sys::Datum) {
    worker::main(pg::worker::database_argument(argument));
}

/// Entry point of the launcher.
#[allow(unsafe_code)]
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_ragent_launcher_main(_argument: pg_sys::Datum) {
    worker::launcher::main();
}

#[cfg(any(test, feature = "pg_test"))]
#[path = "../pgrx-tests/in_database/mod.rs"]
#[allow(missing_docs)]
mod tests;

/// What `cargo pgrx test` asks of its server.
#[cfg(test)]
pub mod pg_test {
    /// Nothing to set up.
    pub fn setup(_options: Vec<&str>) {}

    /// Settings of the test server.
    #[must_use]
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec![]
    }
}
