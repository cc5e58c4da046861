//! A place among the events as text, the same wherever it is printed or typed.

use crate::v1::Cursor;

/// A place that is after all events of its revision.
const AFTER_ALL: u32 = u32::MAX;

/// Writes `REVISION.N`, or the revision alone if the place is after all its events.
pub fn write_cursor(at: &Cursor) -> String {
    match at.n {
        AFTER_ALL => at.revision.to_string(),
        n => format!("{}.{n}", at.revision),
    }
}

/// Reads `REVISION.N`. A revision alone is the place after all its events.
pub fn read_cursor(text: &str) -> Option<Cursor> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (revision, n) = match text.split_once('.') {
        Some((revision, n)) if is_number(n) => (revision, n.parse().ok()?),
        Some(_) => return None,
        None => (text, AFTER_ALL),
    };
    is_number(revision).then_some(())?;
    Some(Cursor { revision: revision.parse().ok()?, n })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_among_the_events_is_read_as_it_is_written() {
        for (text, revision, n) in [("12.3", 12, 3), ("0.0", 0, 0), ("12", 12, u32::MAX)] {
            let at = Cursor { revision, n };
            assert_eq!(read_cursor(text), Some(at));
            assert_eq!(write_cursor(&at), text);
        }
        assert_eq!(read_cursor("12.4294967295"), read_cursor("12"), "the same place at full length");
        for bad in ["", ".", "1.", ".1", "1.2.3", "+1.2", "-1", "x", "1.4294967296", "18446744073709551616"] {
            assert_eq!(read_cursor(bad), None, "{bad:?}");
        }
    }
}
