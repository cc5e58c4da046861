//! The server's own word: ping, version.

use super::{Caller, lease_text};
use crate::args::Output;
use crate::failure::Failure;
use crate::print;
use serde::Serialize;
use std::process::ExitCode;
use tenure::v1;

#[derive(Serialize)]
pub(super) struct Pong {
    pub(super) version: String,
    pub(super) cluster: String,
    pub(super) node: u64,
    pub(super) leads: bool,
    pub(super) term: u64,
    pub(super) applied_index: u64,
    pub(super) revision: u64,
    pub(super) leases: u64,
    pub(super) now_ms: u64,
    pub(super) dropped_ms: u64,
    pub(super) leader: u64,
    pub(super) last_index: u64,
    pub(super) committed_index: u64,
    pub(super) snapshot_index: u64,
    pub(super) log_entries: u64,
    pub(super) log_bytes: u64,
}

impl From<&v1::StatusReply> for Pong {
    fn from(status: &v1::StatusReply) -> Self {
        Self {
            version: status.version.clone(),
            cluster: lease_text(status.cluster),
            node: status.node,
            leads: status.leads,
            term: status.term,
            applied_index: status.applied_index,
            revision: status.revision,
            leases: status.leases,
            now_ms: status.now_ms,
            dropped_ms: status.dropped_ms,
            leader: status.leader,
            last_index: status.last_index,
            committed_index: status.committed_index,
            snapshot_index: status.snapshot_index,
            log_entries: status.log_entries,
            log_bytes: status.log_bytes,
        }
    }
}

pub(crate) async fn ping(caller: &Caller) -> Result<ExitCode, Failure> {
    let what = "no pong";
    let client = caller.connect(what).await?;
    let status = client.status(v1::StatusRequest {}).await.map_err(|error| Failure::of(what, &error))?;
    let leads = if status.leads { "leads" } else { "does not lead" };
    let leases = print::count(status.leases, "lease", "leases");
    let line = format!("pong from tenure {}: node {} {leads}, {leases}", status.version, status.node);
    let pong = Pong::from(&status);
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
