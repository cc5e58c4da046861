//! A temporary file beside the one that it will replace. It never follows a symlink and never opens a file that exists.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tenure_server::{Entropy, SystemEntropy};

/// For secrets: only the owner reads it.
pub(crate) const PRIVATE: u32 = 0o600;

/// What a new file has unless the umask takes some of it away.
pub(crate) const PUBLIC: u32 = 0o666;

/// A file under a random name. Dropping it removes it, unless it was renamed.
pub(crate) struct Beside {
    file: File,
    path: PathBuf,
    is_renamed: bool,
}

impl Beside {
    /// Creates the file in the directory of `target`. `create_new` fails where any file or symlink has the name.
    pub(crate) fn create(target: &Path, mode: u32) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        let path = target.with_file_name(format!(".{name}.{:016x}.tenure-new", SystemEntropy.draw()));
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Self { file, path, is_renamed: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file the name of `target`, so that it stays after a power cut.
    pub(crate) fn rename(mut self, target: &Path) -> io::Result<()> {
        self.file.flush()?;
        self.file.sync_all()?;
        std::fs::rename(&self.path, target)?;
        self.is_renamed = true;
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.is_renamed {
            // The file is useless, and its removal is all that can still be tried.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
