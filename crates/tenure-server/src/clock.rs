//! The only place of the server that reads a clock, and the rule by which a leader's service time runs.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tenure_core::Moment;

/// A process's clocks. A parameter, so that whole nodes can run on simulated time.
pub trait Clock: Send + Sync + 'static {
    /// Time since a fixed point of this process; it never goes back.
    fn monotonic(&self) -> Duration;

    /// Milliseconds since 1970 by the wall: shown to people, never compared.
    fn wall_ms(&self) -> u64;
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the server's one home of the clock")]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the server's one home of the clock")]
    fn wall_ms(&self) -> u64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The service time of one leadership: `min(last reading + monotonic time since it, seen + step_max)`, where `seen` is
/// what it read when the leader last saw an entry of its own applied, and no more than `step_max` beyond that entry's
/// stamp. What the cap cuts off is dropped for good, so that no stall of the process, the disk or the quorum makes time
/// jump over holders who were trying to renew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceClock {
    shown: Duration,
    at: Duration,
    seen: Duration,
    step_max: Duration,
    dropped: Duration,
    /// While no lease lives time stands still, and nobody's deadline is late for it.
    resting: bool,
}

impl ServiceClock {
    /// Starts from the ledger's `now` at the monotonic time `at`, when the leadership's own blank entry was applied.
    pub(crate) fn start(now: Moment, at: Duration, step_max: Duration) -> Self {
        let shown = Duration::from_millis(now.millis());
        Self { shown, at, seen: shown, step_max, dropped: Duration::ZERO, resting: false }
    }

    /// Reads the time for a stamp.
    pub(crate) fn read(&mut self, at: Duration) -> Moment {
        let (shown, dropped) = self.look(at);
        self.shown = shown;
        self.dropped += dropped;
        self.at = at;
        moment(shown)
    }

    /// Notes that an entry of this leadership was applied. One that comes back long after its stamp was on its way before
    /// a stall: it does not say that anybody could renew since, so it makes room for no further step.
    pub(crate) fn applied(&mut self, stamp: Moment, at: Duration) {
        self.read(at);
        let fresh = Duration::from_millis(stamp.millis()) + self.step_max;
        self.seen = self.seen.max(self.shown.min(fresh));
    }

    /// Stands still from now on, because no lease lives.
    pub(crate) fn rest(&mut self) {
        self.resting = true;
    }

    /// Goes on if it stood still.
    pub(crate) fn wake(&mut self, at: Duration) {
        if self.resting {
            self.at = at;
            self.resting = false;
        }
    }

    /// What the clock shows at a monotonic time, without reading it for good.
    pub(crate) fn peek(&self, at: Duration) -> Moment {
        moment(self.look(at).0)
    }

    /// How much time was dropped so far.
    pub(crate) fn dropped(&self) -> Duration {
        self.dropped
    }

    fn look(&self, at: Duration) -> (Duration, Duration) {
        if self.resting {
            return (self.shown, Duration::ZERO);
        }
        let free = self.shown + at.saturating_sub(self.at);
        let shown = free.min(self.seen + self.step_max);
        (shown, free - shown)
    }
}

fn moment(time: Duration) -> Moment {
    Moment::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP_MAX: Duration = Duration::from_millis(500);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn runs_at_full_rate_on_a_disk_that_is_slower_than_no_more_than_the_step() {
        let mut clock = ServiceClock::start(Moment::from_millis(1_000), ms(70), STEP_MAX);
        for n in 0..20 {
            let stamp = clock.read(ms(70 + n * 500));
            assert_eq!(stamp, Moment::from_millis(1_000 + n * 500));
            clock.applied(stamp, ms(70 + (n + 1) * 500));
        }
        assert_eq!(clock.dropped(), Duration::ZERO);
    }

    #[test]
    fn a_stall_moves_time_by_no_more_than_the_step_whatever_is_seen_first_after_it() {
        let mut stamped_first = ServiceClock::start(Moment::from_millis(0), ms(0), STEP_MAX);
        assert_eq!(stamped_first.read(ms(10_000)), Moment::from_millis(500));
        assert_eq!(stamped_first.dropped(), ms(9_500));

        let mut applied_first = ServiceClock::start(Moment::from_millis(0), ms(0), STEP_MAX);
        applied_first.applied(Moment::from_millis(0), ms(10_000));
        assert_eq!(applied_first.read(ms(10_000)), Moment::from_millis(500));
        assert_eq!(applied_first.read(ms(10_100)), Moment::from_millis(600));
        assert_eq!(applied_first.dropped(), ms(9_500));
    }

    #[test]
    fn stands_still_while_nothing_is_seen_applied() {
        let mut clock = ServiceClock::start(Moment::from_millis(0), ms(0), STEP_MAX);
        for n in 1..=100 {
            assert!(clock.read(ms(n * 200)) <= Moment::from_millis(500));
        }
        clock.applied(Moment::from_millis(500), ms(20_000));
        assert_eq!(clock.read(ms(20_100)), Moment::from_millis(600), "time that was dropped never comes back");
    }

    #[test]
    fn entries_that_come_back_one_by_one_out_of_a_stall_are_one_stall() {
        let mut clock = ServiceClock::start(Moment::from_millis(0), ms(0), STEP_MAX);
        let stamps = [clock.read(ms(0)), clock.read(ms(1))];
        clock.applied(stamps[0], ms(6_000));
        assert_eq!(clock.read(ms(9_000)), Moment::from_millis(1_000));
        clock.applied(stamps[1], ms(10_000));
        assert_eq!(clock.read(ms(20_000)), Moment::from_millis(1_001), "the second one was not sent after the stall");
    }

    #[test]
    fn a_rest_costs_nobody_anything() {
        let mut clock = ServiceClock::start(Moment::from_millis(0), ms(0), STEP_MAX);
        clock.rest();
        assert_eq!(clock.peek(ms(1_800_000)), Moment::from_millis(0));
        clock.wake(ms(3_600_000));
        assert_eq!(clock.read(ms(3_600_010)), Moment::from_millis(10));
        assert_eq!(clock.dropped(), Duration::ZERO);
    }

    #[test]
    fn fractions_of_a_millisecond_are_not_lost() {
        let mut clock = ServiceClock::start(Moment::from_millis(0), ms(0), STEP_MAX);
        for n in 1..=10_000u64 {
            let stamp = clock.read(Duration::from_micros(n * 300));
            clock.applied(stamp, Duration::from_micros(n * 300));
        }
        assert_eq!(clock.peek(ms(3_000)), Moment::from_millis(3_000));
    }
}
