//! A mark of how far the log went, kept beside it: a log that was cut at its end by more than a crash can cut is noticed.
//! Within one run of the process the log vouches for itself; the mark is written when it is opened and when it is sealed.

use crate::disk::SharedDisk;
use std::io;

const FILE: &str = "mark";
const TEMPORARY: &str = "mark.tmp";

#[derive(Clone, Debug)]
pub(crate) struct Mark {
    disk: SharedDisk,
}

impl Mark {
    pub(crate) fn new(disk: SharedDisk) -> Self {
        Self { disk }
    }

    /// The batches that the log is known to have; none if there is no mark yet.
    pub(crate) fn read(&self) -> io::Result<Option<u64>> {
        if !self.disk.list()?.iter().any(|name| name == FILE) {
            return Ok(None);
        }
        parse(&self.disk.read(FILE)?).map(Some).ok_or_else(|| {
            let text = format!(
                "the file `{FILE}` in the data directory is damaged. It only says how far the log went: if the log is \
                 known to be whole, remove the file and start again"
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }

    pub(crate) async fn write(&self, batches: u64) -> io::Result<()> {
        let number = batches.to_le_bytes();
        let mut file = self.disk.create(TEMPORARY)?;
        file.append(&[&number[..], &crc32fast::hash(&number).to_le_bytes()].concat())?;
        file.sync().await?;
        drop(file);
        self.disk.rename(TEMPORARY, FILE)?;
        self.disk.sync_dir()
    }
}

fn parse(bytes: &[u8]) -> Option<u64> {
    let (number, checksum) = bytes.split_at_checked(8)?;
    let matches = checksum == crc32fast::hash(number).to_le_bytes();
    matches.then_some(u64::from_le_bytes(number.try_into().ok()?))
}
