//! Owns the promises of the simulated disk, because the log's tests are worth no more than it is. Never tests the log.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::collections::BTreeSet;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::log_support::{Rng, now};
use tenure_server::disk::{Directory, Disk, MemoryDisk};

fn synced(disk: &MemoryDisk, name: &str, bytes: &[u8]) {
    let mut file = disk.create(name).unwrap();
    file.append(bytes).unwrap();
    now(file.sync()).unwrap();
    disk.sync_dir().unwrap();
}

/// Everything that a crash after `work` can leave in the file, over many choices.
fn left(name: &str, work: impl Fn(&MemoryDisk)) -> BTreeSet<Option<Vec<u8>>> {
    let mut outcomes = BTreeSet::new();
    for seed in 0..300 {
        let (disk, mut rng) = (MemoryDisk::new(), Rng(seed));
        work(&disk);
        disk.crash(&mut |n| rng.below(n));
        outcomes.insert(disk.bytes(name));
    }
    outcomes
}

fn some(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(bytes.to_vec())
}

#[test]
fn a_synced_file_stays_and_an_unsynced_end_may_go() {
    let outcomes = left("a", |disk| {
        synced(disk, "a", b"kept");
        disk.open_append("a").unwrap().append(b"XY").unwrap();
    });
    assert_eq!(outcomes, [some(b"kept"), some(b"keptX"), some(b"keptXY"), some(b"kept\0\0")].into());
}

#[test]
fn a_lost_page_is_a_hole() {
    let outcomes = left("a", |disk| {
        synced(disk, "a", &[1; 4096]);
        disk.open_append("a").unwrap().append(&[2; 3 * 4096]).unwrap();
    });
    let hole = [[1; 4096], [2; 4096], [0; 4096], [2; 4096]].concat();
    assert!(outcomes.contains(&Some(hole)));
}

#[test]
fn an_unsynced_truncation_may_be_undone() {
    let outcomes = left("a", |disk| {
        synced(disk, "a", b"abcdef");
        let mut file = disk.open_append("a").unwrap();
        file.truncate(3).unwrap();
        file.append(b"X").unwrap();
    });
    let expected = [some(b"abc"), some(b"abcX"), some(b"abcdef"), some(b"abcXef"), some(b"abc\0")];
    assert_eq!(outcomes, expected.into());
}

#[test]
fn names_last_only_when_the_directory_is_synced() {
    let unsynced = left("a", |disk| {
        let mut file = disk.create("a").unwrap();
        file.append(b"bytes").unwrap();
        now(file.sync()).unwrap();
    });
    assert_eq!(unsynced, [None, some(b"bytes")].into());
    let renamed = left("b", |disk| {
        synced(disk, "a", b"new");
        synced(disk, "b", b"old");
        disk.rename("a", "b").unwrap();
    });
    assert_eq!(renamed, [some(b"old"), some(b"new")].into());
    let removed = left("a", |disk| {
        synced(disk, "a", b"bytes");
        disk.remove("a").unwrap();
    });
    assert_eq!(removed, [None, some(b"bytes")].into());
}

#[test]
fn a_sync_covers_what_was_there_when_it_was_called() {
    let disk = MemoryDisk::new();
    synced(&disk, "a", b"");
    let done = Arc::new(AtomicBool::new(false));
    let waiting = Arc::clone(&done);
    disk.set_sync_hook(Some(Arc::new(move || {
        let done = Arc::clone(&waiting);
        Box::pin(std::future::poll_fn(move |_| match done.load(Ordering::Relaxed) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    })));
    let (mut first, mut second) = (disk.open_append("a").unwrap(), disk.open_append("a").unwrap());
    first.append(b"before").unwrap();
    let mut sync = pin!(first.sync());
    let mut context = Context::from_waker(Waker::noop());
    assert!(sync.as_mut().poll(&mut context).is_pending());
    second.append(b" after").unwrap();
    done.store(true, Ordering::Relaxed);
    assert!(matches!(sync.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    assert_eq!(disk.bytes("a"), some(b"before after"));
    disk.crash(&mut |_| 0);
    assert_eq!(disk.bytes("a"), some(b"before"));
}

#[test]
fn what_a_failed_sync_was_to_cover_is_lost_even_after_a_good_one() {
    let disk = MemoryDisk::new();
    synced(&disk, "a", b"good");
    let mut file = disk.open_append("a").unwrap();
    file.append(b"bad").unwrap();
    disk.fail_next_sync(ErrorKind::Other);
    assert!(now(file.sync()).is_err());
    file.append(b"more").unwrap();
    now(file.sync()).unwrap();
    assert_eq!(disk.bytes("a"), some(b"goodbadmore"));
    disk.crash(&mut |n| n - 1);
    assert_eq!(disk.bytes("a"), some(b"good\0\0\0more"));
}

#[test]
fn the_dead_do_not_write() {
    let disk = MemoryDisk::new();
    let node = disk.attach();
    let mut file = node.create("a").unwrap();
    disk.kill();
    assert!(file.append(b"late").is_err() && file.truncate(0).is_err() && now(file.sync()).is_err());
    assert!(node.create("b").is_err() && node.list().is_err() && node.remove("a").is_err());
    assert_eq!(disk.list().unwrap(), ["a"]);
    assert_eq!(disk.bytes("a"), some(b""));
}

#[test]
fn a_full_disk_takes_what_fits() {
    let disk = MemoryDisk::new();
    disk.capacity_max(10);
    let mut file = disk.create("a").unwrap();
    file.append(b"1234567").unwrap();
    assert_eq!(file.append(b"89abc").unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(disk.bytes("a"), some(b"123456789a"));
    assert_eq!(disk.faults_injected(), 1);
}

/// The same calls, with the same answers, on both disks.
#[test]
fn a_real_directory_and_the_simulated_one_agree() {
    fn story<D: Disk>(disk: &D) -> Vec<String> {
        let mut answers = Vec::new();
        let mut file = disk.create("b").unwrap();
        file.append(b"0123456789").unwrap();
        file.truncate(6).unwrap();
        file.append(b"X").unwrap();
        now(file.sync()).unwrap();
        disk.create("a").unwrap().append(b"gone soon").unwrap();
        disk.create("c").unwrap();
        disk.create("a").unwrap();
        disk.rename("b", "c").unwrap();
        disk.open_append("c").unwrap().append(b"YZ").unwrap();
        disk.sync_dir().unwrap();
        answers.push(format!("{:?} {:?} {:?}", disk.list().unwrap(), disk.read("a").unwrap(), disk.read("c").unwrap()));
        answers.push(format!("{:?}", disk.read_at("c", 5, 3).unwrap()));
        answers.push(format!("{:?}", disk.read_at("c", 5, 30).unwrap_err().kind()));
        answers.push(format!("{:?}", disk.read("b").unwrap_err().kind()));
        answers.push(format!("{:?}", disk.open_append("b").map(drop).unwrap_err().kind()));
        disk.remove("a").unwrap();
        answers.push(format!("{:?} {:?}", disk.list().unwrap(), disk.remove("a").unwrap_err().kind()));
        answers
    }
    let root = tempfile::tempdir().unwrap();
    assert_eq!(story(&Directory::new(root.path())), story(&MemoryDisk::new()));
}

/// A fault is for the process that lives when it is ordered: a slow sync of the one before it neither takes nor counts it.
#[test]
fn a_process_that_was_killed_meets_no_fault() {
    let disk = MemoryDisk::new();
    let mut old = disk.create("a").unwrap();
    old.append(b"1").unwrap();
    disk.kill();
    disk.fail_next_sync(ErrorKind::Other);
    assert!(now(old.sync()).is_err() && old.append(b"2").is_err(), "it is gone");
    assert_eq!(disk.faults_injected(), 0);
    let mut file = disk.attach().open_append("a").unwrap();
    file.append(b"3").unwrap();
    assert!(now(file.sync()).is_err());
    assert_eq!(disk.faults_injected(), 1);
    disk.cut_power_after(0);
    assert!(file.append(b"4").is_err());
    assert_eq!(disk.faults_injected(), 2, "a power cut is a fault of the living");
}
