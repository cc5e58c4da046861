//! What an API key uses of its limits on this node: requests in a second, and open watches. It counts without locks, and reads
//! no clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How many requests of a second may come at once: all of them.
const BURST_NS: u64 = 1_000_000_000;

/// What one key uses. It outlives a change of the key's line.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// When the requests so far would all have been made at the rate of the limit, in nanoseconds of the node's monotonic time.
    paid_until: AtomicU64,
    watchers: AtomicU32,
}

impl Usage {
    /// Counts a request at this time, or says after which time the next one will be let in.
    pub(super) fn take_request(&self, a_second: u32, now: Duration) -> Result<(), Duration> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let each = (BURST_NS / u64::from(a_second.max(1))).max(1);
        let pay =
            |paid_until: u64| Some(paid_until.max(now) + each).filter(|paid| *paid <= now.saturating_add(BURST_NS));
        match self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay) {
            Ok(_) => Ok(()),
            Err(paid_until) => Err(Duration::from_nanos((paid_until + each).saturating_sub(now + BURST_NS))),
        }
    }

    /// Room for a watch until it is dropped.
    pub(super) fn take_watcher(self: &Arc<Self>, max: Option<u32>) -> Option<WatchRoom> {
        let max = max.unwrap_or(u32::MAX);
        let more = |open: u32| open.checked_add(1).filter(|open| *open <= max);
        self.watchers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(WatchRoom(Some(self.clone())))
    }
}

/// Room for one watch of a key, given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct WatchRoom(Option<Arc<Usage>>);

impl Drop for WatchRoom {
    fn drop(&mut self) {
        if let Some(usage) = &self.0 {
            usage.watchers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_second_may_come_at_once_and_no_more() {
        let (usage, ms) = (Usage::default(), Duration::from_millis);
        for n in 0..10 {
            assert_eq!(usage.take_request(10, ms(5_000)), Ok(()), "{n}");
        }
        assert_eq!(usage.take_request(10, ms(5_000)), Err(ms(100)));
        assert_eq!(usage.take_request(10, ms(5_060)), Err(ms(40)));
        assert_eq!(usage.take_request(10, ms(5_100)), Ok(()));
        assert_eq!(usage.take_request(10, ms(5_100)), Err(ms(100)), "a refusal costs nothing");
        for n in 0..10 {
            assert_eq!(usage.take_request(10, ms(60_000)), Ok(()), "{n} after a rest");
        }
        assert!(usage.take_request(10, ms(60_000)).is_err(), "a rest saves up one second");
    }

    #[test]
    fn watches_are_counted_until_they_are_dropped() {
        let usage = Arc::new(Usage::default());
        let first = usage.take_watcher(Some(2)).unwrap();
        let _second = usage.take_watcher(Some(2)).unwrap();
        assert!(usage.take_watcher(Some(2)).is_none());
        drop(first);
        assert!(usage.take_watcher(Some(2)).is_some());
        assert!(usage.take_watcher(None).is_some());
    }
}
