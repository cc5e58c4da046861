//! What reads show: each function looks at the ledger and writes a reply. Nothing here changes anything or waits.

pub(super) mod instance;
pub(super) mod key;
pub(super) mod lease;
pub(super) mod past;
pub(super) mod resource;

use crate::limits::{LOOKS_MAX, PAGE, PAGE_BYTES, PAGE_MAX};
use prost::Message;

/// What still fits on a page: so many items, and about so many bytes. The first item always fits.
pub(super) struct Page {
    items: usize,
    bytes: usize,
    looks: usize,
    empty: bool,
}

impl Page {
    fn new(limit: u32) -> Self {
        Self::of(limit, PAGE)
    }

    /// A page of as many items as asked, or of `usual` if nothing was asked.
    pub(super) fn of(limit: u32, usual: usize) -> Self {
        let items = match limit as usize {
            0 => usual,
            limit => limit.min(PAGE_MAX),
        };
        Self { items, bytes: PAGE_BYTES, looks: LOOKS_MAX, empty: true }
    }

    /// Whether one more thing may be looked at for this page, wanted or not.
    fn looks(&mut self) -> bool {
        self.looks = self.looks.saturating_sub(1);
        self.looks > 0
    }

    /// Notes that so many more things were looked at.
    fn has_looked_at(&mut self, things: usize) {
        self.looks = self.looks.saturating_sub(things).max(1);
    }

    fn takes(&mut self, item: &impl Message) -> bool {
        self.takes_bytes(item.encoded_len())
    }

    pub(super) fn takes_bytes(&mut self, bytes: usize) -> bool {
        let fits = self.empty || (self.items > 0 && bytes <= self.bytes);
        if fits {
            self.items = self.items.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(bytes);
            self.empty = false;
        }
        fits
    }
}
