//! The lock that keeps a second server off a data directory. It is the operating system's, so a crash frees it.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Its name in the data directory.
pub(crate) const LOCK_FILE: &str = "lock";

/// A data directory that is ours until this is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// The data directory belongs to another process, or cannot be locked at all.
#[derive(Debug, thiserror::Error)]
pub enum InUse {
    /// Another server has it.
    #[error(
        "{} is in use by another tenure server ({owner}). Nothing was changed. Stop that server, or start this one \
         with another --data-dir",
        directory.display()
    )]
    Other {
        /// The directory.
        directory: PathBuf,
        /// What the other server wrote of itself.
        owner: String,
    },
    /// The lock file cannot be made.
    #[error("cannot lock {}: {error}. Nothing was changed. Choose a --data-dir that this user can write", directory.display())]
    Cannot {
        /// The directory.
        directory: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Makes a directory so that it outlives a power cut: a name is in its parent only once the parent is synced.
fn make_directory(directory: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = directory.ancestors().take_while(|path| !path.exists()).collect();
    // Who holds what is nobody's business but the server's.
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    for parent in missing.into_iter().filter_map(Path::parent) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// The mode of a file, or of a directory, that other users can read; none if they cannot.
pub fn mode_for_others(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o044 != 0).then_some(mode)
}

impl Lock {
    /// Takes the directory, which is made if it is not there.
    pub fn take(directory: &Path) -> Result<Self, InUse> {
        let cannot = |error| InUse::Cannot { directory: directory.to_owned(), error };
        make_directory(directory).map_err(cannot)?;
        let path = directory.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                // The owner is only for the message; it may be in the middle of writing it.
                let _ = file.read_to_string(&mut owner);
                let owner = owner.trim().to_owned();
                return Err(InUse::Other { directory: directory.to_owned(), owner });
            }
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        file.set_len(0).map_err(cannot)?;
        file.rewind().map_err(cannot)?;
        writeln!(file, "pid {}", std::process::id()).map_err(cannot)?;
        Ok(Self { _file: file })
    }
}
