//! Runs the simulator over many seeds, each twice now and then to see that it replays, and says what it found.

use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;
use tenure_core::Free;
use tenure_server::Tuning;
use tenure_sim::{Plan, run};

/// Simulates whole nodes by seed.
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 60)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// How long each node is hurt, in simulated seconds.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Print the trace of each run.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let (mut faults, mut grants, mut forced, mut failed) = ([0; 4], 0, 0, 0);
    for seed in args.first..args.first + args.seeds {
        let length = Duration::from_secs(args.seconds);
        let (tuning, verbose) = (Tuning::default(), args.verbose);
        let plan = Plan { seed, length, tuning, forced_ends: Free::WhenVacated, verbose };
        let report = run(plan);
        for violation in &report.violations {
            println!("seed {seed}: {violation}");
        }
        let replays = seed % 10 != 0 || run(Plan { verbose: false, ..plan }) == report;
        if !replays {
            println!("seed {seed}: a second run of the seed made another trace");
        }
        let hurt = report.faults.iter().sum::<u64>() > 0 && report.grants > 0;
        if !hurt {
            println!("seed {seed}: nothing was hurt or nothing was granted, so nothing was tested");
        }
        failed += u64::from(!report.violations.is_empty() || !replays || !hurt);
        faults.iter_mut().zip(report.faults).for_each(|(sum, count)| *sum += count);
        grants += report.grants;
        forced += report.forced;
    }
    let [cuts, kills, pauses, stalls] = faults;
    println!("{cuts} power cuts, {kills} kills, {pauses} pauses, {stalls} stalls of the disk");
    println!("{grants} claims seated, {forced} ended by force");
    println!("{} passed, {failed} failed", args.seeds - failed);
    let each_kind = args.seeds < 20 || faults.iter().all(|count| *count > 0) && forced > 0;
    if !each_kind {
        println!("one kind of fault never happened, so it was not tested");
    }
    if failed == 0 && each_kind { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
