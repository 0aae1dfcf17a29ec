//! What tells a cluster from others.

use pgrx::pg_sys;

/// Its system identifier, as `pg_control_system()` shows it.
pub fn identifier() -> i64 {
    // SAFETY: reads what is known since the server started.
    unsafe { pg_sys::GetSystemIdentifier() }.cast_signed()
}
