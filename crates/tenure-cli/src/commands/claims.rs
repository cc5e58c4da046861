//! What a holder does with its claims: renew, touch, release, verify.

use super::{Caller, lease_text, millis};
use crate::args::{Output, Release, Renew, Touch, Verify};
use crate::failure::Failure;
use crate::print;
use serde::Serialize;
use std::process::ExitCode;
use tenure::{Client, Error, v1};
use tenure_api::Code;

#[derive(Serialize)]
struct Renewed {
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
    lease: String,
    ttl_ms: u64,
    is_final: bool,
    waiting: u64,
    longest_wait_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    breaks_in_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_none")]
    lost: u64,
}

/// Extends by an order, which every class but `never` takes.
pub(crate) async fn renew(caller: &Caller, args: Renew) -> Result<ExitCode, Failure> {
    let what = format!("cannot renew {}", args.handle);
    let client = caller.connect(&what).await?;
    let (kind, ttl_ms) = (v1::RenewKind::Explicit, args.ttl.map_or(0, millis));
    let renewed = match u64::from_str_radix(&args.handle, 16) {
        Ok(lease) if args.handle.len() == 16 => renew_lease(&client, &what, lease, ttl_ms, kind).await?,
        _ => renew_handle(&client, &what, args.handle, ttl_ms, kind).await?,
    };
    tell(caller.output, &renewed);
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn touch(caller: &Caller, args: Touch) -> Result<ExitCode, Failure> {
    let what = format!("cannot touch {}", lease_text(args.lease));
    let client = caller.connect(&what).await?;
    let renewed = renew_lease(&client, &what, args.lease, 0, v1::RenewKind::Touch).await?;
    tell(caller.output, &renewed);
    Ok(ExitCode::SUCCESS)
}

async fn renew_handle(
    client: &Client,
    what: &str,
    handle: String,
    ttl_ms: i64,
    kind: v1::RenewKind,
) -> Result<Renewed, Failure> {
    let request = v1::RenewHandleRequest { handle: handle.clone(), ttl_ms, kind: kind.into() };
    let reply = client.renew_handle(request).await.map_err(|error| Failure::of(what, &error))?;
    Ok(Renewed {
        handle: Some(handle),
        lease: lease_text(reply.lease),
        ttl_ms: reply.ttl_ms,
        is_final: reply.is_final,
        waiting: reply.waiting,
        longest_wait_ms: reply.longest_wait_ms,
        breaks_in_ms: reply.breaks_in_ms,
        lost: reply.lost,
    })
}

async fn renew_lease(
    client: &Client,
    what: &str,
    lease: u64,
    ttl_ms: i64,
    kind: v1::RenewKind,
) -> Result<Renewed, Failure> {
    let request = v1::RenewRequest { leases: vec![lease], ttls_ms: vec![ttl_ms], kind: kind.into() };
    let reply = client.renew(request).await.map_err(|error| Failure::of(what, &error))?;
    if let Some(failure) = reply.failures.into_iter().next().and_then(|failed| failed.failure) {
        return Err(Failure::of(what, &failure.into()));
    }
    let notice = reply.notices.into_iter().next().unwrap_or_default();
    Ok(Renewed {
        handle: None,
        lease: lease_text(lease),
        ttl_ms: reply.ttls_ms.first().copied().ok_or_else(|| Failure::puzzled(what))?,
        is_final: notice.is_final,
        waiting: notice.waiting,
        longest_wait_ms: notice.longest_wait_ms,
        breaks_in_ms: notice.breaks_in_ms,
        lost: notice.lost,
    })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

fn tell(output: Output, renewed: &Renewed) {
    let name = renewed.handle.as_ref().unwrap_or(&renewed.lease);
    if output != Output::Table {
        print::one(output, name, renewed);
        return;
    }
    print::say(&format!("{name} for {}", print::span_ms(renewed.ttl_ms)));
    if renewed.is_final {
        print::say("no renewal moves its deadline further: its maximum lifetime ends then");
    }
    if renewed.waiting > 0 {
        let longest = print::span_ms(renewed.longest_wait_ms);
        print::say(&format!("{} in line for what it holds, the longest for {longest}", renewed.waiting));
    }
    if let Some(ms) = renewed.breaks_in_ms {
        print::say(&format!("somebody has ordered that it be broken in {}", print::span_ms(ms)));
    }
    if renewed.lost > 0 {
        let lost = renewed.lost;
        print::say(&format!(
            "{lost} of its claims ended by force: see what is left with `tenure lease show {}`",
            renewed.lease
        ));
    }
}

/// Releases each, whatever becomes of the others. The first failure decides the exit code.
pub(crate) async fn release(caller: &Caller, args: Release) -> Result<ExitCode, Failure> {
    let client = caller.connect(&format!("cannot release {}", args.handles.join(" "))).await?;
    let (mut failed, mut released) = (None, 0);
    let all = args.handles.len();
    for handle in args.handles {
        let what = format!("cannot release {handle}");
        match client.release(v1::ReleaseRequest { handle: handle.clone(), release_secret: 0 }).await {
            Ok(reply) => {
                released += 1;
                if reply.free_in_ms > 0 {
                    print::say(&format!(
                        "{handle} was not released by its holder: it stays vacating for {}, until the holder has stopped",
                        print::span_ms(reply.free_in_ms)
                    ));
                }
            }
            Err(error) => {
                let code = Failure::of(&what, &error).report();
                failed = failed.or(Some(code));
            }
        }
    }
    if failed.is_some() && released > 0 {
        print::say(&format!("{released} of {all} were released"));
    }
    Ok(failed.unwrap_or(ExitCode::SUCCESS))
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
pub(crate) async fn verify(caller: &Caller, args: Verify) -> Result<ExitCode, Failure> {
    let what = format!("cannot verify {}", args.handle);
    let client = caller.connect(&what).await?;
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
    match caller.output {
        Output::Table => print::say(&words),
        output => print::one(output, &verified.handle, &verified),
    }
    Ok(if verified.valid { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
