//! Owns the rules of a log on a healthy disk: what is written is read again. Never injects a fault.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::log_support::{Model, Rng, any_batch, entry, files, newest, now, open, recover, small};
use tenure_server::disk::{Directory, Disk, MemoryDisk};
use tenure_server::raft::log::{BATCH_BYTES_MAX, Log, LogError, LogOptions, Purged, Record};

const FIRST: &str = "log-00000000000000000001.seg";

#[test]
fn what_is_written_is_there_after_reopening() {
    for seed in 0..60 {
        let (disk, mut rng, mut model) = (MemoryDisk::new(), Rng(seed), Model::default());
        let options = small(500 + rng.below(20_000));
        for _ in 0..8 {
            let (mut log, recovered) = open(&disk, options).unwrap();
            assert_eq!(recovered.torn, None);
            assert_eq!(Model::read(&recovered, &log.reader()), model, "seed {seed}");
            for _ in 0..rng.below(12) {
                let batch = any_batch(&mut rng, &model);
                let locations = now(log.write(&batch)).unwrap();
                model.apply(&batch);
                let entries = batch.iter().filter(|record| matches!(record, Record::Entry { .. }));
                for (location, record) in locations.iter().zip(entries) {
                    let Record::Entry { index, bytes, .. } = record else { unreachable!() };
                    if model.first() <= *index {
                        assert_eq!(&log.reader().read(location).unwrap(), bytes);
                    }
                }
            }
            if rng.below(2) == 0 {
                now(log.close()).unwrap();
            }
        }
    }
}

#[test]
fn a_full_segment_is_followed_by_the_next() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk, small(400)).unwrap();
    for index in 0..20 {
        now(log.write(&[entry(index, &[7; 100])])).unwrap();
    }
    assert!(files(&disk).len() >= 8, "{:?}", files(&disk).keys());
    assert!(files(&disk).values().all(|bytes| bytes.len() <= 400));
    // One batch longer than a segment gets a segment to itself.
    now(log.write(&[entry(20, &[8; 5000])])).unwrap();
    assert_eq!(recover(&disk).unwrap().0.entries.len(), 21);
}

#[test]
fn a_purge_deletes_whole_segments_and_everything_else_survives_it() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk, small(400)).unwrap();
    now(log.write(&[Record::Vote(b"ann".to_vec()), Record::Committed(b"none".to_vec())])).unwrap();
    for index in 0..20 {
        now(log.write(&[entry(index, &[7; 100])])).unwrap();
    }
    now(log.write(&[Record::Purge { index: 15, log_id: b"15 of term 2".to_vec() }])).unwrap();
    assert_eq!(disk.bytes(FIRST), None);
    let (model, recovered) = recover(&disk).unwrap();
    assert_eq!(model.vote.as_deref(), Some(&b"ann"[..]));
    assert_eq!(model.committed.as_deref(), Some(&b"none"[..]));
    assert_eq!(recovered.purged, Some(Purged { index: 15, log_id: b"15 of term 2".to_vec() }));
    assert_eq!(model.entries.keys().copied().collect::<Vec<_>>(), [16, 17, 18, 19]);
    assert!(recovered.entries.iter().all(|at| disk.bytes(&format!("log-{:020}.seg", at.segment)).is_some()));
}

#[test]
fn a_purge_past_the_end_moves_the_log_there() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk, LogOptions::default()).unwrap();
    now(log.write(&[entry(0, b"zero")])).unwrap();
    now(log.write(&[Record::Purge { index: 99, log_id: Vec::new() }])).unwrap();
    let refused = now(log.write(&[entry(1, b"one")])).unwrap_err();
    assert_eq!(refused, LogError::OutOfOrder { expected: 100, found: 1 });
    now(log.write(&[entry(100, b"hundred")])).unwrap();
    assert_eq!(recover(&disk).unwrap().0.entries.keys().copied().collect::<Vec<_>>(), [100]);
}

#[test]
fn a_truncated_entry_is_replaced_by_the_one_written_later() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk, small(300)).unwrap();
    for index in 0..10 {
        now(log.write(&[entry(index, b"old")])).unwrap();
    }
    now(log.write(&[Record::TruncateAfter { index: Some(50) }])).unwrap();
    assert_eq!(recover(&disk).unwrap().0.entries.len(), 10, "past the end it does nothing");
    let (mut log, _) = open(&disk, small(300)).unwrap();
    now(log.write(&[Record::TruncateAfter { index: Some(4) }, entry(5, b"new")])).unwrap();
    let (model, _) = recover(&disk).unwrap();
    assert_eq!(model.entries.len(), 6);
    assert_eq!((&model.entries[&4].1[..], &model.entries[&5].1[..]), (&b"old"[..], &b"new"[..]));
    let (mut log, _) = open(&disk, small(300)).unwrap();
    now(log.write(&[Record::TruncateAfter { index: None }])).unwrap();
    assert!(recover(&disk).unwrap().0.entries.is_empty());
}

#[test]
fn a_truncation_frees_segments_for_a_purge() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk, small(300)).unwrap();
    for index in 0..10 {
        now(log.write(&[entry(index, &[1; 100])])).unwrap();
    }
    now(log.write(&[Record::TruncateAfter { index: Some(2) }])).unwrap();
    for index in 3..8 {
        now(log.write(&[entry(index, &[2; 100])])).unwrap();
    }
    now(log.write(&[Record::Purge { index: 4, log_id: Vec::new() }])).unwrap();
    let before = files(&disk).len();
    let (model, _) = recover(&disk).unwrap();
    assert_eq!(model.entries.keys().copied().collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(files(&disk).len(), before, "reopening finds nothing more to delete");
    assert!(before <= 5, "{:?}", files(&disk).keys());
}

#[test]
fn the_committed_place_travels_with_the_next_batch() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk, LogOptions::default()).unwrap();
    let before = disk.bytes(FIRST);
    log.note_committed(b"7".to_vec());
    assert_eq!(disk.bytes(FIRST), before, "noting writes nothing");
    now(log.write(&[entry(0, b"zero")])).unwrap();
    assert_eq!(recover(&disk).unwrap().0.committed.as_deref(), Some(&b"7"[..]));
    let (mut log, _) = open(&disk, LogOptions::default()).unwrap();
    log.note_committed(b"8".to_vec());
    now(log.close()).unwrap();
    assert_eq!(recover(&disk).unwrap().0.committed.as_deref(), Some(&b"8"[..]));
}

#[test]
fn opening_and_closing_an_idle_log_does_not_grow_it() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk, LogOptions::default()).unwrap();
    now(log.write(&[entry(0, b"zero")])).unwrap();
    now(log.close()).unwrap();
    let before = files(&disk);
    for _ in 0..3 {
        now(open(&disk, LogOptions::default()).unwrap().0.close()).unwrap();
    }
    assert_eq!(files(&disk), before);
}

#[test]
fn a_batch_with_a_gap_or_too_long_is_refused_and_harms_nothing() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk, LogOptions::default()).unwrap();
    now(log.write(&[entry(5, b"a log may begin anywhere")])).unwrap();
    for wrong in [4, 5, 7] {
        let refused = now(log.write(&[entry(wrong, b"")])).unwrap_err();
        assert_eq!(refused, LogError::OutOfOrder { expected: 6, found: wrong });
    }
    let refused = now(log.write(&[entry(6, &vec![0; BATCH_BYTES_MAX])])).unwrap_err();
    assert!(matches!(refused, LogError::TooLarge { .. }), "{refused}");
    now(log.write(&[entry(6, b"goes on")])).unwrap();
    assert_eq!(recover(&disk).unwrap().0.entries.len(), 2);
}

#[test]
fn a_real_directory_keeps_the_log() {
    let root = tempfile::tempdir().unwrap();
    let disk = Directory::new(root.path());
    let mut model = Model::default();
    for life in 0..4 {
        let (mut log, recovered) = open(&disk, small(20_000)).unwrap();
        assert_eq!(Model::read(&recovered, &log.reader()), model);
        let mut rng = Rng(life);
        for _ in 0..30 {
            let batch = any_batch(&mut rng, &model);
            now(log.write(&batch)).unwrap();
            model.apply(&batch);
        }
    }
    let last = disk.list().unwrap().pop().unwrap();
    let path = root.path().join(last);
    let mut torn = std::fs::read(&path).unwrap();
    torn.extend([0; 5000]);
    std::fs::write(&path, torn).unwrap();
    let (found, recovered) = recover(&disk).unwrap();
    assert_eq!(found, model);
    assert_eq!(recovered.torn.unwrap().bytes, 5000);
}

#[test]
fn files_of_others_are_left_alone_and_misnamed_segments_refused() {
    let disk = MemoryDisk::new();
    disk.put("snapshot-7.bin", b"not ours");
    disk.put("log-00000000000000000001.seg.bak", b"not ours either");
    let (mut log, _) = open(&disk, LogOptions::default()).unwrap();
    now(log.write(&[entry(0, b"zero")])).unwrap();
    assert_eq!(recover(&disk).unwrap().0.entries.len(), 1);
    for name in ["log-1.seg", "log-.seg", "log-00000000000000000000.seg", "log-+0000000000000000002.seg"] {
        let disk = MemoryDisk::new();
        disk.put(name, b"");
        let refused = recover(&disk).unwrap_err();
        assert!(matches!(&refused, LogError::Damaged { file, .. } if file == name), "{refused}");
    }
}

#[test]
fn a_newer_format_is_named_and_never_taken_for_torn() {
    let disk = MemoryDisk::new();
    drop(open(&disk, LogOptions::default()).unwrap());
    let mut bytes = disk.bytes(FIRST).unwrap()[..48].to_vec();
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..44]);
    bytes[44..].copy_from_slice(&crc.to_le_bytes());
    disk.put(FIRST, &bytes);
    let refused = recover(&disk).unwrap_err();
    assert_eq!(refused, LogError::UnknownFormat { file: FIRST.to_owned(), version: 2 });
    assert_eq!(disk.bytes(&newest(&disk)).unwrap(), bytes);
}

#[test]
fn a_write_can_be_sent_between_threads() {
    fn sendable(_: impl Send) {}
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk, LogOptions::default()).unwrap();
    sendable(log.write(&[]));
    sendable(Log::open(std::sync::Arc::new(disk), LogOptions::default()));
    sendable(log);
}
