//! The one place of the command line that reads a clock: to say how long ago something was, or how long it took. Nothing
//! is decided by it.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
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

/// Today, in UTC.
pub(crate) fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
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
