//! Runs the simulator over many seeds, each twice now and then to see that it replays, and says what it found.

use clap::Parser;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tenure_sim::{Fault, Plan, run};

/// Simulates whole nodes by seed.
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 60)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// How many nodes: 1, 3 or 5.
    #[arg(long, default_value_t = 1, value_parser = one_three_or_five)]
    nodes: usize,
    /// How long the nodes are hurt, in simulated seconds.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Print the trace of each run.
    #[arg(long)]
    verbose: bool,
}

fn one_three_or_five(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(nodes @ (1 | 3 | 5)) => Ok(nodes),
        _ => Err("a cluster has 1, 3 or 5 nodes".into()),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let (mut faults, mut grants, mut forced, mut failed) = (BTreeMap::new(), 0, 0, 0);
    for seed in args.first..args.first + args.seeds {
        let plan = Plan::sound(seed, args.nodes, Duration::from_secs(args.seconds));
        let report = run(Plan { verbose: args.verbose, ..plan });
        for violation in &report.violations {
            println!("seed {seed}: {violation}");
        }
        let replays = seed % 10 != 0 || run(plan) == report;
        if !replays {
            println!("seed {seed}: a second run of the seed made another trace");
        }
        let hurt = !report.faults.is_empty() && report.grants > 0;
        if !hurt {
            println!("seed {seed}: nothing was hurt or nothing was granted, so nothing was tested");
        }
        failed += u64::from(!report.violations.is_empty() || !replays || !hurt);
        report.faults.iter().for_each(|(fault, count)| *faults.entry(*fault).or_insert(0) += count);
        grants += report.grants;
        forced += report.forced;
    }
    let told: Vec<String> = faults.iter().map(|(fault, count)| format!("{count} {fault}")).collect();
    println!("{}", told.join(", "));
    println!("{grants} claims seated, {forced} ended by force");
    println!("{} passed, {failed} failed", args.seeds - failed);
    let missing: Vec<String> =
        Fault::kinds(args.nodes).iter().filter(|kind| !faults.contains_key(kind)).map(Fault::to_string).collect();
    let each_kind = args.seeds < 10 || missing.is_empty() && forced > 0;
    if !each_kind {
        println!("never happened, so it was not tested: {}", missing.join(", "));
    }
    if failed == 0 && each_kind { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
