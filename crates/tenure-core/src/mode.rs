//! How a resource can be claimed: its units, the modes of claims, priorities, epochs and the policies of classes. Plain
//! values that are valid when they exist.

use crate::limits::{CAPACITY_MAX, PRIORITY_INTERVAL_MS, PRIORITY_MAX};
use crate::names::Name;
use crate::time::{Moment, Span, Ttl};
use core::fmt;
use core::num::{NonZeroU32, NonZeroU64};

/// A number of units of a resource, at least one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Units(NonZeroU32);

impl Units {
    /// One unit: what a resource has unless it is said otherwise.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// So many units, if a resource could have them.
    pub fn from_number(number: u64) -> Option<Self> {
        let small = u32::try_from(number).ok().filter(|_| number <= CAPACITY_MAX)?;
        NonZeroU32::new(small).map(Self)
    }

    /// How many.
    pub const fn number(self) -> u64 {
        self.0.get() as u64
    }
}

/// How a claim shares its resource with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// It is alone.
    Exclusive,
    /// It sits beside other shared claims, and beside no other.
    Shared,
    /// It takes so many of the resource's units, and sits beside other such claims while there are units left.
    Units(Units),
}

/// How urgent a claim is, from -1000 to 1000; 0 unless it is said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i32);

impl Priority {
    /// This priority, if it is in range.
    pub const fn from_number(number: i32) -> Option<Self> {
        if number < -PRIORITY_MAX || number > PRIORITY_MAX { None } else { Some(Self(number)) }
    }

    /// The priority as a number.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Where a claim of this priority stands in line if it comes at `now`: fixed on arrival, which is linear ageing.
    pub fn order_ms(self, now: Moment) -> i128 {
        i128::from(now.millis()) - i128::from(self.0) * i128::from(PRIORITY_INTERVAL_MS)
    }
}

/// How often a holder has started, by its own count, from 1. A higher one supersedes the claims of a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(NonZeroU64);

impl Epoch {
    /// This epoch, if it is at least 1.
    pub const fn from_number(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The epoch as a number.
    pub const fn number(self) -> u64 {
        self.0.get()
    }
}

/// How long a lease may be renewed at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// How long.
    pub span: Span,
    /// When that time counts.
    pub counts: Counts,
}

/// When the time of a maximum lifetime counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// From the moment when the lease was seated; for one that was granted without claims, from its grant.
    Always,
    /// From that moment, or from when the longest waiter of what it holds joined the line, whichever is later.
    WhileOthersWait,
}

/// What renews a lease of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// A heartbeat that its client sends by itself.
    Auto,
    /// Any command that names it, and `touch`; not a mere heartbeat.
    Activity,
    /// An order by whoever decided to keep it; not a heartbeat, not activity.
    Explicit,
    /// Nothing.
    Never,
}

/// A renewal's kind, which the lease's class may refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A heartbeat.
    #[default]
    Auto,
    /// Something was done with the lease.
    Touch,
    /// Somebody decided to keep it.
    Explicit,
}

impl Policy {
    /// Whether a renewal of this kind extends a lease.
    pub const fn allows(self, kind: Kind) -> bool {
        match self {
            Self::Auto => true,
            Self::Activity => matches!(kind, Kind::Touch | Kind::Explicit),
            Self::Explicit => matches!(kind, Kind::Explicit),
            Self::Never => false,
        }
    }
}

/// A named preset for leases. A change touches later grants and renewals only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// What it is called.
    pub name: Name,
    /// The TTL of a lease that does not say.
    pub ttl: Ttl,
    /// The shortest TTL that its leases may ask for.
    pub ttl_min: Ttl,
    /// The longest TTL that its leases may ask for.
    pub ttl_max: Ttl,
    /// What renews its leases.
    pub renew: Policy,
    /// How long its leases stay held and renewable after their deadline.
    pub grace: Span,
    /// How long its leases may be renewed at all.
    pub lifetime: Option<Lifetime>,
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Units(units) => write!(f, "{units} units"),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Activity => "activity",
            Self::Explicit => "explicit",
            Self::Never => "never",
        })
    }
}
