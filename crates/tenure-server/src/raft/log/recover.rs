//! Owns reading a log back after a stop of any kind, and the judgement whether its end is torn or damaged. Never changes the
//! disk: it says what to repair, and `Log::open` does it.

use std::collections::VecDeque;

use super::error::LogError;
use super::frame::{self, Flaw, Frame, Place};
use super::reader::Location;
use super::record::{self, Record};
use super::segment::{self, Extent, HeaderFlaw, Named, SEGMENT_HEADER_BYTES, SegmentHeader};
use super::span::{Gap, Span, State};
use crate::disk::Disk;

/// What a crash left unfinished at the end of the log. It was never acknowledged, and opening the log removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    pub file: String,
    pub offset: u64,
    pub bytes: u64,
    pub why: String,
}

/// Everything that reading the log told.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) state: State,
    pub(super) entries: Vec<Location>,
    pub(super) segments: VecDeque<Extent>,
    pub(super) next_batch: u64,
    /// The segment to go on with, or nothing if the log is yet to begin.
    pub(super) end: Option<End>,
    pub(super) torn: Option<(Torn, Repair)>,
    /// The last batch holds no records, so it may be lost without harm.
    pub(super) sealed: bool,
}

/// Where the newest segment ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) number: u64,
    pub(super) len: usize,
    pub(super) body_at: usize,
}

/// How to get rid of a torn end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    /// Shorten the newest segment to its last whole batch.
    Cut,
    /// Remove the file: the crash came while this segment was being begun.
    Remove { number: u64 },
}

struct SegmentFile {
    number: u64,
    name: String,
    bytes: Vec<u8>,
    is_last: bool,
}

pub(super) fn replay(disk: &dyn Disk) -> Result<Replay, LogError> {
    let numbers = segment_numbers(disk)?;
    let mut replay = Replay::new();
    for number in &numbers {
        let name = segment::file_name(*number);
        let bytes = disk.read(&name).map_err(|error| LogError::disk(&name, "read", &error))?;
        replay.read_segment(&SegmentFile { number: *number, name, bytes, is_last: numbers.last() == Some(number) })?;
    }
    replay.finish()
}

fn segment_numbers(disk: &dyn Disk) -> Result<Vec<u64>, LogError> {
    let mut numbers: Vec<u64> = Vec::new();
    for name in disk.list().map_err(|error| LogError::disk("the log directory", "list", &error))? {
        match segment::named(&name) {
            Named::Segment(number) => numbers.push(number),
            Named::Misnamed => return Err(LogError::damaged(&name, 0, "no segment has a name like this")),
            Named::Stranger => {}
        }
    }
    for pair in numbers.windows(2) {
        if pair[1] != pair[0] + 1 {
            let missing = segment::file_name(pair[0] + 1);
            return Err(LogError::damaged(&missing, 0, "this segment is missing, while earlier and later ones exist"));
        }
    }
    Ok(numbers)
}

impl Replay {
    fn new() -> Self {
        Self {
            state: State::default(),
            entries: Vec::new(),
            segments: VecDeque::new(),
            next_batch: 1,
            end: None,
            torn: None,
            sealed: false,
        }
    }

    fn read_segment(&mut self, file: &SegmentFile) -> Result<(), LogError> {
        match SegmentHeader::decode(&file.bytes) {
            Ok(header) => self.check_header(file, header)?,
            Err(HeaderFlaw::Version(version)) => {
                return Err(LogError::UnknownFormat { file: file.name.clone(), version });
            }
            Err(HeaderFlaw::Unreadable) => return self.judge(file, 0, Flaw::HeaderChecksum),
        }
        let first = match frame::read(&file.bytes, file.place(SEGMENT_HEADER_BYTES)) {
            Ok(frame) => frame,
            Err(flaw) => return self.judge(file, SEGMENT_HEADER_BYTES, flaw),
        };
        self.segments.push_back(Extent { number: file.number, next: 0 });
        self.take_frame(file, SEGMENT_HEADER_BYTES, &first)?;
        self.end = Some(End { number: file.number, len: first.end(), body_at: first.end() });
        self.read_batches(file, first.end())
    }

    fn read_batches(&mut self, file: &SegmentFile, mut offset: usize) -> Result<(), LogError> {
        while offset < file.bytes.len() {
            match frame::read(&file.bytes, file.place(offset)) {
                Ok(frame) => {
                    self.take_frame(file, offset, &frame)?;
                    offset = frame.end();
                    self.end.as_mut().expect("a segment with a whole frame has an end").len = offset;
                }
                Err(flaw) => return self.judge(file, offset, flaw),
            }
        }
        Ok(())
    }

    fn check_header(&mut self, file: &SegmentFile, header: SegmentHeader) -> Result<(), LogError> {
        let wrong = |why: String| Err(LogError::damaged(&file.name, 0, why));
        if header.number != file.number {
            return wrong(format!("it holds segment {}, so it was renamed or copied", header.number));
        }
        if self.end.is_none() && file.number > 1 {
            // Older segments were deleted after a purge. What this one says of the past has to be believed, and `finish`
            // verifies that nothing which is still needed was in them.
            self.next_batch = header.batch;
            self.state.span = Span::resumed(header.first..header.next);
            return Ok(());
        }
        if header.batch != self.next_batch {
            return wrong(format!("it begins with batch {}, and batch {} is missing", header.batch, self.next_batch));
        }
        let Span { first, next, .. } = self.state.span;
        if (header.first, header.next) != (first, next) {
            return wrong(format!(
                "it follows entries {}..{}, and the segments before it hold {first}..{next}",
                header.first, header.next
            ));
        }
        Ok(())
    }

    fn take_frame(&mut self, file: &SegmentFile, offset: usize, frame: &Frame) -> Result<(), LogError> {
        let wrong = |offset: usize, why: String| Err(LogError::damaged(&file.name, offset, why));
        if frame.batch != self.next_batch {
            return wrong(offset, format!("batch {} stands where batch {} belongs", frame.batch, self.next_batch));
        }
        let mut first_index = None;
        for record in record::records(frame.payload) {
            let (at, record) = match record {
                Ok((at, record)) => (frame.payload_at + at, record),
                Err(malformed) => return wrong(frame.payload_at + malformed.offset, malformed.why.to_owned()),
            };
            if let Err(Gap { expected, found }) = self.take_record(file.number, at, &record) {
                return wrong(at, format!("entry {found} stands where entry {expected} belongs"));
            }
            if let Record::Entry { index, .. } = record {
                first_index.get_or_insert(index);
            }
        }
        if frame.first_index != first_index.unwrap_or(0) {
            return wrong(offset, format!("its header names entry {} as its first", frame.first_index));
        }
        self.sealed = frame.payload.is_empty();
        self.next_batch += 1;
        Ok(())
    }

    fn take_record(&mut self, segment: u64, at: usize, record: &Record) -> Result<(), Gap> {
        self.state.apply(record)?;
        match record {
            Record::Entry { index, term, .. } => {
                let len = u32::try_from(record.encoded_bytes()).expect("an entry in a frame is shorter than a frame");
                self.entries.push(Location { index: *index, term: *term, segment, offset: at as u64, len });
                let extent = self.segments.back_mut().expect("a segment is listed before its batches are read");
                extent.next = index + 1;
            }
            Record::TruncateAfter { .. } => {
                let next = self.state.span.next;
                self.entries.truncate(self.entries.partition_point(|entry| entry.index < next));
                shorten(&mut self.segments, next);
            }
            Record::Purge { .. } | Record::Vote(_) | Record::Committed(_) => {}
        }
        Ok(())
    }

    /// Decides what a broken place means. A batch is written only after the one before it is on the disk, and a segment is
    /// begun only after the one before it is, so whatever stands behind a broken batch proves that it was once whole.
    fn judge(&mut self, file: &SegmentFile, offset: usize, flaw: Flaw) -> Result<(), LogError> {
        let batch = self.next_batch;
        let what = match offset {
            0 => "the head of the segment is unreadable".to_owned(),
            _ => format!("batch {batch} {flaw}"),
        };
        let wrong = |proof: String| Err(LogError::damaged(&file.name, offset, format!("{what}, yet {proof}")));
        if !file.is_last {
            return wrong("a later segment exists, so this is not the torn end of a crash".to_owned());
        }
        if let Some((at, later)) = frame::find_later(&file.bytes, file.place(offset + 1), batch) {
            return wrong(format!("batch {later} at byte {at} is whole, so this is not the torn end of a crash"));
        }
        let is_unbegun = offset <= SEGMENT_HEADER_BYTES;
        if is_unbegun && self.end.is_none() && file.number > 1 {
            return wrong(
                "the segments before it were deleted, which happens only after it is whole on the disk".to_owned(),
            );
        }
        let torn = Torn {
            file: file.name.clone(),
            offset: offset as u64,
            bytes: (file.bytes.len() - offset) as u64,
            why: format!("{what}, and nothing whole follows"),
        };
        let repair = if is_unbegun { Repair::Remove { number: file.number } } else { Repair::Cut };
        self.torn = Some((torn, repair));
        Ok(())
    }

    fn finish(mut self) -> Result<Self, LogError> {
        let Span { first, next, .. } = self.state.span;
        self.entries.drain(..self.entries.partition_point(|entry| entry.index < first));
        let found = self.entries.first().map_or(next, |entry| entry.index);
        if found != first {
            let oldest = self.segments.front().map_or(1, |extent| extent.number);
            let missing = segment::file_name(oldest.saturating_sub(1));
            let why = format!("this segment is missing, and entries {first}..{found} were in it or before it");
            return Err(LogError::damaged(&missing, 0, why));
        }
        Ok(self)
    }
}

/// Lowers what each segment is needed for, after a truncation to `next`.
pub(super) fn shorten(segments: &mut VecDeque<Extent>, next: u64) {
    for extent in segments {
        extent.next = extent.next.min(next);
    }
}

impl SegmentFile {
    fn place(&self, offset: usize) -> Place {
        Place { segment: self.number, offset }
    }
}
