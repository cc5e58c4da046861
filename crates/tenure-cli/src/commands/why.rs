//! `tenure why`: who has a resource and what for, when the next can start, who waits, what is in the way, how the last
//! holders lost it, and what to type.

use super::again::{again, once};
use super::show::{Blocker, Holding, Show, Waiter, look};
use super::why_instance::{self, WhyInstance};
use super::{Caller, words};
use crate::args::Show as Asked;
use crate::clock;
use crate::failure::Failure;
use crate::page::Page;
use crate::print::{self, Draw};
use serde::Serialize;
use std::process::ExitCode;
use tenure::{Client, v1};

/// Waiters and past claims that are told.
const TOLD_MAX: usize = 10;

#[derive(Serialize)]
struct Why {
    #[serde(flatten)]
    show: Show,
    /// How long it takes at most until the next can start, if nobody renews; none if something else is in its way.
    next_in_ms: u64,
    try_next: Vec<String>,
    /// The instance of this name, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<WhyInstance>,
}

pub(crate) async fn why(caller: &Caller, args: Asked) -> Result<ExitCode, Failure> {
    let what = format!("cannot say why of {}", args.name);
    let look = async |client: &Client| {
        let show = look(client, &args.name, &what).await?;
        let instance = why_instance::look(client, &args.name, &what).await?;
        let mut lines = if show.is_blank() && instance.is_some() { Vec::new() } else { try_next(&show) };
        lines.extend(instance.iter().flat_map(WhyInstance::try_next));
        Ok(Why { next_in_ms: next_in_ms(&show), try_next: lines, instance, show })
    };
    if args.watch { again(caller, &what, look).await } else { once(caller, &what, look).await }
}

impl Draw for Why {
    fn draw(&self, page: &mut Page) {
        let show = &self.show;
        if !show.is_blank() || self.instance.is_none() {
            tell_holders(page, show);
            tell_next(page, self);
            tell_line(page, show);
            tell_blockers(page, &show.blockers);
            tell_past(page, show);
        }
        if let Some(instance) = &self.instance {
            instance.tell(page);
        }
        page.line("\nwhat to type next");
        self.try_next.iter().for_each(|line| page.line(&format!("  {line}")));
    }

    fn names(&self) -> Vec<String> {
        self.show.names()
    }
}

/// A claim that takes some of the resource, and how long it lasts if nobody renews.
struct Taken {
    mode: v1::Mode,
    units: u64,
    lasts_ms: u64,
}

/// When the first in line, or else an exclusive claim, fits at the latest if nobody renews.
fn next_in_ms(show: &Show) -> u64 {
    let holding =
        show.holders.iter().map(|held| Taken { mode: held.mode, units: held.units, lasts_ms: lasts_ms(held) });
    let vacating = show.vacating.iter();
    let vacating = vacating.map(|stake| Taken { mode: stake.mode, units: stake.units, lasts_ms: stake.remaining_ms });
    let mut taken: Vec<Taken> = holding.chain(vacating).collect();
    taken.sort_by_key(|taken| taken.lasts_ms);
    let (mode, units) = show.line.first().map_or((v1::Mode::Exclusive, 0), |first| (first.mode, first.units));
    let mut wait_ms = 0;
    while !fits(&taken, mode, units, show.capacity) {
        wait_ms = taken.remove(0).lasts_ms;
    }
    // Whoever waits for several resources at once waits for the last of them.
    let elsewhere = show.blockers.iter().filter(|blocker| blocker.depth == 1 && blocker.resource != show.name);
    elsewhere.map(|blocker| blocker.remaining_ms).fold(wait_ms, u64::max)
}

fn fits(taken: &[Taken], mode: v1::Mode, units: u64, capacity: u64) -> bool {
    let alike = taken.iter().all(|taken| taken.mode == mode);
    let used: u64 = taken.iter().map(|taken| taken.units).sum();
    match mode {
        _ if taken.is_empty() => true,
        v1::Mode::Shared => alike,
        v1::Mode::Units => alike && used + units <= capacity,
        _ => false,
    }
}

/// An end that nobody asked for is followed by the lock-delay.
fn lasts_ms(held: &Holding) -> u64 {
    let unless_broken = held.remaining_ms.saturating_add(held.grace_ms);
    unless_broken.saturating_add(held.lock_delay_ms)
}

/// What to type, with what it does.
fn try_next(show: &Show) -> Vec<String> {
    let name = print::quoted(&show.name);
    let mut lines = Vec::new();
    match show.state.as_str() {
        "free" => lines.push(format!("tenure acquire {name}")),
        _ => lines.push(format!("tenure acquire {name} --wait 5m")),
    }
    if let [held] = show.holders.as_slice() {
        lines.push(format!("tenure break {} --delay 30s --reason TEXT", print::quoted(&held.handle)));
    } else if !show.holders.is_empty() {
        lines.push(format!("tenure break {name} --delay 30s --reason TEXT"));
    } else if !show.vacating.is_empty() {
        lines.push(format!("tenure break {name} --now --reason TEXT"));
    }
    if show.state != "free" || !show.past.is_empty() {
        lines.push(format!("tenure history {name}"));
    }
    lines
}

fn tell_holders(page: &mut Page, show: &Show) {
    let name = &show.name;
    if show.holders.is_empty() && show.vacating.is_empty() {
        page.line(&format!("{name} is {}: nobody holds it.", show.state));
    }
    if show.capacity > 1 {
        page.line(&format!("{name} has {} units, {} of them free.", show.capacity, show.free_units));
    }
    show.holders.iter().take(TOLD_MAX).for_each(|held| tell_holder(page, name, held));
    let more = show.holders_count.saturating_sub(TOLD_MAX as u64);
    if more > 0 {
        page.line(&format!("and {more} more hold it."));
    }
    for stake in show.vacating.iter().take(TOLD_MAX) {
        let (left, mode) = (print::span_ms(stake.remaining_ms), words::mode(stake.mode, stake.units));
        let how = if stake.end.is_empty() { String::new() } else { format!(", {}", stake.end) };
        page.line(&format!("{} ({mode}) of {} is vacating for {left}{how}.", stake.handle, stake.holder));
    }
}

fn tell_holder(page: &mut Page, name: &str, held: &Holding) {
    let (since, mode) = (clock::local(held.since_wall_ms), words::mode(held.mode, held.units));
    let key = if held.api_key.is_empty() { String::new() } else { format!(", key {}", held.api_key) };
    page.line(&format!("{name} is held by {} ({mode}, fence {}{key}).", held.holder, held.fence));
    let left = match held.state.as_str() {
        "overdue" => format!("overdue, within a grace of {}", print::span_ms(held.grace_ms)),
        _ => {
            let (left, of) = (print::span_ms(held.remaining_ms), print::span_ms(held.ttl_ms));
            format!("{}{left} left of {of}", page.bar(held.left()))
        }
    };
    let mut fact = |name: &str, value: &str| {
        if !value.is_empty() {
            page.line(&format!("  {name:<14}{value}"));
        }
    };
    fact("what for", &held.reason);
    fact("since", &format!("{} ({since})", print::ago_ms(held.held_ms)));
    fact("last renewal", &print::ago_ms(held.renewed_ago_ms));
    fact("until", &left);
    fact("labels", &words::labels(&held.labels));
    if held.is_final {
        fact("", "no renewal moves that further: its maximum lifetime ends then");
    }
    if let Some(ms) = held.breaks_in_ms {
        let order = words::by_order("ordered", &held.breaks_by, &held.breaks_reason);
        fact("breaks", &format!("in {}, {order}", print::span_ms(ms)));
    }
}

fn tell_next(page: &mut Page, why: &Why) {
    let show = &why.show;
    let free_now = match show.holders.first().map(|held| held.mode) {
        _ if show.holders.is_empty() && show.vacating.is_empty() => return,
        Some(v1::Mode::Shared) if show.vacating.is_empty() => Some("Another shared claim can start now, ".to_owned()),
        Some(v1::Mode::Units) if show.free_units > 0 => {
            Some(format!("{} can be had now, ", print::count(show.free_units, "unit", "units")))
        }
        _ => None,
    };
    let (before, who) = match (show.line.first(), free_now) {
        (Some(first), _) => (String::new(), first.holder.as_str()),
        (None, Some(before)) => (before, "an exclusive claim"),
        (None, None) => (String::new(), "The next exclusive claim"),
    };
    let left = print::span_ms(why.next_in_ms);
    let sooner = if show.holders.is_empty() { "" } else { " if nobody renews, sooner if it is released" };
    match why.next_in_ms {
        0 => page.line(&format!("\n{who} can start as far as this resource goes.")),
        _ => page.line(&format!("\n{before}{who} can start in {left}{sooner}.")),
    }
}

fn tell_line(page: &mut Page, show: &Show) {
    if show.line.is_empty() {
        return;
    }
    let wait = if show.waiting == 1 { "1 waits".into() } else { format!("{} wait", show.waiting) };
    page.line(&format!("\n{wait}, in this order"));
    show.line.iter().take(TOLD_MAX).for_each(|waiter| page.line(&format!("  {}", waiting(&show.name, waiter))));
    let more = show.waiting.saturating_sub(TOLD_MAX as u64);
    if more > 0 {
        page.line(&format!("  and {more} more"));
    }
}

fn waiting(name: &str, waiter: &Waiter) -> String {
    let mut text = format!("{}. {} for {}", waiter.place, waiter.holder, print::span_ms(waiter.waited_ms));
    if waiter.mode != v1::Mode::Exclusive {
        text += &format!(", {}", words::mode(waiter.mode, waiter.units));
    }
    if waiter.priority != 0 {
        text += &format!(", priority {}", waiter.priority);
    }
    if waiter.reserved {
        text += ", on a reserved seat";
    }
    let others: Vec<&str> = waiter.resources.iter().map(String::as_str).filter(|other| *other != name).collect();
    if !others.is_empty() {
        text += &format!(", together with {}", others.join(" "));
    }
    text
}

fn tell_blockers(page: &mut Page, blockers: &[Blocker]) {
    if blockers.is_empty() {
        return;
    }
    page.line("\nin the way of the first");
    for blocker in blockers {
        let indent = 2 * blocker.depth as usize;
        let left = print::span_ms(blocker.remaining_ms);
        let (resource, holder) = (&blocker.resource, &blocker.holder);
        let words = match blocker.state.as_str() {
            "vacating" => format!("{resource} is vacating after {holder}, for {left}"),
            "waited-for" => format!("{holder} stands before it in the line of {resource}"),
            _ => format!("{resource} is held by {holder}, {left} left"),
        };
        page.line(&format!("{:indent$}{words}", ""));
    }
}

fn tell_past(page: &mut Page, show: &Show) {
    if show.past.is_empty() {
        return;
    }
    page.line("\nbefore");
    for claim in show.past.iter().take(TOLD_MAX) {
        let ago = print::ago_ms(clock::wall_ms().saturating_sub(claim.ended_wall_ms));
        let held = print::span_ms(claim.held_ms);
        page.line(&format!("  {} of {}: {} {ago}, after {held}", claim.handle, claim.holder, claim.end));
    }
}
