//! Owns the promises of the log on a disk that fails: nothing acknowledged is lost, nothing is invented, and damage is refused
//! by name. Never waits for real time; every choice comes from a seed.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::future::{Future, pending};
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::log_support::{
    Model, Rng, SEGMENT_BYTES, any_batch, damaged_sample, disk_of, entry, files, last_batch, newest, now, open,
    recover, reopen_with, sample, small,
};
use tenure_server::disk::MemoryDisk;
use tenure_server::raft::log::{LogError, LogOptions, Record};

/// What a life of the machine came to: what was acknowledged, and what else may be found.
struct Life {
    acknowledged: Model,
    in_flight: Option<Model>,
}

/// Writes until the power goes or the work is done.
fn live(disk: &MemoryDisk, options: LogOptions, rng: &mut Rng, before: Model) -> Life {
    let mut life = Life { acknowledged: before, in_flight: None };
    let Ok((mut log, recovered)) = open(&disk.attach(), options) else { return life };
    let known = recovered.purged.map(|purged| (purged.index, purged.log_id));
    assert_eq!(known, life.acknowledged.purged);
    for _ in 0..rng.below(25) {
        let mut batch = any_batch(rng, &life.acknowledged);
        let mut after = life.acknowledged.clone();
        if rng.below(3) == 0 {
            let committed = rng.bytes(9);
            log.note_committed(committed.clone());
            after.committed = Some(committed);
        }
        if rng.below(5) == 0 {
            batch.push(Record::Vote(rng.bytes(5)));
        }
        after.apply(&batch);
        match now(log.write(&batch)) {
            Ok(_) => life.acknowledged = after,
            Err(error) => {
                assert!(matches!(error, LogError::Failed { .. }), "{error}");
                assert_eq!(now(log.write(&[])).unwrap_err(), error, "a failure is for good");
                life.in_flight = Some(after);
                return life;
            }
        }
    }
    if rng.below(2) == 0 {
        let _ = now(log.close());
    }
    life
}

#[test]
fn a_power_cut_at_any_change_loses_nothing_acknowledged_and_invents_nothing() {
    let (mut cuts, mut torn, mut survived) = (0, 0, 0);
    for seed in 0..600 {
        let (disk, mut rng, mut model) = (MemoryDisk::new(), Rng(seed), Model::default());
        let options = small(400 + rng.below(30_000));
        for round in 0..8 {
            disk.cut_power_after(rng.below(60));
            let life = live(&disk, options, &mut rng, model);
            match rng.below(4) {
                0 => disk.kill(),
                _ => disk.crash(&mut |n| rng.below(n)),
            }
            cuts += 1;
            let (log, recovered) = open(&disk.attach(), options).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let found = Model::read(&recovered, &log.reader());
            torn += u32::from(recovered.torn.is_some());
            if found != life.acknowledged {
                survived += 1;
                assert_eq!(Some(&found), life.in_flight.as_ref(), "seed {seed} round {round}");
            }
            // What has been reported stays, even if the power goes again at once.
            drop(log);
            disk.crash(&mut |n| rng.below(n));
            let again = recover(&disk.attach()).unwrap_or_else(|error| panic!("seed {seed}: {error}")).0;
            assert_eq!(again, found, "seed {seed} round {round}");
            model = found;
        }
    }
    println!("{cuts} power cuts, {torn} torn ends, {survived} batches that survived without an answer");
    assert!(cuts > 0 && torn > 100 && survived > 100);
}

#[test]
fn a_last_batch_cut_anywhere_is_dropped_whole() {
    let (files, written) = damaged_sample(&last_batch());
    let [.., before, last] = &written[..] else { unreachable!() };
    let bytes = &files[&last.file];
    for end in last.start..last.end {
        let (found, cut) = reopen_with(&files, &bytes[..end]);
        assert_eq!((found, cut), (before.model.clone(), (end - last.start) as u64), "cut at {end}");
    }
    assert_eq!(reopen_with(&files, bytes), (last.model.clone(), 0));
    println!("{} cuts", last.end - last.start);
}

#[test]
fn a_zero_filled_end_is_torn() {
    let (files, written) = damaged_sample(&last_batch());
    let [.., before, last] = &written[..] else { unreachable!() };
    let mut fills = 0;
    for zeros_from in last.start..last.end {
        for beyond in [0, 1, 4096] {
            let mut bytes = files[&last.file].clone();
            bytes[zeros_from..].fill(0);
            bytes.resize(last.end + beyond, 0);
            assert_eq!(reopen_with(&files, &bytes).0, before.model, "zeros from {zeros_from}");
            fills += 1;
        }
    }
    // Zeros behind a whole batch take nothing with them.
    let mut bytes = files[&last.file].clone();
    bytes.resize(last.end + 9000, 0);
    assert_eq!(reopen_with(&files, &bytes), (last.model.clone(), 9000));
    println!("{fills} zero fills");
}

#[test]
fn a_last_batch_that_lost_a_page_is_torn() {
    let (files, written) = damaged_sample(&[entry(10, &Rng(1).bytes(30_000)), entry(11, &[1; 40])]);
    let [.., before, last] = &written[..] else { unreachable!() };
    let pages: Vec<usize> = (last.start / 4096..=last.end / 4096).collect();
    for page in &pages {
        let mut bytes = files[&last.file].clone();
        let range = (page * 4096).max(last.start)..((page + 1) * 4096).min(last.end);
        bytes[range].fill(0);
        assert_eq!(reopen_with(&files, &bytes).0, before.model, "page {page}");
    }
    println!("{} pages lost", pages.len());
    assert!(pages.len() > 7);
}

#[test]
fn a_value_that_copies_a_later_frame_is_not_taken_for_one() {
    let disk = MemoryDisk::new();
    let (mut log, _) = sample(&disk, LogOptions::default(), &last_batch());
    let mut before = 0;
    for index in 12..40 {
        before = disk.bytes(&newest(&disk)).unwrap().len();
        now(log.write(&[entry(index, b"of a later batch than the torn one")])).unwrap();
    }
    let later = disk.bytes(&newest(&disk)).unwrap().split_off(before);
    let (files, written) = damaged_sample(&[entry(10, &later.repeat(20)), entry(11, &[1; 40])]);
    let [.., before, last] = &written[..] else { unreachable!() };
    let (found, _) = reopen_with(&files, &files[&last.file][..last.end - 1]);
    assert_eq!(found, before.model);
}

#[test]
fn what_a_purge_deleted_does_not_come_back() {
    let disk = MemoryDisk::new();
    let (mut log, _) = sample(&disk, small(SEGMENT_BYTES), &last_batch());
    let before = files(&disk).len();
    now(log.write(&[Record::Purge { index: 9, log_id: Vec::new() }])).unwrap();
    let after = files(&disk);
    disk.crash(&mut |_| 0);
    assert_eq!(files(&disk), after);
    println!("{before} segments before the purge, {} after it and one power cut", after.len());
    assert!(after.len() < before);
}

#[test]
fn an_error_of_the_disk_is_for_good_and_takes_nothing_acknowledged() {
    type Fault = fn(&MemoryDisk);
    let faults: [(&str, Fault); 4] = [
        ("one sync", |disk| disk.fail_next_sync(ErrorKind::Other)),
        ("every sync", |disk| disk.fail_syncs_for_good(ErrorKind::Other)),
        ("one write", |disk| disk.fail_next_write(ErrorKind::Other)),
        ("every write", |disk| disk.fail_writes_for_good(ErrorKind::Other)),
    ];
    let mut refusals = 0;
    for (name, fault) in faults {
        for seed in 0..50 {
            let (disk, mut rng) = (MemoryDisk::new(), Rng(seed));
            let (mut log, written) = sample(&disk, small(SEGMENT_BYTES), &last_batch());
            let acknowledged = &written[written.len() - 1].model;
            fault(&disk);
            let batch = [entry(12, &[12; 90])];
            let failure = now(log.write(&batch)).unwrap_err();
            assert!(matches!(failure, LogError::Failed { kind: ErrorKind::Other, .. }), "{name}: {failure}");
            disk.heal();
            assert_eq!(now(log.write(&batch)).unwrap_err(), failure, "{name}: a healthy disk does not heal the log");
            assert!(disk.faults_injected() > 0);

            // The process starts again on the same machine, goes on, and then the power is cut.
            disk.kill();
            let (mut log, recovered) = open(&disk.attach(), small(SEGMENT_BYTES)).unwrap();
            let mut model = Model::read(&recovered, &log.reader());
            let mut in_flight = acknowledged.clone();
            in_flight.apply(&batch);
            assert!(model == *acknowledged || model == in_flight, "{name}");
            let more = [entry(model.next(), b"after the error")];
            now(log.write(&more)).unwrap();
            model.apply(&more);
            disk.crash(&mut |n| rng.below(n));
            match recover(&disk.attach()) {
                Ok((found, _)) => assert_eq!(found, model, "{name}"),
                Err(error) => {
                    assert!(name.ends_with("sync") && matches!(error, LogError::Damaged { .. }), "{name}: {error}");
                    refusals += 1;
                }
            }
        }
    }
    println!("4 faults, 50 seeds each; {refusals} logs refused because a failed sync had left a hole");
    assert!(refusals > 0);
}

#[test]
fn an_error_while_opening_leaves_a_log_that_opens_later() {
    let (files, written) = damaged_sample(&last_batch());
    let [.., before, last] = &written[..] else { unreachable!() };
    for changes in 0..6 {
        let disk = disk_of(&files);
        disk.put(&last.file, &files[&last.file][..last.end - 1]);
        disk.cut_power_after(changes);
        let opened = open(&disk.attach(), small(SEGMENT_BYTES)).map(drop);
        disk.crash(&mut |n| n - 1);
        assert_eq!(recover(&disk).unwrap().0, before.model);
        println!("power cut after {changes} changes: opened {}", opened.is_ok());
        assert!(changes > 3 || opened.is_err());
    }
}

#[test]
fn a_full_disk_fails_the_log_and_space_brings_it_back() {
    let mut full = 0;
    for capacity in (150..4000).step_by(7) {
        let disk = MemoryDisk::new();
        disk.capacity_max(capacity);
        let mut model = Model::default();
        if let Ok((mut log, _)) = open(&disk.attach(), small(SEGMENT_BYTES)) {
            for index in 0..60 {
                let batch = [entry(index, &[index as u8; 50])];
                match now(log.write(&batch)) {
                    Ok(_) => model.apply(&batch),
                    Err(error) => {
                        assert!(matches!(error, LogError::Failed { kind: ErrorKind::StorageFull, .. }), "{error}");
                        assert_eq!(now(log.write(&[])).unwrap_err(), error);
                        break;
                    }
                }
            }
        }
        full += disk.faults_injected();
        disk.kill();
        // Still full: opening may fail, and takes nothing with it.
        let _ = open(&disk.attach(), small(SEGMENT_BYTES)).map(drop);
        disk.heal();
        assert_eq!(recover(&disk.attach()).unwrap().0, model, "capacity {capacity}");
    }
    println!("{full} writes found the disk full");
    assert!(full > 500);
}

#[test]
fn an_abandoned_write_fails_the_log() {
    let disk = MemoryDisk::new();
    let (mut log, written) = sample(&disk, LogOptions::default(), &last_batch());
    disk.set_sync_hook(Some(Arc::new(|| Box::pin(pending()))));
    {
        let batch = [entry(12, b"abandoned")];
        let mut write = pin!(log.write(&batch));
        assert!(write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    disk.set_sync_hook(None);
    let failure = now(log.write(&[])).unwrap_err();
    assert!(failure.to_string().contains("abandoned"), "{failure}");
    disk.crash(&mut |_| 0);
    assert_eq!(recover(&disk).unwrap().0, written[written.len() - 1].model);
}
