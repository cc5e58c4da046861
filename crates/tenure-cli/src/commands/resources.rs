//! Resources: who holds them, and how many units they have. ls, resource define|forget|ls.

use super::again::{again, once};
use super::{Caller, lease_or_none, words};
use crate::args::{Ls, Output, Resource as Asked};
use crate::failure::Failure;
use crate::page::{Cell, Left, List, Row};
use crate::print;
use serde::Serialize;
use std::process::ExitCode;
use tenure::{Client, v1};

#[derive(Serialize)]
struct Resource {
    name: String,
    holder: String,
    state: String,
    #[serde(serialize_with = "words::as_word")]
    mode: v1::Mode,
    fence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
    ttl_ms: u64,
    remaining_ms: u64,
    waiting: u64,
    since_wall_ms: u64,
    capacity: u64,
    defined: bool,
    units_used: u64,
    holders: u64,
    vacating: u64,
}

impl Resource {
    fn new(item: v1::Resource) -> Self {
        Self {
            mode: item.mode(),
            name: item.name,
            holder: item.holder,
            state: item.state,
            fence: item.fence,
            lease: lease_or_none(item.lease),
            ttl_ms: item.ttl_ms,
            remaining_ms: item.remaining_ms,
            waiting: item.waiting,
            since_wall_ms: item.since_wall_ms,
            capacity: item.capacity,
            defined: item.defined,
            units_used: item.units_used,
            holders: item.holders,
            vacating: item.vacating,
        }
    }

    /// The first holder, and how many more there are.
    fn holders(&self) -> String {
        match self.holders {
            0 | 1 => print::or_dash(&self.holder),
            holders => format!("{} +{}", self.holder, holders - 1),
        }
    }
}

impl Row for Resource {
    const HEADINGS: &'static [&'static str] = &["NAME", "HOLDER", "STATE", "MODE", "FENCE", "TTL", "LEFT", "WAITING"];
    const EMPTY: &'static str = "nothing is held";

    fn cells(&self) -> Vec<Cell> {
        let left = Left { remaining_ms: self.remaining_ms, of_ms: self.ttl_ms };
        let (fence, ttl, left) = match self.fence {
            0 => ("-".into(), "-".into(), "-".into()),
            fence => (fence.to_string().into(), print::span_ms(self.ttl_ms).into(), Cell::Left(left)),
        };
        let (mode, waiting) = (words::mode(self.mode, self.units_used), self.waiting.to_string());
        let (name, state) = (self.name.clone().into(), self.state.clone().into());
        vec![name, self.holders().into(), state, mode.into(), fence, ttl, left, waiting.into()]
    }

    fn name(&self) -> String {
        if self.fence == 0 { self.name.clone() } else { format!("{}@{}", self.name, self.fence) }
    }
}

pub(crate) async fn ls(caller: &Caller, args: Ls) -> Result<ExitCode, Failure> {
    let what = "cannot list";
    let request = v1::ListResourcesRequest {
        prefix: args.prefix.unwrap_or_default(),
        holder: args.holder.unwrap_or_default(),
        ..v1::ListResourcesRequest::default()
    };
    let look = async |client: &Client| Ok(List(all(client, request.clone(), what).await?));
    if args.watch { again(caller, what, look).await } else { once(caller, what, look).await }
}

async fn all(client: &Client, mut request: v1::ListResourcesRequest, what: &str) -> Result<Vec<Resource>, Failure> {
    let mut rows = Vec::new();
    loop {
        let page = client.list_resources(request.clone()).await.map_err(|error| Failure::of(what, &error))?;
        rows.extend(page.items.into_iter().map(Resource::new));
        if page.next.is_empty() {
            return Ok(rows);
        }
        request.from = page.next;
    }
}

pub(crate) async fn resource(caller: &Caller, asked: Asked) -> Result<ExitCode, Failure> {
    match asked {
        Asked::Define { name, capacity } => define(caller, name, Some(capacity)).await,
        Asked::Forget { name } => define(caller, name, None).await,
        Asked::Ls { prefix, defined } => capacities(caller, prefix.unwrap_or_default(), defined).await,
    }
}

#[derive(Serialize)]
struct Defined {
    name: String,
    capacity: u64,
}

async fn define(caller: &Caller, name: String, capacity: Option<u64>) -> Result<ExitCode, Failure> {
    let what = match capacity {
        Some(_) => format!("cannot define {name}"),
        None => format!("cannot forget {name}"),
    };
    let client = caller.connect(&what).await?;
    let request = v1::DefineResourceRequest { resource: name.clone(), capacity };
    let reply = client.define_resource(request).await.map_err(|error| Failure::of(&what, &error))?;
    let defined = Defined { name, capacity: reply.capacity };
    match caller.output {
        Output::Table => {
            let units = print::count(defined.capacity, "unit", "units");
            print::say(&format!("{} has {units}", defined.name));
        }
        output => print::one(output, &defined.name, &defined),
    }
    Ok(ExitCode::SUCCESS)
}

/// A resource by its units.
#[derive(Serialize)]
#[serde(transparent)]
struct Capacity(Resource);

impl Row for Capacity {
    const HEADINGS: &'static [&'static str] =
        &["NAME", "CAPACITY", "DEFINED", "STATE", "MODE", "HOLDERS", "VACATING", "WAITING"];
    const EMPTY: &'static str = "no resource is held or defined";

    fn cells(&self) -> Vec<Cell> {
        let Self(resource) = self;
        let cells = [
            resource.name.clone(),
            resource.capacity.to_string(),
            if resource.defined { "yes".into() } else { "-".into() },
            resource.state.clone(),
            words::mode(resource.mode, resource.units_used),
            resource.holders.to_string(),
            resource.vacating.to_string(),
            resource.waiting.to_string(),
        ];
        cells.map(Cell::from).into()
    }

    fn name(&self) -> String {
        self.0.name.clone()
    }
}

async fn capacities(caller: &Caller, prefix: String, defined: bool) -> Result<ExitCode, Failure> {
    let what = "cannot list resources";
    let request = v1::ListResourcesRequest { prefix, defined, ..v1::ListResourcesRequest::default() };
    let look = async |client: &Client| {
        let rows = all(client, request.clone(), what).await?;
        Ok(List(rows.into_iter().map(Capacity).collect()))
    };
    once(caller, what, look).await
}
