//! Asking the launcher for a worker: by a small file for each database, since what is shared between processes is laid out before
//! any database is known.

use super::{wake, worker};
use pgrx::pg_sys;
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

/// As the workers' own files: what is in it is of no use after a restart, and no base backup takes it along.
const FOLDER: &str = "pg_stat_tmp";
const PREFIX: &str = "pg_ragent.wanted.";

thread_local! {
    static AGAIN: Cell<bool> = const { Cell::new(true) };
}

/// Asks for a worker in this database. Does nothing where there is no launcher.
pub fn ask() {
    if !worker::has_launcher() {
        return;
    }
    // SAFETY: reads a static.
    let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
    // Without the file it is started by the next write.
    let _ = fs::write(Path::new(FOLDER).join(format!("{PREFIX}{database}")), "");
    wake::launcher();
}

/// Has this process, a worker, ask for a successor when it ends, however that is, unless [`end_for_good`] is called.
pub fn ask_at_end() {
    // SAFETY: once a process that has its place among the others; called while it still has it. The callback touches files, and
    // latches of others.
    unsafe { pg_sys::before_shmem_exit(Some(at_end), pg_sys::Datum::from(0usize)) };
}

/// This process ends and needs no successor.
pub fn end_for_good() {
    AGAIN.set(false);
}

/// # Safety
/// Called by PostgreSQL while the process exits, also by a signal, but not when it is killed.
unsafe extern "C-unwind" fn at_end(_code: i32, _argument: pg_sys::Datum) {
    if AGAIN.get() {
        ask();
    }
}

/// The databases (OIDs) that a worker was asked for since the last call.
pub fn take() -> Vec<u32> {
    let Ok(files) = fs::read_dir(FOLDER) else { return Vec::new() };
    let database = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok();
    let mut asked = Vec::new();
    for path in files.flatten().map(|file| file.path()) {
        if let Some(oid) = database(&path) {
            // Whoever asks from now on makes another file.
            if fs::remove_file(&path).is_ok() {
                asked.push(oid);
            }
        }
    }
    asked
}
