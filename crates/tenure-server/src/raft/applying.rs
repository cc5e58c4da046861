//! A note beside the log of the entry that is being applied, so that the next process knows where this one died. It is
//! appended and never synced: the page cache outlives the process, and a power cut, which may lose it, is no fault of an entry.
//!
//! Only the entries that were in the log when the process started are noted, and some after them. An entry that ends the
//! process later is applied again after each start, and is noted there. So the note costs nothing while a node runs.

use crate::disk::{DiskFile, SharedDisk};
use std::io;
use std::sync::Mutex;

const FILE: &str = "applying";
/// The build is part of it: another build may be able to apply what this one cannot, so it counts from zero.
const HEADER: &str = concat!("tenure ", env!("CARGO_PKG_VERSION"), " applies these entries of its log\n");
/// Index, deaths, whether the entry is being applied, checksum.
const NOTE_BYTES: usize = 8 + 4 + 4 + 4;
/// The file starts again at its header when it is larger than this.
const FILE_BYTES_MAX: usize = 64 * 1024;
/// How many entries are noted after those that were in the log at start: more than the disk can lag behind the leader.
const NOTED_AFTER_START: u64 = 8_192;
/// So many processes in a row that died at one entry are not followed by another.
const DEATHS_MAX: u32 = 3;

/// Where processes before this one died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deaths {
    pub(super) index: u64,
    /// In a row, at this entry.
    pub(super) count: u32,
}

impl Deaths {
    /// Whether another start would only be one more death.
    pub(super) fn are_enough(self) -> bool {
        self.count >= DEATHS_MAX
    }
}

/// The note. It is best effort: a disk that does not take it stops no node.
pub(super) struct Applying {
    /// The lock is only there because openraft shares its state machine; it is never waited for.
    file: Option<Mutex<Box<dyn DiskFile>>>,
    bytes: usize,
    before: Deaths,
    /// The last entry that is noted.
    until: u64,
}

impl std::fmt::Debug for Applying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applying").field("before", &self.before).field("until", &self.until).finish_non_exhaustive()
    }
}

impl Applying {
    /// Where the processes before this one died. A note that cannot be read says nothing.
    pub(super) fn deaths(disk: &SharedDisk) -> io::Result<Deaths> {
        if !disk.list()?.iter().any(|name| name == FILE) {
            return Ok(Deaths::default());
        }
        Ok(parse(&disk.read(FILE)?))
    }

    /// Begins a note, with `last` the last entry in the log. Deaths so far are kept until their entry was applied.
    pub(super) fn begin(disk: &SharedDisk, before: Deaths, last: u64) -> io::Result<Self> {
        let until = last.saturating_add(NOTED_AFTER_START);
        let mut file = disk.create(FILE)?;
        file.append(HEADER.as_bytes())?;
        let mut begun = Self { file: Some(Mutex::new(file)), bytes: 0, before, until };
        begun.write(before, false)?;
        Ok(begun)
    }

    /// No note, for a log that is only read.
    pub(super) fn none() -> Self {
        Self { file: None, bytes: 0, before: Deaths::default(), until: 0 }
    }

    /// Notes that this entry is applied next.
    pub(super) fn apply(&mut self, index: u64) -> io::Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        if index > self.until {
            self.applied(self.until)?;
            self.file = None;
            return Ok(());
        }
        let count = if index == self.before.index { self.before.count } else { 0 };
        self.write(Deaths { index, count }, true)
    }

    /// Notes that every entry up to this one was applied, and none is at the moment.
    pub(super) fn applied(&mut self, index: u64) -> io::Result<()> {
        if index >= self.before.index {
            self.before = Deaths::default();
        }
        self.write(self.before, false)
    }

    /// A note that cannot be written stops the node, as any failed write does.
    fn write(&mut self, Deaths { index, count }: Deaths, is_applied: bool) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let file = file.get_mut().expect("no thread panics while it holds the note");
        let mut note = [0; NOTE_BYTES];
        note[..8].copy_from_slice(&index.to_le_bytes());
        note[8..12].copy_from_slice(&count.to_le_bytes());
        note[12..16].copy_from_slice(&u32::from(is_applied).to_le_bytes());
        let checksum = crc32fast::hash(&note[..16]);
        note[16..].copy_from_slice(&checksum.to_le_bytes());
        if self.bytes > FILE_BYTES_MAX {
            file.truncate(HEADER.len() as u64)?;
            self.bytes = 0;
        }
        self.bytes += NOTE_BYTES;
        file.append(&note).inspect_err(|_| {
            // Half a note, or the one before, would accuse the wrong entry. The disk may not take this either.
            let _ = file.truncate(HEADER.len() as u64);
        })
    }
}

/// Forgets the deaths: the next start tries the entry again.
pub fn forget_deaths(disk: &SharedDisk) -> io::Result<()> {
    match disk.remove(FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn parse(bytes: &[u8]) -> Deaths {
    let notes = bytes.strip_prefix(HEADER.as_bytes()).unwrap_or_default().chunks_exact(NOTE_BYTES);
    let last = notes.map_while(read).last();
    match last {
        Some((deaths, true)) => Deaths { count: deaths.count.saturating_add(1), ..deaths },
        Some((deaths, false)) => deaths,
        None => Deaths::default(),
    }
}

fn read(note: &[u8]) -> Option<(Deaths, bool)> {
    let (fields, checksum) = note.split_at_checked(16)?;
    if crc32fast::hash(fields).to_le_bytes() != checksum {
        return None;
    }
    let index = u64::from_le_bytes(fields[..8].try_into().ok()?);
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_le_bytes);
    Some((Deaths { index, count: number(&fields[8..12])? }, number(&fields[12..])? != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;
    use std::sync::Arc;

    /// A process that applies these entries, and dies in the last one if it is said.
    fn process(disk: &MemoryDisk, applied: &[u64], dies_in: Option<u64>) -> Deaths {
        let shared: SharedDisk = Arc::new(disk.attach());
        let before = Applying::deaths(&shared).unwrap();
        let mut note = Applying::begin(&shared, before, 100).unwrap();
        for index in applied {
            note.apply(*index).unwrap();
            note.applied(*index).unwrap();
        }
        if let Some(index) = dies_in {
            note.apply(index).unwrap();
        }
        disk.kill();
        Applying::deaths(&(Arc::new(disk.attach()) as SharedDisk)).unwrap()
    }

    #[test]
    fn deaths_in_a_row_at_one_entry_are_counted() {
        let disk = MemoryDisk::new();
        for count in 1..=2 {
            let deaths = process(&disk, &[5, 6], Some(7));
            assert_eq!(deaths, Deaths { index: 7, count });
            assert!(!deaths.are_enough());
        }
        assert!(process(&disk, &[5, 6], Some(7)).are_enough());
    }

    #[test]
    fn an_entry_that_was_applied_is_not_accused() {
        let disk = MemoryDisk::new();
        assert_eq!(process(&disk, &[5, 6], Some(7)).count, 1);
        assert_eq!(process(&disk, &[5, 6, 7], None), Deaths::default());
        assert_eq!(process(&disk, &[5, 6], Some(7)).count, 1, "it counts from the start again");
        assert_eq!(process(&disk, &[5], Some(6)), Deaths { index: 6, count: 1 }, "another entry breaks the row");
    }

    #[test]
    fn a_death_before_the_entry_adds_nothing() {
        let disk = MemoryDisk::new();
        let died = process(&disk, &[5], Some(7));
        assert_eq!(process(&disk, &[], None), died, "nothing was applied");
        assert_eq!(process(&disk, &[5], None), died, "the entry was not reached");
    }

    #[test]
    fn entries_long_after_the_start_are_not_noted() {
        let disk = MemoryDisk::new();
        assert_eq!(process(&disk, &[100 + NOTED_AFTER_START], Some(101 + NOTED_AFTER_START)), Deaths::default());
        assert_eq!(process(&disk, &[], Some(100 + NOTED_AFTER_START)).count, 1);
    }

    #[test]
    fn the_file_stays_small_and_its_last_note_counts() {
        let disk = MemoryDisk::new();
        let many: Vec<u64> = (1..=8_000).collect();
        assert_eq!(process(&disk, &many, Some(8_001)), Deaths { index: 8_001, count: 1 });
        assert!(disk.bytes(FILE).unwrap().len() < 2 * FILE_BYTES_MAX);
    }

    #[test]
    fn another_build_counts_from_zero() {
        let disk = MemoryDisk::new();
        process(&disk, &[], Some(7));
        let changed = String::from_utf8_lossy(&disk.bytes(FILE).unwrap()[..HEADER.len()]).replace("tenure ", "tenurf ");
        let notes = disk.bytes(FILE).unwrap()[HEADER.len()..].to_vec();
        disk.put(FILE, &[changed.as_bytes(), &notes[..]].concat());
        assert_eq!(Applying::deaths(&(Arc::new(disk.attach()) as SharedDisk)).unwrap(), Deaths::default());
    }

    #[test]
    fn a_damaged_or_cut_note_accuses_no_entry() {
        let disk = MemoryDisk::new();
        process(&disk, &[], Some(7));
        let whole = disk.bytes(FILE).unwrap();
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]).count, 0, "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert_eq!(parse(&damaged).count, 0, "changed at {at}");
        }
    }

    #[test]
    fn failed_note_is_an_error_and_accuses_no_entry() {
        let disk = MemoryDisk::new();
        let shared: SharedDisk = Arc::new(disk.attach());
        let mut note = Applying::begin(&shared, Deaths::default(), 100).unwrap();
        disk.fail_next_write(io::ErrorKind::StorageFull);
        assert!(note.apply(7).is_err());
        assert_eq!(Applying::deaths(&shared).unwrap(), Deaths::default());
        forget_deaths(&shared).unwrap();
        forget_deaths(&shared).unwrap();
        assert!(!shared.list().unwrap().iter().any(|name| name == FILE));
    }
}
