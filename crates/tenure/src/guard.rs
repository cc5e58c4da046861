//! The other half of a lease: whatever is written to refuses a writer whose fence is older than one that it has seen. A
//! lease alone cannot stop a holder that was paused, wakes up late, and writes; this does.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A writer came with an older fence than somebody before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fence {shown} is stale: {highest} was seen already; nothing was written")]
pub struct Stale {
    /// The fence that was shown.
    pub shown: u64,
    /// The highest that was seen.
    pub highest: u64,
}

/// The highest fence seen for each resource, in memory: for something that lives and dies with its process.
///
/// ```
/// let guard = tenure::guard::HighWater::default();
/// assert_eq!(guard.pass("db", 7, || "written"), Ok("written"));
/// assert!(guard.pass("db", 6, || "written").is_err());
/// ```
#[derive(Debug, Default)]
pub struct HighWater {
    highest: Mutex<BTreeMap<String, u64>>,
}

impl HighWater {
    /// Does something for whoever shows this fence, unless a higher one was seen. Nobody else passes meanwhile.
    pub fn pass<T>(&self, resource: &str, fence: u64, act: impl FnOnce() -> T) -> Result<T, Stale> {
        let mut all = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        let highest = all.entry(resource.into()).or_default();
        check(fence, *highest)?;
        *highest = fence;
        Ok(act())
    }
}

/// The highest fence seen for one resource, in a file: for something that several processes of a machine write to. It
/// survives a crash.
#[derive(Clone, Debug)]
pub struct HighWaterFile {
    path: PathBuf,
}

/// Why somebody did not pass.
#[derive(Debug, thiserror::Error)]
pub enum NotPassed {
    /// The fence is stale.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The file cannot be read or written.
    #[error("the high-water mark cannot be kept: {0}; nothing was written")]
    File(#[from] io::Error),
}

impl HighWaterFile {
    /// The mark at this path; beside it lies a lock.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Does something for whoever shows this fence, unless a higher one was seen. No other process passes meanwhile. The
    /// mark is on disk before anything is done.
    pub fn pass<T>(&self, fence: u64, act: impl FnOnce() -> T) -> Result<T, NotPassed> {
        let lock = File::options().create(true).truncate(false).write(true).open(self.beside("lock"))?;
        lock.lock()?;
        let highest = self.read()?;
        check(fence, highest)?;
        if fence > highest {
            self.write(fence)?;
        }
        Ok(act())
    }

    fn beside(&self, what: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".");
        path.push(what);
        path.into()
    }

    fn read(&self) -> io::Result<u64> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => text.trim().parse().map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no fence", self.path.display()))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// All or nothing, whenever the machine stops.
    fn write(&self, fence: u64) -> io::Result<()> {
        let new = self.beside("new");
        let mut file = File::create(&new)?;
        writeln!(file, "{fence}")?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn check(shown: u64, highest: u64) -> Result<(), Stale> {
    if shown < highest { Err(Stale { shown, highest }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_fence_never_passes_after_a_newer_one() {
        let guard = HighWater::default();
        let shown = [(3, true), (3, true), (5, true), (4, false), (5, true), (9, true), (5, false)];
        for (fence, passes) in shown {
            let mut done = false;
            assert_eq!(guard.pass("db", fence, || done = true).is_ok(), passes, "{fence}");
            assert_eq!(done, passes, "{fence}");
        }
        assert!(guard.pass("log", 1, || ()).is_ok(), "each resource has its own mark");
    }

    #[test]
    fn the_mark_in_a_file_is_shared_and_outlives_who_made_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fence");
        HighWaterFile::at(&path).pass(7, || ()).unwrap();
        let other = HighWaterFile::at(&path);
        let refused = other.pass(6, || panic!("a stale writer passed"));
        assert!(matches!(refused, Err(NotPassed::Stale(Stale { shown: 6, highest: 7 }))));
        assert_eq!(other.pass(7, || 1).unwrap(), 1);
        std::fs::write(&path, "rubbish").unwrap();
        assert!(matches!(other.pass(8, || ()), Err(NotPassed::File(_))), "what cannot be read lets nobody pass");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "rubbish");
    }
}
