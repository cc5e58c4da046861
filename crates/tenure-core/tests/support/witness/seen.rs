//! How often things happened, so that a test can tell that it tested something.

use crate::support::few_cases;
use tenure_core::{End, Refusal};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) seated_from_line: u64,
    pub(crate) expired: u64,
    pub(crate) released: u64,
    pub(crate) revoked: u64,
    pub(crate) left_line: u64,
    pub(crate) saved_by_renewal: u64,
    pub(crate) refused: u64,
    pub(crate) ended_together: u64,
    /// Beside others on one resource.
    pub(crate) shared: u64,
    /// Seated before others who waited.
    pub(crate) overtaken: u64,
    pub(crate) vacating: u64,
    pub(crate) freed: u64,
    pub(crate) with_parent: u64,
    pub(crate) superseded: u64,
    pub(crate) outlived: u64,
    pub(crate) waited_out: u64,
    pub(crate) transferred: u64,
    pub(crate) would_deadlock: u64,
    pub(crate) unhealthy: u64,
    /// Instances that came, and that went.
    pub(crate) registered: u64,
    pub(crate) deregistered: u64,
    pub(crate) replaced: u64,
    pub(crate) held_down: u64,
}

impl Seen {
    pub(super) fn ended(&mut self, how: &End) {
        let counter = match how {
            End::Released => &mut self.released,
            End::Expired => &mut self.expired,
            End::Revoked { .. } => &mut self.revoked,
            End::ParentEnded { .. } => &mut self.with_parent,
            End::Superseded => &mut self.superseded,
            End::MaxLifetime => &mut self.outlived,
            End::WaitedOut => &mut self.waited_out,
            End::Unhealthy => &mut self.unhealthy,
            End::Transferred { .. } => panic!("a claim is transferred, and a lease is not"),
        };
        *counter += 1;
    }

    pub(super) fn refused(&mut self, refusal: &Refusal) {
        self.refused += 1;
        self.would_deadlock += u64::from(matches!(refusal, Refusal::WouldDeadlock { .. }));
    }

    /// Every counter.
    fn all(&mut self) -> [&mut u64; 23] {
        [
            &mut self.seated_from_line,
            &mut self.expired,
            &mut self.released,
            &mut self.revoked,
            &mut self.left_line,
            &mut self.saved_by_renewal,
            &mut self.refused,
            &mut self.ended_together,
            &mut self.shared,
            &mut self.overtaken,
            &mut self.vacating,
            &mut self.freed,
            &mut self.with_parent,
            &mut self.superseded,
            &mut self.outlived,
            &mut self.waited_out,
            &mut self.transferred,
            &mut self.would_deadlock,
            &mut self.unhealthy,
            &mut self.registered,
            &mut self.deregistered,
            &mut self.replaced,
            &mut self.held_down,
        ]
    }

    pub(crate) fn add(&mut self, mut other: Self) {
        for (count, more) in self.all().into_iter().zip(other.all()) {
            *count += *more;
        }
    }

    /// That every rule was put to the test.
    pub(crate) fn assert_everything_was_seen(mut self) {
        let all = few_cases() || self.all().iter().all(|count| **count > 0);
        assert!(all, "some rule was never put to the test: {self:?}");
    }
}
