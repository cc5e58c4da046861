//! Owns a disk that lives in memory and fails on order. Never loses what was synced, and never keeps more than a real disk may.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use super::contents::{Contents, SyncPoint};
use super::{Disk, DiskFile};
use futures::future::BoxFuture;

/// Gives the future that a sync waits for before it takes effect, which is how a simulated disk is slow.
pub type SyncHook = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A simulated disk. Clones are the same disk.
///
/// The value made by `new` is the operator's: it sees the disk across power cuts. A node is given `attach()`, which belongs to
/// one life of the machine, so that nothing of a dead node writes into the life of its successor.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    shared: Arc<Mutex<Shared>>,
    life: Option<u64>,
}

/// A file of a simulated disk. Every call fails once the life it was opened in is over.
struct MemoryFile {
    shared: Arc<Mutex<Shared>>,
    life: u64,
    file: u64,
}

#[derive(Default)]
struct Shared {
    files: BTreeMap<u64, Contents>,
    file_last: u64,
    names: BTreeMap<String, u64>,
    names_durable: BTreeMap<String, u64>,
    /// Name changes since the last `sync_dir`, in order.
    unsynced: Vec<NameChange>,
    life: u64,
    faults: Faults,
    slow_sync: Option<SyncHook>,
}

#[derive(Default)]
struct Faults {
    next_sync: Option<io::ErrorKind>,
    every_sync: Option<io::ErrorKind>,
    next_write: Option<io::ErrorKind>,
    every_write: Option<io::ErrorKind>,
    capacity_bytes: Option<u64>,
    /// How many more changes happen before the power is cut.
    changes_left: Option<u64>,
    injected: u64,
}

enum NameChange {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDisk").field("life", &self.life).finish_non_exhaustive()
    }
}

impl MemoryDisk {
    pub fn new() -> Self {
        Self::default()
    }

    /// The disk as one life of the machine sees it: every call fails after the next `crash` or `kill`.
    pub fn attach(&self) -> Self {
        let life = self.shared().life;
        Self { shared: Arc::clone(&self.shared), life: Some(life) }
    }

    /// A power cut. What was not synced is lost or kept as `choose` says, where `choose(n)` picks one of `0..n`.
    pub fn crash(&self, choose: &mut dyn FnMut(u64) -> u64) {
        let mut shared = self.shared();
        shared.life += 1;
        shared.faults.changes_left = None;
        let unsynced = std::mem::take(&mut shared.unsynced);
        let kept = if unsynced.is_empty() { 0 } else { choose(unsynced.len() as u64 + 1) as usize };
        let mut names = std::mem::take(&mut shared.names_durable);
        for change in unsynced.into_iter().take(kept) {
            change.apply(&mut names);
        }
        shared.names = names.clone();
        shared.names_durable = names;
        shared.forget_unnamed();
        for contents in shared.files.values_mut() {
            contents.crash(choose);
        }
    }

    /// The death of the process alone: nothing is lost, and nothing more is synced than was.
    pub fn kill(&self) {
        let mut shared = self.shared();
        shared.life += 1;
        shared.faults.changes_left = None;
    }

    /// The next sync fails, and what it was to cover is lost at the next crash even if a later sync succeeds.
    pub fn fail_next_sync(&self, kind: io::ErrorKind) {
        self.shared().faults.next_sync = Some(kind);
    }

    pub fn fail_syncs_for_good(&self, kind: io::ErrorKind) {
        self.shared().faults.every_sync = Some(kind);
    }

    /// The next append fails after half of its bytes.
    pub fn fail_next_write(&self, kind: io::ErrorKind) {
        self.shared().faults.next_write = Some(kind);
    }

    pub fn fail_writes_for_good(&self, kind: io::ErrorKind) {
        self.shared().faults.every_write = Some(kind);
    }

    /// All files together may hold this much. An append that does not fit is written as far as it fits, and fails.
    pub fn capacity_max(&self, bytes: u64) {
        self.shared().faults.capacity_bytes = Some(bytes);
    }

    /// After this many more changes of any kind every call fails, until `crash` says what is left.
    pub fn cut_power_after(&self, changes: u64) {
        self.shared().faults.changes_left = Some(changes);
    }

    /// Ends all faults that were ordered. What they did stays done.
    pub fn heal(&self) {
        let mut shared = self.shared();
        let injected = shared.faults.injected;
        shared.faults = Faults { injected, ..Faults::default() };
    }

    /// How many calls have failed because a fault was ordered.
    pub fn faults_injected(&self) -> u64 {
        self.shared().faults.injected
    }

    pub fn set_sync_hook(&self, hook: Option<SyncHook>) {
        self.shared().slow_sync = hook;
    }

    /// What programs now read in this file, or nothing if there is no such file.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let shared = self.shared();
        let file = shared.names.get(name)?;
        Some(shared.contents(*file).live().to_vec())
    }

    /// Puts a file on the platter as it is given, past all rules. For tests that damage files.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut shared = self.shared();
        let file = shared.add(Contents::of_durable(bytes.to_vec()));
        shared.names.insert(name.to_owned(), file);
        shared.names_durable.insert(name.to_owned(), file);
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    fn look(&self) -> io::Result<MutexGuard<'_, Shared>> {
        let shared = self.shared();
        shared.alive(self.life.unwrap_or(shared.life))?;
        Ok(shared)
    }

    fn change(&self) -> io::Result<MutexGuard<'_, Shared>> {
        let mut shared = self.shared();
        let life = self.life.unwrap_or(shared.life);
        shared.spend(life)?;
        Ok(shared)
    }

    fn handle(&self, life: u64, file: u64) -> Box<dyn DiskFile> {
        Box::new(MemoryFile { shared: Arc::clone(&self.shared), life, file })
    }
}

impl Disk for MemoryDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.look()?.names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let shared = self.look()?;
        Ok(shared.contents(shared.named(name)?).live().to_vec())
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let shared = self.look()?;
        let live = shared.contents(shared.named(name)?).live();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let range = start..start.saturating_add(len);
        live.get(range).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut shared = self.change()?;
        let file = match shared.names.get(name) {
            Some(&file) => {
                shared.contents_mut(file)?.truncate(0);
                file
            }
            None => {
                let file = shared.add(Contents::default());
                shared.rename_by(NameChange::Create(name.to_owned(), file));
                file
            }
        };
        Ok(self.handle(shared.life, file))
    }

    fn open_append(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let shared = self.look()?;
        Ok(self.handle(shared.life, shared.named(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut shared = self.change()?;
        shared.named(from)?;
        shared.rename_by(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut shared = self.change()?;
        shared.named(name)?;
        shared.rename_by(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut shared = self.change()?;
        shared.faults.sync()?;
        shared.names_durable = shared.names.clone();
        shared.unsynced.clear();
        shared.forget_unnamed();
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut shared = lock(&self.shared);
        shared.spend(self.life)?;
        let (fits, outcome) = shared.room_for(bytes.len());
        shared.contents_mut(self.file)?.append(&bytes[..fits]);
        outcome
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut shared = lock(&self.shared);
        shared.spend(self.life)?;
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        shared.contents_mut(self.file)?.truncate(len);
        Ok(())
    }

    /// What is appended while a slow sync is under way is not covered by it: its reach is settled here, before the first wait.
    fn sync(&mut self) -> BoxFuture<'_, io::Result<()>> {
        let called = self.call_sync();
        Box::pin(async move {
            let (point, hook) = called?;
            if let Some(hook) = hook {
                hook().await;
            }
            self.end_sync(point)
        })
    }
}

impl MemoryFile {
    fn call_sync(&self) -> io::Result<(SyncPoint, Option<SyncHook>)> {
        let mut shared = lock(&self.shared);
        shared.alive(self.life)?;
        let point = shared.contents_mut(self.file)?.sync_point();
        Ok((point, shared.slow_sync.clone()))
    }

    fn end_sync(&self, point: SyncPoint) -> io::Result<()> {
        let mut shared = lock(&self.shared);
        shared.spend(self.life)?;
        let outcome = shared.faults.sync();
        let contents = shared.contents_mut(self.file)?;
        match outcome {
            Ok(()) if contents.sync(point) => Ok(()),
            Ok(()) => Err(io::Error::other("the file was truncated through another handle during its sync")),
            Err(error) => {
                contents.forsake();
                Err(error)
            }
        }
    }
}

impl Shared {
    fn alive(&self, life: u64) -> io::Result<()> {
        if life != self.life {
            return Err(io::Error::other("this handle belongs to an earlier life of the machine"));
        }
        match self.faults.changes_left {
            Some(0) => Err(power_is_off()),
            _ => Ok(()),
        }
    }

    /// Admits one change, and counts it towards the power cut.
    fn spend(&mut self, life: u64) -> io::Result<()> {
        if let Err(error) = self.alive(life) {
            // What is left of a process that was killed meets no fault: it is not there any more.
            self.faults.injected += u64::from(life == self.life);
            return Err(error);
        }
        if let Some(left) = &mut self.faults.changes_left {
            *left -= 1;
        }
        Ok(())
    }

    fn named(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn contents(&self, file: u64) -> &Contents {
        self.files.get(&file).expect("every name leads to a file")
    }

    /// Fails for a file that was removed while it was open. A real one could still be written, and nobody should want to.
    fn contents_mut(&mut self, file: u64) -> io::Result<&mut Contents> {
        self.files.get_mut(&file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn add(&mut self, contents: Contents) -> u64 {
        self.file_last += 1;
        self.files.insert(self.file_last, contents);
        self.file_last
    }

    fn rename_by(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced.push(change);
    }

    fn forget_unnamed(&mut self) {
        let (now, durable) = (&self.names, &self.names_durable);
        self.files.retain(|file, _| now.values().chain(durable.values()).any(|named| named == file));
    }

    /// How much of an append is written, and what the caller is told.
    fn room_for(&mut self, wanted: usize) -> (usize, io::Result<()>) {
        if let Some(kind) = self.faults.next_write.take().or(self.faults.every_write) {
            self.faults.injected += 1;
            return (wanted / 2, Err(kind.into()));
        }
        let used: usize = self.names.values().map(|file| self.contents(*file).live().len()).sum();
        let free = self.faults.capacity_bytes.map_or(u64::MAX, |max| max.saturating_sub(used as u64));
        if wanted as u64 <= free {
            return (wanted, Ok(()));
        }
        self.faults.injected += 1;
        (free as usize, Err(io::ErrorKind::StorageFull.into()))
    }
}

impl Faults {
    fn sync(&mut self) -> io::Result<()> {
        match self.next_sync.take().or(self.every_sync) {
            None => Ok(()),
            Some(kind) => {
                self.injected += 1;
                Err(kind.into())
            }
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("nothing panics while it holds the disk")
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}
