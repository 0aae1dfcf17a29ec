//! Options in DDL: from PostgreSQL's words to the core's, and the core's errors to SQLSTATEs.

use super::statements;
use crate::error::{Error, Result};
use crate::pg::role;
use pgrx::{PgSqlErrorCode, pg_sys};
use ragent_core::provider::{
    ForeignObject, OptionError, OptionFault, Options, WIRES, denied, superuser_only, unvouched,
};

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
    let is_mapping = object == ForeignObject::UserMapping;
    let vouched = |name: &str, value: &str| statements::is_vouched_somewhere(role, is_mapping, name, value);
    Ok(ragent_core::provider::validate(WIRES, options, object, role::is_superuser(), vouched)?)
}

/// After a statement that changed a server or a mapping: what a superuser did is vouched for; what anybody else did leaves no
/// option behind that only a superuser may set, unless one vouched for it on this very object.
///
/// # Errors
/// 42501 for such an option.
pub fn check_changed(is_mapping: bool, object: pg_sys::Oid) -> Result<()> {
    let Some(row) = statements::foreign_object(is_mapping, object) else { return Ok(()) };
    if !role::is_superuser()
        && let Some(name) = unvouched(WIRES, &row.options, &row.vouched)
    {
        return Err(denied(name).into());
    }
    // What is taken away is no longer vouched for, whoever takes it away.
    let present = superuser_only(WIRES, &row.options);
    if present != row.vouched {
        statements::vouch(object, &row, &present);
    }
    Ok(())
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
