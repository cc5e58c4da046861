//! Instances as they are printed, and what is ordered about them: deregister, service ls|show|drain|undrain.

use super::again::once;
use super::{Caller, lease_text, words};
use crate::args::{Deregister, Drain, Service as Asked};
use crate::failure::Failure;
use crate::page::{Cell, Left, List, Row};
use crate::print;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use tenure::{Client, v1};
use tenure_core::InstanceKey;

#[derive(Clone, Serialize)]
pub(super) struct Instance {
    pub(super) service: String,
    pub(super) id: String,
    pub(super) endpoints: Vec<String>,
    capabilities: Vec<String>,
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    zone: String,
    pub(super) weight: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    version: String,
    pub(super) health: &'static str,
    pub(super) routed: bool,
    draining: bool,
    suspect: bool,
    held_down: bool,
    checks: Vec<Check>,
    lease: String,
    holder: String,
    epoch: u64,
    ttl_ms: u64,
    since_wall_ms: u64,
    pub(super) valid_for_ms: u64,
}

#[derive(Clone, Serialize)]
struct Check {
    name: String,
    health: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

impl Instance {
    /// As it is known, valid for so long from now on.
    pub(super) fn new(item: &v1::Instance, valid_for_ms: u64) -> Self {
        let details = item.details.clone().unwrap_or_default();
        let check = |finding: &v1::Finding| Check {
            name: finding.check.clone(),
            health: words::health(finding.health()),
            note: finding.note.clone(),
        };
        Self {
            service: item.service.clone(),
            id: item.id.clone(),
            endpoints: details.endpoints,
            capabilities: details.capabilities,
            labels: details.labels,
            zone: details.zone,
            weight: details.weight.unwrap_or(1),
            version: details.version,
            health: words::health(item.health()),
            routed: item.routed,
            draining: item.draining.is_some(),
            suspect: item.suspect.is_some(),
            held_down: item.held_down_ms.is_some(),
            checks: item.findings.iter().map(check).collect(),
            lease: lease_text(item.lease),
            holder: item.holder.clone(),
            epoch: item.epoch,
            ttl_ms: item.ttl_ms,
            since_wall_ms: item.since_wall_ms,
            valid_for_ms,
        }
    }

    /// How it is, in one word or two.
    fn state(&self) -> String {
        let more = [(self.draining, "draining"), (self.suspect, "suspect"), (self.held_down, "held down")];
        let more = more.into_iter().filter(|(is_so, _)| *is_so).map(|(_, word)| word);
        [self.health].into_iter().chain(more).collect::<Vec<_>>().join(", ")
    }
}

impl Row for Instance {
    const HEADINGS: &'static [&'static str] = &["INSTANCE", "ENDPOINT", "HEALTH", "ZONE", "WEIGHT", "CAN", "VALID FOR"];
    const EMPTY: &'static str = "nobody is there";

    fn cells(&self) -> Vec<Cell> {
        let more = self.endpoints.len().saturating_sub(1);
        let endpoint = self.endpoints.first().map_or("-", String::as_str);
        let endpoint = if more == 0 { endpoint.to_owned() } else { format!("{endpoint} +{more}") };
        let left = Left { remaining_ms: self.valid_for_ms, of_ms: self.ttl_ms };
        vec![
            self.name().into(),
            endpoint.into(),
            self.state().into(),
            print::or_dash(&self.zone).into(),
            self.weight.to_string().into(),
            print::or_dash(&self.capabilities.join(" ")).into(),
            Cell::Left(left),
        ]
    }

    fn name(&self) -> String {
        format!("{}/{}", self.service, self.id)
    }
}

/// Which instance was typed.
pub(super) fn read(what: &str, text: &str) -> Result<InstanceKey, Failure> {
    let next = "Write SERVICE/ID, as `tenure discover SERVICE -o name` prints it.";
    InstanceKey::parse(text).map_err(|why| Failure::usage(what, &format!("{text:?} is no instance: {why}"), next))
}

pub(crate) async fn deregister(caller: &Caller, args: Deregister) -> Result<ExitCode, Failure> {
    let what = format!("cannot deregister {}", args.instance);
    let key = read(&what, &args.instance)?;
    let client = caller.connect(&what).await?;
    let force = args.force.then(|| v1::Force { by: tenure::default_holder(), reason: args.reason, now: false });
    let (service, id) = (key.service.to_string(), key.id.to_string());
    let request = v1::DeregisterRequest { service, id, force, ..v1::DeregisterRequest::default() };
    client.deregister(request).await.map_err(|error| Failure::of(&what, &error))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn service(caller: &Caller, asked: Asked) -> Result<ExitCode, Failure> {
    match asked {
        Asked::Ls { prefix } => ls(caller, prefix.unwrap_or_default()).await,
        Asked::Show { service } => show(caller, &service).await,
        Asked::Drain(drain) => order_drain(caller, drain, false).await,
        Asked::Undrain(drain) => order_drain(caller, drain, true).await,
    }
}

async fn order_drain(caller: &Caller, args: Drain, undrain: bool) -> Result<ExitCode, Failure> {
    let what = format!("cannot {} {}", if undrain { "undrain" } else { "drain" }, args.instance);
    let key = read(&what, &args.instance)?;
    let client = caller.connect(&what).await?;
    let (service, id, by) = (key.service.to_string(), key.id.to_string(), tenure::default_holder());
    let request = v1::DrainRequest { service, id, undrain, by, reason: args.reason, lease: 0 };
    client.drain(request).await.map_err(|error| Failure::of(&what, &error))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Service {
    service: String,
    instances: u64,
    routed: u64,
    passing: u64,
    degraded: u64,
    critical: u64,
    unknown: u64,
    draining: u64,
    suspect: u64,
}

impl Row for Service {
    const HEADINGS: &'static [&'static str] =
        &["SERVICE", "INSTANCES", "ROUTED", "PASSING", "DEGRADED", "CRITICAL", "UNKNOWN", "DRAINING", "SUSPECT"];
    const EMPTY: &'static str = "no service has an instance";

    fn cells(&self) -> Vec<Cell> {
        let counts = [
            self.instances,
            self.routed,
            self.passing,
            self.degraded,
            self.critical,
            self.unknown,
            self.draining,
            self.suspect,
        ];
        [self.service.clone()].into_iter().chain(counts.map(|count| count.to_string())).map(Cell::from).collect()
    }

    fn name(&self) -> String {
        self.service.clone()
    }
}

async fn ls(caller: &Caller, prefix: String) -> Result<ExitCode, Failure> {
    let what = "cannot list services";
    let look = async |client: &Client| {
        let mut request = v1::ListServicesRequest { prefix: prefix.clone(), ..v1::ListServicesRequest::default() };
        let mut rows = Vec::new();
        loop {
            let page = client.list_services(request.clone()).await.map_err(|error| Failure::of(what, &error))?;
            rows.extend(page.items.into_iter().map(|item| Service {
                service: item.service,
                instances: item.instances,
                routed: item.routed,
                passing: item.passing,
                degraded: item.degraded,
                critical: item.critical,
                unknown: item.unknown,
                draining: item.draining,
                suspect: item.suspect,
            }));
            if page.next.is_empty() {
                return Ok(List(rows));
            }
            request.from = page.next;
        }
    };
    once(caller, what, look).await
}

async fn show(caller: &Caller, service: &str) -> Result<ExitCode, Failure> {
    let what = format!("cannot show {service}");
    let look = async |client: &Client| {
        let found = client.discover(service).all().list().await.map_err(|error| Failure::of(&what, &error))?;
        Ok(List(found.iter().map(|found| Instance::new(&found.instance, found.instance.valid_for_ms)).collect()))
    };
    once(caller, &what, look).await
}
