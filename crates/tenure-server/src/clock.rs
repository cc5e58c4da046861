//! The only place of the server that reads a clock, and the rule by which a leader's service time runs.

use crate::limits::STEP_MAX;
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

/// The service time of one leadership. It runs with the monotonic clock, and never more than `step_max` beyond `seen`,
/// which is what it read when the leader last saw an entry of its own applied, and no more than `step_max` beyond that
/// entry's stamp. What the cap cuts off is dropped for good, so that no stall of the process, the disk or the quorum makes
/// time jump over holders who were trying to renew.
///
/// A stall may have moved it by `STEP_MAX` without a request being applied. So it does not advance afterwards until requests that
/// arrived within a step were applied, and so it is when a leadership begins while any lease lives: a holder that keeps trying
/// has as much time to be heard as it loses, also under many leaders in a row. Only a process that is paused again and again, with
/// a moment between, moves it all the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceClock {
    shown: Duration,
    at: Duration,
    seen: Duration,
    step_max: Duration,
    dropped: Duration,
    pace: Pace,
    /// Until then it stands still because the leadership begins: no stall, but the last of the time without a leader.
    begins_until: Duration,
    /// While no lease lives time stands still, and nobody's deadline is late for it.
    resting: bool,
    /// What it showed when the newest entry was proposed that came back, and when that was: then nobody else led.
    led: (Duration, Duration),
}

#[derive(Clone, Copy, Debug)]
enum Pace {
    Runs,
    /// It ran into the cap, and no entry has come back since.
    Stuck,
    /// Entries come back since then. Time goes on when one comes back that was proposed a step later: by then every request that
    /// arrived within that step was applied.
    Opens(Duration),
    /// The same, after an entry that took longer than a step itself: what arrived in the first step may not have been read.
    Reopens(Duration),
}

impl ServiceClock {
    /// Starts from the ledger's `now` at the monotonic time `at`, when the leadership's own blank entry was applied.
    pub(crate) fn start(now: Moment, at: Duration, step_max: Duration) -> Self {
        let shown = Duration::from_millis(now.millis());
        let (dropped, pace, begins_until) = (Duration::ZERO, Pace::Opens(at), at + STEP_MAX);
        Self { shown, at, seen: shown, step_max, dropped, pace, begins_until, resting: false, led: (shown, at) }
    }

    /// Reads the time for a stamp.
    pub(crate) fn read(&mut self, at: Duration) -> Moment {
        let look = self.look(at);
        self.dropped += look.dropped;
        (self.shown, self.at, self.pace) = (look.shown, at, look.pace);
        moment(look.shown)
    }

    /// Notes that an entry of this leadership, proposed and stamped then, was applied. One that comes back long after its
    /// stamp was on its way before a stall: it does not say that anybody could renew since, so it makes room for no further
    /// step.
    pub(crate) fn applied(&mut self, stamp: Moment, proposed: Duration, at: Duration) {
        self.read(at);
        let fresh = Duration::from_millis(stamp.millis()) + self.step_max;
        self.seen = self.seen.max(self.shown.min(fresh));
        if proposed >= self.led.1 {
            self.led = (Duration::from_millis(stamp.millis()), proposed);
        }
        self.pace = match self.pace {
            Pace::Stuck => Pace::Opens(at),
            // One that took so long was in another stall. A disk that is always so slow must not stop time, so this is
            // done once.
            Pace::Opens(since) if proposed >= since && at > proposed + STEP_MAX => Pace::Reopens(at),
            Pace::Opens(since) | Pace::Reopens(since) if proposed >= since + STEP_MAX => Pace::Runs,
            pace => pace,
        };
    }

    /// Stands still from now on, because no lease lives. Then there is nobody to be heard, either.
    pub(crate) fn rest(&mut self) {
        (self.resting, self.pace, self.seen) = (true, Pace::Runs, self.shown);
    }

    /// Goes on if it stood still.
    pub(crate) fn wake(&mut self, at: Duration) {
        if self.resting {
            (self.at, self.led) = (at, (self.shown, at));
            self.resting = false;
        }
    }

    /// What the clock shows at a monotonic time, without reading it for good.
    pub(crate) fn peek(&self, at: Duration) -> Moment {
        moment(self.look(at).shown)
    }

    /// What the time of the service is at the latest, should somebody else lead by now: if no entry has come back for so
    /// long, nobody here knows.
    pub(crate) fn at_latest(&self, at: Duration) -> Moment {
        let (stamp, proposed) = self.led;
        let silent = at.saturating_sub(proposed);
        if self.resting || silent <= self.step_max { self.peek(at) } else { moment(stamp + silent).max(self.peek(at)) }
    }

    /// How long it takes at least, from a monotonic time on, until the clock shows this moment.
    pub(crate) fn until(&self, then: Moment, at: Duration) -> Duration {
        let Look { shown, pace, .. } = self.look(at);
        let left = Duration::from_millis(then.millis()).saturating_sub(shown);
        let stands = match pace {
            _ if left.is_zero() => Duration::ZERO,
            Pace::Runs => Duration::ZERO,
            Pace::Opens(since) | Pace::Reopens(since) => (since + STEP_MAX).saturating_sub(at),
            Pace::Stuck => STEP_MAX,
        };
        stands + left
    }

    /// Whether time goes on.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.pace, Pace::Runs)
    }

    /// How much time was dropped so far.
    pub(crate) fn dropped(&self) -> Duration {
        self.dropped
    }

    fn look(&self, at: Duration) -> Look {
        let from = match self.pace {
            _ if self.resting => at,
            Pace::Runs => self.at,
            Pace::Stuck | Pace::Opens(_) | Pace::Reopens(_) => at,
        };
        let free = self.shown + at.saturating_sub(from);
        let shown = free.min(self.seen + self.step_max);
        let pace = match self.pace {
            _ if shown < free => Pace::Stuck,
            pace => pace,
        };
        let counts_from = self.at.max(self.begins_until);
        let stood = if self.resting { Duration::ZERO } else { from.saturating_sub(counts_from) };
        Look { shown, dropped: stood + (free - shown), pace }
    }
}

/// What a reading comes to.
struct Look {
    shown: Duration,
    /// Of the time since the reading before.
    dropped: Duration,
    pace: Pace,
}

fn moment(time: Duration) -> Moment {
    Moment::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    /// A clock that showed 0 at 0, and has run since.
    fn running() -> ServiceClock {
        let begins_until = Duration::ZERO;
        ServiceClock { pace: Pace::Runs, begins_until, ..ServiceClock::start(at(0), ms(0), STEP_MAX) }
    }

    #[test]
    fn a_leadership_begins_with_a_step_in_which_everybody_can_be_heard() {
        let mut clock = ServiceClock::start(at(1_000), ms(70), STEP_MAX);
        clock.applied(at(1_000), ms(69), ms(80));
        assert_eq!(clock.read(ms(5_000)), at(1_000), "what was proposed before it says nothing");
        clock.applied(at(1_000), ms(5_000), ms(5_010));
        assert_eq!(clock.read(ms(5_020)), at(1_010), "the step has passed, and who is heard comes back");
        assert_eq!(clock.dropped(), ms(4_440), "all but the step with which it begins");

        let mut quick = ServiceClock::start(at(1_000), ms(70), STEP_MAX);
        quick.applied(at(1_000), ms(70), ms(80));
        quick.applied(at(1_000), ms(560), ms(575));
        assert_eq!(quick.read(ms(579)), at(1_000), "what arrived since may not be in it");
        quick.applied(at(1_000), ms(580), ms(590));
        assert_eq!(quick.read(ms(600)), at(1_010));
        assert_eq!(quick.dropped(), ms(20), "all but the step with which it begins");
    }

    #[test]
    fn whoever_is_cut_off_counts_on_for_others() {
        let mut clock = running();
        clock.applied(at(90), ms(90), ms(100));
        assert_eq!((clock.peek(ms(200)), clock.at_latest(ms(200))), (at(200), at(200)));
        let cap = clock.peek(ms(60_000));
        assert!(cap <= at(700), "{cap}");
        assert_eq!(clock.at_latest(ms(60_000)), at(60_000));
        // Also when it was looked at meanwhile, and until an entry comes back.
        assert_eq!(clock.read(ms(70_000)), cap);
        assert_eq!(clock.at_latest(ms(80_000)), at(80_000));
        clock.applied(cap, ms(80_000), ms(80_010));
        assert_eq!(clock.at_latest(ms(80_020)), cap);
        // Also if it had just begun to lead.
        let begun = ServiceClock::start(at(1_000), ms(0), STEP_MAX);
        assert_eq!((begun.peek(ms(60_000)), begun.at_latest(ms(60_000))), (at(1_000), at(61_000)));
    }

    #[test]
    fn a_moment_between_two_stalls_is_no_time_to_be_heard() {
        let mut clock = running();
        let mut stuck = (clock.read(ms(1)), ms(1));
        for n in 1..=10 {
            let now = ms(n * 4_000);
            clock.applied(stuck.0, stuck.1, now);
            let quick = clock.read(now);
            clock.applied(quick, now, now + ms(1));
            stuck = (clock.read(now + ms(1)), now + ms(1));
        }
        let shown = clock.read(ms(44_000));
        assert!(shown <= at(3_000), "no more than every second one moves it: {shown:?}");
    }

    #[test]
    fn a_larger_cap_does_not_stand_still_for_longer() {
        let mut clock = ServiceClock::start(at(0), ms(0), ms(3_600_000));
        clock.applied(at(0), ms(500), ms(510));
        assert_eq!(clock.read(ms(60_510)), at(60_000));
    }

    #[test]
    fn runs_at_full_rate_on_a_disk_that_is_slower_than_no_more_than_the_step() {
        let mut clock = running();
        for n in 0..20 {
            let stamp = clock.read(ms(n * 500));
            assert_eq!(stamp, at(n * 500));
            clock.applied(stamp, ms(n * 500), ms((n + 1) * 500));
        }
        assert_eq!(clock.dropped(), Duration::ZERO);
    }

    #[test]
    fn a_stall_moves_time_by_no_more_than_the_step_whatever_is_seen_first_after_it() {
        let mut stamped_first = running();
        assert_eq!(stamped_first.read(ms(10_000)), at(500));
        assert_eq!(stamped_first.dropped(), ms(9_500));

        let mut applied_first = running();
        applied_first.applied(at(0), ms(0), ms(10_000));
        assert_eq!(applied_first.read(ms(10_000)), at(500));
        assert_eq!(applied_first.dropped(), ms(9_500));
    }

    #[test]
    fn after_a_stall_it_stands_still_for_as_long_as_it_may_have_moved() {
        let mut clock = running();
        let stamp = clock.read(ms(10_000));
        clock.applied(stamp, ms(10_000), ms(10_100));
        let stamp = clock.read(ms(10_100));
        clock.applied(stamp, ms(10_100), ms(10_110));
        let stamp = clock.read(ms(10_600));
        clock.applied(stamp, ms(10_600), ms(10_610));
        assert_eq!((clock.read(ms(10_610)), clock.read(ms(10_650))), (at(500), at(540)));
        assert_eq!(clock.dropped(), ms(10_110), "all but what it shows");
    }

    #[test]
    fn stalls_that_follow_each_other_are_one() {
        let mut clock = running();
        let stamp = clock.read(ms(10_000));
        clock.applied(stamp, ms(10_000), ms(10_100));
        // What is proposed now does not come back for long.
        let stamp = clock.read(ms(10_100));
        assert_eq!(clock.read(ms(20_000)), at(500));
        clock.applied(stamp, ms(10_100), ms(20_000));
        let stamp = clock.read(ms(20_500));
        clock.applied(stamp, ms(20_500), ms(20_510));
        assert_eq!((clock.read(ms(20_510)), clock.read(ms(20_600))), (at(500), at(590)));
    }

    #[test]
    fn stands_still_while_nothing_is_seen_applied() {
        let mut clock = running();
        for n in 1..=100 {
            assert!(clock.read(ms(n * 200)) <= at(500));
        }
        clock.applied(at(500), ms(20_000), ms(20_000));
        clock.applied(at(500), ms(20_500), ms(20_500));
        assert_eq!(clock.read(ms(20_600)), at(600), "time that was dropped never comes back");
    }

    #[test]
    fn entries_that_come_back_one_by_one_out_of_a_stall_are_one_stall() {
        let mut clock = running();
        let stamps = [clock.read(ms(0)), clock.read(ms(1))];
        clock.applied(stamps[0], ms(0), ms(6_000));
        assert_eq!(clock.read(ms(9_000)), at(500));
        clock.applied(stamps[1], ms(1), ms(10_000));
        assert_eq!(clock.read(ms(20_000)), at(500), "neither was sent after the stall");
    }

    #[test]
    fn entries_that_come_back_often_and_late_are_a_stall() {
        let mut clock = running();
        let mut under_way = Vec::new();
        for n in 0..20 {
            under_way.push((clock.read(ms(n * 450)), ms(n * 450)));
            if n >= 2 {
                let (stamp, proposed) = under_way.remove(0);
                clock.applied(stamp, proposed, ms(n * 450));
            }
        }
        assert!(clock.dropped() > ms(2_000), "each was under way for 900 ms: {:?}", clock.dropped());
    }

    #[test]
    fn a_disk_that_is_always_too_slow_does_not_stop_time_for_ever() {
        let (mut clock, mut stamp, mut proposed) = (running(), at(0), ms(0));
        for n in 1..=100 {
            clock.applied(stamp, proposed, ms(n * 900));
            (stamp, proposed) = (clock.read(ms(n * 900)), ms(n * 900));
        }
        assert!(clock.peek(ms(90_000)) > at(10_000), "{:?}", clock.peek(ms(90_000)));
    }

    /// The log hangs for seconds, again and again. Time goes on when requests that arrived within a step were applied.
    #[test]
    fn hanging_disk_moves_no_time_unheard() {
        let mut clock = running();
        let stamp = clock.read(ms(10_000));
        clock.applied(stamp, ms(0), ms(10_000));
        let stamps = [clock.read(ms(10_001)), clock.read(ms(10_060))];
        clock.applied(stamps[0], ms(10_001), ms(15_000));
        assert_eq!(clock.read(ms(18_000)), at(500), "what arrived since was not applied");
        clock.applied(stamps[1], ms(10_060), ms(22_000));
        assert_eq!(clock.read(ms(22_001)), at(500), "nor was it in this entry");
        clock.applied(at(500), ms(18_000), ms(25_000));
        assert_eq!(clock.read(ms(25_100)), at(600), "it was in this one");
        assert_eq!(clock.read(ms(60_000)), at(1_000), "and the next hang moves time by a step");
    }

    #[test]
    fn says_how_long_a_moment_is_away_at_least() {
        let mut clock = ServiceClock::start(at(0), ms(0), STEP_MAX);
        assert_eq!(clock.until(at(100), ms(0)), ms(600));
        assert_eq!(clock.until(at(100), ms(200)), ms(400));
        assert_eq!(clock.until(at(100), ms(550)), ms(100), "as soon as an entry comes back");
        assert_eq!(clock.until(at(0), ms(20)), Duration::ZERO, "what is due is due");
        clock.applied(at(0), ms(500), ms(500));
        assert_eq!(clock.until(at(100), ms(550)), ms(50));
        clock.read(ms(9_000));
        assert_eq!(clock.until(at(501), ms(9_000)), ms(501), "it is stuck");
    }

    #[test]
    fn a_rest_costs_nobody_anything() {
        let mut clock = running();
        clock.rest();
        assert_eq!(clock.peek(ms(1_800_000)), at(0));
        clock.wake(ms(3_600_000));
        assert_eq!(clock.read(ms(3_600_010)), at(10));
        assert_eq!(clock.dropped(), Duration::ZERO);
    }

    #[test]
    fn where_no_lease_lives_nobody_is_waited_for() {
        let mut clock = ServiceClock::start(at(1_000), ms(70), STEP_MAX);
        clock.rest();
        clock.wake(ms(90));
        assert_eq!(clock.read(ms(100)), at(1_010));
        assert_eq!(clock.read(ms(10_000)), at(1_500), "and the cap holds");
        clock.rest();
        clock.wake(ms(10_010));
        clock.applied(at(1_500), ms(10_010), ms(10_020));
        assert_eq!(clock.read(ms(10_030)), at(1_520));
    }

    #[test]
    fn fractions_of_a_millisecond_are_not_lost() {
        let mut clock = running();
        for n in 1..=10_000u64 {
            let now = Duration::from_micros(n * 300);
            let stamp = clock.read(now);
            clock.applied(stamp, now, now);
        }
        assert_eq!(clock.peek(ms(3_000)), at(3_000));
    }
}
