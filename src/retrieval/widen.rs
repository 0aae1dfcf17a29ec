//! From candidates to results: more candidates are asked for until enough of them are visible or none are left.

use super::arm::{Arm, Candidate};
use super::found::Found;
use super::statements;
use crate::pg::interrupt;
use crate::registry::Collection;
use ragent_core::retrieval::{Bounds, Widening, best};

/// The best results of an arm that the current role may see, after `looked_at` candidates brought too few of them.
pub fn visible_results(arm: &mut dyn Arm, c: &Collection, bounds: Bounds, looked_at: usize) -> Vec<Found> {
    let mut found = Vec::new();
    for more in Widening::new(bounds.k, looked_at) {
        interrupt::check();
        let candidates = arm.next(more);
        if candidates.is_empty() {
            break;
        }
        let good: Vec<Candidate> = candidates.into_iter().filter(|c| bounds.admits(c.score)).collect();
        found.extend(statements::visible(c, good));
        if found.len() >= bounds.k || !bounds.admits(arm.bound()) {
            break;
        }
    }
    best(&mut found, bounds.k, |f| f.score);
    found
}
