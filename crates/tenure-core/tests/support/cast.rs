//! The names that a script gives to leases, and how it writes times. Nothing here knows a command.

use std::collections::BTreeMap;
use tenure_core::{Holder, Key, LeaseId, Mode, Units};

/// The leases of a script by their labels.
#[derive(Default)]
pub(crate) struct Cast {
    labels: BTreeMap<LeaseId, String>,
}

impl Cast {
    /// The lease with this label: `#7` is number 7, other labels are numbered as they appear.
    pub(crate) fn lease(&mut self, label: &str) -> Option<LeaseId> {
        if let Some(number) = label.strip_prefix('#') {
            return number.parse().ok().and_then(LeaseId::from_number);
        }
        if let Some((id, _)) = self.labels.iter().find(|(_, known)| *known == label) {
            return Some(*id);
        }
        let id = super::id(self.labels.len() as u64 + 1);
        self.labels.insert(id, label.to_string());
        Some(id)
    }

    pub(crate) fn label(&self, lease: LeaseId) -> String {
        self.labels.get(&lease).cloned().unwrap_or_else(|| format!("#{}", lease.number()))
    }

    /// The lease, and whose it is if its label does not say that.
    pub(crate) fn who(&self, lease: LeaseId, holder: &Holder) -> String {
        let label = self.label(lease);
        if label == holder.as_str() { label } else { format!("{label} of {holder}") }
    }
}

/// A span or a moment as scripts write it.
pub(crate) fn span(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}

/// The milliseconds of `10s` or `1500ms`.
pub(crate) fn read_span(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a time: 10s or 1500ms");
    let (number, unit_ms) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').ok_or_else(wrong)?, 1000),
    };
    number.parse().ok().and_then(|number: u64| number.checked_mul(unit_ms)).ok_or_else(wrong)
}

/// A count as scripts write it: `1 unit`, `3 units`.
pub(crate) fn units(units: Units) -> String {
    counted(units.number(), "unit")
}

/// So many of something.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A mode as scripts write it.
pub(crate) fn mode(mode: Mode) -> String {
    match mode {
        Mode::Units(number) => units(number),
        plain => plain.to_string(),
    }
}

/// A key or a value as scripts write it.
pub(crate) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && !text.contains([' ', ',', '"']) => text.to_string(),
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}

pub(crate) fn key(key: &Key) -> String {
    text(key.bytes())
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}
