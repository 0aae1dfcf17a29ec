//! Grants as background work: who was granted SELECT on a source gets it on the chunk table.
//!
//! `rag_internal.follow_grants` notes that somebody granted or revoked something. Making the grants of chunk tables follow in
//! that very statement would change rows of the catalog that others change at the same time: one of them would fail.

use super::follow;
use super::statements::grants;
use crate::duty::Duty;
use crate::error::{Error, Result};
use crate::guc;
use crate::ingest::statements::restore;
use crate::pg::worker::deferring_end;
use crate::pg::xact;
use ragent_core::collection::burst::Burst;
use ragent_core::provider::backoff;
use std::time::{Duration, Instant};

/// So many attempts fail before the log tells of it: somebody else may be changing the same table.
const TOLD_AFTER: i32 = 3;

/// After so long it is looked again at what could not even be noted.
const AGAIN: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Default)]
pub struct Grants {
    burst: Burst,
    /// The signs that were seen: how many, and the newest. One with a lower number may come later.
    seen: (i64, i64),
    /// How long until what failed is tried again.
    retry: Option<Duration>,
}

impl Duty for Grants {
    fn name(&self) -> &'static str {
        "grants"
    }

    fn begin(&mut self) -> Result<()> {
        // Signs may have gone with a worker that was about to follow them.
        self.burst.sign(Instant::now());
        Ok(())
    }

    fn finish(&mut self) -> bool {
        false
    }

    fn start(&mut self) -> Result<bool> {
        let look = deferring_end(|| xact::transaction(grants::look))?;
        self.retry = look.retry;
        let now = Instant::now();
        if look.signs != self.seen {
            self.seen = look.signs;
            if look.signs.0 > 0 {
                self.burst.sign(now);
            }
        }
        let mut collections = look.due;
        if self.burst.is_due(now) {
            if deferring_end(|| xact::transaction(restore::is_under_way))? {
                // It brings the grants of chunk tables itself.
                self.burst = Burst::beginning(now);
            } else {
                collections.extend(deferring_end(|| xact::transaction(grants::take))?);
                self.burst.end();
                self.seen = (0, 0);
            }
        }
        collections.sort_unstable();
        collections.dedup();
        for collection in &collections {
            // What cannot be noted now (the owner may have the note in hand) is due the next time, and holds up no other one.
            if let Err(e) = follow_one(*collection) {
                pgrx::warning!("collection {collection}: the grants of its chunk table are not up to date: {e}");
                self.retry = Some(self.retry.map_or(AGAIN, |retry| retry.min(AGAIN)));
            }
        }
        Ok(!collections.is_empty())
    }

    fn wait(&self) -> Option<Duration> {
        self.burst.wait(Instant::now()).into_iter().chain(self.retry).min()
    }

    fn end(&mut self) {}
}

/// Makes the grants of one chunk table, in a transaction of its own: event triggers of the database run in it.
fn follow_one(collection: i32) -> Result<()> {
    let followed = xact::limited_transaction(guc::worker_statement_timeout(), || follow::grants(collection));
    let error = match followed {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(e)) => e,
        Err(undone) => undone.error,
    };
    let attempts = xact::transaction(|| failed(collection, &error))?;
    if attempts == TOLD_AFTER {
        pgrx::warning!("collection {collection}: the grants of its chunk table are not those of the source: {error}");
    }
    Ok(())
}

fn failed(collection: i32, error: &Error) -> i32 {
    let attempts = grants::attempts(collection) + 1;
    grants::postpone(collection, attempts, backoff(attempts.unsigned_abs(), collection.unsigned_abs().into()), error);
    attempts
}
