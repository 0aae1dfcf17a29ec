//! Waiting on conditions, never on time.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long a condition may take on a slow, busy machine before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

const BETWEEN_PROBES: Duration = Duration::from_millis(10);

/// Probes until there is an answer; panics, naming `what`, after `limit`.
pub async fn wait_for<T, F, A>(what: &str, limit: Duration, mut probe: F) -> T
where
    F: FnMut() -> A,
    A: Future<Output = Option<T>>,
{
    let started = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(started.elapsed() < limit, "waited {limit:?} in vain for {what}");
        tokio::time::sleep(BETWEEN_PROBES).await;
    }
}
