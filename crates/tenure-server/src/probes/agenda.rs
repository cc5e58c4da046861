//! When each check is due. It is told the time and draws no numbers of its own.

use std::collections::BTreeSet;
use std::time::Duration;

/// What is due when, by the numbers of the checks.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    dues: BTreeSet<(Duration, u64)>,
}

impl Agenda {
    pub(super) fn put(&mut self, at: Duration, check: u64) {
        self.dues.insert((at, check));
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.dues.first().map(|(at, _)| *at)
    }

    /// Takes out the next check that is due, and since when it is.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<(Duration, u64)> {
        self.dues.first().filter(|(at, _)| *at <= now)?;
        self.dues.pop_first()
    }
}

/// A part of a span, drawn evenly: from nothing up to all of it.
pub(super) fn part(span: Duration, drawn: u64) -> Duration {
    let nanos = (span.as_nanos() * u128::from(drawn)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// When a check is due next: an interval later, give or take a tenth, so that checks that began together do not stay
/// together. One that ended after that leaves its place to others for a tenth of it.
pub(super) fn following(due: Duration, interval: Duration, drawn: u64, now: Duration) -> Duration {
    (due + interval - interval / 10 + part(interval / 5, drawn)).max(now + interval / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn checks_are_taken_in_the_order_in_which_they_are_due() {
        let mut agenda = Agenda::default();
        for (at, check) in [(30, 1), (10, 2), (20, 3), (10, 4)] {
            agenda.put(ms(at), check);
        }
        assert_eq!(agenda.next(), Some(ms(10)));
        assert_eq!(agenda.take_due(ms(9)), None);
        let taken: Vec<_> = std::iter::from_fn(|| agenda.take_due(ms(20))).collect();
        assert_eq!(taken, [(ms(10), 2), (ms(10), 4), (ms(20), 3)]);
        assert_eq!(agenda.next(), Some(ms(30)));
    }

    #[test]
    fn a_part_is_never_all_of_it() {
        assert_eq!(part(SECOND, 0), Duration::ZERO);
        assert_eq!(part(SECOND, 1 << 63), ms(500));
        assert!(part(SECOND, u64::MAX) < SECOND && part(SECOND, u64::MAX) > ms(999));
    }

    #[test]
    fn the_next_one_is_an_interval_later_give_or_take_a_tenth() {
        assert_eq!(following(ms(5_000), SECOND, 0, ms(5_200)), ms(5_900));
        assert_eq!(following(ms(5_000), SECOND, 1 << 63, ms(5_200)), ms(6_000));
        assert!(following(ms(5_000), SECOND, u64::MAX, ms(5_200)) < ms(6_100));
        assert_eq!(following(ms(5_000), SECOND, 0, ms(8_000)), ms(8_100), "never in the past, and never at once");
    }
}
