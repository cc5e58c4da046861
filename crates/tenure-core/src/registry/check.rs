//! Health, and the checks that tell it. Nothing here probes anything.

use super::{Details, Word};
use crate::limits::{
    CHECK_MS_MAX, CHECK_MS_MIN, PROBE_BYTES_MAX, PROBE_MS_MAX, PROBE_MS_MIN, PUSHED_MS_MAX, RESULTS_MAX,
};
use crate::time::Span;
use alloc::sync::Arc;
use core::fmt;
use core::ops::RangeInclusive;

/// How well an instance is, apart from whether it lives. The later one is the worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// All is well.
    Passing,
    /// It works, and others are to be preferred.
    Degraded,
    /// Nobody has told yet.
    #[default]
    Unknown,
    /// It does not work.
    Critical,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passing => "passing",
            Self::Degraded => "degraded",
            Self::Unknown => "unknown",
            Self::Critical => "critical",
        })
    }
}

/// One check of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What it is called, each name once.
    pub name: Word,
    /// Who tells.
    pub source: Source,
}

/// Who tells what a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The instance, or whoever looks after it.
    Pushed {
        /// For how long a status holds; one that is not repeated within it becomes critical.
        ttl: Option<Span>,
    },
    /// The leader, which probes the instance.
    Probed(Probe),
}

/// How the leader probes an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Which of the instance's endpoints, from 0.
    pub endpoint: usize,
    /// What is asked of it.
    pub ask: Ask,
    /// The time between two probes.
    pub interval: Span,
    /// How long an answer may take.
    pub timeout: Span,
    /// So many failures in a row make it degraded. The same number as `failures`: it becomes critical at once.
    pub degraded_after: u32,
    /// So many failures in a row make it critical.
    pub failures: u32,
    /// So many successes in a row make it passing.
    pub successes: u32,
}

/// What a probe asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Whether a connection is accepted.
    Tcp,
    /// Whether a GET is answered with one of these statuses.
    Http {
        /// What is got.
        path: Arc<str>,
        /// The statuses that are a success.
        statuses: RangeInclusive<u16>,
    },
    /// Whether the standard health service says that it serves.
    Grpc {
        /// The service that is asked for; the whole server, if it is empty.
        service: Arc<str>,
    },
}

impl Check {
    /// Whether a probe finds the same endpoint in what an instance said before and what it says now.
    pub(crate) fn looks_at_the_same(&self, before: &Details, now: &Details) -> bool {
        match &self.source {
            Source::Pushed { .. } => true,
            Source::Probed(probe) => before.endpoints.get(probe.endpoint) == now.endpoints.get(probe.endpoint),
        }
    }

    /// Whether it can be a check of an instance with so many endpoints.
    pub(super) fn validate(&self, endpoints: usize) -> Result<(), BadCheck> {
        match &self.source {
            Source::Pushed { ttl: None } => Ok(()),
            Source::Pushed { ttl: Some(ttl) } if !(CHECK_MS_MIN..=PUSHED_MS_MAX).contains(&ttl.millis()) => {
                Err(BadCheck::Pushed { ms: ttl.millis() })
            }
            Source::Pushed { .. } => Ok(()),
            Source::Probed(probe) => probe.validate(endpoints),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let asked = match &self.source {
            Source::Probed(Probe { ask: Ask::Http { path: text, .. } | Ask::Grpc { service: text }, .. }) => text.len(),
            Source::Probed(_) | Source::Pushed { .. } => 0,
        };
        32 + self.name.as_str().len() + asked
    }
}

impl Probe {
    fn validate(&self, endpoints: usize) -> Result<(), BadCheck> {
        let (interval_ms, timeout_ms) = (self.interval.millis(), self.timeout.millis());
        if self.endpoint >= endpoints {
            return Err(BadCheck::NoEndpoint { endpoint: self.endpoint, endpoints });
        }
        if !(CHECK_MS_MIN..=CHECK_MS_MAX).contains(&interval_ms) {
            return Err(BadCheck::Interval { ms: interval_ms });
        }
        let max_ms = interval_ms.min(PROBE_MS_MAX);
        if !(PROBE_MS_MIN..=max_ms).contains(&timeout_ms) {
            return Err(BadCheck::Timeout { ms: timeout_ms, max_ms });
        }
        let in_range =
            [self.degraded_after, self.failures, self.successes].iter().all(|it| (1..=RESULTS_MAX).contains(it));
        if !in_range || self.degraded_after > self.failures {
            return Err(BadCheck::Thresholds);
        }
        self.ask.validate()
    }
}

impl Ask {
    fn validate(&self) -> Result<(), BadCheck> {
        let is_plain = |text: &str| text.len() <= PROBE_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic());
        match self {
            Self::Tcp => Ok(()),
            Self::Http { path, .. } if !path.starts_with('/') || path.contains('#') || !is_plain(path) => {
                Err(BadCheck::Path)
            }
            Self::Http { statuses, .. } if *statuses.start() < 100 || *statuses.end() > 599 || statuses.is_empty() => {
                Err(BadCheck::Statuses)
            }
            Self::Grpc { service } if !is_plain(service) => Err(BadCheck::Service),
            Self::Http { .. } | Self::Grpc { .. } => Ok(()),
        }
    }
}

/// Why a check cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCheck {
    /// It probes an endpoint that the instance does not have.
    #[error("it probes endpoint number {endpoint}, counted from 0, and there are {endpoints}")]
    NoEndpoint {
        /// Which it probes.
        endpoint: usize,
        /// How many there are.
        endpoints: usize,
    },
    /// Its interval is out of range.
    #[error("an interval of {ms} ms is outside {CHECK_MS_MIN} ms to {CHECK_MS_MAX} ms")]
    Interval {
        /// What was asked for.
        ms: u64,
    },
    /// Its timeout is out of range.
    #[error(
        "a timeout of {ms} ms is outside {PROBE_MS_MIN} ms to {max_ms} ms, the least of its interval and {PROBE_MS_MAX} ms"
    )]
    Timeout {
        /// What was asked for.
        ms: u64,
        /// The longest that its interval allows.
        max_ms: u64,
    },
    /// Its thresholds are out of range.
    #[error("the results to wait for are 1 to {RESULTS_MAX}, and it is degraded no later than it is critical")]
    Thresholds,
    /// A pushed status holds for too short or too long a time.
    #[error("a pushed status holds for {CHECK_MS_MIN} ms to {PUSHED_MS_MAX} ms, not {ms} ms")]
    Pushed {
        /// What was asked for.
        ms: u64,
    },
    /// Its path is none.
    #[error("its path is none: `/`, then visible ASCII without `#`, at most {PROBE_BYTES_MAX} bytes")]
    Path,
    /// Its statuses are none.
    #[error("its statuses are none: one or more in a row, from 100 to 599")]
    Statuses,
    /// The gRPC service is none.
    #[error("its gRPC service is none: visible ASCII, at most {PROBE_BYTES_MAX} bytes")]
    Service,
}
