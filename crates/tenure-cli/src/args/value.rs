//! The values that are typed: durations, lease ids, labels, slots, places in the stream of events.

use std::time::Duration;
use tenure::v1;

/// A duration as people write it, for example 500ms, 15s, 5m, 2h or 1d12h.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let help = || format!("{text:?} is not a duration: write it like 500ms, 15s, 5m, 2h or 1d12h");
    let (days, rest) = text.split_once('d').map_or((0, text), |(days, rest)| (days.parse().unwrap_or(u64::MAX), rest));
    let rest = if rest.is_empty() && days > 0 { "0s" } else { rest };
    let signed: jiff::SignedDuration = rest.parse().map_err(|_| help())?;
    let rest = Duration::try_from(signed).map_err(|_| help())?;
    let days = days.checked_mul(24 * 60 * 60).map(Duration::from_secs);
    days.and_then(|days| days.checked_add(rest)).ok_or_else(help)
}

/// The id of a lease as `tenure lease ls` prints it.
pub(super) fn lease(text: &str) -> Result<u64, String> {
    let number = u64::from_str_radix(text, 16).ok().filter(|number| (1..=i64::MAX as u64).contains(number));
    number.ok_or_else(|| format!("{text:?} is not a lease id: copy it from `tenure lease ls`"))
}

/// KEY=VALUE.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) key: String,
    pub(crate) value: String,
}

pub(super) fn label(text: &str) -> Result<Label, String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not a label: write KEY=VALUE"))?;
    Ok(Label { key: key.into(), value: value.into() })
}

/// N of a resource's units, and the capacity M that it is expected to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) units: u64,
    pub(crate) capacity: Option<u64>,
}

pub(super) fn slots(text: &str) -> Result<Slots, String> {
    let number = |part: &str| part.parse::<u64>().ok().filter(|number| *number > 0);
    let read = match text.split_once('/') {
        None => number(text).map(|units| Slots { units, capacity: None }),
        Some((units, capacity)) => {
            number(units).zip(number(capacity)).map(|(units, capacity)| Slots { units, capacity: Some(capacity) })
        }
    };
    read.ok_or_else(|| format!("{text:?} is not a number of slots: write 2, or 2/8 for two of eight"))
}

/// A place in the stream of events, as `tenure watch` and `tenure history` print it.
pub(super) fn after(text: &str) -> Result<v1::Cursor, String> {
    let bad = || format!("{text:?} is not a place to go on after: write a revision such as 12, or 12.0");
    tenure_api::read_cursor(text).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_printed() {
        assert_eq!(slots("2"), Ok(Slots { units: 2, capacity: None }));
        assert_eq!(slots("2/8"), Ok(Slots { units: 2, capacity: Some(8) }));
        assert_eq!(after("12"), Ok(v1::Cursor { revision: 12, n: u32::MAX }));
        assert_eq!(after("12.3"), Ok(v1::Cursor { revision: 12, n: 3 }));
        assert_eq!(lease("00000000000000ff"), Ok(255));
        for (text, seconds) in [("15s", 15), ("2h", 7_200), ("1d", 86_400), ("1d12h", 129_600), ("30d", 2_592_000)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        let read = label("app=a=b").unwrap();
        assert_eq!((read.key.as_str(), read.value.as_str()), ("app", "a=b"));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "0", "-1", "2/0", "2/", "/8", "x"] {
            assert!(slots(text).unwrap_err().contains("2/8"), "{text}");
        }
        for text in ["", "d", "xd", "-1d", "1d-1h", "0d", "99999999999999999999d", "soon", "-1s"] {
            assert!(duration(text).unwrap_err().contains("1d12h"), "{text}");
        }
        assert!(after("1.").unwrap_err().contains("12.0"));
        for text in ["", "0", "xyz", "ffffffffffffffff", "10000000000000000"] {
            assert!(lease(text).unwrap_err().contains("tenure lease ls"), "{text}");
        }
        assert!(label("app").is_err() && duration("soon").is_err() && duration("-1s").is_err());
    }
}
