//! Programs with the keeper of the Rust client, in the simulated world: sound ones keep what they are promised, and what is planted
//! between keeper and server is caught.

use std::time::Duration;
use tenure_sim::{Fault, Plan, Plant, Report, run};

const LENGTH: Duration = Duration::from_secs(60);

fn plan(seed: u64, nodes: usize) -> Plan {
    Plan { keepers: true, ..Plan::sound(seed, nodes, LENGTH) }
}

/// Two guards of different clients were valid at once, or one while others could have what it guards.
const TWO_HOLD: [&str; 2] = ["by their guards", "which others may have"];

/// The first seed of so many in which what is planted is caught, with a violation in one of these words.
fn first_caught(plant: Plant, seeds: u64, words: &[&str]) -> Option<u64> {
    let is_meant = |what: &String| words.iter().any(|words| what.contains(words));
    let breaks = |report: Report| report.violations.iter().any(|violation| is_meant(&violation.what));
    let seed = (1..=seeds).find(|seed| breaks(run(Plan { plant: Some(plant), ..plan(*seed, 1) })));
    println!("{plant:?} is caught by seed {seed:?} of {seeds}");
    seed
}

#[test]
fn guards_of_keepers_keep_their_promises() {
    let kinds = [Fault::LinkStall, Fault::LinkBreak, Fault::ClientCut, Fault::ClientPause];
    for nodes in [1, 3] {
        for seed in 1..=8 {
            let report = run(plan(seed, nodes));
            assert_eq!(report.violations, [], "seed {seed} of {nodes} nodes");
            let missing: Vec<_> = kinds.iter().filter(|kind| !report.faults.contains_key(kind)).collect();
            assert!(missing.len() < kinds.len(), "seed {seed} of {nodes} nodes did nothing to clients");
        }
    }
}

#[test]
fn cancels_without_numbers_are_caught() {
    let seed = first_caught(Plant::CancelsByName, 40, &TWO_HOLD);
    assert!(seed.is_some(), "a late cancel ended what was claimed since, and no two guards said so");
}

#[test]
fn acquires_without_numbers_are_caught() {
    let seed = first_caught(Plant::RequestsByName, 120, &["nothing asks for it"]);
    assert!(seed.is_some(), "a late acquire took again, and no violation says so");
}

#[test]
fn renewals_that_tell_of_forced_losses_only_are_caught() {
    let seed = first_caught(Plant::ForcedLossesOnly, 40, &["ended a TTL ago"]);
    assert!(seed.is_some(), "a guard relied on a claim that was released by another client, and no violation says so");
}

#[test]
fn keepers_that_count_from_receipt_are_caught() {
    let seed = first_caught(Plant::CountsFromReceipt, 60, &TWO_HOLD);
    assert!(seed.is_some(), "guards were valid for longer than was promised, and no violation says so");
}

#[test]
fn keepers_replay() {
    for nodes in [1, 3] {
        let [one, two] = [0, 1].map(|_| run(plan(2, nodes)));
        assert_eq!(one, two, "{nodes} nodes");
    }
}
