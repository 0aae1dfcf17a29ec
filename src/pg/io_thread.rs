//! The one I/O thread of a process: a tokio runtime that does the network so that the backend can wait on its latch.
//!
//! The thread is started at first use, never in the postmaster, with every signal blocked, and never calls
//! PostgreSQL. It tells the backend of finished work by writing to an eventfd the backend waits on.

use pgrx::pg_sys;
use std::cell::RefCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::mpsc;

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A handle on the process's I/O thread.
#[derive(Clone)]
pub struct IoThread {
    jobs: mpsc::UnboundedSender<Job>,
    bell: Bell,
}

/// An eventfd: rung by the I/O thread, waited on by the backend.
#[derive(Clone)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    fn new() -> std::io::Result<Self> {
        // SAFETY: eventfd has no preconditions; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: fd is a fresh, open descriptor nobody else owns.
        Ok(Self(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// The descriptor to wait on.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes the descriptor readable. Callable from any thread.
    pub fn ring(&self) {
        let one: u64 = 1;
        // SAFETY: writes 8 bytes from a live u64 to an open eventfd; a full counter (EAGAIN) is readable anyway.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes the descriptor unreadable until the next ring.
    pub fn silence(&self) {
        let mut count: u64 = 0;
        // SAFETY: reads 8 bytes into a live u64 from an open non-blocking eventfd; EAGAIN means it was silent.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

thread_local! {
    // Never dropped: at process exit thread-local destructors would join or stop a runtime half-way through exit().
    static THREAD: ManuallyDrop<RefCell<Option<IoThread>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

impl IoThread {
    /// The process's I/O thread, started now if it does not run yet.
    pub fn get() -> std::io::Result<Self> {
        THREAD.with(|cell| {
            let mut thread = cell.borrow_mut();
            if let Some(thread) = thread.as_ref() {
                return Ok(thread.clone());
            }
            let started = start()?;
            *thread = Some(started.clone());
            Ok(started)
        })
    }

    /// The process's I/O thread, if it was started.
    pub fn running() -> Option<Self> {
        THREAD.with(|cell| cell.borrow().clone())
    }

    /// Runs `job` on the I/O thread. It must not call PostgreSQL.
    pub fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        // The receiver ends only with the process.
        let _ = self.jobs.send(Box::pin(job));
    }

    /// What the I/O thread rings when something is ready for the backend.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }
}

fn start() -> std::io::Result<IoThread> {
    // SAFETY: reads a bool PostgreSQL set before any library was loaded.
    let in_postmaster = unsafe { pg_sys::process_shared_preload_libraries_in_progress };
    assert!(!in_postmaster, "the I/O thread must not be started in the postmaster");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (jobs, mut incoming) = mpsc::unbounded_channel::<Job>();
    let bell = Bell::new()?;
    with_all_signals_blocked(|| {
        std::thread::Builder::new().name("pg_ragent io".into()).spawn(move || {
            runtime.block_on(async {
                while let Some(job) = incoming.recv().await {
                    tokio::spawn(job);
                }
            });
            // Only if every handle is gone. Never waits for blocking work such as a name look-up.
            runtime.shutdown_background();
        })
    })?;
    Ok(IoThread { jobs, bell })
}

/// Runs `f` with every signal blocked, so that threads it starts never take a signal meant for PostgreSQL.
fn with_all_signals_blocked<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: both sets are initialised by the calls that fill them; the mask is put back below. `f` does not
    // call PostgreSQL, so no longjmp can skip that.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        let mut before = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}
