//! Runs the simulator over many seeds, each twice now and then to see that it replays, and says what it found.

use clap::Parser;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tenure_sim::{Checked, Extremes, Fault, Plan, run};

/// Simulates whole nodes by seed.
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
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
    /// Clients that claim one resource at a time, whose messages arrive, as in seeds of old.
    #[arg(long)]
    plain: bool,
    /// Clients with the keeper of the Rust client in every seed, instead of in every fifth.
    #[arg(long, conflicts_with = "plain")]
    keepers: bool,
    /// Print the trace of each run.
    #[arg(long)]
    verbose: bool,
}

impl Args {
    /// The command that runs one seed again.
    fn replay(&self, seed: u64) -> String {
        let program = std::env::args().next().unwrap_or_else(|| "tenure-sim".into());
        let more = match (self.plain, self.keepers) {
            (true, _) => " --plain",
            (_, true) => " --keepers",
            _ => "",
        };
        format!("{program} --nodes {} --seconds {}{more} --first {seed} --seeds 1 --verbose", self.nodes, self.seconds)
    }
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
    let (mut checked, mut extremes) = (Checked::default(), Extremes::default());
    let last = args.first.saturating_add(args.seeds - 1);
    println!("{} nodes, seeds {} to {last}", args.nodes, args.first);
    for seed in args.first..=last {
        let make = if args.plain { Plan::plain } else { Plan::sound };
        let plan = make(seed, args.nodes, Duration::from_secs(args.seconds));
        let plan = Plan { keepers: plan.keepers || args.keepers, ..plan };
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
        if !report.violations.is_empty() || !replays || !hurt {
            failed += 1;
            println!("seed {seed}: replay it with {}", args.replay(seed));
        }
        report.faults.iter().for_each(|(fault, count)| *faults.entry(*fault).or_insert(0) += count);
        checked.merge(&report.checked);
        extremes.merge(&report.extremes);
        grants += report.grants;
        forced += report.forced;
    }
    let told: Vec<String> = faults.iter().map(|(fault, count)| format!("{count} {fault}")).collect();
    println!("{}", told.join(", "));
    println!("{grants} claims seated, {forced} ended by force");
    let Checked { parts, operations, unknown, not_decided } = checked;
    println!("{parts} histories of {operations} operations, {unknown} of them unknown; {not_decided} not decided");
    let (seen, bounds) = (extremes, Extremes::BOUNDS);
    println!(
        "at most {} steps an entry (of {}), leases {} ms late (of {}), {} ms without a leader (of {})",
        seen.steps, bounds.steps, seen.late_ms, bounds.late_ms, seen.election_ms, bounds.election_ms
    );
    println!("{} passed, {failed} failed", args.seeds - failed);
    let missing: Vec<String> =
        Fault::kinds(args.nodes).iter().filter(|kind| !faults.contains_key(kind)).map(Fault::to_string).collect();
    let each_kind = args.seeds < 10 || missing.is_empty() && forced > 0;
    if !each_kind {
        println!("never happened, so it was not tested: {}", missing.join(", "));
    }
    if failed == 0 && each_kind { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
