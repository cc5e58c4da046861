//! What the doctor finds of the data directory: whose it is, who has it, how long a sync takes, what room there is. A
//! directory that is not there yet is looked at where it would be made.

use super::Finding;
use crate::clock::Stopwatch;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Syncs that are measured, each of so many bytes.
const SYNCS: usize = 20;
const SYNC_BYTES: usize = 4096;

/// Every grant and renewal waits for a sync: beyond this, people feel it.
const SYNC_SLOW: Duration = Duration::from_millis(50);

/// Beyond this, time stands still for leases while the disk is waited for.
const SYNC_STALL: Duration = Duration::from_millis(500);

/// The log grows by 64 MiB between snapshots, and a snapshot is written beside the last one.
const ROOM_LITTLE: u64 = 2 << 30;
const ROOM_NONE: u64 = 256 << 20;

pub(super) fn look(directory: &Path) -> Vec<Finding> {
    if directory.exists() && !directory.is_dir() {
        let found = format!("{} is a file", directory.display());
        return vec![Finding::bad("data directory", found, "Choose another --data-dir.")];
    }
    let directory = &std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let Some((there, metadata)) = nearest(directory) else {
        let found = format!("nothing of {} is there", directory.display());
        return vec![Finding::bad("data directory", found, "Choose another --data-dir.")];
    };
    let whose = match there == *directory {
        true => judge_owner(directory, &metadata, rustix::process::geteuid().as_raw()),
        false => Finding::ok("data directory", format!("{} is not there yet; serve makes it", directory.display())),
    };
    vec![whose, in_use(directory), room(&there), sync_time(&there)]
}

/// The directory, or the nearest one above it that is there.
fn nearest(directory: &Path) -> Option<(PathBuf, Metadata)> {
    directory.ancestors().find_map(|path| {
        let metadata = std::fs::metadata(path).ok().filter(Metadata::is_dir)?;
        Some((path.to_owned(), metadata))
    })
}

fn judge_owner(directory: &Path, metadata: &Metadata, us: u32) -> Finding {
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    let check = "data directory";
    let found = format!("{}, mode {mode:o}", directory.display());
    if owner != us && us != 0 {
        let found = format!("{found}, owned by user {owner} and not by user {us}");
        return Finding::bad(
            check,
            found,
            "Run the server as its owner, or give the directory to this user with chown.",
        );
    }
    if mode & 0o022 != 0 {
        let todo = "Others could replace what the server relies on: chmod go-w on it.";
        return Finding::bad(check, format!("{found}, which others can write"), todo);
    }
    if mode & 0o044 != 0 {
        let todo = "Others can read who holds what: chmod go-rx on it if that matters.";
        return Finding::warn(check, format!("{found}, which others can read"), todo);
    }
    Finding::ok(check, found)
}

/// Asks the kernel who has the lock, without touching it: taking it for a moment could turn a server away.
fn in_use(directory: &Path) -> Finding {
    let check = "data in use";
    let lock = std::fs::metadata(directory.join("lock"));
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    match lock.ok().and_then(|lock| lock_owner(&locks, lock.ino())) {
        Some(pid) => Finding::ok(check, format!("by a server, pid {pid}")),
        None => Finding::ok(check, "by no server"),
    }
}

/// A line of /proc/locks reads `1: FLOCK  ADVISORY  WRITE 4242 fd:01:131080 0 EOF`.
fn lock_owner(locks: &str, inode: u64) -> Option<&str> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, pid, place) = (words.next()?, words.nth(2)?, words.next()?);
        (kind == "FLOCK" && place.rsplit(':').next()? == inode.to_string()).then_some(pid)
    })
}

fn room(directory: &Path) -> Finding {
    match rustix::fs::statvfs(directory) {
        Ok(disk) => judge_room(disk.f_bavail.saturating_mul(disk.f_frsize)),
        Err(error) => Finding::warn("free disk", error.to_string(), "Look with `df` whether there is enough."),
    }
}

fn judge_room(free: u64) -> Finding {
    let check = "free disk";
    let found = match free >> 30 {
        0 => format!("{} MiB", free >> 20),
        gib => format!("{gib} GiB"),
    };
    let todo = "A server whose disk is full stops itself; what it acknowledged is safe. Free some space.";
    match free {
        ..ROOM_NONE => Finding::bad(check, found, todo),
        ROOM_NONE..ROOM_LITTLE => Finding::warn(check, found, todo),
        _ => Finding::ok(check, format!("{found}; a server whose disk is full stops itself and loses nothing")),
    }
}

fn sync_time(directory: &Path) -> Finding {
    match measure(directory) {
        Ok(times) => judge_sync(times),
        Err(error) => {
            let found = format!("cannot write in {}: {error}", directory.display());
            Finding::bad("disk sync", found, "Choose a --data-dir that this user can write.")
        }
    }
}

/// How long each sync took, in a file of its own that is gone afterwards. Servers never read what ends in `.tmp`.
fn measure(directory: &Path) -> io::Result<Vec<Duration>> {
    let path = directory.join(format!("doctor-{}.tmp", std::process::id()));
    let file = File::options().write(true).create_new(true).open(&path)?;
    let times = (0..SYNCS).map(|_| one_sync(&file)).collect();
    std::fs::remove_file(&path)?;
    times
}

fn one_sync(mut file: &File) -> io::Result<Duration> {
    file.write_all(&[0; SYNC_BYTES])?;
    let watch = Stopwatch::start();
    file.sync_data()?;
    Ok(watch.elapsed())
}

fn judge_sync(mut times: Vec<Duration>) -> Finding {
    let check = "disk sync";
    times.sort();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
    let found = format!("{} as a rule, {} at most", ms(median), ms(longest));
    if median >= SYNC_STALL {
        return Finding::bad(
            check,
            found,
            "Time stands still for leases while it takes longer than 500 ms: use another disk.",
        );
    }
    if longest >= SYNC_STALL {
        let todo = "While a sync takes longer than 500 ms, time stands still for leases: look what else uses the disk.";
        return Finding::warn(check, found, todo);
    }
    if median >= SYNC_SLOW {
        return Finding::warn(check, found, "Every grant and renewal waits for it: a faster disk would be felt.");
    }
    Finding::ok(check, found)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn who_may_write_the_data_decides() {
        let directory = tempfile::tempdir().unwrap();
        let owner = std::fs::metadata(directory.path()).unwrap().uid();
        let judge = |mode: u32, us: u32| {
            std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(mode)).unwrap();
            judge_owner(directory.path(), &std::fs::metadata(directory.path()).unwrap(), us).verdict
        };
        assert_eq!(judge(0o700, owner), Verdict::Ok);
        assert_eq!(judge(0o755, owner), Verdict::Warn);
        assert_eq!(judge(0o770, owner), Verdict::Bad);
        assert_eq!(judge(0o702, owner), Verdict::Bad);
        assert_eq!(judge(0o700, owner + 1), Verdict::Bad, "somebody else's");
    }

    #[test]
    fn the_kernel_says_who_has_the_lock() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fd:01:42 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 fd:01:42 0 EOF\n";
        assert_eq!(lock_owner(locks, 42), Some("12"));
        assert_eq!(lock_owner(locks, 2), None);
        assert_eq!(lock_owner("", 42), None);
    }

    #[test]
    fn little_room_and_slow_syncs_are_told() {
        let verdicts = [0, ROOM_NONE, ROOM_LITTLE].map(|free| judge_room(free).verdict);
        assert_eq!(verdicts, [Verdict::Bad, Verdict::Warn, Verdict::Ok]);
        let sync = |times: [u64; 3]| judge_sync(times.map(Duration::from_millis).to_vec()).verdict;
        assert_eq!(sync([1, 2, 3]), Verdict::Ok);
        assert_eq!(sync([49, 49, 49]), Verdict::Ok, "just fast enough");
        assert_eq!(sync([1, 1, 499]), Verdict::Ok, "one slow sync makes no slow disk");
        assert_eq!(sync([60, 1, 60]), Verdict::Warn);
        assert_eq!(sync([600, 1, 1]), Verdict::Warn);
        assert_eq!(sync([600, 600, 1]), Verdict::Bad);
    }

    #[test]
    fn measuring_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(measure(directory.path()).unwrap().len(), SYNCS);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let missing = directory.path().join("a/b");
        assert_eq!(nearest(&missing).unwrap().0, directory.path());
    }
}
