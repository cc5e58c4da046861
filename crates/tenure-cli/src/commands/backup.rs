//! Backups: taken while the cluster runs, and made into a new cluster when the old one is gone.

use super::Caller;
use crate::args::Anew;
use crate::failure::Failure;
use crate::print;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tenure_server::backup::{self, CannotRestore, Copied, Ground, Restored};
use tenure_server::disk::{Directory, SharedDisk};
use tenure_server::{Clock, Lock, SystemClock, SystemEntropy};

#[derive(Serialize)]
struct Taken {
    file: String,
    cluster: String,
    bytes: u64,
    index: u64,
    fence: u64,
    revision: u64,
    leases: u64,
}

/// Writes a backup beside the file, reads it back, and only then gives it its name.
pub(crate) async fn backup(caller: &Caller, file: &Path) -> Result<ExitCode, Failure> {
    let what = "cannot take a backup";
    let failed = |why: &dyn std::fmt::Display, next: &str| Failure::new(what, &why.to_string(), next);
    if file.exists() {
        let why = format!("{} is there already", file.display());
        return Err(Failure::usage(what, &why, "Nothing was changed. Name a file that is not there."));
    }
    let client = caller.connect(what).await?;
    let mut parts = client.backup().await.map_err(|error| Failure::of(what, &error))?;
    let beside = file.with_extension("part");
    let space = "Choose a directory that can be written, with room for it.";
    let mut written = File::create(&beside).map_err(|error| failed(&error, space))?;
    let mut bytes = 0;
    while let Some(part) = parts.message().await.map_err(|status| Failure::of(what, &status.into()))? {
        bytes += part.bytes.len() as u64;
        written.write_all(&part.bytes).map_err(|error| failed(&error, space))?;
    }
    written.sync_all().map_err(|error| failed(&error, space))?;
    let content = std::fs::read(&beside).map_err(|error| failed(&error, space))?;
    let (about, _) = backup::read(&content).map_err(|error| failed(&error, "Take it again."))?;
    std::fs::rename(&beside, file).and_then(|()| sync_parent(file)).map_err(|error| failed(&error, space))?;
    let leases = print::count(about.leases, "lease", "leases");
    let line = format!("{}: {bytes} bytes, {leases}, last fence {}", file.display(), about.fence);
    let taken = Taken {
        file: file.display().to_string(),
        cluster: format!("{:016x}", about.cluster),
        bytes,
        index: about.index,
        fence: about.fence,
        revision: about.revision,
        leases: about.leases,
    };
    print::one(caller.output, &line, &taken);
    Ok(ExitCode::SUCCESS)
}

fn sync_parent(file: &Path) -> io::Result<()> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// A new cluster from a backup.
pub(crate) async fn restore(caller: &Caller, file: &Path, anew: &Anew) -> Result<ExitCode, Failure> {
    let what = format!("cannot restore {}", file.display());
    let content = std::fs::read(file).map_err(|error| Failure::usage(&what, &error.to_string(), "Name a backup."))?;
    let (_, copied) = backup::read(&content).map_err(|error| refused(&what, &error))?;
    make(caller, &what, copied, anew).await
}

/// A new cluster from what one node has left.
pub(crate) async fn recover(caller: &Caller, from: &Path, anew: &Anew) -> Result<ExitCode, Failure> {
    let what = format!("cannot recover from {}", from.display());
    if !from.is_dir() {
        return Err(Failure::usage(&what, "it is no directory", "Name the data directory of the node that is left."));
    }
    let _lock = Lock::take(from).map_err(|error| Failure::new(&what, &error.to_string(), "Stop the node first."))?;
    let disk: SharedDisk = Arc::new(Directory::new(from));
    let copied = backup::remains(&disk).await.map_err(|error| refused(&what, &error))?;
    make(caller, &what, copied, anew).await
}

#[derive(Serialize)]
struct Made {
    cluster: String,
    node: u64,
    data_dir: String,
    fence_above: u64,
    leases: u64,
}

async fn make(caller: &Caller, what: &str, copied: Copied, anew: &Anew) -> Result<ExitCode, Failure> {
    let lock = Lock::take(&anew.data_dir).map_err(|error| Failure::new(what, &error.to_string(), ""))?;
    let disk: SharedDisk = Arc::new(Directory::new(&anew.data_dir));
    let ground = Ground {
        disk: &disk,
        entropy: &SystemEntropy,
        now_ms: SystemClock::start().wall_ms(),
        node: anew.node_id,
        fence_above: anew.fence_above,
    };
    let made = backup::restore(copied, ground).await;
    drop(lock);
    let Restored { cluster, node, fence_above, leases } = made.map_err(|error| refused(what, &error))?;
    let data_dir = anew.data_dir.display().to_string();
    let line = format!(
        "a new cluster {cluster:016x} of node {node} in {data_dir}: {}, every new fence is above {fence_above}",
        print::count(leases, "lease", "leases")
    );
    let made = Made { cluster: format!("{cluster:016x}"), node, data_dir, fence_above, leases };
    print::one(caller.output, &line, &made);
    Ok(ExitCode::SUCCESS)
}

fn refused(what: &str, error: &CannotRestore) -> Failure {
    let next = match error {
        CannotRestore::Damaged(_) => "Nothing was changed. Use another copy of it.",
        CannotRestore::Clock | CannotRestore::Fence { .. } | CannotRestore::Bounds => "Nothing was changed.",
        CannotRestore::InUse | CannotRestore::Disk(_) | CannotRestore::Remains(_) => "",
    };
    Failure::new(what, &error.to_string(), next)
}
