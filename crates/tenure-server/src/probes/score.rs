//! What results in a row come to: so many failures are degraded, more are critical, so many successes are passing. It lives
//! in the leader's memory and begins anew with each leadership.

use tenure_core::{Health, Probe};

/// The results of one check since they last turned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Score {
    failures: u32,
    successes: u32,
}

impl Score {
    /// Counts a success, and says how well the instance is by it. The first thing that is known of it decides at once: it has
    /// not failed before.
    pub(super) fn succeeded(&mut self, is: Health, probe: &Probe) -> Health {
        self.failures = 0;
        self.successes = self.successes.saturating_add(1);
        if self.successes >= probe.successes || is == Health::Unknown { Health::Passing } else { is }
    }

    /// Counts a failure, and says how well the instance is by it. No failure makes it better: one that nobody knows anything
    /// of does not become degraded, which would have it used.
    pub(super) fn failed(&mut self, is: Health, probe: &Probe) -> Health {
        self.successes = 0;
        self.failures = self.failures.saturating_add(1);
        match self.failures {
            failures if failures >= probe.failures => Health::Critical,
            failures if failures >= probe.degraded_after => is.max(Health::Degraded),
            _ => is,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{Ask, Span};

    fn probe(degraded_after: u32, failures: u32, successes: u32) -> Probe {
        let span = Span::at_most(1_000, 1_000).unwrap();
        Probe { endpoint: 0, ask: Ask::Tcp, interval: span, timeout: span, degraded_after, failures, successes }
    }

    /// What each result of a row comes to, from a health on: `+` is a success, `-` a failure.
    fn row(from: Health, probe: &Probe, results: &str) -> String {
        let (mut score, mut is) = (Score::default(), from);
        let letter = |health| match health {
            Health::Passing => 'p',
            Health::Degraded => 'd',
            Health::Unknown => 'u',
            Health::Critical => 'c',
        };
        let mut next = |result| {
            is = if result == '+' { score.succeeded(is, probe) } else { score.failed(is, probe) };
            letter(is)
        };
        results.chars().map(&mut next).collect()
    }

    #[test]
    fn failures_in_a_row_make_it_degraded_and_then_critical() {
        assert_eq!(row(Health::Passing, &probe(2, 4, 1), "-----"), "pddcc");
        assert_eq!(row(Health::Passing, &probe(2, 2, 1), "---"), "pcc", "the same number: critical at once");
        assert_eq!(row(Health::Passing, &probe(1, 1, 1), "-"), "c");
    }

    #[test]
    fn successes_in_a_row_make_it_passing() {
        assert_eq!(row(Health::Critical, &probe(1, 2, 3), "++++"), "ccpp");
        assert_eq!(row(Health::Unknown, &probe(1, 3, 2), "-+"), "up", "whom nobody knows anything of needs one");
        assert_eq!(row(Health::Degraded, &probe(1, 3, 2), "++"), "dp");
    }

    #[test]
    fn a_row_that_is_broken_begins_anew() {
        assert_eq!(row(Health::Passing, &probe(2, 3, 1), "-+-+--+---"), "pppppdppdc");
        assert_eq!(row(Health::Critical, &probe(1, 2, 2), "+-+-++"), "cccccp");
    }

    #[test]
    fn no_failure_makes_it_better() {
        assert_eq!(row(Health::Critical, &probe(1, 3, 1), "--"), "cc", "a new leader counts from nothing");
        assert_eq!(row(Health::Unknown, &probe(1, 3, 1), "---"), "uuc");
    }
}
