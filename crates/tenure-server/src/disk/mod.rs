//! Owns what the server asks of a disk: one flat directory of append-only files. Never decides what is in them.

mod contents;
mod directory;
mod memory;

use futures::future::BoxFuture;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

pub use directory::Directory;
pub use memory::{MemoryDisk, SyncHook};

/// A disk that several parts of a node use.
pub type SharedDisk = Arc<dyn Disk>;

/// One directory of files, real or simulated. Names are plain file names, never paths.
///
/// A change of names (create, rename, remove) outlives a power cut only after `sync_dir`, and bytes only after the
/// file's own `sync`. Whoever needs one before the other has to ask in that order.
pub trait Disk: Debug + Send + Sync + 'static {
    /// The names of all files, sorted.
    fn list(&self) -> io::Result<Vec<String>>;

    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Exactly `len` bytes from `offset`, or an error of kind `UnexpectedEof`.
    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>>;

    /// A new file, or the old one of that name emptied.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// An existing file, to be continued at its end.
    fn open_append(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&self, name: &str) -> io::Result<()>;

    fn sync_dir(&self) -> io::Result<()>;
}

/// A file open for appending. After an error nothing is known about what it holds past its last successful sync.
pub trait DiskFile: Send + 'static {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Makes everything appended before this call outlive a power cut. It is a future only so that a simulated disk can be slow;
    /// a real disk blocks inside it, so its caller has a thread of its own.
    fn sync(&mut self) -> BoxFuture<'_, io::Result<()>>;
}
