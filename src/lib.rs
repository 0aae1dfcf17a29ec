//! pg_ragent.
pgrx::pg_module_magic!();
