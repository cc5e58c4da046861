//! Several nodes: they begin together, are hurt for a while, one at a time or all at once, and must then go on.

use crate::archive;
use crate::book::Extremes;
use crate::chronicle::Chronicle;
use crate::machine::{Machine, STALL_MAX};
use crate::net::{Weather, peer_address};
use crate::reader::Reader;
use crate::run::{Report, Stage};
use crate::storm::Storm;
use crate::warden::Warden;
use std::collections::BTreeMap;
use std::time::Duration;
use tenure_core::{Command, Grant, Holder, LeaseId, Ttl};
use tenure_server::Begin;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long the nodes may take to agree, once everything is healed.
const AGREE: Duration = Duration::from_secs(30);

/// How long a new lease may take then: an election, and another one if the votes were split.
const PROGRESS: Duration = Duration::from_secs(10);

/// How long a change of the members may take then.
const HEAL: Duration = Duration::from_secs(60);

pub(crate) struct Many {
    stage: Stage,
    machines: Vec<Machine>,
    chronicle: Chronicle,
}

impl Many {
    pub(crate) fn new(stage: Stage) -> Self {
        let peers: BTreeMap<u64, String> = (0..stage.plan.nodes).map(|n| (n as u64 + 1, peer_address(n))).collect();
        let machine = |n| Machine::new(&stage.site, n, Begin::With(peers.clone()), stage.dice.fork());
        let machines = (0..stage.plan.nodes).map(machine).collect();
        let chronicle = Chronicle::new(stage.site.book.clone());
        Self { stage, machines, chronicle }
    }

    pub(crate) async fn run(mut self) -> Report {
        for machine in &self.machines {
            machine.start().await;
        }
        let (holders, operator) = (self.stage.spawn_holders(), self.stage.spawn_operator());
        let (storm, warden, reader) = self.spawn_trouble();
        let watchers = self.stage.spawn_watchers();
        let archive = tokio::spawn(archive::take(self.stage.site.clone(), self.stage.plan.length / 2));
        while self.stage.site.now() < self.stage.plan.length {
            let respite = self.stage.respite();
            self.live(self.stage.dice.ms(200, 3_000) + respite).await;
            self.hurt();
        }
        operator.abort();
        self.stage.site.net.calm_clients();
        reader.abort();
        storm.abort();
        self.heal().await;
        self.progress().await;
        if timeout(HEAL, warden).await.is_err() {
            self.stage.site.broken("liveness", "a change of the members does not end after healing");
        }
        self.await_leader().await;
        self.stage.await_holders(holders).await;
        self.agree().await;
        if let Some(watchers) = watchers {
            watchers.close(&self.chronicle).await;
        }
        match timeout(HEAL, archive).await {
            Ok(Ok(archive)) => archive.restore(&self.stage.site, &self.machines, &self.stage.dice).await,
            _ => self.stage.site.broken("liveness", "nobody gives a backup"),
        }
        self.stage.close()
    }

    fn spawn_trouble(&self) -> (JoinHandle<()>, JoinHandle<()>, JoinHandle<()>) {
        let Stage { site, plan, dice, .. } = &self.stage;
        let storm = Storm { site: site.clone(), dice: dice.fork(), until: plan.length };
        let reader = Reader { site: site.clone(), dice: dice.fork(), until: plan.length };
        let warden = Warden {
            site: site.clone(),
            dice: dice.fork(),
            until: plan.length,
            machines: self.machines.clone(),
            unused: self.machines.len() as u64 + 1,
        };
        (tokio::spawn(storm.rage()), tokio::spawn(warden.watch()), tokio::spawn(reader.read()))
    }

    /// The network is whole, every machine that was down comes up, and what stalled a disk is over.
    async fn heal(&mut self) {
        self.stage.site.net.mend();
        self.stage.site.net.set_weather(Weather::CALM);
        self.live(Duration::from_millis(1)).await;
        self.machines.iter().for_each(Machine::heal);
        while self.machines.iter().any(Machine::is_busy) {
            self.live(Duration::from_millis(100)).await;
        }
        // What stalls a disk now is over by then.
        self.live(STALL_MAX).await;
        self.stage.site.note("everything is healed");
    }

    /// A leader is elected in time, also if the one that there was is gone. No change of the members is under way, so that the
    /// others are a majority.
    async fn await_leader(&mut self) {
        let site = self.stage.site.clone();
        let leads =
            |machine: &Machine| site.net.node(machine.number).is_some_and(|node| node.status().leads_in.is_some());
        if self.stage.plan.swarm
            && let Some(leader) = self.machines.iter().find(|machine| leads(machine)).cloned()
            && leader.take()
        {
            leader.kill();
            tokio::spawn(async move {
                leader.restart().await;
                leader.leave();
            });
        }
        let since = site.now();
        while !self.machines.iter().any(leads) && site.now() < since + PROGRESS {
            sleep(Duration::from_millis(20)).await;
        }
        let election_ms = (site.now() - since).as_millis() as u64;
        site.note(&format!("a leader is there after {election_ms} ms"));
        site.book.extremes(&Extremes { election_ms, ..Extremes::default() });
    }

    /// Somebody who comes now is served soon.
    async fn progress(&self) {
        let (client, dice) = (self.stage.client(), self.stage.dice.fork());
        let lease = LeaseId::from_number((dice.next() >> 1).max(1)).expect("a positive 63-bit number is an id");
        let (holder, ttl) =
            (Holder::parse("late").expect("this is a name"), Ttl::from_millis(1_000).expect("in range"));
        let grant = Command::Grant(Grant::plain(lease, holder, ttl, 1));
        let granted = async {
            while client.ask(grant.clone(), Duration::from_secs(1)).await.is_none() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        match timeout(PROGRESS, granted).await {
            Ok(()) => self.stage.site.note("a new lease is granted"),
            Err(_) => self.stage.site.broken("liveness", "nothing is granted after healing"),
        }
    }

    /// Lets time pass, and looks at every node meanwhile.
    async fn live(&mut self, time: Duration) {
        let until = self.stage.site.now() + time;
        while self.stage.site.now() < until {
            sleep(self.stage.dice.ms(50, 500)).await;
            self.look();
        }
    }

    fn look(&mut self) {
        for (life, node) in self.stage.site.net.nodes() {
            self.chronicle.look(life, &node, self.stage.site.now());
        }
    }

    /// Does the next evil thing to one machine. It comes back by itself.
    fn hurt(&mut self) {
        let dice = &self.stage.dice;
        let machine = self.machines[dice.between(0, self.machines.len() as u64 - 1) as usize].clone();
        if !machine.take() {
            return;
        }
        // The more often disks fail, the less often something else happens.
        let fails = self.stage.fails_disk();
        let kind = if fails { 6 } else { dice.between(0, 5) };
        tokio::spawn(async move {
            match kind {
                6 => machine.fail_disk().await,
                0 => {
                    machine.cut_power().await;
                    machine.restart().await;
                }
                1 => {
                    machine.kill();
                    machine.restart().await;
                }
                2 => machine.pause().await,
                _ => machine.stall_disk(),
            }
            machine.leave();
        });
    }

    /// All nodes come to the same end of the log, and to the same ledger.
    async fn agree(&mut self) {
        let site = self.stage.site.clone();
        let equal = async {
            loop {
                sleep(Duration::from_millis(100)).await;
                self.look();
                let told = site.net.nodes().into_iter().map(|(_, node)| {
                    let status = node.status();
                    (status.applied, status.leases, node.read_stale(|ledger| ledger.state_hash()))
                });
                let told: Vec<_> = told.collect();
                let is_one = told.windows(2).all(|pair| pair[0] == pair[1]);
                if told.len() == self.machines.len() && is_one && told[0].1 == 0 {
                    return;
                }
            }
        };
        if timeout(AGREE, equal).await.is_err() {
            for (life, node) in site.net.nodes() {
                site.note(&format!("machine {}: {:?}", life.machine, node.status()));
            }
            site.broken("liveness", "the nodes do not come to one end");
            return;
        }
        let debts = site.book.debts();
        for (life, node) in site.net.nodes() {
            for what in node.read_stale(|ledger| debts.unpaid(ledger)) {
                site.broken("S10", &format!("at the end, on machine {}: {what}", life.machine));
            }
        }
        for machine in &self.machines {
            machine.read_log("at the end").await;
        }
        if self.chronicle.reigns() == 0 {
            site.broken("liveness", "nobody ever led");
        }
    }
}
