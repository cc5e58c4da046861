//! What can be typed about claims.

use super::lease::{TERMS, Terms};
use super::value::{Slots, duration, lease, slots};
use clap::Args;
use std::time::Duration;
use tenure::v1;

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Acquire {
    /// The resources, for example jobs/nightly.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) share: Share,
    /// Wait in line for so long if somebody else is in the way, for example 5m.
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Keep everybody off for so long after an end that the holder did not ask for.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) lock_delay: Option<Duration>,
    /// How often the holder has started; its claims of lower epochs are superseded at once.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub(crate) epoch: Option<u64>,
    /// A lease that lives already, instead of a new one.
    #[arg(long, value_parser = lease, conflicts_with_all = TERMS)]
    pub(crate) lease: Option<u64>,
    #[command(flatten, next_help_heading = "The new lease")]
    pub(crate) terms: Terms,
}

/// How a resource is had beside others.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Share {
    /// Beside others who share it.
    #[arg(long, conflicts_with = "slots")]
    pub(crate) shared: bool,
    /// N units of each; with /M, of an expected capacity of M, which the first claim defines.
    #[arg(long, value_parser = slots, value_name = "N[/M]")]
    pub(crate) slots: Option<Slots>,
    /// From -1000 to 1000; one step is worth ten seconds in line.
    #[arg(long, default_value_t = 0, hide_default_value = true, allow_negative_numbers = true, value_name = "N")]
    pub(crate) priority: i32,
}

impl Share {
    /// A resource, wanted in this way.
    pub(crate) fn want(&self, resource: String) -> v1::Want {
        let (mode, units, capacity) = match &self.slots {
            Some(slots) => (v1::Mode::Units, slots.units, slots.capacity.unwrap_or_default()),
            None if self.shared => (v1::Mode::Shared, 0, 0),
            None => (v1::Mode::Exclusive, 0, 0),
        };
        v1::Want { resource, mode: mode.into(), units, capacity }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// What `acquire` printed, NAME@FENCE; or the id of a lease.
    #[arg(value_name = "HANDLE|LEASE")]
    pub(crate) handle: String,
    /// Another TTL from now on. A shorter one never moves the deadline earlier.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) ttl: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Touch {
    /// The id, as `lease ls` prints it.
    #[arg(value_parser = lease)]
    pub(crate) lease: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// What `acquire` printed: NAME@FENCE.
    #[arg(required = true, value_name = "HANDLE")]
    pub(crate) handles: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// What `acquire` printed: NAME@FENCE.
    pub(crate) handle: String,
}

#[derive(Debug, Args)]
pub(crate) struct Break {
    /// The resource, with all its holders; or one claim on it, NAME@FENCE.
    #[arg(value_name = "NAME|HANDLE")]
    pub(crate) name: String,
    /// How long the holders are left to finish and to let go.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) delay: Option<Duration>,
    /// Free it at once, instead of at the deadline that was promised. Only the fence protects what the holder was doing.
    #[arg(long)]
    pub(crate) now: bool,
    /// Why, for the history.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct Transfer {
    /// What `acquire` printed: NAME@FENCE.
    pub(crate) handle: String,
    /// The lease that gets it.
    #[arg(long, value_parser = lease, value_name = "LEASE")]
    pub(crate) to: u64,
    /// Order it for somebody else's claim: it is broken, and the next seat reserved for the other lease.
    #[arg(long, requires = "reason")]
    pub(crate) force: bool,
    /// Why, for the history.
    #[arg(long, requires = "force", value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Free it at once, instead of at the deadline that was promised. Only the fence protects what the holder was doing.
    #[arg(long, requires = "force")]
    pub(crate) now: bool,
}
