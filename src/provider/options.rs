//! Options in DDL: from PostgreSQL's words to the core's, and the core's errors to SQLSTATEs.

use super::statements;
use crate::error::{Error, Result};
use crate::pg::role;
use pgrx::{PgSqlErrorCode, pg_sys};
use ragent_core::provider::{ForeignObject, OptionError, OptionFault, Options, WIRES};

/// Checks all options of an object, as the current role's statement would leave them. `catalog` is the catalog of the
/// object.
///
/// # Errors
/// HV00D for an unknown or misplaced option, HV00B for one that is missing, 22023 for a value out of its kind or range,
/// 42501 for one that needs a superuser.
pub fn validate(options: &Options, catalog: pg_sys::Oid) -> Result<()> {
    let object = match catalog {
        pg_sys::ForeignServerRelationId => ForeignObject::Server,
        pg_sys::UserMappingRelationId => ForeignObject::UserMapping,
        pg_sys::ForeignDataWrapperRelationId => ForeignObject::Wrapper,
        _ => ForeignObject::Table,
    };
    let role = role::current();
    let stored = |name: &str, value: &str| statements::has_option(role, name, value);
    Ok(ragent_core::provider::validate(WIRES, options, object, role::is_superuser(), stored)?)
}

impl From<OptionError> for Error {
    fn from(e: OptionError) -> Self {
        let code = match e.fault {
            OptionFault::Name => PgSqlErrorCode::ERRCODE_FDW_INVALID_OPTION_NAME,
            OptionFault::Missing => PgSqlErrorCode::ERRCODE_FDW_OPTION_NAME_NOT_FOUND,
            OptionFault::Value => PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            OptionFault::Denied => PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
        };
        Error::new(code, e.message, e.hint)
    }
}
