//! How long to wait before trying again.

use std::time::Duration;

/// The longest wait that a provider's `Retry-After` can ask for.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// The longest wait that [`backoff`] gives.
pub const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The longest wait before a retry while a person waits for the reply: a provider that wants a longer one gets to say so
/// in the error.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// How long to wait before a request that may be sent again is, while somebody waits for its reply; `None` when it is not.
///
/// `attempt` counts the failures so far, this one included; `asked` is the wait the provider asked for; `left` is the time left
/// for everything; `seed` is the one of [`backoff`].
pub fn pause_before_retry(
    asked: Option<Duration>,
    attempt: u32,
    max_retries: u32,
    left: Option<Duration>,
    seed: u64,
) -> Option<Duration> {
    let pause = asked.unwrap_or_else(|| backoff(attempt, seed));
    let fits = pause <= LONGEST_PAUSE && left.is_none_or(|left| pause < left);
    (attempt <= max_retries && fits).then_some(pause)
}

/// Reads a `Retry-After` header (RFC 9110 §10.2.3): seconds, or an HTTP date in any of its three forms.
/// `now_unix` is the present, in seconds. Returns at most [`MAX_RETRY_AFTER`]; zero for a date gone by;
/// `None` when the header is neither.
///
/// ```
/// use ragent_core::provider::retry_after;
/// assert_eq!(retry_after("2", 0), Some(std::time::Duration::from_secs(2)));
/// ```
pub fn retry_after(header: &str, now_unix: i64) -> Option<Duration> {
    let header = header.trim();
    let wait = match seconds(header) {
        Some(wait) => wait,
        None => Duration::from_secs(http_date(header)?.saturating_sub(now_unix).max(0) as u64),
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// Whole seconds by the RFC; fractions are read too, since some gateways send them.
fn seconds(text: &str) -> Option<Duration> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let seconds: f64 = text.parse().ok()?;
    Some(Duration::from_secs_f64(seconds.min(MAX_RETRY_AFTER.as_secs_f64())))
}

/// Unix seconds of an HTTP date: `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT`, `Sun Nov  6 08:49:37 1994`.
fn http_date(text: &str) -> Option<i64> {
    let words: Vec<&str> = text.split([' ', ',', '-']).filter(|w| !w.is_empty()).collect();
    let (day, month, year, time) = match words.as_slice() {
        [_, day, month, year, time, "GMT" | "UTC"] => (day, month, year, time),
        [_, month, day, time, year] => (day, month, year, time),
        _ => return None,
    };
    let month = 1 + ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
        .iter()
        .position(|m| month.eq_ignore_ascii_case(m))? as i64;
    let day: i64 = number(day, 1..=31)?;
    let year = match (year.len(), number(year, 0..=9999)?) {
        // A two-digit year of RFC 850 dates is of the nearest century; dates before 1970 are of no use here.
        (2, y) if y < 70 => 2000 + y,
        (2, y) => 1900 + y,
        (4, y) => y,
        _ => return None,
    };
    let mut clock = time.split(':');
    let hour = number(clock.next()?, 0..=23)?;
    let minute = number(clock.next()?, 0..=59)?;
    let second = number(clock.next()?, 0..=60)?;
    if clock.next().is_some() {
        return None;
    }
    Some(days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

fn number(text: &str, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|n| range.contains(n))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
/// The year is taken to begin in March, so that the leap day is its last; eras are the calendar's 400-year cycle of 146 097 days.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The wait before attempt `attempt + 1`, where `attempt` counts failures from 1: 0.5 s doubled each time, of which a
/// half is fixed and a half is jitter drawn from `seed`, so that clients that failed together do not come back together.
/// At most [`MAX_BACKOFF`]. The same arguments give the same wait.
pub fn backoff(attempt: u32, seed: u64) -> Duration {
    const BASE_MS: u64 = 500;
    let cap = MAX_BACKOFF.as_millis() as u64;
    let full = BASE_MS.saturating_mul(1u64 << attempt.saturating_sub(1).min(20)).min(cap);
    let half = full / 2;
    Duration::from_millis(half + mix(seed ^ u64::from(attempt).rotate_left(32)) % (full - half + 1))
}

/// SplitMix64's finaliser: spreads neighbouring seeds over the whole range.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOV_6_1994: i64 = 784_111_777;

    #[test]
    fn seconds_are_read_and_capped() {
        assert_eq!(retry_after("0", 0), Some(Duration::ZERO));
        assert_eq!(retry_after(" 17 ", 0), Some(Duration::from_secs(17)));
        assert_eq!(retry_after("1.5", 0), Some(Duration::from_millis(1500)));
        assert_eq!(retry_after("99999999999999999999", 0), Some(MAX_RETRY_AFTER));
    }

    #[test]
    fn the_three_date_forms_name_the_same_moment() {
        for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(retry_after(date, NOV_6_1994 - 42), Some(Duration::from_secs(42)), "{date}");
            assert_eq!(retry_after(date, NOV_6_1994 + 42), Some(Duration::ZERO), "{date} is past");
            assert_eq!(retry_after(date, 0), Some(MAX_RETRY_AFTER), "{date} is far off");
        }
        assert_eq!(retry_after("Thu, 29 Feb 2024 00:00:00 GMT", 1_709_164_790), Some(Duration::from_secs(10)));
    }

    #[test]
    fn anything_else_is_none() {
        for text in [
            "",
            "-1",
            "soon",
            "1.2.3",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 99 Nov 1994 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(retry_after(text, 0), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_tried_again_waits_as_asked_and_never_longer_than_there_is_time() {
        let (soon, late) = (Some(Duration::from_secs(1)), Some(Duration::from_secs(21)));
        for (asked, attempt, left, pause) in [
            (soon, 1, None, soon),
            (soon, 2, late, soon),
            (soon, 3, None, None),
            (Some(LONGEST_PAUSE), 1, None, Some(LONGEST_PAUSE)),
            (late, 1, None, None),
            (soon, 1, soon, None),
            (None, 2, None, Some(backoff(2, 7))),
            (None, 2, Some(Duration::from_millis(1)), None),
        ] {
            assert_eq!(pause_before_retry(asked, attempt, 2, left, 7), pause, "{asked:?} {attempt} {left:?}");
        }
        assert_eq!(pause_before_retry(soon, 1, 0, None, 7), None, "max_retries is 0");
    }

    #[test]
    fn backoff_doubles_within_its_jitter_and_is_capped() {
        for seed in 0..500 {
            for attempt in 0..40u32 {
                let full = (500u64 << attempt.saturating_sub(1).min(20)).min(60_000);
                let wait = backoff(attempt, seed).as_millis() as u64;
                assert!((full / 2..=full).contains(&wait), "attempt {attempt}, seed {seed}: {wait} ms of {full} ms");
            }
        }
        assert_eq!(backoff(u32::MAX, 3), backoff(u32::MAX, 3));
        let waits: std::collections::HashSet<_> = (0..100).map(|seed| backoff(5, seed)).collect();
        assert!(waits.len() > 90, "jitter spreads: {} different waits of 100", waits.len());
    }
}
