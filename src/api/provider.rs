//! `rag.provider_validator`.

use crate::pg::role;
use crate::provider::options::{self, Owner};
use crate::store::catalog;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(sql = false)]
fn provider_validator(options: Vec<String>, catalog: pg_sys::Oid) -> Result<(), ErrorReport> {
    let owner = if catalog == pg_sys::ForeignServerRelationId {
        Owner::Server
    } else if catalog == pg_sys::UserMappingRelationId {
        Owner::UserMapping
    } else if catalog == pg_sys::ForeignDataWrapperRelationId {
        Owner::Wrapper
    } else {
        Owner::ForeignTable
    };
    let role = role::current();
    let stored = |name: &str, value: &str| catalog::has_option(role, name, value);
    Ok(options::validate(&options::split(options), owner, role::is_superuser(), stored)?)
}
