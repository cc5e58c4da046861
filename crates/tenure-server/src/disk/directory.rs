//! Owns a directory of the real file system. Never caches: what it answers is what the kernel says.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, DiskFile};
use crate::lock::Lock;
use futures::future::BoxFuture;

/// A real directory, which has to exist.
#[derive(Clone, Debug)]
pub struct Directory {
    root: Arc<Path>,
    lock: Option<Arc<Lock>>,
}

/// A real file, open for appending.
#[derive(Debug)]
struct DirectoryFile {
    file: File,
    _lock: Option<Arc<Lock>>,
}

impl Directory {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into().into(), lock: None }
    }

    /// The same, ours for as long as this or one of its files is open: whoever still writes keeps others off.
    pub(crate) fn locked(root: impl Into<PathBuf>, lock: Lock) -> Self {
        Self { lock: Some(Arc::new(lock)), ..Self::new(root) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Disk for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for item in fs::read_dir(&self.root)? {
            let item = item?;
            // A name that is not UTF-8 was not given by us, and a directory is not a file.
            if let (true, Ok(name)) = (item.file_type()?.is_file(), item.file_name().into_string()) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(name))
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        File::open(self.path(name))?.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        // The standard library refuses `truncate` together with `append`, so the file is emptied in a second step.
        // Only the owner reads it, also where the directory lets others in.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(self.path(name))?;
        file.set_len(0)?;
        Ok(Box::new(DirectoryFile { file, _lock: self.lock.clone() }))
    }

    fn open_append(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().append(true).open(self.path(name))?;
        Ok(Box::new(DirectoryFile { file, _lock: self.lock.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.root)?.sync_all()
    }
}

impl DiskFile for DirectoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&mut self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { self.file.sync_data() })
    }
}
