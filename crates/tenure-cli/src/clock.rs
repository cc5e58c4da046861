//! The one place of the command line that reads a clock: to say how long ago something was, or how long it took. Nothing
//! is decided by it.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};
use std::time::{Duration, Instant};

/// Now, in milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default()
}

/// A time of the wall clock as people here write it.
pub(crate) fn local(wall_ms: u64) -> String {
    let time = i64::try_from(wall_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let format = |time: Timestamp| time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string();
    time.map_or_else(|| String::from("?"), format)
}

/// Now, in seconds since 1970.
pub(crate) fn wall_s() -> u64 {
    wall_ms() / 1000
}

/// From a day ago until so many years from now, as times since 1970 in whole seconds.
pub(crate) fn validity(years: i32) -> (Duration, Duration) {
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    let since = |time: &Zoned| Duration::from_secs(u64::try_from(time.timestamp().as_second()).unwrap_or_default());
    (since(&now.saturating_sub(1.day())), since(&now.saturating_add(years.years())))
}

/// How long something takes.
pub(crate) struct Stopwatch {
    start: Instant,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { start: now() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        now().duration_since(self.start)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
fn now() -> Instant {
    Instant::now()
}
