//! Loads a Tenure server, and etcd beside it if one is installed: client and server are separate processes, and every
//! acknowledgement has been synced to disk. Prints the medians of a few runs.
#![allow(clippy::disallowed_methods, reason = "measuring time is what this program is for")]

mod claims;
mod etcd;
mod http_load;
mod listing;
mod measure;
mod registry;
mod server;
mod tenure_load;

use clap::Parser;
use comfy_table::{Table, presets};
use http_load::Line;
use measure::{Figures, median};
use std::path::PathBuf;
use std::time::Duration;
use tenure::Conversation;

/// Measures grants and renewals.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// How many clients at once, each with a connection of its own.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// How many nodes each server has.
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// How long a follower hears nothing before it stands for election; Tenure only.
    #[arg(long, default_value = "1s")]
    election_timeout: String,
    /// How long each run takes, in seconds.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// How many runs; the medians are printed.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Leases that are renewed in batches.
    #[arg(long, default_value_t = 100_000)]
    leases: usize,
    /// Leases in one batch.
    #[arg(long, default_value_t = 256)]
    batch: usize,
    /// The server to measure.
    #[arg(long, default_value = "target/dist/tenure")]
    binary: PathBuf,
    /// Where the servers keep their data: on the disk that is to be measured.
    #[arg(long, default_value = "target")]
    data: PathBuf,
    /// The etcd to measure beside it; left out if it is not there.
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    /// Only what has this in its name.
    #[arg(long, default_value = "")]
    only: String,
}

impl Args {
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

const NAMES: [&str; 8] = [
    "tenure acquire, stream",
    "tenure acquire, HTTP",
    "tenure renew, one by one",
    "tenure renew, batches",
    "a change to 1,000 HTTP watchers",
    "tenure ls of 10,000 leases",
    "kill of the leader to the next grant",
    "the same with many leases",
];

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let mut rows = Vec::new();
    for name in NAMES {
        if !name.contains(&args.only) {
            continue;
        }
        let mut runs = Vec::new();
        for _ in 0..args.runs {
            let figures = match name {
                "tenure acquire, stream" => claims::acquire::<Conversation>(&args).await?,
                "tenure renew, one by one" => tenure_load::renew_singly(&args).await?,
                "tenure renew, batches" => tenure_load::renew_in_batches(&args).await?,
                "tenure acquire, HTTP" => claims::acquire::<Line>(&args).await?,
                "a change to 1,000 HTTP watchers" => http_load::watch(&args).await?,
                "tenure ls of 10,000 leases" => listing::ls(&args).await?,
                "kill of the leader to the next grant" if args.nodes > 1 => tenure_load::failover(&args, 0).await?,
                "the same with many leases" if args.nodes > 1 => tenure_load::failover(&args, args.leases).await?,
                _ => break,
            };
            runs.push(figures);
        }
        match median(&runs) {
            Some(figures) => rows.push((name, figures)),
            None => println!("{name}: left out, because it needs several nodes"),
        }
    }
    for (name, load) in registry::ROWS.into_iter().filter(|(name, _)| name.contains(&args.only)) {
        let mut done = Vec::new();
        for _ in 0..args.runs {
            done.push(registry::measure(&args, load).await?);
        }
        rows.extend(median(&done).map(|figures| (name, figures)));
    }
    for (name, load, whose) in etcd::ROWS.into_iter().filter(|(name, ..)| name.contains(&args.only)) {
        // The end of many leases takes minutes, and is not a matter of chance.
        let runs = if matches!(load, etcd::Load::Expiry) { 1 } else { args.runs };
        let mut done = Vec::new();
        for _ in 0..runs {
            done.extend(etcd::run(&args, load, whose).await?);
        }
        match median(&done) {
            Some(figures) => rows.push((name, figures)),
            None => println!("{name}: left out, because there is no `{}`", args.etcd.display()),
        }
    }
    print(&args, &rows);
    Ok(())
}

fn print(args: &Args, rows: &[(&str, Figures)]) {
    let nodes = if args.nodes == 1 { "1 node".into() } else { format!("{} nodes", args.nodes) };
    println!("{nodes}, {} clients, {} s a run, medians of {} runs", args.clients, args.seconds, args.runs);
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(["what", "per second", "p50 ms", "p99 ms"]);
    for (name, figures) in rows {
        let ms = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e3);
        table.add_row([(*name).into(), format!("{:.0}", figures.rate), ms(figures.p50), ms(figures.p99)]);
    }
    println!("{table}");
    let rate = |wanted: &str| rows.iter().find(|(name, _)| name.starts_with(wanted)).map(|(_, figures)| figures.rate);
    if let (Some(http), Some(stream)) = (rate("tenure acquire, HTTP"), rate("tenure acquire, stream")) {
        println!("over HTTP it acquires at {:.2} x the rate of the gRPC stream in this run", http / stream);
    }
    if let (Some(ours), Some(theirs)) = (rate("tenure acquire, stream"), rate("etcd's calls: grant, etcd")) {
        println!("tenure acquires at {:.1} x the rate of etcd's grants in this run", ours / theirs);
    }
    for pair in etcd::ROWS.chunks(2) {
        if let [(ours, ..), (theirs, ..)] = pair
            && let (Some(our_rate), Some(their_rate)) = (rate(ours), rate(theirs))
        {
            println!("{ours}: {:.1} x the rate of etcd in this run", our_rate / their_rate);
        }
    }
}
