//! What the treaty's words are called when people read them.

use super::lease_text;
use crate::print;
use tenure::v1;

/// How a resource is claimed.
pub(super) fn mode(mode: v1::Mode, units: u64) -> String {
    match mode {
        v1::Mode::Unspecified => "-".into(),
        v1::Mode::Exclusive => "exclusive".into(),
        v1::Mode::Shared => "shared".into(),
        v1::Mode::Units => print::count(units, "unit", "units"),
    }
}

/// The same for programs, which find the units beside it.
const fn mode_word(mode: v1::Mode) -> &'static str {
    match mode {
        v1::Mode::Unspecified => "",
        v1::Mode::Exclusive => "exclusive",
        v1::Mode::Shared => "shared",
        v1::Mode::Units => "units",
    }
}

/// Writes a mode for programs.
pub(super) fn as_word<S: serde::Serializer>(mode: &v1::Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(mode_word(*mode))
}

/// What renews a class.
pub(super) const fn policy(policy: v1::RenewPolicy) -> &'static str {
    match policy {
        v1::RenewPolicy::Unspecified | v1::RenewPolicy::Auto => "auto",
        v1::RenewPolicy::Activity => "activity",
        v1::RenewPolicy::Explicit => "explicit",
        v1::RenewPolicy::Never => "never",
    }
}

/// How a living lease stands. What only stands in line is not held yet.
pub(super) fn state(lease: &v1::Lease) -> &str {
    if lease.holds.is_empty() && !lease.waits.is_empty() { "waiting" } else { &lease.state }
}

/// How well an instance is.
pub(super) const fn health(health: v1::Health) -> &'static str {
    match health {
        v1::Health::Passing => "passing",
        v1::Health::Degraded => "degraded",
        v1::Health::Critical => "critical",
        v1::Health::Unspecified | v1::Health::Unknown => "unknown",
    }
}

/// How something ended.
pub(super) fn end(end: &v1::End) -> String {
    match end.how.as_str() {
        "revoked" => by_order("revoked", &end.by, &end.reason),
        "parent_ended" => format!("ended with its parent {}", lease_text(end.parent)),
        "superseded" => "superseded by a higher epoch".into(),
        "max_lifetime" => "reached its maximum lifetime".into(),
        "waited_out" => "waited out".into(),
        "unhealthy" => "ended because it was critical for too long".into(),
        "transferred" => format!("transferred to {}", end.to),
        how => how.into(),
    }
}

/// Something that somebody ordered, and why.
pub(super) fn by_order(what: &str, by: &str, reason: &str) -> String {
    if reason.is_empty() { format!("{what} by {by}") } else { format!("{what} by {by}: {reason}") }
}

/// Bytes as text, with what a terminal would act on made visible.
pub(super) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().map(visible).collect(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

fn visible(c: char) -> String {
    if c.is_control() { c.escape_default().to_string() } else { c.into() }
}

/// Labels on one line.
pub(super) fn labels(labels: &std::collections::BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_never_move_the_terminal() {
        assert_eq!(text("grün".as_bytes()), "grün");
        assert_eq!(text(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(text(&[b'a', 0xff]), "a\\xff");
    }

    #[test]
    fn who_only_stands_in_line_is_waiting() {
        let lease = |holds: &[&str], waits: &[&str]| {
            let [holds, waits] = [holds, waits].map(|names| names.iter().map(ToString::to_string).collect());
            v1::Lease { state: "overdue".into(), holds, waits, ..v1::Lease::default() }
        };
        assert_eq!(state(&lease(&[], &["db"])), "waiting");
        for held in [lease(&[], &[]), lease(&["a@1"], &[]), lease(&["a@1"], &["db"])] {
            assert_eq!(state(&held), "overdue", "{held:?}");
        }
    }

    #[test]
    fn ends_are_told_with_who_and_why() {
        let end = |how: &str| v1::End {
            how: how.into(),
            by: "op".into(),
            to: "bob".into(),
            parent: 255,
            ..v1::End::default()
        };
        assert_eq!(super::end(&end("expired")), "expired");
        assert_eq!(super::end(&end("revoked")), "revoked by op");
        assert_eq!(super::end(&v1::End { reason: "stuck".into(), ..end("revoked") }), "revoked by op: stuck");
        assert_eq!(super::end(&end("transferred")), "transferred to bob");
        assert_eq!(super::end(&end("parent_ended")), "ended with its parent 00000000000000ff");
    }
}
