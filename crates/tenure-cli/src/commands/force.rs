//! What is done to claims by order: break, transfer.

use super::acquire::print_held;
use super::{Caller, lease_text, millis};
use crate::args::{Break, Output, Transfer};
use crate::failure::Failure;
use crate::print;
use serde::Serialize;
use std::process::ExitCode;
use tenure::v1;
use tenure::v1::acquire_reply::State;

#[derive(Serialize)]
struct Broken {
    name: String,
    claims: u64,
    free_in_ms: u64,
}

pub(crate) async fn break_claims(caller: &Caller, args: Break) -> Result<ExitCode, Failure> {
    let what = format!("cannot break {}", args.name);
    let client = caller.connect(&what).await?;
    let (resource, fence) = match tenure_api::read_handle(&args.name) {
        Ok(handle) => (handle.resource.to_string(), handle.fence.number()),
        Err(_) => (args.name, 0),
    };
    let request = v1::BreakRequest {
        resource: resource.clone(),
        fence,
        by: tenure::default_holder(),
        reason: args.reason,
        now: args.now,
        delay_ms: args.delay.map_or(0, millis),
    };
    let reply = client.break_claims(request).await.map_err(|error| Failure::of(&what, &error))?;
    let broken = Broken { name: resource, claims: reply.claims, free_in_ms: reply.free_in_ms };
    if caller.output != Output::Table {
        print::one(caller.output, &broken.name, &broken);
        return Ok(ExitCode::SUCCESS);
    }
    let claims = print::count(broken.claims, "claim", "claims");
    let (name, free_in) = (&broken.name, print::span_ms(broken.free_in_ms));
    match args.delay {
        Some(delay) => {
            let delay = print::span(delay);
            print::say(&format!("{claims} on {name} will be broken in {delay}; free in {free_in} unless renewed"));
        }
        None if broken.free_in_ms > 0 => {
            print::say(&format!("{claims} on {name} broken; vacating for {free_in}, as was promised to the holder"));
            let name = print::quoted(name);
            print::say(&format!("free it at once with: tenure break {name} --now --reason TEXT"));
        }
        None => print::say(&format!("{claims} on {name} broken; it is free")),
    }
    if args.now {
        print::say("only the fence protects what the old holder was doing");
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Reserved {
    name: String,
    lease: String,
    place: u64,
}

pub(crate) async fn transfer(caller: &Caller, args: Transfer) -> Result<ExitCode, Failure> {
    let what = format!("cannot transfer {}", args.handle);
    let client = caller.connect(&what).await?;
    let reason = args.reason.unwrap_or_default();
    let force = args.force.then(|| v1::Force { by: tenure::default_holder(), reason, now: args.now });
    let request = v1::TransferRequest { handle: args.handle.clone(), to: args.to, force };
    let reply = client.transfer(request).await.map_err(|error| Failure::of(&what, &error))?;
    let Some(State::Place(place)) = reply.state else {
        return print_held(caller.output, &what, None, &reply);
    };
    let name = args.handle.rsplit_once('@').map_or(args.handle.as_str(), |(name, _)| name).to_owned();
    let reserved = Reserved { name, lease: lease_text(args.to), place };
    match caller.output {
        Output::Table => {
            let Reserved { name, lease, .. } = &reserved;
            print::say(&format!("{} is broken, and the next seat reserved for lease {lease}", args.handle));
            print::say(&format!("see when it is seated with: tenure show {}", print::quoted(name)));
        }
        output => print::one(output, &reserved.name, &reserved),
    }
    Ok(ExitCode::SUCCESS)
}
