//! What an instance says of itself: all at once, or in part.

use super::check::{BadCheck, Check};
use super::{Endpoint, Word};
use crate::limits::{CAPABILITIES_MAX, CHECKS_MAX, ENDPOINTS_MAX, INSTANCE_BYTES_MAX, UNHEALTHY_MS_MAX, WEIGHT_MAX};
use crate::names::Labels;
use crate::time::Span;
use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Deref;

/// What an instance says of itself, before it is looked at whether it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Where it can be reached, at least one.
    pub endpoints: Vec<Endpoint>,
    /// What it can do.
    pub capabilities: BTreeSet<Word>,
    /// What else is to be said.
    pub labels: Labels,
    /// Where it is. Instances of one service in one zone are likely to fall silent together.
    pub zone: Option<Word>,
    /// How much it can take, beside the others; 0 takes nothing unless it is asked for by name.
    pub weight: u32,
    /// Which version it is.
    pub version: Option<Word>,
    /// How its health is found out.
    pub checks: Vec<Check>,
    /// What becomes of it when it is critical.
    pub on_critical: OnCritical,
}

impl Draft {
    /// An instance that can be reached here, and says no more.
    pub fn at(endpoints: Vec<Endpoint>) -> Self {
        Self {
            endpoints,
            capabilities: BTreeSet::new(),
            labels: Labels::default(),
            zone: None,
            weight: 1,
            version: None,
            checks: Vec::new(),
            on_critical: OnCritical::Mark,
        }
    }

    fn bytes(&self) -> usize {
        let endpoints: usize = self.endpoints.iter().map(Endpoint::bytes).sum();
        let capabilities: usize = self.capabilities.iter().map(|word| word.as_str().len()).sum();
        let labels: usize = self.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
        let words: usize = self.zone.iter().chain(&self.version).map(|word| word.as_str().len()).sum();
        endpoints + capabilities + labels + words + self.checks.iter().map(Check::bytes).sum::<usize>()
    }
}

/// What becomes of an instance when it is critical.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCritical {
    /// It is not routed to.
    #[default]
    Mark,
    /// It is not routed to, and if it is still critical after so long its lease ends, with all that hangs on it.
    RevokeAfter(Span),
    /// Nothing: its checks are shown and do not count.
    Observe,
}

/// What an instance says of itself, as it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details(Draft);

impl Details {
    /// Seals what an instance says, or says why it cannot be.
    pub fn new(draft: Draft) -> Result<Self, BadDetails> {
        let count = |what: &'static str, count: usize, max: usize| {
            if count > max { Err(BadDetails::TooMany { what: what.into(), count, max }) } else { Ok(()) }
        };
        if draft.endpoints.is_empty() {
            return Err(BadDetails::NoEndpoint);
        }
        count("endpoints", draft.endpoints.len(), ENDPOINTS_MAX)?;
        count("capabilities", draft.capabilities.len(), CAPABILITIES_MAX)?;
        count("checks", draft.checks.len(), CHECKS_MAX)?;
        if draft.endpoints.iter().collect::<BTreeSet<_>>().len() != draft.endpoints.len() {
            return Err(BadDetails::Twice { what: "endpoint".into() });
        }
        if draft.checks.iter().map(|check| &check.name).collect::<BTreeSet<_>>().len() != draft.checks.len() {
            return Err(BadDetails::Twice { what: "check".into() });
        }
        for check in &draft.checks {
            let name = &check.name;
            check.validate(draft.endpoints.len()).map_err(|bad| BadDetails::Check { name: name.clone(), bad })?;
        }
        match draft.on_critical {
            OnCritical::RevokeAfter(after) if after.millis() > UNHEALTHY_MS_MAX => {
                return Err(BadDetails::RevokeAfter { ms: after.millis() });
            }
            _ if draft.weight > WEIGHT_MAX => return Err(BadDetails::Weight { weight: draft.weight }),
            _ => {}
        }
        match draft.bytes() {
            bytes if bytes > INSTANCE_BYTES_MAX => Err(BadDetails::TooLong { bytes }),
            _ => Ok(Self(draft)),
        }
    }

    /// The same with what an edit says, if that can be.
    pub fn edited(&self, edit: &Edit) -> Result<Self, BadDetails> {
        let Edit { endpoints, capabilities, labels, zone, weight, version, checks, on_critical } = edit.clone();
        let old = self.0.clone();
        Self::new(Draft {
            endpoints: endpoints.unwrap_or(old.endpoints),
            capabilities: capabilities.unwrap_or(old.capabilities),
            labels: labels.unwrap_or(old.labels),
            zone: zone.unwrap_or(old.zone),
            weight: weight.unwrap_or(old.weight),
            version: version.unwrap_or(old.version),
            checks: checks.unwrap_or(old.checks),
            on_critical: on_critical.unwrap_or(old.on_critical),
        })
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl Deref for Details {
    type Target = Draft;

    fn deref(&self) -> &Draft {
        &self.0
    }
}

/// What is to be said otherwise of an instance; nothing keeps what was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Where it can be reached.
    pub endpoints: Option<Vec<Endpoint>>,
    /// What it can do.
    pub capabilities: Option<BTreeSet<Word>>,
    /// What else is to be said.
    pub labels: Option<Labels>,
    /// Where it is; nowhere, if that is taken back.
    pub zone: Option<Option<Word>>,
    /// How much it can take.
    pub weight: Option<u32>,
    /// Which version it is; none, if that is taken back.
    pub version: Option<Option<Word>>,
    /// How its health is found out. A check that stays as it was keeps what it found.
    pub checks: Option<Vec<Check>>,
    /// What becomes of it when it is critical.
    pub on_critical: Option<OnCritical>,
}

impl Edit {
    pub(crate) fn bytes(&self) -> usize {
        let endpoints: usize = self.endpoints.iter().flatten().map(Endpoint::bytes).sum();
        let capabilities: usize = self.capabilities.iter().flatten().map(|word| word.as_str().len()).sum();
        let labels = self.labels.iter().flat_map(|labels| labels.iter());
        let labels: usize = labels.map(|(key, value)| key.len() + value.len()).sum();
        let words = self.zone.iter().chain(&self.version).flatten();
        let words: usize = words.map(|word| word.as_str().len()).sum();
        endpoints + capabilities + labels + words + self.checks.iter().flatten().map(Check::bytes).sum::<usize>()
    }
}

/// Why an instance cannot be as it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDetails {
    /// It cannot be reached.
    #[error("it has no endpoint: give at least one, such as http://10.0.0.7:8080")]
    NoEndpoint,
    /// More of something than there may be.
    #[error("it has {count} {what}, more than {max}")]
    TooMany {
        /// Of what.
        what: Cow<'static, str>,
        /// How many.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// Something is there twice.
    #[error("it has one {what} twice")]
    Twice {
        /// What.
        what: Cow<'static, str>,
    },
    /// A check cannot be.
    #[error("check {name}: {bad}")]
    Check {
        /// Which.
        name: Word,
        /// Why.
        bad: BadCheck,
    },
    /// It would be left critical for too long.
    #[error("it is left critical for {ms} ms, more than {UNHEALTHY_MS_MAX}")]
    RevokeAfter {
        /// How long.
        ms: u64,
    },
    /// Its weight is out of range.
    #[error("its weight of {weight} is more than {WEIGHT_MAX}")]
    Weight {
        /// What was asked for.
        weight: u32,
    },
    /// It says too much.
    #[error("what it says of itself has {bytes} bytes, more than {INSTANCE_BYTES_MAX}")]
    TooLong {
        /// How much.
        bytes: usize,
    },
}
