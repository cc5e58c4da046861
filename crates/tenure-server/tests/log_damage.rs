//! Owns the promises of the log about damage that no crash explains: it is refused by file and offset, and never cut away.
//! Never a fault while the log is at work: those are in `log_faults.rs`.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::collections::BTreeMap;

use crate::log_support::{
    Files, Model, Rng, SEGMENT_BYTES, Written, damaged_sample, disk_of, entry, files, last_batch, now, open, recover,
    reopen_with, sample, small,
};
use tenure_server::disk::MemoryDisk;
use tenure_server::raft::log::{LogError, Record, records};

const FRAME_HEADER_BYTES: usize = 32;

/// Where the frame begins that holds this byte; the head of a segment counts as one at 0.
fn frame_of(frames: &[(String, usize)], file: &str, byte: usize) -> usize {
    frames.iter().filter(|(name, start)| name == file && *start <= byte).map(|(_, start)| *start).max().unwrap()
}

/// The start of every frame in these files, found by walking the lengths.
fn frames(files: &Files) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (name, bytes) in files {
        found.push((name.clone(), 0));
        let mut start = 48;
        while start < bytes.len() {
            found.push((name.clone(), start));
            let length = u32::from_le_bytes(bytes[start + 20..start + 24].try_into().unwrap());
            start += FRAME_HEADER_BYTES + length as usize;
        }
    }
    found
}

fn assert_refused(disk: &MemoryDisk, file: &str, offset: usize) {
    let before = files(disk);
    match recover(disk) {
        Err(LogError::Damaged { file: named, offset: at, .. }) => assert_eq!((&named[..], at as usize), (file, offset)),
        Err(other) => panic!("{file} at {offset}: {other}"),
        Ok((_, recovered)) => panic!("{file} at {offset} was opened, cutting {:?}", recovered.torn),
    }
    assert_eq!(files(disk), before, "a refused log is left as it is");
}

#[test]
fn every_flipped_bit_before_the_last_batch_is_refused_by_file_and_offset() {
    let (files, written) = damaged_sample(&last_batch());
    let (frames, last) = (frames(&files), &written[written.len() - 1]);
    let disk = disk_of(&files);
    let mut flips = 0;
    for (file, bytes) in &files {
        let end = if *file == last.file { last.start } else { bytes.len() };
        for bit in 0..end * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            disk.put(file, &flipped);
            assert_refused(&disk, file, frame_of(&frames, file, bit / 8));
            flips += 1;
        }
        disk.put(file, bytes);
    }
    println!("{flips} flips in {} segments, all refused", files.len());
    assert!(flips > 2000 && files.len() > 2);
}

#[test]
fn every_flipped_bit_in_the_last_batch_cuts_that_batch_and_no_more() {
    let (files, written) = damaged_sample(&last_batch());
    let [.., before, last] = &written[..] else { unreachable!() };
    for bit in last.start * 8..last.end * 8 {
        let mut bytes = files[&last.file].clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(reopen_with(&files, &bytes).0, before.model, "bit {bit}");
    }
    println!("{} flips, all cut", (last.end - last.start) * 8);
}

#[test]
fn after_a_clean_close_even_the_last_batch_is_vouched_for() {
    let disk = MemoryDisk::new();
    let (log, written) = sample(&disk, small(SEGMENT_BYTES), &last_batch());
    now(log.close()).unwrap();
    let (files, last) = (files(&disk), &written[written.len() - 1]);
    for bit in last.start * 8..files[&last.file].len() * 8 {
        let mut bytes = files[&last.file].clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if bit / 8 < last.end {
            disk.put(&last.file, &bytes);
            assert_refused(&disk, &last.file, last.start);
        } else {
            assert_eq!(reopen_with(&files, &bytes).0, last.model, "losing the seal loses nothing");
        }
    }
    println!("{} flips", (files[&last.file].len() - last.start) * 8);
}

#[test]
fn opening_after_a_crash_vouches_for_the_last_batch() {
    let (files, written) = damaged_sample(&last_batch());
    let last = &written[written.len() - 1];
    let disk = disk_of(&files);
    recover(&disk).unwrap();
    let mut bytes = disk.bytes(&last.file).unwrap();
    bytes[last.end - 1] ^= 1;
    disk.put(&last.file, &bytes);
    assert_refused(&disk, &last.file, last.start);
}

/// Makes the header checksum of a frame agree with whatever the header now says.
fn forge(file: &str, bytes: &mut [u8], start: usize) {
    let segment: u64 = file[4..24].parse().expect("a segment is named by its number");
    let place = [segment.to_le_bytes(), (start as u64).to_le_bytes()].concat();
    let crc = crc32fast::hash(&[&place[..], &bytes[start..start + 28]].concat());
    bytes[start + 28..start + FRAME_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_wrong_length_in_the_middle_is_never_taken_for_a_torn_end() {
    let (files, written) = damaged_sample(&last_batch());
    let [middle @ .., last] = &written[..] else { unreachable!() };
    assert!(middle.iter().filter(|batch| batch.file == last.file).count() > 1, "the open segment is damaged too");
    let mut lengths = 0;
    for Written { file, start, end, .. } in middle {
        let right = (end - start - FRAME_HEADER_BYTES) as u32;
        let to_the_end = (files[file].len() - start - FRAME_HEADER_BYTES) as u32;
        let flipped = (0..32).map(|bit| right ^ (1 << bit));
        for length in flipped.chain([0, to_the_end, to_the_end + 1, u32::MAX]).filter(|length| *length != right) {
            let disk = disk_of(&files);
            let mut bytes = files[file].clone();
            bytes[start + 20..start + 24].copy_from_slice(&length.to_le_bytes());
            disk.put(file, &bytes);
            assert_refused(&disk, file, *start);
            forge(file, &mut bytes, *start);
            disk.put(file, &bytes);
            assert_refused(&disk, file, *start);
            lengths += 2;
        }
    }
    println!("{lengths} wrong lengths, all refused");
    assert!(lengths > 500);
}

#[test]
fn a_whole_frame_that_says_something_false_is_refused() {
    let (files, written) = damaged_sample(&last_batch());
    // Even in the last batch: its checksums agree, so no crash explains it.
    for Written { file, start, .. } in &written {
        for (field, what) in [(4, "belongs"), (12, "as its first")] {
            let mut bytes = files[file].clone();
            bytes[start + field] ^= 0x40;
            forge(file, &mut bytes, *start);
            let disk = disk_of(&files);
            disk.put(file, &bytes);
            assert_refused(&disk, file, *start);
            let error = recover(&disk).map(drop).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}

#[test]
fn missing_swapped_and_copied_segments_are_refused() {
    let (sound, _) = damaged_sample(&last_batch());
    let names: Vec<String> = sound.keys().cloned().collect();
    assert!(names.len() >= 3, "{names:?}");
    let refused = |what: &str, changed: Files| {
        let error = recover(&disk_of(&changed)).map(drop).expect_err("a changed set of segments is refused");
        assert!(matches!(error, LogError::Damaged { .. }) && error.to_string().contains(what), "{what}: {error}");
        println!("{error}");
    };
    let with = |pairs: &[(&String, &Vec<u8>)]| {
        let mut changed = sound.clone();
        changed.extend(pairs.iter().map(|(name, bytes)| ((*name).clone(), (*bytes).clone())));
        changed
    };
    for missing in &names[..names.len() - 1] {
        refused("missing", sound.clone().into_iter().filter(|(name, _)| name != missing).collect());
    }
    refused("missing", sound.clone().into_iter().next_back().into_iter().collect());
    let (second, third) = (&sound[&names[1]], &sound[&names[2]]);
    refused("renamed or copied", with(&[(&names[1], third), (&names[2], second)]));
    refused("renamed or copied", with(&[(&names[2], second)]));
    refused("renamed or copied", with(&[(&format!("log-{:020}.seg", names.len() + 1), second)]));
    // Whole and yet too short, as from a backup of an earlier moment: the next segment does not follow it.
    let (_, last_frame) = frames(&BTreeMap::from([(names[1].clone(), second.clone())])).pop().expect("it has frames");
    refused("is missing", with(&[(&names[1], &second[..last_frame].to_vec())]));
}

#[test]
fn a_segment_that_follows_other_entries_is_refused() {
    let (mut files, _) = damaged_sample(&last_batch());
    let (name, bytes) = files.iter_mut().nth(2).expect("there are three segments");
    bytes[36] += 1;
    let crc = crc32fast::hash(&bytes[..44]);
    bytes[44..48].copy_from_slice(&crc.to_le_bytes());
    let name = name.clone();
    assert_refused(&disk_of(&files), &name, 0);
}

#[test]
fn the_only_segment_left_by_a_purge_is_never_taken_for_unbegun() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk, small(300)).unwrap();
    for index in 0..10 {
        now(log.write(&[entry(index, &[3; 100])])).unwrap();
    }
    now(log.write(&[Record::Purge { index: 9, log_id: Vec::new() }])).unwrap();
    let [(name, bytes)] = &files(&disk).into_iter().collect::<Vec<_>>()[..] else { panic!("one segment is left") };
    for len in [0, 47] {
        disk.put(name, &bytes[..len]);
        assert_refused(&disk, name, 0);
    }
    for len in [48, 60] {
        disk.put(name, &bytes[..len]);
        assert_refused(&disk, name, 48);
    }
}

#[test]
fn a_purged_log_whose_oldest_segment_is_lost_is_refused() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk, small(300)).unwrap();
    for index in 0..10 {
        now(log.write(&[entry(index, &[3; 100])])).unwrap();
    }
    now(log.write(&[Record::Purge { index: 4, log_id: Vec::new() }])).unwrap();
    let oldest = files(&disk).into_keys().next().unwrap();
    let mut files = files(&disk);
    files.remove(&oldest);
    let refused = recover(&disk_of(&files)).map(drop).unwrap_err();
    assert!(matches!(&refused, LogError::Damaged { file, .. } if *file == oldest), "{refused}");
}

#[test]
fn an_entry_that_rotted_is_not_read() {
    let disk = MemoryDisk::new();
    let (log, _) = sample(&disk, small(SEGMENT_BYTES), &last_batch());
    let locations = recover(&disk).unwrap().1.entries;
    let location = locations[2];
    let file = format!("log-{:020}.seg", location.segment);
    let whole = disk.bytes(&file).unwrap();
    for bit in location.offset * 8..(location.offset + u64::from(location.len)) * 8 {
        let mut bytes = whole.clone();
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
        disk.put(&file, &bytes);
        let refused = log.reader().read(&location).unwrap_err();
        assert!(matches!(refused, LogError::Damaged { offset, .. } if offset == location.offset), "{refused}");
    }
}

#[test]
fn no_bytes_whatever_make_reading_panic_or_invent() {
    let mut rng = Rng(7);
    let (sound, written) = damaged_sample(&last_batch());
    let mut opened = 0;
    for round in 0..20_000_u64 {
        let len = rng.below(200);
        let mut noise = rng.bytes(len);
        if let Some(tag) = noise.first_mut() {
            *tag %= 8;
        }
        assert!(records(&noise).take(300).count() < 300);
        if round % 10 == 0 {
            let mut files = sound.clone();
            let target = rng.below(files.len() as u64) as usize;
            let bytes = files.values_mut().nth(target).expect("the target is one of the files");
            for _ in 0..=rng.below(4) {
                let from = rng.below(bytes.len() as u64 + 1) as usize;
                let to = (from + noise.len()).min(bytes.len());
                match rng.below(3) {
                    0 => bytes.truncate(from),
                    1 => bytes[from..to].copy_from_slice(&noise[..to - from]),
                    _ => drop(bytes.splice(from..from, noise.iter().copied())),
                }
            }
            if let Ok((found, _)) = recover(&disk_of(&files)) {
                // Several faults at once can look like a log that ended earlier, but never like one that never was.
                assert!(found == Model::default() || written.iter().any(|batch| batch.model == found), "round {round}");
                opened += 1;
            }
        }
    }
    println!("20000 noisy payloads, 2000 noisy logs of which {opened} opened");
}
