//! Everyday commands: acquire, renew, release, verify, ls.

use super::wait::acquire_in_line;
use super::{connect, default_holder, lease_text, millis};
use crate::args::{Acquire, Ls, Output, Release, Renew, Verify};
use crate::failure::Failure;
use crate::print::{self, Row};
use serde::Serialize;
use std::process::ExitCode;
use tenure::v1::acquire_reply::State;
use tenure::{Error, v1};
use tenure_api::Code;

#[derive(Serialize)]
struct Held {
    handle: String,
    name: String,
    fence: u64,
    lease: String,
    holder: String,
    ttl_ms: u64,
}

pub(crate) async fn acquire(addr: &str, output: Output, args: Acquire) -> Result<ExitCode, Failure> {
    let what = format!("cannot acquire {}", args.name);
    let client = connect(addr, &what).await?;
    let holder = args.holder.unwrap_or_else(default_holder);
    let grant = v1::GrantRequest {
        lease: rand::random::<u64>() >> 1,
        holder: holder.clone(),
        ttl_ms: millis(args.ttl),
        request: rand::random(),
    };
    let request = v1::AcquireRequest { resource: args.name.clone(), grant: Some(grant), lease: 0, wait: false };
    let reply = match args.wait {
        None => client.acquire(request).await.map_err(|error| Failure::of(&what, &error))?,
        Some(patience) => acquire_in_line(&client, request, patience, &what).await?,
    };
    let Some(State::Fence(fence)) = reply.state else {
        return Err(Failure::new(&what, "the server answered something else", "Is it a newer one than this program?"));
    };
    let held = Held {
        handle: format!("{}@{fence}", args.name),
        name: args.name,
        fence,
        lease: lease_text(reply.lease),
        holder,
        ttl_ms: reply.ttl_ms,
    };
    print::one(output, &held.handle, &held);
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Renewed {
    handle: String,
    lease: String,
    ttl_ms: u64,
}

pub(crate) async fn renew(addr: &str, output: Output, args: Renew) -> Result<ExitCode, Failure> {
    let what = format!("cannot renew {}", args.handle);
    let client = connect(addr, &what).await?;
    let request = v1::RenewHandleRequest { handle: args.handle.clone(), ttl_ms: args.ttl.map_or(0, millis) };
    let reply = client.renew_handle(request).await.map_err(|error| Failure::of(&what, &error))?;
    let line = format!("{} for {}", args.handle, print::span_ms(reply.ttl_ms));
    let renewed = Renewed { handle: args.handle, lease: lease_text(reply.lease), ttl_ms: reply.ttl_ms };
    match output {
        Output::Table => print::say(&line),
        _ => print::one(output, &renewed.handle, &renewed),
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn release(addr: &str, args: Release) -> Result<ExitCode, Failure> {
    let what = format!("cannot release {}", args.handle);
    let client = connect(addr, &what).await?;
    let request = v1::ReleaseRequest { handle: args.handle };
    client.release(request).await.map_err(|error| Failure::of(&what, &error))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Verified {
    handle: String,
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Exit 0: valid; 1: not. Whatever keeps the question from being answered has another code.
pub(crate) async fn verify(addr: &str, output: Output, args: Verify) -> Result<ExitCode, Failure> {
    let what = format!("cannot verify {}", args.handle);
    let client = connect(addr, &what).await?;
    let answer = client.verify(v1::VerifyRequest { handle: args.handle.clone() }).await;
    let handle = args.handle;
    let (verified, words) = match answer {
        Ok(reply) => {
            let words = format!("{handle} is held by {} for {}", reply.holder, print::span_ms(reply.remaining_ms));
            let (holder, remaining_ms) = (Some(reply.holder), Some(reply.remaining_ms));
            (Verified { handle, valid: true, holder, remaining_ms, why: None }, words)
        }
        Err(Error::Refused(failure)) if failure.code == Code::Stale.text() => {
            let words = failure.message.trim_end_matches("; nothing was changed").to_owned();
            (Verified { handle, valid: false, holder: None, remaining_ms: None, why: Some(words.clone()) }, words)
        }
        Err(error) => return Err(Failure::of(&what, &error)),
    };
    match output {
        Output::Table => print::say(&words),
        _ => print::one(output, &verified.handle, &verified),
    }
    Ok(if verified.valid { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

#[derive(Serialize)]
struct Resource {
    name: String,
    holder: String,
    state: &'static str,
    fence: u64,
    lease: String,
    ttl_ms: u64,
    remaining_ms: u64,
    waiting: u64,
    since_wall_ms: u64,
}

impl Row for Resource {
    const HEADINGS: &'static [&'static str] = &["NAME", "HOLDER", "STATE", "FENCE", "TTL", "LEFT", "WAITING"];

    fn cells(&self) -> Vec<String> {
        let fence = if self.fence == 0 { String::from("-") } else { self.fence.to_string() };
        let holder = if self.holder.is_empty() { String::from("-") } else { self.holder.clone() };
        let (ttl, left) = (print::span_ms(self.ttl_ms), print::span_ms(self.remaining_ms));
        vec![self.name.clone(), holder, self.state.into(), fence, ttl, left, self.waiting.to_string()]
    }

    fn name(&self) -> String {
        if self.fence == 0 { self.name.clone() } else { format!("{}@{}", self.name, self.fence) }
    }
}

pub(crate) async fn ls(addr: &str, output: Output, args: Ls) -> Result<ExitCode, Failure> {
    let what = "cannot list";
    let client = connect(addr, what).await?;
    let mut request =
        v1::ListResourcesRequest { prefix: args.prefix.unwrap_or_default(), ..v1::ListResourcesRequest::default() };
    let mut rows = Vec::new();
    loop {
        let page = client.list_resources(request.clone()).await.map_err(|error| Failure::of(what, &error))?;
        rows.extend(page.items.into_iter().map(|item| Resource {
            name: item.name,
            state: if item.fence == 0 { "changing" } else { "held" },
            holder: item.holder,
            fence: item.fence,
            lease: lease_text(item.lease),
            ttl_ms: item.ttl_ms,
            remaining_ms: item.remaining_ms,
            waiting: item.waiting,
            since_wall_ms: item.since_wall_ms,
        }));
        if page.next.is_empty() {
            break;
        }
        request.from = page.next;
    }
    print::list(output, &rows);
    Ok(ExitCode::SUCCESS)
}
