//! Makes way for commands that need a database to be unused: its worker leaves before they look.
//!
//! Only where the library is preloaded: elsewhere the session that runs the command has not loaded it.

use pgrx::pg_sys;
use pgrx::prelude::*;
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

static PREVIOUS: OnceLock<pg_sys::ProcessUtility_hook_type> = OnceLock::new();
static MAKE_WAY: OnceLock<fn(&str)> = OnceLock::new();

/// Installs the hook: `make_way` is called with the name of a database before a command that needs it unused. Called while
/// the library is being preloaded.
pub fn install(make_way: fn(&str)) {
    let _ = MAKE_WAY.set(make_way);
    // SAFETY: hooks are set while the postmaster loads libraries, before it forks anybody.
    unsafe {
        let _ = PREVIOUS.set(pg_sys::ProcessUtility_hook);
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

#[pg_guard]
#[allow(clippy::too_many_arguments)]
unsafe extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    destination: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the arguments are PostgreSQL's own and handed on as they came. The statement tree lives for the call.
    unsafe {
        if let Some(database) = database_to_free((*statement).utilityStmt)
            && let Some(make_way) = MAKE_WAY.get()
        {
            make_way(&database);
            // There may be a new one, and the others may have their workers back.
            super::wake::launcher_at_commit();
        }
        match PREVIOUS.get().copied().flatten() {
            Some(previous) => {
                previous(statement, text, read_only_tree, context, params, environment, destination, completion)
            }
            None => pg_sys::standard_ProcessUtility(
                statement,
                text,
                read_only_tree,
                context,
                params,
                environment,
                destination,
                completion,
            ),
        }
    }
}

/// The database a statement needs to be unused, if it is such a statement.
///
/// # Safety
/// `node` is NULL or a statement's parse tree.
unsafe fn database_to_free(node: *mut pg_sys::Node) -> Option<String> {
    // SAFETY: by the caller's promise; each cast follows the node's own tag.
    unsafe {
        match node.as_ref()?.type_ {
            pg_sys::NodeTag::T_DropdbStmt => name((*node.cast::<pg_sys::DropdbStmt>()).dbname),
            pg_sys::NodeTag::T_CreatedbStmt => {
                let options = pgrx::PgList::<pg_sys::DefElem>::from_pg((*node.cast::<pg_sys::CreatedbStmt>()).options);
                let template = options
                    .iter_ptr()
                    .find(|o| name((**o).defname).as_deref() == Some("template"))
                    .filter(|o| !(**o).arg.is_null());
                match template {
                    Some(option) => name(pg_sys::defGetString(option)),
                    None => Some("template1".to_owned()),
                }
            }
            pg_sys::NodeTag::T_RenameStmt => {
                let rename = node.cast::<pg_sys::RenameStmt>();
                if (*rename).renameType != pg_sys::ObjectType::OBJECT_DATABASE {
                    return None;
                }
                name((*rename).subname)
            }
            pg_sys::NodeTag::T_AlterDatabaseStmt => {
                let alter = node.cast::<pg_sys::AlterDatabaseStmt>();
                let options = pgrx::PgList::<pg_sys::DefElem>::from_pg((*alter).options);
                let moves = options.iter_ptr().any(|o| name((*o).defname).as_deref() == Some("tablespace"));
                if moves { name((*alter).dbname) } else { None }
            }
            _ => None,
        }
    }
}

/// # Safety
/// `text` is NULL or NUL-terminated.
unsafe fn name(text: *const c_char) -> Option<String> {
    // SAFETY: by the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
