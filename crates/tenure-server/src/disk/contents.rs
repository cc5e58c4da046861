//! Owns the bytes of one simulated file and what a power cut would leave of them. Never knows the file's name.

use std::ops::Range;

/// A disk loses or keeps unsynced bytes in pages of this size.
const PAGE_BYTES: usize = 4096;

/// What programs read now, with enough of the past to say what the platter holds.
///
/// The platter holds `live[..durable]` followed by `cut`. Keeping it this way makes a sync cost nothing, where a second copy
/// would make it cost the size of the file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    live: Vec<u8>,
    durable: usize,
    /// Durable bytes that were truncated away, while the truncation itself is not yet durable.
    cut: Vec<u8>,
    /// Ranges whose sync failed. The kernel marks such pages clean, so no later sync writes them either.
    forsaken: Vec<Range<usize>>,
    truncations: u64,
}

/// What a sync has promised to cover: the file as it was when the sync was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncPoint {
    len: usize,
    truncations: u64,
}

impl Contents {
    pub(super) fn of_durable(bytes: Vec<u8>) -> Self {
        Self { durable: bytes.len(), live: bytes, ..Self::default() }
    }

    pub(super) fn live(&self) -> &[u8] {
        &self.live
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.live.extend_from_slice(bytes);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.truncations += 1;
        if len < self.durable {
            let mut cut = self.live[len..self.durable].to_vec();
            cut.append(&mut self.cut);
            self.cut = cut;
            self.durable = len;
        }
        // A file may also be lengthened this way, and then reads as zeros, as on a real disk.
        self.live.resize(len, 0);
        self.forsaken.retain_mut(|range| {
            range.end = range.end.min(len);
            range.start < range.end
        });
    }

    pub(super) fn sync_point(&self) -> SyncPoint {
        SyncPoint { len: self.live.len(), truncations: self.truncations }
    }

    /// Makes the file durable as it was at `point`. Answers false if it was truncated since, because then nothing can be promised.
    #[must_use]
    pub(super) fn sync(&mut self, point: SyncPoint) -> bool {
        if point.truncations != self.truncations {
            return false;
        }
        self.durable = self.durable.max(point.len);
        self.cut.clear();
        true
    }

    /// A sync that failed: the bytes go on being readable, and will not be on the disk after a power cut, whatever is synced later.
    pub(super) fn forsake(&mut self) {
        self.forsaken.push(self.durable..self.live.len());
        self.durable = self.live.len();
        self.cut.clear();
    }

    /// Leaves what a power cut could leave. `choose(n)` picks one of `0..n`.
    pub(super) fn crash(&mut self, choose: &mut dyn FnMut(u64) -> u64) {
        let mut left = self.live[..self.durable].to_vec();
        if !self.cut.is_empty() && choose(2) == 1 {
            left.extend_from_slice(&self.cut);
        }
        if self.durable < self.live.len() {
            match choose(2) {
                0 => self.keep_prefix(&mut left, choose),
                _ => self.keep_pages(&mut left, choose),
            }
        }
        for range in &self.forsaken {
            let end = range.end.min(left.len());
            if range.start < end && choose(2) == 1 {
                left[range.start..end].fill(0);
            }
        }
        *self = Self::of_durable(left);
    }

    fn keep_prefix(&self, left: &mut Vec<u8>, choose: &mut dyn FnMut(u64) -> u64) {
        let unsynced = self.live.len() - self.durable;
        let kept = self.durable + choose(unsynced as u64 + 1) as usize;
        self.copy(left, self.durable..kept);
    }

    /// The file system wrote the new length, but only some of the pages.
    fn keep_pages(&self, left: &mut Vec<u8>, choose: &mut dyn FnMut(u64) -> u64) {
        if left.len() < self.live.len() {
            left.resize(self.live.len(), 0);
        }
        let mut start = self.durable;
        while start < self.live.len() {
            let end = ((start / PAGE_BYTES + 1) * PAGE_BYTES).min(self.live.len());
            if choose(2) == 1 {
                self.copy(left, start..end);
            }
            start = end;
        }
    }

    fn copy(&self, left: &mut Vec<u8>, range: Range<usize>) {
        if left.len() < range.end {
            left.resize(range.end, 0);
        }
        left[range.clone()].copy_from_slice(&self.live[range]);
    }
}
