//! Leases by themselves, and the server's own word: lease grant|ls|revoke, ping, version.

use super::{connect, default_holder, lease_text, millis};
use crate::args::Output;
use crate::failure::Failure;
use crate::print::{self, Row};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use tenure::v1;

#[derive(Serialize)]
struct Lease {
    lease: String,
    holder: String,
    ttl_ms: u64,
    remaining_ms: u64,
    holds: Vec<String>,
    waits: Vec<String>,
}

impl Row for Lease {
    const HEADINGS: &'static [&'static str] = &["LEASE", "HOLDER", "TTL", "LEFT", "HOLDS", "WAITS FOR"];

    fn cells(&self) -> Vec<String> {
        let some = |names: &[String]| if names.is_empty() { String::from("-") } else { names.join(" ") };
        let (ttl, left) = (print::span_ms(self.ttl_ms), print::span_ms(self.remaining_ms));
        vec![self.lease.clone(), self.holder.clone(), ttl, left, some(&self.holds), some(&self.waits)]
    }

    fn name(&self) -> String {
        self.lease.clone()
    }
}

pub(crate) async fn grant(
    addr: &str,
    output: Output,
    ttl: Duration,
    holder: Option<String>,
) -> Result<ExitCode, Failure> {
    let what = "cannot grant a lease";
    let client = connect(addr, what).await?;
    let request = v1::GrantRequest {
        lease: rand::random::<u64>() >> 1,
        holder: holder.unwrap_or_else(default_holder),
        ttl_ms: millis(ttl),
        request: rand::random(),
    };
    let holder = request.holder.clone();
    let reply = client.grant(request).await.map_err(|error| Failure::of(what, &error))?;
    let lease = Lease {
        lease: lease_text(reply.lease),
        holder,
        ttl_ms: reply.ttl_ms,
        remaining_ms: reply.ttl_ms,
        holds: Vec::new(),
        waits: Vec::new(),
    };
    print::one(output, &lease.lease, &lease);
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn lease_ls(addr: &str, output: Output) -> Result<ExitCode, Failure> {
    let what = "cannot list leases";
    let client = connect(addr, what).await?;
    let mut request = v1::ListLeasesRequest::default();
    let mut rows = Vec::new();
    loop {
        let page = client.list_leases(request).await.map_err(|error| Failure::of(what, &error))?;
        rows.extend(page.items.into_iter().map(|item| Lease {
            lease: lease_text(item.lease),
            holder: item.holder,
            ttl_ms: item.ttl_ms,
            remaining_ms: item.remaining_ms,
            holds: item.holds,
            waits: item.waits,
        }));
        if page.next == 0 {
            break;
        }
        request.from = page.next;
    }
    print::list(output, &rows);
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn revoke(addr: &str, lease: &str, reason: String) -> Result<ExitCode, Failure> {
    let what = format!("cannot revoke lease {lease}");
    let number = u64::from_str_radix(lease, 16)
        .map_err(|_| Failure::usage(&what, "that is not a lease id", "Copy it from `tenure lease ls`."))?;
    let client = connect(addr, &what).await?;
    let request = v1::RevokeRequest { lease: number, by: default_holder(), reason };
    client.revoke(request).await.map_err(|error| Failure::of(&what, &error))?;
    Ok(ExitCode::SUCCESS)
}

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

pub(crate) async fn ping(addr: &str, output: Output) -> Result<ExitCode, Failure> {
    let what = "no pong";
    let client = connect(addr, what).await?;
    let status = client.status(v1::StatusRequest {}).await.map_err(|error| Failure::of(what, &error))?;
    let leads = if status.leads { "leads" } else { "does not lead" };
    let line = format!("pong from tenure {}: node {} {leads}, {} leases", status.version, status.node, status.leases);
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
    print::one(output, &line, &pong);
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
