//! Where the extension touches PostgreSQL's metal. All `unsafe` of the shell stands in this folder; what it
//! exports is safe to call from a backend's main thread.

pub mod backtrace;
pub mod call;
pub mod catalog;
pub mod cluster;
pub mod database_ddl;
pub mod ddl_command;
pub mod http;
pub mod interrupt;
pub mod invalidation;
pub mod io_thread;
pub mod jsonb;
pub mod launcher_call;
pub mod lock;
pub mod presence;
pub mod quiet_ddl;
pub mod role;
pub mod setting;
pub mod spi;
pub mod trigger;
pub mod uniform;
pub mod vector;
pub mod wake;
pub mod worker;
pub mod xact;
