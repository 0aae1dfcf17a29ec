//! When something that comes in bursts is to be followed: once it is quiet, and at last though it never is.

use std::time::{Duration, Instant};

/// So long nothing came: the burst is over.
const QUIET: Duration = Duration::from_secs(1);
/// After so long it is followed although more comes.
const LONGEST: Duration = Duration::from_secs(10);

/// What came and was not followed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Burst {
    began: Option<Instant>,
    last: Option<Instant>,
}

impl Burst {
    /// One that begins now, or begins again.
    #[must_use]
    pub fn beginning(now: Instant) -> Self {
        Self { began: Some(now), last: Some(now) }
    }

    /// Something came.
    pub fn sign(&mut self, now: Instant) {
        self.began.get_or_insert(now);
        self.last = Some(now);
    }

    /// How long until it is to be followed; `None`: nothing came.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let due = (self.last? + QUIET).min(self.began? + LONGEST);
        Some(due.saturating_duration_since(now))
    }

    /// Whether it is to be followed now.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.wait(now).is_some_and(|wait| wait.is_zero())
    }

    /// It is followed.
    pub fn end(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(begin: Instant, milliseconds: u64) -> Instant {
        begin + Duration::from_millis(milliseconds)
    }

    #[test]
    fn it_is_followed_after_a_second_of_quiet() {
        let begin = Instant::now();
        let mut burst = Burst::default();
        assert_eq!(burst.wait(begin), None);
        burst.sign(begin);
        burst.sign(after(begin, 600));
        assert!(!burst.is_due(after(begin, 1500)));
        assert_eq!(burst.wait(after(begin, 1500)), Some(Duration::from_millis(100)));
        assert!(burst.is_due(after(begin, 1600)));
        burst.end();
        assert_eq!(burst.wait(after(begin, 5000)), None);
    }

    #[test]
    fn one_without_an_end_is_followed_all_the_same() {
        let begin = Instant::now();
        let mut burst = Burst::beginning(begin);
        for tenth in 1..100 {
            burst.sign(after(begin, tenth * 100));
            assert!(!burst.is_due(after(begin, tenth * 100)), "{tenth}");
        }
        burst.sign(after(begin, 9999));
        assert!(burst.is_due(after(begin, 10_000)));
        // What came while it could not be followed begins anew.
        burst = Burst::beginning(after(begin, 10_000));
        assert!(!burst.is_due(after(begin, 10_500)));
    }
}
