//! The arithmetic of holding a lease: when to renew, until when to work, what outage that survives. It reads no clock;
//! all times count from the moment at which the last answered grant or renewal was **sent**.

use std::time::Duration;

/// Percent by which the rates of two clocks may differ. Neither has to show the right time.
pub const DRIFT_PERCENT: u32 = 1;

/// The TTL of a lease for which nobody says one.
pub const TTL_DEFAULT: Duration = Duration::from_secs(15);

/// The shortest TTL that a wrapped program can live with.
pub const WRAPPED_TTL_MIN: Duration = Duration::from_secs(1);

/// Below this a wrapped program is stopped by small hiccups, and whoever asks for it is warned.
pub const WRAPPED_TTL_GOOD: Duration = Duration::from_secs(10);

/// Before the end, so long is left for the kernel to kill what did not stop.
pub const KILL_MARGIN: Duration = Duration::from_millis(100);

/// At most so long a program is given to stop, unless it is said otherwise.
const STOP_BUDGET_MAX: Duration = Duration::from_secs(10);

/// At most so long the first attempt is waited for before the next one starts beside it.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(1);

/// When a holder of a lease does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// When the next renewal is sent.
    pub renew: Duration,
    /// How long it is waited for before the next attempt starts; a late answer still counts.
    pub first_retry: Duration,
    /// From then on, so often; each time up to half as long again, by chance, so that holders do not march in step.
    pub retry: Duration,
    /// When a wrapped program is asked to stop.
    pub stop: Duration,
    /// When a wrapped program that did not stop is killed.
    pub kill: Duration,
    /// When the work is over: nobody else has the lease before this.
    pub safe_until: Duration,
}

impl Timing {
    /// By the effective TTL of the answer. A program is given a fifth of it to stop, at most 10 s.
    pub fn of(ttl: Duration) -> Self {
        Self::with_stop_budget(ttl, (ttl / 5).min(STOP_BUDGET_MAX))
    }

    /// The same for a program that needs its own time to stop.
    pub fn with_stop_budget(ttl: Duration, budget: Duration) -> Self {
        let safe_until = safe_for(ttl);
        Self {
            renew: ttl / 3,
            first_retry: (ttl / 10).min(FIRST_ANSWER_MAX),
            retry: ttl / 20,
            stop: safe_until.saturating_sub(budget),
            kill: safe_until.saturating_sub(KILL_MARGIN),
            safe_until,
        }
    }

    /// The longest outage after which a renewal is still answered before `end`, when it begins at the worst moment: as
    /// the next renewal is about to be sent. It ends at the latest as long before `end` as an attempt may be away, and
    /// the answer takes a round trip.
    pub fn outage_before(&self, end: Duration, round_trip: Duration) -> Duration {
        let attempts_apart = self.retry * 3 / 2;
        end.saturating_sub(self.renew).saturating_sub(attempts_apart).saturating_sub(round_trip)
    }
}

/// How long after it was sent an answered grant or renewal may be relied on. The server counts its TTL from later on,
/// and its clock may be the faster one by [`DRIFT_PERCENT`] while ours is the slower one by as much.
pub fn safe_for(ttl: Duration) -> Duration {
    // Divided first, so that no TTL is too long for it.
    let (slow, fast) = (100 - DRIFT_PERCENT, 100 + DRIFT_PERCENT);
    let nanos = ttl.as_nanos() / u128::from(fast) * u128::from(slow);
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    let subsec = u32::try_from(nanos % 1_000_000_000).unwrap_or_default();
    Duration::new(seconds, subsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn fifteen_seconds_are_what_the_rules_say() {
        let timing = Timing::of(ms(15_000));
        assert_eq!(timing.renew, ms(5_000), "a third");
        assert_eq!(timing.first_retry, ms(1_000), "a tenth, at most a second");
        assert_eq!(timing.retry, ms(750), "a twentieth");
        // 15 s * 0.99 / 1.01 = 14.702970… s
        assert_eq!(timing.safe_until.as_millis(), 14_702);
        assert_eq!(timing.stop, timing.safe_until - ms(3_000), "a fifth before");
        assert_eq!(timing.kill, timing.safe_until - ms(100));
    }

    #[test]
    fn short_and_long_ones_keep_the_order_of_things() {
        for ttl_ms in [1_000, 1_500, 10_000, 60_000, 3_600_000, 9_000_000_000_000] {
            let timing = Timing::of(ms(ttl_ms));
            let order = [timing.renew, timing.renew + timing.first_retry, timing.stop, timing.kill, timing.safe_until];
            assert!(order.is_sorted() && timing.safe_until < ms(ttl_ms), "{ttl_ms} ms: {timing:?}");
            assert!(timing.first_retry <= ms(1_000) && timing.safe_until - timing.stop <= ms(10_000), "{timing:?}");
        }
        assert_eq!(Timing::of(ms(5_000)).first_retry, ms(500));
        let longest = safe_for(Duration::MAX);
        assert!(longest > Duration::MAX / 2 && longest < Duration::MAX, "no TTL is too long for it: {longest:?}");
    }

    #[test]
    fn the_holder_stops_first_at_any_drift_that_is_allowed() {
        for ttl_ms in [100_u64, 333, 15_000, 86_400_000] {
            // Our clock runs slow by the drift, the server's fast by the same: in true time they still do not meet.
            let ours = safe_for(ms(ttl_ms)).as_secs_f64() / 0.99;
            let theirs = ttl_ms as f64 / 1000.0 / 1.01;
            assert!(ours <= theirs && theirs - ours < 1e-6, "{ttl_ms} ms: {ours} s against {theirs} s");
        }
    }

    #[test]
    fn an_outage_is_survived_if_one_attempt_fits_behind_it() {
        let timing = Timing::of(ms(15_000));
        let outage = timing.outage_before(timing.stop, ms(10));
        // It begins when the renewal is due; then one gap between attempts and one round trip have to fit.
        assert_eq!(timing.renew + outage + ms(1_125) + ms(10), timing.stop);
        assert!(outage >= ms(4_500), "three tenths of the TTL at least: {outage:?}");
        assert!(timing.outage_before(timing.safe_until, ms(10)) > outage);
        assert_eq!(timing.outage_before(timing.stop, ms(60_000)), Duration::ZERO, "too far away survives nothing");
    }

    #[test]
    fn a_program_may_need_its_own_time_to_stop() {
        let timing = Timing::with_stop_budget(ms(15_000), ms(8_000));
        assert_eq!(timing.stop, timing.safe_until - ms(8_000));
        assert_eq!(Timing::with_stop_budget(ms(1_000), ms(8_000)).stop, Duration::ZERO);
    }
}
