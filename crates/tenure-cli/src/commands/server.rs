//! The server's own word: ping, version.

use super::{Caller, lease_text};
use crate::args::Output;
use crate::failure::Failure;
use crate::print;
use serde::Serialize;
use std::process::ExitCode;
use tenure::v1;

#[derive(Serialize)]
struct Pong {
    version: String,
    cluster: String,
    node: u64,
    leads: bool,
    term: u64,
    applied_index: u64,
    revision: u64,
    leases: u64,
    now_ms: u64,
    dropped_ms: u64,
}

pub(crate) async fn ping(caller: &Caller) -> Result<ExitCode, Failure> {
    let what = "no pong";
    let client = caller.connect(what).await?;
    let status = client.status(v1::StatusRequest {}).await.map_err(|error| Failure::of(what, &error))?;
    let leads = if status.leads { "leads" } else { "does not lead" };
    let leases = print::count(status.leases, "lease", "leases");
    let line = format!("pong from tenure {}: node {} {leads}, {leases}", status.version, status.node);
    let pong = Pong {
        version: status.version,
        cluster: lease_text(status.cluster),
        node: status.node,
        leads: status.leads,
        term: status.term,
        applied_index: status.applied_index,
        revision: status.revision,
        leases: status.leases,
        now_ms: status.now_ms,
        dropped_ms: status.dropped_ms,
    };
    print::one(caller.output, &line, &pong);
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
}

pub(crate) fn version(output: Output) -> Result<ExitCode, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    print::one(output, &format!("tenure {version}"), &Version { version });
    Ok(ExitCode::SUCCESS)
}
