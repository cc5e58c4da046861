//! The one place of the command line that reads a clock: to say how long ago something was. Nothing is decided by it.

use jiff::Timestamp;
use jiff::tz::TimeZone;

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
