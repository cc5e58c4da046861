//! Reads a log in a process of its own, which tells before each entry that it applies it: so an entry that ends the process, by a
//! panic or for want of memory, is known by its index, and `tenure cluster recover` outlives it.

use crate::failure::Failure;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use tenure_server::backup::{Skip, remains};
use tenure_server::disk::{Directory, SharedDisk};

const PART: &str = "read-log-on-trial";
/// The log was refused and the process ended as it should: whoever reads it next is told why.
const REFUSED: u8 = 3;
const INDEX_BYTES: usize = 8;

/// This process, if it was started to read a log on trial: to the end, and its exit code.
pub(crate) fn part() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    (words.next()?.to_str()? == PART).then(|| read(words))
}

fn read(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let directory = words.next().map(PathBuf::from);
    let entries: Option<BTreeSet<u64>> = words.map(|word| word.to_str()?.parse().ok()).collect();
    let (Some(directory), Some(entries)) = (directory, entries) else {
        let why = "it is a part of `tenure cluster recover`, which starts it by itself";
        return Failure::usage(&format!("cannot do {PART}"), why, "Type `tenure help cluster recover`.").report();
    };
    let disk: SharedDisk = Arc::new(Directory::new(directory));
    let mut out = io::stdout();
    // Without a reader there is no one to find out for.
    let mut applying = |index: u64| drop(out.write_all(&index.to_le_bytes()).and_then(|()| out.flush()));
    let read = futures::executor::block_on(remains(&disk, Skip { entries: &entries, applying: &mut applying }));
    if read.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) }
}

/// How a process that read a log ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// It read all that it could, and ended by itself.
    Ended,
    /// It died, and how; with the entry that it was applying, if it had come to one.
    Died { entry: Option<u64>, how: String },
}

/// Reads the log in a directory in another process.
pub(crate) fn trial(directory: &Path, skip: &BTreeSet<u64>) -> io::Result<Trial> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("tenure").arg(PART).arg(directory).args(skip.iter().map(u64::to_string));
    watch(command)
}

fn watch(mut command: Command) -> io::Result<Trial> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let told = child.stdout.take().map_or(Ok(None), last_index);
    let status = child.wait()?;
    if status.success() || status.code() == Some(REFUSED.into()) {
        return Ok(Trial::Ended);
    }
    Ok(Trial::Died { entry: told?, how: status.to_string() })
}

/// The last whole index that is told before the end.
fn last_index(mut told: impl Read) -> io::Result<Option<u64>> {
    let (mut last, mut rest, mut buffer) = (None, Vec::new(), [0; 8 * 1024]);
    loop {
        let count = match told.read(&mut buffer) {
            Ok(0) => return Ok(last),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        rest.extend_from_slice(&buffer[..count]);
        let whole = rest.len() / INDEX_BYTES * INDEX_BYTES;
        let index = rest[..whole].rchunks_exact(INDEX_BYTES).next().and_then(|bytes| bytes.try_into().ok());
        last = index.map(u64::from_le_bytes).or(last);
        rest.drain(..whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Trial {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        watch(command).unwrap()
    }

    #[test]
    fn a_process_that_dies_is_known_by_the_last_entry_it_told() {
        let Trial::Died { entry, how } = shell(r"printf '\1\0\0\0\0\0\0\0\2\1\0\0\0\0\0\0\7'; kill -KILL $$") else {
            panic!("it was killed")
        };
        assert_eq!(entry, Some(258), "what is not whole does not count");
        assert!(how.contains("signal: 9"), "{how}");
        assert!(matches!(shell("exit 134"), Trial::Died { entry: None, .. }));
    }

    #[test]
    fn a_process_that_ends_by_itself_has_not_died() {
        assert_eq!(shell(r"printf '\1\0\0\0\0\0\0\0'"), Trial::Ended);
        assert_eq!(shell("exit 3"), Trial::Ended, "the log was refused");
    }

    #[test]
    fn indexes_are_read_however_they_are_cut() {
        struct Bytes(std::vec::IntoIter<u8>);
        impl Read for Bytes {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                Ok(self.0.next().map_or(0, |byte| {
                    buffer[0] = byte;
                    1
                }))
            }
        }
        let told: Vec<u8> = (1..=5_000_u64).flat_map(u64::to_le_bytes).collect();
        assert_eq!(last_index(Bytes(told.clone().into_iter())).unwrap(), Some(5_000));
        assert_eq!(last_index(&told[..told.len() - 1]).unwrap(), Some(4_999));
        assert_eq!(last_index(&[][..]).unwrap(), None);
    }
}
