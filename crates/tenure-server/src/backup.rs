//! Backups: the whole ledger in one checksummed file, and a new cluster made from one, or from what is left of an old one.
//! What is made anew never gives out a fence or a revision that the old cluster may have given out.

use crate::disk::SharedDisk;
use crate::entropy::Entropy;
use crate::identity::Identity;
use crate::lock::LOCK_FILE;
use crate::raft::{BadEntry, Left, Member, OpenError, Remains, place_snapshot};
pub use crate::raft::{Dropped, Skip};
use prost::Message;
use std::collections::BTreeMap;
use std::io;
use tenure_core::Ledger;
use tenure_core::limits::RULES_MAX;

const MAGIC: &[u8; 8] = b"TENUREBK";
const FORMAT: u32 = 1;
const CHECKSUM_BYTES: usize = 4;

/// More fences than any cluster gives out before its backup is copied, and as many a millisecond as none gives out after: 2^20 a second.
const FENCES_AT_ONCE: u64 = 1 << 36;
const FENCES_A_MILLISECOND: u64 = (1_u64 << 20).div_ceil(1000);

/// What a backup says of itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct About {
    /// The cluster that it is of.
    #[prost(fixed64, tag = "1")]
    pub cluster: u64,
    /// When it was taken, in milliseconds since 1970 by the wall clock of the node that took it.
    #[prost(uint64, tag = "2")]
    pub wall_ms: u64,
    /// The newest entry of the log in it.
    #[prost(uint64, tag = "3")]
    pub index: u64,
    /// The last fence in it.
    #[prost(uint64, tag = "4")]
    pub fence: u64,
    /// The count of visible changes in it.
    #[prost(uint64, tag = "5")]
    pub revision: u64,
    /// The leases in it.
    #[prost(uint64, tag = "6")]
    pub leases: u64,
}

/// Why nothing was made anew.
#[derive(Debug, thiserror::Error)]
pub enum CannotRestore {
    /// The backup cannot be trusted.
    #[error("the backup {0}")]
    Damaged(String),
    /// Time cannot tell which fences were given out since.
    #[error(
        "the clock of this machine is not past the time of the backup, so it cannot tell which fences were given out \
         since. Say a fence that is above all that were given out, with --fence-above N"
    )]
    Clock,
    /// The fence that was said is below one in the backup.
    #[error("fence {said} is not above fence {given}, which was given out")]
    Fence {
        /// What was said.
        said: u64,
        /// The last one in the backup.
        given: u64,
    },
    /// A counter would leave its bounds.
    #[error("a counter would run over: say a smaller fence with --fence-above")]
    Bounds,
    /// The directory is not empty.
    #[error("there is data in the directory already. Nothing was changed. Choose an empty one")]
    InUse,
    /// The disk.
    #[error(transparent)]
    Disk(#[from] io::Error),
    /// What is left of the old cluster cannot be read.
    #[error("{0}")]
    Remains(String),
    /// An entry of the old cluster's log cannot be applied.
    #[error("{0}")]
    Entry(BadEntry),
    /// An entry that was to be left out is not in the log.
    #[error("entry {index} cannot be skipped: {}", after_snapshot(.entries))]
    NoEntry {
        /// Its place.
        index: u64,
        /// The first and the last entry that can be left out.
        entries: Option<(u64, u64)>,
    },
}

fn after_snapshot(entries: &Option<(u64, u64)>) -> String {
    match entries {
        Some((first, last)) => format!("the log holds entries {first} to {last} after its snapshot"),
        None => "the log holds no entries after its snapshot".into(),
    }
}

/// Writes a backup.
pub(crate) fn write(ledger: &Ledger, about: &About) -> Vec<u8> {
    let about = about.encode_to_vec();
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(about.len()).expect("six numbers are short").to_le_bytes());
    bytes.extend_from_slice(&about);
    ledger.write_snapshot(|piece| bytes.extend_from_slice(piece));
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// A ledger as it once was.
#[derive(Debug)]
pub struct Copied {
    ledger: Ledger,
    /// When, in milliseconds since 1970.
    wall_ms: u64,
}

impl Copied {
    /// Living leases.
    pub fn lease_count(&self) -> usize {
        self.ledger.lease_count()
    }
}

/// Reads a backup, all of it.
pub fn read(bytes: &[u8]) -> Result<(About, Copied), CannotRestore> {
    let damaged = |why: &str| CannotRestore::Damaged(why.into());
    let content = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or_else(|| damaged("is too short"))?;
    let (content, checksum) = bytes.split_at(content);
    if content.len() < 16 || &content[..8] != MAGIC {
        return Err(damaged("is no backup of Tenure"));
    }
    if crc32fast::hash(content).to_le_bytes() != checksum {
        return Err(damaged("does not match its checksum: it is cut short, or was changed"));
    }
    if content[8..12] != FORMAT.to_le_bytes() {
        return Err(damaged("has a format that this build does not know"));
    }
    let length = u32::from_le_bytes(content[12..16].try_into().expect("four bytes are four bytes")) as usize;
    let (about, body) = content[16..].split_at_checked(length).ok_or_else(|| damaged("is cut short"))?;
    let about = About::decode(about).map_err(|error| damaged(&error.to_string()))?;
    let ledger = Ledger::read_snapshot(body).map_err(|damage| CannotRestore::Damaged(damage.to_string()))?;
    let copied = Copied { ledger, wall_ms: about.wall_ms };
    Ok((about, copied))
}

/// What was made anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The new cluster.
    pub cluster: u64,
    /// The only node of it.
    pub node: u64,
    /// Every new fence is above this one.
    pub fence_above: u64,
    /// Living leases.
    pub leases: u64,
}

/// Which fences may have been given out after a copy was made: by the wall clock, or by what an operator knows.
#[derive(Clone, Copy, Debug)]
struct Since {
    copied_ms: u64,
    now_ms: u64,
    fence_above: Option<u64>,
}

impl Since {
    /// How far the fences move on from the last one in the copy.
    fn fence(self, last: u64) -> Result<u64, CannotRestore> {
        match self.fence_above {
            Some(said) if said < last => Err(CannotRestore::Fence { said, given: last }),
            Some(said) => Ok(said),
            None if self.now_ms <= self.copied_ms => Err(CannotRestore::Clock),
            None => self.steps().and_then(|steps| steps.checked_add(last)).ok_or(CannotRestore::Bounds),
        }
    }

    /// More than any cluster counts between the copy and now. Two copies of one cluster, made anew one after the other, are
    /// apart by the time between them.
    fn steps(self) -> Option<u64> {
        let passed_ms = self.now_ms.saturating_sub(self.copied_ms);
        passed_ms.checked_mul(FENCES_A_MILLISECOND)?.checked_add(FENCES_AT_ONCE)
    }
}

/// Where a new cluster is made, and by what it is known.
pub struct Ground<'a> {
    /// An empty directory.
    pub disk: &'a SharedDisk,
    /// Randomness for its names.
    pub entropy: &'a dyn Entropy,
    /// Now, in milliseconds since 1970.
    pub now_ms: u64,
    /// The number of its first node.
    pub node: u64,
    /// A fence that is above all that were given out, if an operator knows one.
    pub fence_above: Option<u64>,
}

/// Makes a new cluster of one in an empty directory.
pub async fn restore(copied: Copied, ground: Ground<'_>) -> Result<Restored, CannotRestore> {
    let Ground { disk, entropy, now_ms, node, fence_above } = ground;
    if disk.list()?.iter().any(|name| name != LOCK_FILE) {
        return Err(CannotRestore::InUse);
    }
    let Copied { mut ledger, wall_ms } = copied;
    let since = Since { copied_ms: wall_ms, now_ms, fence_above };
    let fence = since.fence(ledger.last_fence())?;
    // Revisions move on by the time alone: nobody knows how many there were.
    let revisions = since.steps().ok_or(CannotRestore::Bounds)?;
    if !ledger.begin_anew(fence, revisions) {
        return Err(CannotRestore::Bounds);
    }
    // The snapshot comes before the identity: a directory without one is not started.
    let incarnation = entropy.draw();
    let member = Member { incarnation, rules_max: RULES_MAX, ..Member::default() };
    place_snapshot(disk, &ledger, BTreeMap::from([(node, member)])).await?;
    let identity = Identity { cluster: entropy.draw(), node, incarnation };
    identity.begin(disk).await?;
    let leases = ledger.lease_count() as u64;
    Ok(Restored { cluster: identity.cluster, node, fence_above: fence, leases })
}

/// What is left of a cluster in one node's data directory: everything in its log, whether or not a majority had it, but for
/// the entries that are left out.
pub async fn remains(disk: &SharedDisk, skip: Skip<'_>) -> Result<(Copied, Vec<Dropped>), CannotRestore> {
    if !Identity::is_in(disk)? {
        return Err(CannotRestore::Remains("there is no data of a node in the directory".into()));
    }
    let read = Remains::read(disk.clone(), skip).await;
    let Left { ledger, dropped, absent, entries } = read.map_err(|error| match error {
        OpenError::Entry(entry) => CannotRestore::Entry(entry),
        error => CannotRestore::Remains(error.to_string()),
    })?;
    if let Some(index) = absent.first() {
        return Err(CannotRestore::NoEntry { index: *index, entries });
    }
    let wall_ms = ledger.wall_ms();
    Ok((Copied { ledger, wall_ms }, dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(copied_ms: u64, now_ms: u64, fence_above: Option<u64>) -> Since {
        Since { copied_ms, now_ms, fence_above }
    }

    #[test]
    fn fences_move_on_with_the_time_since_the_copy() {
        let an_hour = since(0, 3_600_000, None).fence(0).unwrap();
        assert!(an_hour >= (1 << 36) + 3_600 * (1 << 20));
        assert!(since(1_000, 1_002, None).fence(7).unwrap() > since(1_000, 1_001, None).fence(7).unwrap() + 1_000);
        assert!(since(1_000, 1_001, None).fence(7).unwrap() > 7 + (1 << 36));
        assert_eq!(since(1_000, 900, Some(12)).steps(), Some(1 << 36), "revisions move on without a clock, too");
        assert!(matches!(since(1_000, 1_000, None).fence(7), Err(CannotRestore::Clock)));
        assert!(matches!(since(1_000, 999, None).fence(7), Err(CannotRestore::Clock)));
        assert_eq!(since(1_000, 999, Some(12)).fence(7).unwrap(), 12);
        assert!(matches!(since(1_000, 999, Some(6)).fence(7), Err(CannotRestore::Fence { .. })));
        assert!(matches!(since(0, u64::MAX, None).fence(7), Err(CannotRestore::Bounds)));
    }

    #[test]
    fn a_backup_is_read_whole_or_not_at_all() {
        let about = About { cluster: 5, wall_ms: 6, index: 7, fence: 0, revision: 0, leases: 0 };
        let bytes = write(&Ledger::default(), &about);
        assert_eq!(read(&bytes).unwrap().0, about);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "changed at {at}");
        }
    }
}
