//! How timely the ends and renewals of one entry were, for whoever measures the service. No rule reads it, and it is no
//! state: it begins anew with each entry.

use crate::time::{Moment, Ttl};
use alloc::vec::Vec;

/// How timely one entry was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// For each lease that ended because its time had come: how long after its deadline and its grace, in milliseconds.
    pub late_ms: Vec<u64>,
    /// How early the renewals came.
    pub slack: Slack,
}

/// What was left of leases when they were renewed, as a part of their TTLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slack {
    /// How many had nothing left, more than that and up to one tenth, and so on up to the whole.
    pub tenths: [u32; 11],
    /// All of it, in thousandths of a TTL.
    pub thousandths: u64,
}

impl Slack {
    /// Notes a renewal at `now`. A deadline may be further away than one TTL, if that was shortened; it counts as whole.
    pub(super) fn note(&mut self, deadline: Moment, ttl: Ttl, now: Moment) {
        let left_ms = deadline.millis_since(now).min(ttl.millis());
        let thousandths = (left_ms * 1000).div_ceil(ttl.millis());
        self.tenths[usize::try_from(thousandths.div_ceil(100)).expect("it is at most ten")] += 1;
        self.thousandths += thousandths;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RULES_MAX;
    use crate::{Command, Entry, Grant, Holder, Kind, Leader, LeaseId, Ledger, Renew, Renewal, Span};
    use alloc::vec;

    fn apply(ledger: &mut Ledger, now_ms: u64, commands: Vec<Command>) -> Timing {
        let (leader, now) = (Leader { term: 1, node: 1 }, Moment::from_millis(now_ms));
        ledger.apply(&Entry { leader, now, wall_ms: 0, rules: RULES_MAX, commands }).timing
    }

    fn grant(lease: u64, grace_ms: u64) -> Command {
        let (id, holder) = (LeaseId::from_number(lease).unwrap(), Holder::parse("ann").unwrap());
        let grace = Some(Span::at_most(grace_ms, grace_ms).unwrap());
        Command::Grant(Grant { grace, ..Grant::plain(id, holder, Ttl::from_millis(10_000).unwrap(), 1) })
    }

    fn renew(leases: &[u64]) -> Command {
        let renewal = |lease: &u64| Renewal { lease: LeaseId::from_number(*lease).unwrap(), ttl: None };
        Command::Renew(Renew { leases: leases.iter().map(renewal).collect(), kind: Kind::Auto })
    }

    #[test]
    fn an_end_is_late_by_what_is_beyond_deadline_and_grace() {
        let mut ledger = Ledger::default();
        assert_eq!(apply(&mut ledger, 0, vec![grant(1, 0), grant(2, 5_000)]), Timing::default());
        assert_eq!(apply(&mut ledger, 10_030, vec![]).late_ms, [30]);
        assert_eq!(apply(&mut ledger, 14_999, vec![]), Timing::default(), "each entry is measured by itself");
        assert_eq!(apply(&mut ledger, 15_000, vec![]).late_ms, [0]);
    }

    #[test]
    fn renewals_are_told_apart_by_what_was_left() {
        let mut ledger = Ledger::default();
        apply(&mut ledger, 0, vec![grant(1, 0), grant(2, 5_000), grant(3, 0)]);
        let at_once = apply(&mut ledger, 0, vec![renew(&[1])]).slack;
        assert_eq!((at_once.tenths[10], at_once.thousandths), (1, 1_000));
        let at_two_thirds = apply(&mut ledger, 6_667, vec![renew(&[1])]).slack;
        assert_eq!((at_two_thirds.tenths[4], at_two_thirds.thousandths), (1, 334));
        let at_the_end = apply(&mut ledger, 11_000, vec![renew(&[2, 3, 9])]).slack;
        assert_eq!(
            at_the_end.tenths,
            [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "one in its grace, one just in time, one unknown"
        );
    }
}
