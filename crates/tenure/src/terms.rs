//! What is asked of a lease: for how long, for whom, why. A claim on a lease of its own is asked for with the same words.

use crate::chance::Chance;
use crate::clock::Clock;
use crate::keeper::Gate;
use crate::timing::TTL_DEFAULT;
use crate::v1;
use std::time::Duration;

/// The terms of a new lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Terms {
    pub(crate) ttl: Option<Duration>,
    pub(crate) holder: Option<String>,
    pub(crate) class: String,
    pub(crate) reason: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) grace: Option<Duration>,
    pub(crate) lifetime: Option<Duration>,
    pub(crate) lifetime_while_others_wait: bool,
    pub(crate) parent: u64,
    pub(crate) progress_timeout: Option<Duration>,
}

impl Terms {
    /// The terms of a request. The ids in it are drawn anew.
    pub(crate) fn of(grant: &v1::GrantRequest) -> Self {
        let said = |ms: i64| (ms != 0).then(|| span(ms));
        Self {
            ttl: said(grant.ttl_ms),
            holder: (!grant.holder.is_empty()).then(|| grant.holder.clone()),
            class: grant.class.clone(),
            reason: grant.reason.clone(),
            labels: grant.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            grace: grant.grace_ms.map(span),
            lifetime: said(grant.lifetime_ms),
            lifetime_while_others_wait: grant.lifetime_while_others_wait,
            parent: grant.parent,
            progress_timeout: None,
        }
    }

    /// The request for a lease on these terms, with an id of its own.
    pub(crate) fn request(&self, holder: &str, chance: &Chance) -> v1::GrantRequest {
        let ttl = self.ttl.or_else(|| self.class.is_empty().then_some(TTL_DEFAULT));
        v1::GrantRequest {
            lease: chance.lease(),
            holder: self.holder.clone().unwrap_or_else(|| holder.into()),
            ttl_ms: ttl.map_or(0, millis),
            request: chance.draw(),
            class: self.class.clone(),
            grace_ms: self.grace.map(millis),
            lifetime_ms: self.lifetime.map_or(0, millis),
            lifetime_while_others_wait: self.lifetime_while_others_wait,
            parent: self.parent,
            labels: self.labels.iter().cloned().collect(),
            reason: self.reason.clone(),
        }
    }

    /// What shuts when no progress is told.
    pub(crate) fn gate(&self, clock: &Clock) -> Option<Gate> {
        self.progress_timeout.map(|timeout| Gate::new(timeout, clock.now()))
    }
}

pub(crate) fn span(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// The words with which a lease is asked for, for whoever has a field `terms`.
macro_rules! with_terms {
    ($name:ident $(<$life:lifetime>)?) => {
        impl $(<$life>)? $name $(<$life>)? {
            /// For so long, unless it is renewed: 15 s if nothing is said, or what the class says.
            pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
                self.terms.ttl = Some(ttl);
                self
            }

            /// For whom; else `user@host:pid`.
            pub fn holder(mut self, holder: impl Into<String>) -> Self {
                self.terms.holder = Some(holder.into());
                self
            }

            /// By the presets and the policy of this class: `lock`, `election`, `session`, `reservation`, `cache`,
            /// `registration`, or one that was defined.
            pub fn class(mut self, class: impl Into<String>) -> Self {
                self.terms.class = class.into();
                self
            }

            /// What it is for, in a sentence; people see it when they ask who holds it and why.
            pub fn reason(mut self, reason: impl Into<String>) -> Self {
                self.terms.reason = reason.into();
                self
            }

            /// A label, by which leases can be listed and revoked.
            pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
                self.terms.labels.push((key.into(), value.into()));
                self
            }

            /// How long it stays held and renewable after its deadline. Its holder stops at the deadline all the same.
            pub fn grace(mut self, grace: std::time::Duration) -> Self {
                self.terms.grace = Some(grace);
                self
            }

            /// How long it may be renewed at all.
            pub fn max_lifetime(mut self, lifetime: std::time::Duration) -> Self {
                self.terms.lifetime = Some(lifetime);
                self
            }

            /// The longest lifetime counts only while others wait.
            pub fn while_others_wait(mut self) -> Self {
                self.terms.lifetime_while_others_wait = true;
                self
            }

            /// It ends with this lease.
            pub fn child_of(mut self, parent: u64) -> Self {
                self.terms.parent = parent;
                self
            }

            /// It is renewed only while progress is told at least so often. A program that hangs loses its lease, even if
            /// the process lives.
            pub fn progress_timeout(mut self, timeout: std::time::Duration) -> Self {
                self.terms.progress_timeout = Some(timeout);
                self
            }
        }
    };
}

pub(crate) use with_terms;
