//! What a failure means for the rows it met: the error policy of ingest.

use crate::provider::FailureKind;

/// A row whose own content cannot be embedded is given up after so many attempts.
pub const MAX_ATTEMPTS: u32 = 4;
/// So many useless replies of a server in a row are the server's fault rather than a row's.
pub const MAX_GARBAGE: u32 = 3;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The provider gave no vectors.
    Provider(FailureKind),
    /// The values of a row: a cast that fails, a constraint, a text no model takes.
    Data,
    /// A key that the key columns' types cannot read (any more): a table's that was dropped, an enum label that was renamed.
    Key,
    /// The state of the database, or what somebody has to set right: a lock, a missing table, a model that is gone.
    State,
}

/// A job that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// What went wrong.
    pub fault: Fault,
    /// Rows of the job.
    pub rows: usize,
    /// Earlier attempts that failed, of a job of one row.
    pub attempts: u32,
    /// Useless replies of its server in a row, before this one.
    pub garbage: u32,
}

/// What becomes of a job's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// One of the rows may be to blame: each gets a job of its own, at once.
    Split,
    /// The row is tried again later, and its server is left alone for a while if `pause`.
    Postpone {
        /// See above.
        pause: bool,
    },
    /// The row is parked among the failures.
    GiveUp {
        /// As for `Postpone`.
        pause: bool,
    },
    /// The rows are tried again when their server's pause is over.
    Pause,
    /// The collection waits, and its status says why.
    Block,
}

/// Judges a failed job.
pub fn judge(failed: &Failed) -> Verdict {
    let garbage = match failed.fault {
        Fault::State | Fault::Provider(FailureKind::Auth | FailureKind::NotFound) => return Verdict::Block,
        Fault::Provider(FailureKind::RateLimited | FailureKind::Unavailable) => return Verdict::Pause,
        Fault::Provider(FailureKind::Protocol) => true,
        Fault::Provider(FailureKind::BadRequest | FailureKind::TooLarge) | Fault::Data | Fault::Key => false,
    };
    if failed.rows > 1 {
        return Verdict::Split;
    }
    if failed.fault == Fault::Key {
        // It will not be read the next time either.
        return Verdict::GiveUp { pause: false };
    }
    let pause = garbage && failed.garbage >= MAX_GARBAGE;
    if failed.attempts + 1 >= MAX_ATTEMPTS { Verdict::GiveUp { pause } } else { Verdict::Postpone { pause } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_verdict() {
        use FailureKind::*;
        let (postpone, give_up) = (Verdict::Postpone { pause: false }, Verdict::GiveUp { pause: false });
        for (fault, rows, attempts, garbage, verdict) in [
            // A wrong key or model, a lock: nothing a row can do about it, however often it was tried.
            (Fault::Provider(Auth), 1, 9, 9, Verdict::Block),
            (Fault::Provider(NotFound), 7, 0, 0, Verdict::Block),
            (Fault::State, 1, 9, 0, Verdict::Block),
            // An outage is nobody's fault and gives nobody up.
            (Fault::Provider(RateLimited), 7, 0, 0, Verdict::Pause),
            (Fault::Provider(Unavailable), 1, 9, 0, Verdict::Pause),
            // Several rows: find the one.
            (Fault::Provider(BadRequest), 2, 0, 0, Verdict::Split),
            (Fault::Provider(TooLarge), 7, 9, 0, Verdict::Split),
            (Fault::Provider(Protocol), 7, 0, 9, Verdict::Split),
            (Fault::Data, 2, 9, 9, Verdict::Split),
            // One row: it has four attempts.
            (Fault::Provider(BadRequest), 1, 0, 9, postpone),
            (Fault::Provider(TooLarge), 1, 2, 0, postpone),
            (Fault::Provider(BadRequest), 1, 3, 0, give_up),
            (Fault::Data, 1, 2, 0, postpone),
            (Fault::Data, 1, 3, 0, give_up),
            // A key has one.
            (Fault::Key, 1, 0, 0, give_up),
            (Fault::Key, 2, 0, 0, Verdict::Split),
            // Useless replies: a row's fault three times, then the server's too.
            (Fault::Provider(Protocol), 1, 0, 2, postpone),
            (Fault::Provider(Protocol), 1, 0, 3, Verdict::Postpone { pause: true }),
            (Fault::Provider(Protocol), 1, 3, 3, Verdict::GiveUp { pause: true }),
        ] {
            let failed = Failed { fault, rows, attempts, garbage };
            assert_eq!(judge(&failed), verdict, "{failed:?}");
        }
    }
}
