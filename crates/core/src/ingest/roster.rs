//! In which databases the launcher starts a worker, and when.
//!
//! Whether a database has the extension shows only to a process that is connected to it: one is started in each database that is
//! new, and ends at once where the extension is not. Such a database is left alone until somebody asks for a worker there.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A worker that was asked for starts so much later: what its predecessor made way for begins first.
const AFTER_REQUEST: Duration = Duration::from_secs(1);
/// A worker that has not taken its place so long after it was started has ended.
const TO_BEGIN: Duration = Duration::from_secs(10);
/// So soon it is looked again whether it has.
const LOOK: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub struct Roster {
    /// By the OID of the database.
    databases: HashMap<u32, Known>,
}

/// What is known of a database.
#[derive(Debug, Clone, Copy)]
enum Known {
    /// It has, or may have, the extension: it needs a worker from then on.
    Needs(Instant),
    /// A worker was started.
    Started(Instant),
    /// A worker was seen in its place.
    Served,
    /// It has no extension, as a worker found.
    Without,
}

impl Roster {
    /// Notes which databases there are, and in which of them a worker was asked for.
    pub fn see(&mut self, databases: &[u32], requests: &[u32], now: Instant) {
        self.databases.retain(|oid, _| databases.contains(oid));
        for oid in databases {
            self.databases.entry(*oid).or_insert(Known::Needs(now));
        }
        for oid in requests {
            if let Some(known) = self.databases.get_mut(oid) {
                *known = Known::Needs(now + AFTER_REQUEST);
            }
        }
    }

    /// The databases to start a worker in now, in ascending order. `is_served` says whether one has its place in a database.
    pub fn due(&mut self, is_served: impl Fn(u32) -> bool, now: Instant) -> Vec<u32> {
        let mut due = Vec::new();
        for (oid, known) in &mut self.databases {
            *known = match *known {
                Known::Without => continue,
                Known::Needs(from) if from > now => continue,
                _ if is_served(*oid) => Known::Served,
                Known::Started(at) if now.saturating_duration_since(at) < TO_BEGIN => continue,
                Known::Started(_) => Known::Without,
                // Whoever ended it may be starting another.
                Known::Served => Known::Needs(now + AFTER_REQUEST),
                Known::Needs(_) => {
                    due.push(*oid);
                    Known::Needs(now)
                }
            };
        }
        due.sort_unstable();
        due
    }

    /// A worker was started.
    pub fn started(&mut self, database: u32, now: Instant) {
        self.databases.insert(database, Known::Started(now));
    }

    /// Something is done to the database that a worker would be in the way of: it is looked at again soon.
    pub fn postpone(&mut self, database: u32, now: Instant) {
        self.databases.insert(database, Known::Needs(now + AFTER_REQUEST));
    }

    /// How long there is nothing to do, if nobody asks; `None`: for ever.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let waits = self.databases.values().filter_map(|known| match known {
            Known::Needs(from) => Some(from.saturating_duration_since(now).max(LOOK)),
            Known::Started(_) => Some(LOOK),
            Known::Served | Known::Without => None,
        });
        waits.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_worker_is_started_once_in_each_new_database() {
        let now = Instant::now();
        let mut roster = Roster::default();
        roster.see(&[1, 2], &[], now);
        assert_eq!(roster.due(|_| false, now), [1, 2]);
        roster.started(1, now);
        roster.started(2, now);
        assert_eq!(roster.due(|_| false, now), [0; 0], "they are starting");
        // The one ends since the extension is not there, the other stays.
        assert_eq!(roster.due(|oid| oid == 2, now + TO_BEGIN), [0; 0]);
        assert_eq!(roster.wait(now + TO_BEGIN), None);
        assert_eq!(roster.due(|oid| oid == 2, now + s(3600)), [0; 0], "it is left alone");
        roster.see(&[1, 2, 3], &[], now + s(3600));
        assert_eq!(roster.due(|oid| oid == 2, now + s(3600)), [3]);
        // One whose worker is gone gets another.
        assert_eq!(roster.due(|_| false, now + s(3600)), [3], "not at once");
        assert_eq!(roster.due(|_| false, now + s(3601)), [2, 3]);
        roster.see(&[1, 2], &[], now + s(3601));
        assert_eq!(roster.due(|_| false, now + s(3601)), [2], "a database that is gone");
    }

    #[test]
    fn a_request_is_met_a_moment_later() {
        let now = Instant::now();
        let mut roster = Roster::default();
        roster.see(&[1], &[], now);
        roster.started(1, now);
        assert_eq!(roster.due(|_| false, now + TO_BEGIN), [0; 0]);
        let later = now + s(100);
        roster.see(&[1], &[1, 9], later);
        assert_eq!(roster.due(|_| false, later), [0; 0]);
        assert_eq!(roster.wait(later), Some(AFTER_REQUEST));
        assert_eq!(roster.due(|_| false, later + AFTER_REQUEST), [1]);
        // It is in somebody's way, or there is no room: it is due again.
        roster.postpone(1, later + AFTER_REQUEST);
        assert_eq!(roster.due(|_| false, later + AFTER_REQUEST), [0; 0]);
        assert_eq!(roster.due(|_| false, later + s(2)), [1]);
        assert_eq!(roster.due(|_| false, later + s(3)), [1]);
        assert_eq!(roster.due(|_| true, later + s(3)), [0; 0], "somebody else started it");
    }
}
