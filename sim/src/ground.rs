//! What a simulated node stands on: a clock that runs a little wrong, and a disk that can be slow.

use crate::dice::Dice;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_server::Clock;
use tenure_server::disk::{MemoryDisk, SyncHook};
use tokio::time::Instant;

/// The simulation's true time, in which everything is judged.
pub(crate) fn true_time(origin: Instant) -> Duration {
    #[allow(clippy::disallowed_methods, reason = "the simulation's own clock")]
    Instant::now().duration_since(origin)
}

/// A clock at a rate of its own. Its wall is far off, because nothing may depend on it.
#[derive(Debug)]
pub(crate) struct BentClock {
    pub(crate) origin: Instant,
    pub(crate) rate: f64,
}

impl Clock for BentClock {
    fn monotonic(&self) -> Duration {
        true_time(self.origin).mul_f64(self.rate)
    }

    fn wall_ms(&self) -> u64 {
        86_400_000 * 365 * 30 - true_time(self.origin).as_millis() as u64
    }
}

/// How slow the disk is at the moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slowness {
    stall: Arc<Mutex<Option<Duration>>>,
}

impl Slowness {
    /// The next sync takes this long.
    pub(crate) fn stall_next(&self, time: Duration) {
        *self.stall.lock().expect("nobody panics while stalling") = Some(time);
    }

    /// Makes every sync of the disk take its time, as drawn, and now and then much longer.
    pub(crate) fn rule(&self, disk: &MemoryDisk, dice: Dice) {
        let stall = self.stall.clone();
        let hook: SyncHook = Arc::new(move || {
            let stalled = stall.lock().expect("nobody panics while stalling").take();
            let time = stalled.unwrap_or_else(|| Duration::from_micros(dice.between(50, 3_000)));
            Box::pin(tokio::time::sleep(time))
        });
        disk.set_sync_hook(Some(hook));
    }
}
