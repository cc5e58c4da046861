//! The classes of leases: class ls, class set.

use super::{Caller, millis, words};
use crate::args::{Class as Asked, ClassSet};
use crate::failure::Failure;
use crate::page::{Cell, List, Row};
use crate::print;
use serde::Serialize;
use std::process::ExitCode;
use tenure::{Client, v1};

/// A longest TTL that no person has meant: what any lease may have.
const UNBOUNDED_MS: i64 = 9_000_000_000_000;

#[derive(Serialize)]
struct Class {
    name: String,
    ttl_ms: i64,
    ttl_min_ms: i64,
    ttl_max_ms: i64,
    renew: &'static str,
    grace_ms: i64,
    lifetime_ms: i64,
    lifetime_while_others_wait: bool,
}

impl Row for Class {
    const HEADINGS: &'static [&'static str] =
        &["CLASS", "TTL", "SHORTEST", "LONGEST", "RENEWED BY", "GRACE", "MAX LIFETIME"];
    const EMPTY: &'static str = "there are no classes";

    fn cells(&self) -> Vec<Cell> {
        let span = |ms: i64| print::span_ms(ms.unsigned_abs());
        let or_none = |ms: i64| if ms == 0 { String::from("-") } else { span(ms) };
        let lifetime = match self.lifetime_while_others_wait {
            true => format!("{} while others wait", span(self.lifetime_ms)),
            false => or_none(self.lifetime_ms),
        };
        let (ttl, shortest) = (span(self.ttl_ms), span(self.ttl_min_ms));
        let longest = if self.ttl_max_ms >= UNBOUNDED_MS { "-".into() } else { span(self.ttl_max_ms) };
        let cells = [self.name.clone(), ttl, shortest, longest, self.renew.into(), or_none(self.grace_ms), lifetime];
        cells.map(Cell::from).into()
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

pub(crate) async fn class(caller: &Caller, asked: Asked) -> Result<ExitCode, Failure> {
    match asked {
        Asked::Ls => ls(caller).await,
        Asked::Set(set) => change(caller, set).await,
    }
}

async fn ls(caller: &Caller) -> Result<ExitCode, Failure> {
    let what = "cannot list classes";
    let client = caller.connect(what).await?;
    let classes = classes(&client, what).await?;
    let rows: Vec<Class> = classes.into_iter().map(row).collect();
    print::draw(caller.output, &List(rows));
    Ok(ExitCode::SUCCESS)
}

async fn classes(client: &Client, what: &str) -> Result<Vec<v1::Class>, Failure> {
    let reply = client.list_classes(v1::ListClassesRequest::default()).await;
    Ok(reply.map_err(|error| Failure::of(what, &error))?.items)
}

fn row(class: v1::Class) -> Class {
    Class {
        renew: words::policy(class.renew()),
        name: class.name,
        ttl_ms: class.ttl_ms,
        ttl_min_ms: class.ttl_min_ms,
        ttl_max_ms: class.ttl_max_ms,
        grace_ms: class.grace_ms,
        lifetime_ms: class.lifetime_ms,
        lifetime_while_others_wait: class.lifetime_while_others_wait,
    }
}

/// Changes what was said, and leaves the rest as it is.
async fn change(caller: &Caller, set: ClassSet) -> Result<ExitCode, Failure> {
    let what = format!("cannot set class {}", set.name);
    let client = caller.connect(&what).await?;
    let before = classes(&client, &what).await?.into_iter().find(|class| class.name == set.name);
    if before.is_none() && set.ttl.is_none() {
        let why = "there is no such class yet, and a new one needs a TTL";
        return Err(Failure::usage(&what, why, "Say how long its leases live: --ttl 1m."));
    }
    let mut class = before.unwrap_or_default();
    class.name = set.name;
    let say = |field: &mut i64, time: Option<std::time::Duration>| {
        if let Some(time) = time {
            *field = millis(time);
        }
    };
    say(&mut class.ttl_ms, set.ttl);
    say(&mut class.ttl_min_ms, set.ttl_min);
    say(&mut class.ttl_max_ms, set.ttl_max);
    say(&mut class.grace_ms, set.grace);
    say(&mut class.lifetime_ms, set.max_lifetime);
    if set.max_lifetime.is_some() {
        class.lifetime_while_others_wait = set.while_others_wait;
    }
    if let Some(renew) = set.renew {
        class.set_renew(renew.into());
    }
    let request = v1::SetClassRequest { class: Some(class) };
    client.set_class(request).await.map_err(|error| Failure::of(&what, &error))?;
    Ok(ExitCode::SUCCESS)
}
