//! The one place of the client that reads a clock: the time since the machine was started, its sleep included. It never
//! asks what the hour is.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// A point in time: how long after the start of the machine. It means the same in every process of the machine, and
/// nothing on another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// That long after the start of the machine.
    pub const fn from_start(time: Duration) -> Self {
        Self(time)
    }

    /// How long after the start of the machine.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// So many nanoseconds after the start of the machine: how a time is told to another process, or kept in an atomic.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// How many nanoseconds after the start of the machine; in some 580 years it stands still.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How long after `earlier`; nothing, if it is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl Sub<Duration> for BootTime {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }
}

/// The clock by which a client holds its leases. It goes on while the machine sleeps, so that a holder that was suspended
/// knows at once, when it wakes, that its time is over.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    source: Source,
}

/// What a clock shows.
#[derive(Clone, Default)]
enum Source {
    #[default]
    Machine,
    /// The machine's time, moved forward.
    Moved(Arc<Moved>),
    /// Another time altogether, which passes with the time of the runtime.
    Simulated(Arc<dyn Fn() -> BootTime + Send + Sync>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "Machine",
            Self::Moved(_) => "Moved",
            Self::Simulated(_) => "Simulated",
        })
    }
}

#[derive(Debug, Default)]
struct Moved {
    by_nanos: AtomicU64,
    again: Notify,
}

/// Moves a clock forward, as if the machine had slept.
#[derive(Clone, Debug)]
pub struct Mover {
    moved: Arc<Moved>,
}

impl Mover {
    /// The machine has slept for so long.
    pub fn sleep(&self, span: Duration) {
        self.moved.by_nanos.fetch_add(BootTime(span).nanos(), Ordering::SeqCst);
        self.moved.again.notify_waiters();
    }
}

impl Clock {
    /// The machine's clock.
    pub const fn system() -> Self {
        Self { source: Source::Machine }
    }

    /// The machine's clock, and the means to move it forward: for tests of what a suspended machine does.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let (clock, mover) = tenure::clock::Clock::movable();
    /// let before = clock.now();
    /// mover.sleep(Duration::from_secs(3600));
    /// assert!(clock.now().since(before) >= Duration::from_secs(3600));
    /// ```
    pub fn movable() -> (Self, Mover) {
        let moved = Arc::new(Moved::default());
        (Self { source: Source::Moved(moved.clone()) }, Mover { moved })
    }

    /// A clock that shows what this function says, in a simulation on the time of the runtime.
    #[doc(hidden)]
    pub fn simulated(now: impl Fn() -> BootTime + Send + Sync + 'static) -> Self {
        Self { source: Source::Simulated(Arc::new(now)) }
    }

    /// What time it is.
    pub fn now(&self) -> BootTime {
        match &self.source {
            Source::Machine => BootTime(machine::now()),
            Source::Moved(moved) => {
                BootTime(machine::now()) + Duration::from_nanos(moved.by_nanos.load(Ordering::SeqCst))
            }
            Source::Simulated(now) => now(),
        }
    }

    /// Returns when it is that time, at once if it was, and never if there is none.
    pub async fn until(&self, time: impl Into<Option<BootTime>>) {
        let Some(time) = time.into() else { return std::future::pending().await };
        loop {
            let moved = match &self.source {
                Source::Moved(moved) => Some(moved.again.notified()),
                Source::Machine | Source::Simulated(_) => None,
            };
            let left = time.since(self.now());
            if left.is_zero() {
                return;
            }
            match (moved, &self.source) {
                // It may run slower than the time of the runtime, so it is read again after that.
                (_, Source::Simulated(_)) => tokio::time::sleep(left).await,
                (None, _) => machine::pass(left).await,
                (Some(moved), _) => tokio::select! {
                    () = moved => {}
                    () = machine::pass(left) => {}
                },
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod machine {
    use rustix::time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
        timerfd_settime,
    };
    use std::time::Duration;
    use tokio::io::unix::AsyncFd;

    /// One stops while the machine sleeps, the other one does not; in a container both may have been set.
    pub(super) fn now() -> Duration {
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        read(ClockId::Boottime).max(read(ClockId::Monotonic))
    }

    /// Lets so much time pass, sleep of the machine included. It may return early, and does where no such timer is to be
    /// had; whoever waits looks at the clock again.
    pub(super) async fn pass(span: Duration) {
        if timer(span).await.is_err() {
            tokio::time::sleep(span.min(Duration::from_millis(20))).await;
        }
    }

    #[expect(deprecated, reason = "sound for a descriptor that is owned; what replaces it is unsafe")]
    async fn timer(span: Duration) -> std::io::Result<()> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let span = Timespec::try_from(span).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: span };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
        AsyncFd::new(timer)?.readable().await?.retain_ready();
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod machine {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    /// Where no clock is known to count the sleep of the machine, it is looked at often.
    #[expect(clippy::disallowed_methods, reason = "this is the client's one home of the clock")]
    pub(super) fn now() -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    pub(super) async fn pass(span: Duration) {
        tokio::time::sleep(span.min(Duration::from_millis(20))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_waits_for_its_time_and_not_less() {
        let clock = Clock::system();
        let time = clock.now() + Duration::from_millis(30);
        clock.until(time).await;
        assert!(clock.now() >= time);
        clock.until(time).await;
    }

    #[tokio::test]
    async fn sleep_of_the_machine_counts_and_wakes_whoever_waits() {
        let (clock, mover) = Clock::movable();
        let time = clock.now() + Duration::from_secs(1_000_000);
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.until(time).await }
        });
        tokio::task::yield_now().await;
        mover.sleep(Duration::from_secs(999_999));
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        mover.sleep(Duration::from_secs(1));
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("whoever waits is woken").unwrap();
    }

    #[test]
    fn a_far_time_is_not_too_far() {
        assert_eq!(BootTime::from_start(Duration::MAX) + Duration::MAX, BootTime::from_start(Duration::MAX));
        assert_eq!(BootTime::default().since(BootTime::from_start(Duration::MAX)), Duration::ZERO);
    }
}
