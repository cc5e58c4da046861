//! What a simulated node stands on: a clock that runs a little wrong, and a disk that can be slow, or worse.

use crate::dice::Dice;
use futures::future::BoxFuture;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tenure_server::Clock;
use tenure_server::disk::{Disk, DiskFile, MemoryDisk, SyncHook};
use tokio::time::Instant;

/// The simulation's true time, in which everything is judged.
pub(crate) fn true_time(origin: Instant) -> Duration {
    #[allow(clippy::disallowed_methods, reason = "the simulation's own clock")]
    Instant::now().duration_since(origin)
}

/// A clock at a rate of its own. Its wall is far off, because nothing may depend on it.
#[derive(Debug)]
pub(crate) struct BentClock {
    pub(crate) origin: Instant,
    pub(crate) rate: f64,
    pub(crate) stillness: Stillness,
}

impl Clock for BentClock {
    fn monotonic(&self) -> Duration {
        self.stillness.since().unwrap_or_else(|| true_time(self.origin)).mul_f64(self.rate)
    }

    fn wall_ms(&self) -> u64 {
        86_400_000 * 365 * 30 - true_time(self.origin).as_millis() as u64
    }
}

/// Since when a process does not run, if it does not: it sees no time pass then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stillness {
    since: Arc<Mutex<Option<Duration>>>,
}

impl Stillness {
    pub(crate) fn since(&self) -> Option<Duration> {
        *self.since.lock().expect("nobody panics while looking at a clock")
    }

    pub(crate) fn set(&self, since: Option<Duration>) {
        *self.since.lock().expect("nobody panics while looking at a clock") = since;
    }
}

/// How slow the disk is at the moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slowness {
    stalls: Arc<Mutex<Stalls>>,
}

#[derive(Debug, Default)]
struct Stalls {
    next: Option<Duration>,
    /// No sync ends before.
    until: Option<Instant>,
}

impl Slowness {
    fn stalls(&self) -> MutexGuard<'_, Stalls> {
        self.stalls.lock().expect("nobody panics while stalling")
    }

    /// The next sync takes this long.
    pub(crate) fn stall_next(&self, time: Duration) {
        self.stalls().next = Some(time);
    }

    /// No sync ends for so long.
    pub(crate) fn stall_for(&self, time: Duration) {
        #[allow(clippy::disallowed_methods, reason = "the simulation's own clock")]
        let until = Instant::now() + time;
        self.stalls().until = Some(until);
    }

    /// What was ordered and has not happened yet does not happen.
    pub(crate) fn heal(&self) {
        *self.stalls() = Stalls::default();
    }

    /// Makes every sync of the disk take its time, as drawn, and now and then much longer.
    pub(crate) fn rule(&self, disk: &MemoryDisk, dice: Dice) {
        let slowness = self.clone();
        let hook: SyncHook = Arc::new(move || {
            let (next, until) = {
                let mut stalls = slowness.stalls();
                (stalls.next.take(), stalls.until)
            };
            let time = next.unwrap_or_else(|| Duration::from_micros(dice.between(50, 3_000)));
            Box::pin(async move {
                tokio::time::sleep(time).await;
                if let Some(until) = until {
                    tokio::time::sleep_until(until).await;
                }
            })
        });
        disk.set_sync_hook(Some(hook));
    }
}

/// How a disk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Now and then it says that the log is synced when it is not.
    Synced,
    /// It says that everything went well.
    AllIsWell,
}

/// A disk that lies. It is planted, to see that it is caught.
#[derive(Debug)]
pub(crate) struct Liar {
    pub(crate) disk: MemoryDisk,
    pub(crate) dice: Dice,
    pub(crate) lie: Lie,
}

struct LyingFile {
    file: Box<dyn DiskFile>,
    dice: Dice,
    lie: Lie,
}

impl Liar {
    fn open(&self, name: &str, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        match name.starts_with("log-") || self.lie == Lie::AllIsWell {
            true => Box::new(LyingFile { file, dice: self.dice.clone(), lie: self.lie }),
            false => file,
        }
    }
}

impl Disk for Liar {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk.read(name)
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.disk.read_at(name, offset, len)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.open(name, self.disk.create(name)?))
    }

    fn open_append(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.open(name, self.disk.open_append(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
}

impl DiskFile for LyingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let appended = self.file.append(bytes);
        if self.lie == Lie::AllIsWell { Ok(()) } else { appended }
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn sync(&mut self) -> BoxFuture<'_, io::Result<()>> {
        match self.lie {
            Lie::AllIsWell => {
                let synced = self.file.sync();
                Box::pin(async move {
                    let _ = synced.await;
                    Ok(())
                })
            }
            Lie::Synced if self.dice.one_in(10) => self.file.sync(),
            Lie::Synced => Box::pin(async { Ok(()) }),
        }
    }
}
