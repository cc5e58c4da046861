//! The simulator earns trust by what it catches: each planted fault must be found, and nothing in a sound node.

use std::time::Duration;
use tenure_core::Free;
use tenure_server::Tuning;
use tenure_sim::{Plan, Plant, Report, run};

fn plan(seed: u64, tuning: Tuning) -> Plan {
    Plan { tuning, ..Plan::sound(seed, 1, Duration::from_secs(90)) }
}

/// The first seed of so many that breaks this promise.
fn first_broken(promise: &str, tuning: Tuning, seeds: u64) -> Option<(u64, Report)> {
    (1..=seeds)
        .map(|seed| (seed, run(Plan { swarm: false, ..plan(seed, tuning) })))
        .find(|(_, report)| report.violations.iter().any(|violation| violation.promise == promise))
}

#[test]
fn a_sound_node_keeps_its_promises() {
    let mut forced = 0;
    for seed in 1..=12 {
        let report = run(plan(seed, Tuning::default()));
        assert!(!report.faults.is_empty(), "seed {seed} hurt nothing");
        assert_eq!(report.violations, [], "seed {seed}");
        forced += report.forced;
    }
    assert!(forced > 0, "nothing was ended by force");
}

/// A resource that is free at once after a forced end has two holders, each of whom may believe that it is alone.
#[test]
fn an_operator_who_does_not_wait_is_caught() {
    let broken = |seed| run(Plan { forced_ends: Free::Now, swarm: false, ..plan(seed, Tuning::default()) });
    let caught = (1..=20).map(broken).any(|it| it.violations.iter().any(|violation| violation.promise == "S2"));
    assert!(caught, "nobody noticed that the resource was given away too soon");
}

#[test]
fn time_that_may_jump_over_holders_is_caught() {
    let tuning = Tuning { step_max: Duration::from_secs(3_600), ..Tuning::default() };
    assert!(first_broken("S3", tuning, 20).is_some(), "nobody noticed that STEP_MAX is gone");
}

#[test]
fn a_leader_that_goes_on_in_its_old_term_is_caught() {
    let tuning = Tuning { leader_restore: true, ..Tuning::default() };
    assert!(first_broken("S4", tuning, 40).is_some(), "nobody noticed that leader restore is on");
}

/// Whether the histories of clients contradict one of these promises within so many seeds of a minute.
fn contradicts(promises: &[&str], nodes: usize, seeds: u64, plant: Plant) -> bool {
    let plan = |seed| Plan { plant: Some(plant), ..Plan::sound(seed, nodes, Duration::from_secs(60)) };
    (1..=seeds).map(|seed| run(plan(seed))).any(|report| {
        report.violations.iter().any(|it| promises.contains(&it.promise) && it.what.contains("no order of operations"))
    })
}

#[test]
fn reads_from_the_local_copy_are_caught() {
    assert!(contradicts(&["S11"], 3, 8, Plant::LocalReads), "no history shows that reads ask nobody");
}

#[test]
fn writes_that_are_acknowledged_and_dropped_are_caught() {
    assert!(contradicts(&["S10", "S11"], 1, 8, Plant::DroppedWrites), "no history lacks a write");
}

#[test]
fn writes_that_are_proposed_twice_are_caught() {
    assert!(contradicts(&["S10"], 1, 8, Plant::RepeatedProposals), "no history shows a write twice");
}

/// Watches of events that resume at another node leave out the revision after the one at which they stopped.
#[test]
fn watches_that_skip_are_caught() {
    let plan = |seed| Plan { plant: Some(Plant::SkippingWatches), ..Plan::sound(seed, 3, Duration::from_secs(60)) };
    let skips = |report: &Report| report.violations.iter().any(|it| it.what.contains("a watcher of"));
    assert!((1..=20).any(|seed| skips(&run(plan(seed)))), "no watcher missed an event");
}

/// A machine whose disk has failed comes back as if nothing was wrong, without having stopped.
#[test]
fn a_node_that_goes_on_after_its_disk_failed_is_caught() {
    let plan = |seed| Plan { plant: Some(Plant::DeafToDisks), ..plan(seed, Tuning::default()) };
    let caught = (1..=20).map(|seed| run(plan(seed))).any(|it| it.violations.iter().any(|it| it.promise == "S15"));
    assert!(caught, "nobody noticed a node that does not stop");
}

/// Steps of service time of up to five seconds end leases as late as that.
#[test]
fn leases_that_end_late_are_caught() {
    let tuning = Tuning { step_max: Duration::from_secs(5), ..Tuning::default() };
    let late = |report: &Report| report.violations.iter().any(|it| it.what.contains("ms late"));
    assert!((1..=20).any(|seed| late(&run(plan(seed, tuning)))), "nobody noticed leases that end seconds late");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 1..=5 {
        let [one, two] = [0, 1].map(|_| run(plan(seed, Tuning::default())));
        assert_eq!(one, two, "seed {seed}");
        assert!(one.lines > 50, "seed {seed} has a trace worth comparing");
    }
    assert_ne!(run(plan(1, Tuning::default())).trace, run(plan(2, Tuning::default())).trace);
}
