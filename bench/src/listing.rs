//! The time that a long list takes: the command line as a process, from its start to its end.

use crate::claims::{Claim, Claims};
use crate::http_load::Line;
use crate::measure::{Figures, Tally, figures};
use crate::tenure_load::start;
use crate::{Args, Failure};
use futures::future::try_join_all;
use std::time::Instant;

const LEASES: usize = 10_000;
const CALLS: usize = 10;

/// How long `tenure ls` takes with many leases, as a process that starts, asks, prints and ends.
pub(crate) async fn ls(args: &Args) -> Result<Figures, Failure> {
    let server = start(args).await?;
    let lines = (0..args.clients).map(|number| {
        let server = &server;
        async move {
            let mut line = Line::open(server).await?;
            for n in (number..LEASES).step_by(args.clients) {
                let (resource, holder) = (format!("bench/{n:05}"), format!("bench-{number}"));
                line.claim(Claim { resource, holder, ttl_ms: 600_000 }).await?;
            }
            Ok::<(), Failure>(())
        }
    });
    try_join_all(lines).await?;
    let mut tally = Tally::default();
    let start = Instant::now();
    for _ in 0..CALLS {
        let mut command = tokio::process::Command::new(&args.binary);
        let begun = Instant::now();
        let listed = command.arg("ls").env("TENURE_ADDR", &server.addr).output().await?;
        tally.add(begun, 1);
        let rows = listed.stdout.iter().filter(|byte| **byte == b'\n').count();
        if rows < LEASES {
            return Err(format!("ls printed {rows} lines").into());
        }
    }
    Ok(figures(vec![tally], start.elapsed()))
}
