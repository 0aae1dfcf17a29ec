//! Keeps Rust backtraces out of what clients see.

/// Settles, once for this library, that no backtrace is captured.
///
/// pgrx appends a captured backtrace to the DETAIL of every error when `RUST_BACKTRACE` is set in the server's
/// environment. The standard library decides at the first capture and remembers, so the decision is forced here
/// and the environment left as it was for everybody else.
pub fn keep_out_of_errors() {
    const NAME: &str = "RUST_LIB_BACKTRACE";
    let before = std::env::var_os(NAME);
    // SAFETY: called from _PG_init, when this library has started no thread; PostgreSQL processes are
    // single-threaded, so nobody reads the environment meanwhile.
    unsafe { std::env::set_var(NAME, "0") };
    let _ = std::backtrace::Backtrace::capture();
    match before {
        // SAFETY: as above.
        Some(value) => unsafe { std::env::set_var(NAME, value) },
        // SAFETY: as above.
        None => unsafe { std::env::remove_var(NAME) },
    }
}
