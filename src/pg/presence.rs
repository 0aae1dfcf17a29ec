//! What a worker is at work on, written where its death leaves it: for whoever comes next, who must not die of the same.
//!
//! Each worker has a file in the data directory. It is empty while the worker waits, names rows while the worker processes
//! them, and is removed when the worker ends in good order, also by a signal. A table would not do: a crash takes with it what
//! was committed a moment ago, unless each job waits for the disk. The file is in the system's hands at once, and need not
//! outlive the machine.

use pgrx::pg_sys;
use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// For files that no restart reads as PostgreSQL's own, and that no base backup takes along. Relative to the data directory,
/// which is every process's working directory.
const FOLDER: &str = "pg_stat_tmp";

thread_local! {
    static FILE: ManuallyDrop<RefCell<Option<File>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// What a worker that is gone was at work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The collection.
    pub collection: i32,
    /// Queue entries.
    pub entries: Vec<i64>,
    /// It ended itself, because these took too long; else it died.
    pub was_held: bool,
}

/// While it lives, this process is known to be at work on something.
pub struct Busy(());

/// Says that this process, a worker, is there.
pub fn begin() {
    match File::create(own_path()) {
        Ok(file) => FILE.with(|f| *f.borrow_mut() = Some(file)),
        // Nothing depends on it but the narrowing down after a crash.
        Err(e) => pgrx::warning!("pg_ragent worker: could not write {}: {e}", own_path().display()),
    }
    // SAFETY: once a process; the callback touches only files and statics.
    unsafe { pg_sys::on_proc_exit(Some(end), pg_sys::Datum::from(0usize)) };
}

/// Says what this process is at work on, until the result is dropped.
pub fn busy(collection: i32, entries: &[i64]) -> Busy {
    let mut text = format!("busy {collection}");
    for entry in entries {
        text.push_str(&format!(" {entry}"));
    }
    text.push('\n');
    write(&text);
    Busy(())
}

impl Drop for Busy {
    fn drop(&mut self) {
        write("");
    }
}

fn write(text: &str) {
    FILE.with(|file| {
        if let Some(file) = file.borrow().as_ref() {
            // A file that cannot be written says nothing, which is what it says while the worker waits.
            let _ = file.set_len(0).and_then(|()| file.write_all_at(text.as_bytes(), 0));
        }
    });
}

/// # Safety
/// Called by PostgreSQL while the process exits, also by a signal, but not when it is killed.
unsafe extern "C-unwind" fn end(_code: i32, _argument: pg_sys::Datum) {
    let path = own_path();
    if super::xact::was_overtime()
        && let Ok(text) = fs::read_to_string(&path)
        && text.starts_with("busy")
    {
        let kept = OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(b"held"));
        if kept.is_ok() {
            return;
        }
    }
    let _ = fs::remove_file(path);
}

/// What the workers of this database that are gone were at work on, each of which is told once. `running` are those that
/// are there.
pub fn left_behind(running: &[i32]) -> Vec<Trace> {
    let Ok(files) = fs::read_dir(FOLDER) else { return Vec::new() };
    let own = super::worker::own_pid();
    let mut traces = Vec::new();
    for file in files.flatten() {
        let name = file.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.strip_prefix(&prefix())).and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        // A file of this process's number that is there before it has written its own is a predecessor's.
        if pid == own || !running.contains(&pid) {
            let text = take(&file.path()).unwrap_or_default();
            traces.extend(parse(&text));
        }
    }
    traces
}

/// Reads a file and removes it; whoever removes it is the one that has it.
fn take(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    fs::remove_file(path)?;
    Ok(text)
}

fn parse(text: &str) -> Option<Trace> {
    // What is not written to its end is not to be trusted.
    let mut words = text.strip_suffix('\n')?.split(' ');
    let was_held = match words.next()? {
        "busy" => false,
        "held" => true,
        _ => return None,
    };
    let collection = words.next()?.parse().ok()?;
    let entries = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(Trace { collection, entries, was_held })
}

fn prefix() -> String {
    // SAFETY: reads a static.
    let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
    format!("pg_ragent.{database}.")
}

fn own_path() -> PathBuf {
    Path::new(FOLDER).join(format!("{}{}", prefix(), super::worker::own_pid()))
}
