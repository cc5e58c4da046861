//! The one binary of Tenure. Data goes to stdout, words to stderr; every error says what to do next.

mod args;
mod commands;
mod failure;
mod print;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new("cannot start", &error.to_string(), "free some memory or threads").report(),
    };
    match runtime.block_on(run(cli)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let Cli { command, addr, output } = cli;
    match command {
        Command::Serve(serve) => commands::serve(serve).await,
        Command::Version => commands::version(output),
        Command::Acquire(acquire) => commands::acquire(&addr, output, acquire).await,
        Command::Renew(renew) => commands::renew(&addr, output, renew).await,
        Command::Release(release) => commands::release(&addr, release).await,
        Command::Verify(verify) => commands::verify(&addr, output, verify).await,
        Command::Ls(ls) => commands::ls(&addr, output, ls).await,
        Command::Lease(args::Lease::Grant { ttl, holder }) => commands::grant(&addr, output, ttl, holder).await,
        Command::Lease(args::Lease::Ls) => commands::lease_ls(&addr, output).await,
        Command::Lease(args::Lease::Revoke { lease, reason }) => commands::revoke(&addr, &lease, reason).await,
        Command::Ping => commands::ping(&addr, output).await,
    }
}
