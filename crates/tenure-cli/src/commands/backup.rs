//! Backups: taken while the cluster runs, and made into a new cluster when the old one is gone.

use super::Caller;
use crate::args::Anew;
use crate::beside::{Beside, PRIVATE};
use crate::failure::Failure;
use crate::print;
use crate::trial::{Trial, trial};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tenure_server::backup::{self, CannotRestore, Copied, Dropped, Ground, Restored, Skip};
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
    let space = "Choose a directory that can be written, with room for it.";
    // A backup has every key and value: only its owner reads it.
    let mut written = Beside::create(file, PRIVATE).map_err(|error| failed(&error, space))?;
    let mut bytes = 0;
    while let Some(part) = parts.message().await.map_err(|status| Failure::of(what, &status.into()))? {
        bytes += part.bytes.len() as u64;
        written.file().write_all(&part.bytes).map_err(|error| failed(&error, space))?;
    }
    written.file().sync_all().map_err(|error| failed(&error, space))?;
    let content = std::fs::read(written.path()).map_err(|error| failed(&error, space))?;
    let (about, _) = backup::read(&content).map_err(|error| failed(&error, "Take it again."))?;
    written.rename(file).map_err(|error| failed(&error, space))?;
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

/// A new cluster from a backup.
pub(crate) async fn restore(caller: &Caller, file: &Path, anew: &Anew) -> Result<ExitCode, Failure> {
    let what = format!("cannot restore {}", file.display());
    let content = std::fs::read(file).map_err(|error| Failure::usage(&what, &error.to_string(), "Name a backup."))?;
    let (_, copied) = backup::read(&content).map_err(|error| refused(&what, &error))?;
    make(caller, &what, copied, Vec::new(), anew).await
}

/// A new cluster from what one node has left, but for entries that are left out. The log is read on trial first, so that an
/// entry that ends the process is told of.
pub(crate) async fn recover(
    caller: &Caller,
    from: &Path,
    skip: &BTreeSet<u64>,
    anew: &Anew,
) -> Result<ExitCode, Failure> {
    let what = format!("cannot recover from {}", from.display());
    if !from.is_dir() {
        return Err(Failure::usage(&what, "it is no directory", "Name the data directory of the node that is left."));
    }
    let _lock = Lock::take(from).map_err(|error| Failure::new(&what, &error.to_string(), "Stop the node first."))?;
    let disk: SharedDisk = Arc::new(Directory::new(from));
    match trial(from, skip) {
        Ok(Trial::Ended) => {}
        Ok(Trial::Died { entry: Some(index), how }) => {
            let why = format!("the process that applied entry {index} of the log ended ({how})");
            return Err(skip_it(&what, &why, index));
        }
        Ok(Trial::Died { entry: None, how }) => {
            let why = format!("the process that read the data ended ({how}) before it applied an entry");
            return Err(Failure::before(&what, &why, "Free some memory, or use a backup: `tenure cluster restore`."));
        }
        Err(error) => return Err(Failure::before(&what, &error.to_string(), "Free some memory or processes.")),
    }
    let left = backup::remains(&disk, Skip { entries: skip, applying: &mut |_| {} }).await;
    let (copied, dropped) = left.map_err(|error| refused(&what, &error))?;
    make(caller, &what, copied, dropped, anew).await
}

/// What to do about an entry that cannot be applied.
fn skip_it(what: &str, why: &str, index: u64) -> Failure {
    let next = format!(
        "Try a newer build, if there is one. To give up what the entry did, add --skip-entry {index}: its commands are \
         listed then.\n        If memory is short, use a machine with more."
    );
    Failure::stuck(what, why, &next)
}

/// What an entry that was left out would have done.
#[derive(Serialize)]
struct Lost {
    entry: u64,
    commands: Vec<String>,
}

#[derive(Serialize)]
struct Made {
    cluster: String,
    node: u64,
    data_dir: String,
    fence_above: u64,
    leases: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dropped: Vec<Lost>,
}

async fn make(
    caller: &Caller,
    what: &str,
    copied: Copied,
    dropped: Vec<Dropped>,
    anew: &Anew,
) -> Result<ExitCode, Failure> {
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
    say_dropped(&dropped);
    let dropped = dropped.into_iter().map(|Dropped { index, commands }| Lost { entry: index, commands }).collect();
    let made = Made { cluster: format!("{cluster:016x}"), node, data_dir, fence_above, leases, dropped };
    print::one(caller.output, &line, &made);
    Ok(ExitCode::SUCCESS)
}

/// Names what is not in the new cluster. Clients may have been told that it was done.
fn say_dropped(dropped: &[Dropped]) {
    for Dropped { index, commands } in dropped {
        let count = print::count(commands.len() as u64, "command", "commands");
        print::say(&format!("entry {index} was left out with {count}; clients may have been told that they were done"));
        for command in commands {
            print::say(&format!("dropped: {command}"));
        }
    }
}

fn refused(what: &str, error: &CannotRestore) -> Failure {
    let next = match error {
        CannotRestore::Entry(entry) => return skip_it(what, &error.to_string(), entry.index),
        CannotRestore::NoEntry { .. } => {
            return Failure::usage(what, &error.to_string(), "Name an entry that stops it, and no other.");
        }
        CannotRestore::Damaged(_) => "Nothing was changed. Use another copy of it.",
        CannotRestore::Clock | CannotRestore::Fence { .. } | CannotRestore::Bounds => "Nothing was changed.",
        CannotRestore::InUse | CannotRestore::Disk(_) | CannotRestore::Remains(_) => "",
    };
    Failure::new(what, &error.to_string(), next)
}
