//! The simulator earns trust by what it catches: each planted fault must be found, and nothing in a sound node.

use std::time::Duration;
use tenure_core::Free;
use tenure_server::Tuning;
use tenure_sim::{Plan, Report, run};

fn plan(seed: u64, tuning: Tuning) -> Plan {
    Plan { tuning, ..Plan::sound(seed, 1, Duration::from_secs(90)) }
}

/// The first seed of so many that breaks this promise.
fn first_broken(promise: &str, tuning: Tuning, seeds: u64) -> Option<(u64, Report)> {
    (1..=seeds)
        .map(|seed| (seed, run(plan(seed, tuning))))
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
    let broken = |seed| run(Plan { forced_ends: Free::Now, ..plan(seed, Tuning::default()) });
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

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 1..=5 {
        let [one, two] = [0, 1].map(|_| run(plan(seed, Tuning::default())));
        assert_eq!(one, two, "seed {seed}");
        assert!(one.lines > 50, "seed {seed} has a trace worth comparing");
    }
    assert_ne!(run(plan(1, Tuning::default())).trace, run(plan(2, Tuning::default())).trace);
}
