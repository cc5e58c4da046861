//! A machine: a disk, a clock and the process on it, which can be started, killed, stopped for a while and robbed of its
//! power or of its disk.

use crate::book::Book;
use crate::dice::Dice;
use crate::fault::{Fault, Tally};
use crate::ground::{BentClock, Liar, Lie, Slowness, Stillness, true_time};
use crate::net::{Net, client_address, peer_address};
use crate::way::Way;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tenure_server::backup::{Copied, Ground, restore};
use tenure_server::disk::{Disk, MemoryDisk, SharedDisk};
use tenure_server::peers::Nowhere;
use tenure_server::raft::log::{Log, LogOptions};
use tenure_server::{Begin, Environment, Node, Place, Tuning, Workers};
use tokio::time::{Instant, sleep, timeout};

/// The longest that one sync takes.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(8);

/// How long a process may take to stop once its disk has failed: what is under way may have to end first.
const STOP_MAX: Duration = Duration::from_secs(20);

/// What all machines of a run share.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) book: Book,
    pub(crate) net: Net,
    pub(crate) tally: Tally,
    pub(crate) origin: Instant,
    pub(crate) tuning: Tuning,
    /// How disks lie, if that is planted.
    pub(crate) lie: Option<Lie>,
}

impl Site {
    pub(crate) fn now(&self) -> Duration {
        true_time(self.origin)
    }

    pub(crate) fn note(&self, line: &str) {
        self.book.note(self.now(), line);
    }

    pub(crate) fn broken(&self, promise: &'static str, what: &str) {
        self.book.broken(promise, self.now(), what);
    }
}

/// A machine. Clones are the same.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) number: usize,
    site: Site,
    dice: Dice,
    slowness: Slowness,
    stillness: Stillness,
    setup: Arc<Mutex<Setup>>,
}

#[derive(Clone)]
struct Setup {
    disk: MemoryDisk,
    node: u64,
    begin: Begin,
    /// Somebody is at it already.
    is_busy: bool,
    /// Its disk was made to fail in this life, so the process must stop.
    fails: bool,
}

impl Machine {
    pub(crate) fn new(site: &Site, number: usize, begin: Begin, dice: Dice) -> Self {
        let setup = Setup { disk: MemoryDisk::new(), node: number as u64 + 1, begin, is_busy: false, fails: false };
        let machine = Self {
            number,
            site: site.clone(),
            dice,
            slowness: Slowness::default(),
            stillness: Stillness::default(),
            setup: Arc::new(Mutex::new(setup)),
        };
        machine.slowness.rule(&machine.disk(), machine.dice.fork());
        machine
    }

    fn setup(&self) -> MutexGuard<'_, Setup> {
        self.setup.lock().expect("nobody panics while looking at a machine")
    }

    fn disk(&self) -> MemoryDisk {
        self.setup().disk.clone()
    }

    /// The number of the node on it.
    pub(crate) fn node(&self) -> u64 {
        self.setup().node
    }

    /// Takes the machine for itself, if nobody else has.
    pub(crate) fn take(&self) -> bool {
        !std::mem::replace(&mut self.setup().is_busy, true)
    }

    pub(crate) fn leave(&self) {
        self.setup().is_busy = false;
    }

    /// What was ordered for it and has not happened yet does not happen.
    pub(crate) fn heal(&self) {
        self.slowness.heal();
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.setup().is_busy
    }

    fn environment(&self, network: Arc<dyn tenure_server::peers::Network>) -> Environment {
        let Setup { disk, node, begin, .. } = self.setup().clone();
        let disk = disk.attach();
        let disk: SharedDisk = match self.site.lie {
            Some(lie) => Arc::new(Liar { disk, dice: self.dice.fork(), lie }),
            None => Arc::new(disk),
        };
        let place = match begin {
            Begin::Alone => Place::default(),
            begin => Place {
                node: Some(node),
                peer_addr: peer_address(self.number),
                client_addr: client_address(self.number),
                begin,
                ..Place::default()
            },
        };
        let stillness = self.stillness.clone();
        Environment {
            clock: Arc::new(BentClock { origin: self.site.origin, rate: self.dice.rate(), stillness }),
            entropy: Arc::new(self.dice.fork()),
            disk,
            workers: Workers::Tasks,
            // Snapshots are taken and the log is dropped every few hundred entries, so that faults meet them too.
            tuning: Tuning { snapshot_log_bytes: 60_000, ..self.site.tuning },
            network,
            place,
        }
    }

    /// Starts the process. None: it does not start, which is noted.
    pub(crate) async fn start(&self) -> Option<Node> {
        let net = &self.site.net;
        let life = net.begin(self.number);
        let is_alone = self.setup().begin == Begin::Alone;
        let network: Arc<dyn tenure_server::peers::Network> =
            if is_alone { Arc::new(Nowhere) } else { Arc::new(Way { net: net.clone(), us: life }) };
        let node = match Node::open(self.environment(network)).await {
            Ok((node, _)) => node,
            Err(error) => {
                self.site.broken("S10", &format!("machine {} does not start: {error}", self.number));
                return None;
            }
        };
        net.connect(life, node.clone());
        self.site.note(&format!("machine {} is up as node {}", self.number, self.node()));
        let (machine, watched) = (self.clone(), node.clone());
        tokio::spawn(async move {
            let reason = watched.failed().await;
            let site = &machine.site;
            if site.net.is_alive(life) && !machine.setup().fails {
                site.broken("S15", &format!("machine {} stopped by itself: {reason}", machine.number));
            }
        });
        Some(node)
    }

    /// Ends the life of the process; what is left of it ends by itself, unheard.
    fn end(&self) {
        self.stillness.set(None);
        if let Some(gone) = self.site.net.end(self.number) {
            tokio::spawn(async move { gone.stop().await });
        }
    }

    /// The power is cut, sometimes in the middle of a sync: then something is written and not yet durable.
    pub(crate) async fn cut_power(&self) {
        self.site.tally.count(Fault::PowerCut);
        if self.dice.one_in(2) {
            self.slowness.stall_next(Duration::from_secs(2));
            sleep(self.dice.ms(300, 1_500)).await;
        }
        self.read_log("before the power cut").await;
        self.end();
        let dice = self.dice.clone();
        self.disk().crash(&mut |n| dice.next() % n);
        self.slowness.heal();
        self.site.note(&format!("the power of machine {} is cut", self.number));
    }

    pub(crate) fn kill(&self) {
        self.site.tally.count(Fault::Kill);
        self.give_up();
        self.site.note(&format!("the process on machine {} is killed", self.number));
    }

    /// Nobody needs the process any longer.
    pub(crate) fn give_up(&self) {
        self.end();
        self.disk().kill();
        self.slowness.heal();
    }

    /// After a while without power or process, it starts again.
    pub(crate) async fn restart(&self) {
        sleep(self.dice.ms(1, 9_000)).await;
        self.read_log("before the start").await;
        self.start().await;
    }

    /// The disk fails: a write, a sync, or it is full. The node must stop by itself, and comes back when the disk is mended.
    pub(crate) async fn fail_disk(&self) {
        let (disk, Some((life, node))) = (self.disk(), self.site.net.life(self.number)) else { return };
        let injected = disk.faults_injected();
        self.setup().fails = true;
        let (fault, what) = match self.dice.between(0, 3) {
            0 => (Fault::WriteError, "the next write fails"),
            1 => (Fault::SyncError, "the next sync fails"),
            2 => (Fault::WriteError, "every write fails"),
            _ => (Fault::FullDisk, "it is full"),
        };
        match what {
            "the next write fails" => disk.fail_next_write(io::ErrorKind::Other),
            "the next sync fails" => disk.fail_next_sync(io::ErrorKind::Other),
            "every write fails" => disk.fail_writes_for_good(io::ErrorKind::Other),
            _ => disk.capacity_max(disk_bytes(&disk) + self.dice.between(0, 4_000)),
        }
        self.site.note(&format!("on the disk of machine {} {what}", self.number));
        let has_failed = async {
            while disk.faults_injected() == injected {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let is_met = timeout(Duration::from_secs(20), has_failed).await.is_ok() && self.site.net.is_alive(life);
        if is_met {
            self.site.tally.count(fault);
            if timeout(STOP_MAX, node.failed()).await.is_err() && self.site.net.is_alive(life) {
                let what = format!("machine {} goes on after its disk has failed: {:?}", self.number, node.status());
                self.site.broken("S15", &what);
            }
        }
        self.setup().fails = false;
        if !is_met {
            return disk.heal();
        }
        self.stop_after(fault).await;
    }

    /// After a failed sync nobody knows what the disk has, so the machine is switched off: a start that reads what the kernel
    /// still shows, and a power cut after it, is not promised to be survived.
    async fn stop_after(&self, fault: Fault) {
        let disk = self.disk();
        self.end();
        if fault == Fault::SyncError || self.dice.one_in(2) {
            let dice = self.dice.clone();
            disk.crash(&mut |n| dice.next() % n);
        } else {
            disk.kill();
        }
        disk.heal();
        self.slowness.heal();
        self.site.note(&format!("machine {} has stopped, and its disk is mended", self.number));
        self.restart().await;
    }

    pub(crate) fn stall_disk(&self) {
        self.site.tally.count(Fault::Stall);
        let time =
            if self.dice.one_in(3) { self.dice.ms(1_000, STALL_MAX.as_millis() as u64) } else { self.dice.ms(20, 700) };
        self.slowness.stall_next(time);
        self.site.note(&format!("the next sync of machine {} takes {time:?}", self.number));
    }

    /// The process does not run for a while.
    pub(crate) async fn pause(&self) {
        self.site.tally.count(Fault::Pause);
        let time = self.dice.ms(300, 6_000);
        self.site.note(&format!("machine {} stands still for {time:?}", self.number));
        self.slowness.stall_for(time);
        self.stillness.set(Some(self.site.now()));
        self.site.net.pause(self.number);
        sleep(time).await;
        self.stillness.set(None);
        self.site.net.resume(self.number);
    }

    /// The machine is given a new disk, and the process on it the number of a node and a way to begin.
    pub(crate) fn wipe(&self, node: u64, begin: Begin) {
        self.site.tally.count(Fault::Wipe);
        self.end();
        self.disk().kill();
        self.slowness.heal();
        self.equip(MemoryDisk::new(), node, begin);
        self.site.note(&format!("machine {} has a new disk, and is node {node}", self.number));
    }

    /// The machine is given a new disk, with a cluster of one on it that is made of a backup at this time by the wall.
    pub(crate) async fn begin_from(&self, copied: Copied, now_ms: u64) -> Option<Node> {
        let (disk, node) = (MemoryDisk::new(), 1);
        let shared: SharedDisk = Arc::new(disk.attach());
        let ground = Ground { disk: &shared, entropy: &self.dice.fork(), now_ms, node, fence_above: None };
        if let Err(error) = restore(copied, ground).await {
            self.site.broken("liveness", &format!("a backup is not restored: {error}"));
            return None;
        }
        self.equip(disk, node, Begin::Alone);
        self.start().await
    }

    fn equip(&self, disk: MemoryDisk, node: u64, begin: Begin) {
        self.slowness.rule(&disk, self.dice.fork());
        let mut setup = self.setup();
        (setup.disk, setup.node, setup.begin) = (disk, node, begin);
    }

    /// Reads the log from a copy of the disk: one term and index never have two contents.
    pub(crate) async fn read_log(&self, when: &str) {
        let (copy, disk) = (MemoryDisk::new(), self.disk());
        let names = disk.list().expect("the operator sees the disk");
        for name in &names {
            copy.put(name, &disk.bytes(name).expect("a listed file can be read"));
        }
        if names.iter().any(|name| name.starts_with("snapshot-")) {
            self.site.note("there is a snapshot");
        }
        let who = format!("{when}, on machine {},", self.number);
        let (log, recovered) = match Log::open(Arc::new(copy), LogOptions::default()).await {
            Ok(opened) => opened,
            Err(error) => return self.site.broken("S15", &format!("{who} the log is refused: {error}")),
        };
        let reader = log.reader();
        for location in recovered.entries {
            match reader.read(&location) {
                Ok(bytes) => {
                    let content = xxhash_rust::xxh3::xxh3_64(&bytes);
                    self.site.book.entry(self.site.now(), location.term, location.index, content);
                }
                Err(error) => self.site.broken("S15", &format!("{who} an entry is refused: {error}")),
            }
        }
    }
}

/// How much is on a disk.
fn disk_bytes(disk: &MemoryDisk) -> u64 {
    let names = disk.list().expect("the operator sees the disk");
    names.iter().filter_map(|name| disk.bytes(name)).map(|bytes| bytes.len() as u64).sum()
}
