//! Waiting the way a backend must: on its latch, leaving at once when somebody wants it to.

use super::worker;
use pgrx::pg_sys;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::time::Duration;

/// Why [`wait`] came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The latch was set: by a signal, or by a backend that committed work.
    Latch,
    /// The watched file descriptor became readable.
    Readable,
    /// The time is over.
    Timeout,
}

/// `PG_WAIT_EXTENSION`: what pg_stat_activity shows while we wait ("Extension").
const WAIT_EVENT: u32 = 0x0700_0000;

/// Waits until the latch is set, `fd` (if any) is readable or `timeout` (if any) is over, and resets the latch.
///
/// Query cancel, `statement_timeout`, terminate and shutdown leave through a PostgreSQL error raised here; the end
/// of the postmaster ends the process.
pub fn wait(fd: Option<RawFd>, timeout: Option<Duration>) -> Woken {
    check();
    let woken = wait_latch(fd, timeout);
    check();
    woken
}

/// As [`wait`], for a process that ends by itself when it is asked to: that is not an error here.
pub fn rest(fd: Option<RawFd>, timeout: Option<Duration>) -> Woken {
    if worker::is_asked_to_end() {
        return Woken::Latch;
    }
    check();
    let woken = wait_latch(fd, timeout);
    if !worker::is_asked_to_end() {
        check();
    }
    woken
}

fn wait_latch(fd: Option<RawFd>, timeout: Option<Duration>) -> Woken {
    let mut events = pg_sys::WL_LATCH_SET | pg_sys::WL_EXIT_ON_PM_DEATH;
    // -1: no timeout. Rounded up, so that a wait for "0.4 ms" does not spin.
    let milliseconds = match timeout {
        Some(t) => {
            events |= pg_sys::WL_TIMEOUT;
            i64::try_from(t.as_micros().div_ceil(1000)).unwrap_or(i64::MAX).min(3_600_000)
        }
        None => -1,
    };
    let socket = match fd {
        Some(fd) => {
            events |= pg_sys::WL_SOCKET_READABLE;
            fd
        }
        None => -1,
    };
    // SAFETY: MyLatch is valid in every process that reaches this code (backends and background workers);
    // the descriptor is open for as long as its owner, which is borrowed by the caller.
    let woken = unsafe {
        let woken = pg_sys::WaitLatchOrSocket(pg_sys::MyLatch, events as i32, socket, milliseconds as _, WAIT_EVENT);
        pg_sys::ResetLatch(pg_sys::MyLatch);
        woken
    } as u32;
    if woken & pg_sys::WL_SOCKET_READABLE != 0 {
        Woken::Readable
    } else if woken & pg_sys::WL_LATCH_SET != 0 {
        Woken::Latch
    } else {
        Woken::Timeout
    }
}

/// `CHECK_FOR_INTERRUPTS()`: raises the pending cancel or terminate, if there is one.
pub fn check() {
    if is_watched() {
        note();
    }
    pgrx::check_for_interrupts!();
}

thread_local! {
    /// The phase of computing that this process is in, and its processor time at the last check.
    static PHASE: Cell<Option<(&'static str, Duration)>> = const { Cell::new(None) };
    /// The longest that each phase was without a check.
    static LONGEST: RefCell<HashMap<&'static str, Duration>> = RefCell::default();
}

/// Runs `f`, which computes in this process and calls [`check`] now and then. With `RAGENT_WATCH_INTERRUPTS` in the server's
/// environment, the log says how much processor time it takes between two calls, whenever that is more than before.
pub fn watched<R>(phase: &'static str, f: impl FnOnce() -> R) -> R {
    if !is_watched() {
        return f();
    }
    let _phase = Phase(PHASE.replace(Some((phase, processor_time()))));
    let result = f();
    note();
    result
}

/// Dropped, also by an error, the phase before goes on.
struct Phase(Option<(&'static str, Duration)>);

impl Drop for Phase {
    fn drop(&mut self) {
        PHASE.set(self.0.map(|(phase, _)| (phase, processor_time())));
    }
}

fn is_watched() -> bool {
    static WATCHED: OnceLock<bool> = OnceLock::new();
    *WATCHED.get_or_init(|| std::env::var_os("RAGENT_WATCH_INTERRUPTS").is_some())
}

fn note() {
    let Some((phase, last)) = PHASE.get() else { return };
    let now = processor_time();
    let gap = now.saturating_sub(last);
    let is_longest = LONGEST.with(|longest| {
        let mut longest = longest.borrow_mut();
        let known = longest.entry(phase).or_default();
        let is_longer = gap > *known;
        if is_longer {
            *known = gap;
        }
        is_longer
    });
    if is_longest {
        pgrx::log!("watched: {phase} took {} us between two checks for interrupts", gap.as_micros());
    }
    PHASE.set(Some((phase, processor_time())));
}

/// The processor time of this thread, which other processes do not lengthen.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Sleeps for `duration`, leaving early (by an error) when cancelled.
pub fn sleep(duration: Duration) {
    let end = std::time::Instant::now() + duration;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return;
        }
        wait(None, Some(left));
    }
}
