//! Nobody sees through a search what a SELECT would not show them.
//!
//! Worlds are made at random: tables of many shapes, roles, memberships, grants, policies. In each, case by case,
//! something changes and somebody looks: as a role that logged in, by SET ROLE, in a function with its owner's rights, in
//! the transaction of the change, behind its snapshot; by statements that are planned anew and by ones whose plan was kept
//! from before. What the searches, the chunk table and the views show is compared with a plain SELECT as the same role.
//!
//! `RAGENT_CASES` says how many cases, `RAGENT_SEED` which ones; with the `RAGENT_WORLD` that a failure names, its world runs
//! alone. `make test-long` runs many.

mod asker;
mod change;
mod check;
mod model;
mod names;
mod policy;
mod search;
mod stored;
mod table;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use check::Outcome;
use world::World;

const CASES: usize = 300;
const SEED: u64 = 20_240_229;
/// Cases in one world.
const CASES_OF_WORLD: usize = 75;

/// A number from the environment.
fn number<T: std::str::FromStr>(name: &str, default: T) -> T {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is {text}: give a number"))
}

/// Runs the cases of one world.
async fn run(seed: u64, number: usize, cases: usize, outcomes: &Mutex<BTreeMap<Outcome, usize>>) {
    let mut world = World::new(seed, number).await;
    for case in 1..=cases {
        match world.case(case).await {
            Ok(outcome) => *outcomes.lock().expect("no panic while it is locked").entry(outcome).or_default() += 1,
            Err(difference) => panic!("RAGENT_SEED={seed} RAGENT_WORLD={number}, case {case} of it: {difference}"),
        }
    }
}

#[tokio::test]
async fn a_search_shows_exactly_what_a_select_shows() {
    let (seed, cases) = (number("RAGENT_SEED", SEED), number("RAGENT_CASES", CASES));
    if let Ok(world) = std::env::var("RAGENT_WORLD") {
        let world = world.parse().expect("RAGENT_WORLD is a number");
        return run(seed, world, CASES_OF_WORLD, &Mutex::default()).await;
    }
    let worlds = cases.div_ceil(CASES_OF_WORLD);
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::default());
    let work = async || {
        loop {
            let world = next.fetch_add(1, Ordering::Relaxed);
            if world >= worlds {
                break;
            }
            run(seed, world, CASES_OF_WORLD.min(cases - world * CASES_OF_WORLD), &outcomes).await;
        }
    };
    tokio::join!(work(), work());
    let outcomes = outcomes.into_inner().expect("nobody panicked");
    println!("what was seen: {outcomes:?}");
    // Cases in which all or nothing is visible would show little.
    let of = |outcome| outcomes.get(&outcome).copied().unwrap_or(0);
    if cases >= CASES {
        assert!(of(Outcome::Some) * 10 > cases, "few cases in which a role sees some rows: {outcomes:?}");
        assert!(of(Outcome::Failed) * 5 < cases, "many cases in which a policy fails: {outcomes:?}");
    }
}
