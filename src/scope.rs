//! The scope of what is recorded, for people who share one role: settings that `rag.scope_settings` names, and their values.
//!
//! What leaves a record (a run and its steps) keeps [`current`]`().to_json()` in a column `scope`; a policy shows it where
//! `rag_internal.in_scope(scope)`.

use crate::guc;
use crate::pg::role;
use pgrx::JsonB;
use pgrx::prelude::*;
use ragent_core::scope::Scope;

/// Members see the runs of everybody in a database.
const RUN_READER: &str = "rag_run_reader";

/// The scope at this moment.
pub fn current() -> Scope {
    Scope::of(&guc::scope_settings(), role::open_setting)
}

#[pg_extern(sql = false)]
fn current_scope() -> Option<JsonB> {
    current().to_json().map(JsonB)
}

#[pg_extern(sql = false)]
fn in_scope(scope: Option<JsonB>) -> bool {
    current().admits(scope.map(|JsonB(scope)| scope).as_ref())
}

#[pg_extern(sql = false)]
fn reads_all_runs() -> bool {
    role::has_privileges_of_name(RUN_READER)
}
