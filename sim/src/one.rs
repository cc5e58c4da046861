//! A node alone: it is started, hurt and started again, while holders live with it.

use crate::chronicle::Chronicle;
use crate::fault::Fault;
use crate::machine::Machine;
use crate::run::{Report, Stage};
use std::time::Duration;
use tenure_server::Begin;
use tokio::time::{sleep, timeout};

/// How often a node is looked at while nothing is done to it.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct One {
    stage: Stage,
    machine: Machine,
    chronicle: Chronicle,
}

impl One {
    pub(crate) fn new(stage: Stage) -> Self {
        let machine = Machine::new(&stage.site, 0, Begin::Alone, stage.dice.fork());
        let chronicle = Chronicle::new(stage.site.book.clone());
        Self { stage, machine, chronicle }
    }

    pub(crate) async fn run(mut self) -> Report {
        if let Some(node) = self.machine.start().await {
            let _ = node.ready().await;
        }
        let (holders, operator) = (self.stage.spawn_holders(), self.stage.spawn_operator());
        let watchers = self.stage.spawn_watchers();
        while self.stage.site.now() < self.stage.plan.length {
            let respite = self.stage.respite();
            self.live(respite).await;
            sleep(self.stage.dice.ms(200, 4_000)).await;
            self.look();
            self.hurt().await;
        }
        operator.abort();
        self.stage.site.net.calm_clients();
        self.stage.await_holders(holders).await;
        self.look();
        // Nobody renews any more, so every lease must end by itself, and nobody writes, so only ticks can end it.
        sleep(Duration::from_secs(30)).await;
        let left = self.stage.site.net.node(0).map(|node| node.status().leases);
        if left != Some(0) {
            self.stage.site.broken("liveness", &format!("{left:?} leases outlive their TTL by far"));
        }
        self.look();
        if let Some(watchers) = watchers {
            watchers.close(&self.chronicle).await;
        }
        self.machine.read_log("at the end").await;
        self.stage.close()
    }

    /// Lets time pass, and looks at the node meanwhile.
    async fn live(&mut self, time: Duration) {
        let until = self.stage.site.now() + time;
        while self.stage.site.now() < until {
            sleep(LOOK.min(until - self.stage.site.now())).await;
            self.look();
        }
    }

    fn look(&mut self) {
        for (life, node) in self.stage.site.net.nodes() {
            self.chronicle.look(life, &node, self.stage.site.now());
        }
    }

    /// Does the next evil thing.
    async fn hurt(&mut self) {
        if self.stage.fails_disk() {
            self.machine.fail_disk().await;
            return self.await_ready().await;
        }
        match self.stage.dice.between(0, 5) {
            0 => {
                self.machine.cut_power().await;
                self.restart().await;
            }
            1 => {
                self.machine.kill();
                self.restart().await;
            }
            2 => self.pause().await,
            _ => self.machine.stall_disk(),
        }
    }

    /// A node that starts has everything it had.
    async fn restart(&mut self) {
        sleep(self.stage.dice.ms(1, 9_000)).await;
        self.machine.read_log("before the start").await;
        self.machine.start().await;
        self.await_ready().await;
    }

    async fn await_ready(&mut self) {
        let site = &self.stage.site;
        let Some(node) = site.net.node(0) else { return };
        match timeout(Duration::from_secs(20), node.ready()).await {
            Ok(Ok(())) if node.status().applied < site.book.applied() => {
                site.broken("S10", "the node came back with less than it had applied");
            }
            Ok(Ok(())) => self.look(),
            Ok(Err(why)) => site.broken("liveness", &format!("the node stopped at once: {why}")),
            Err(_) => site.broken("liveness", "the node does not lead within 20 s"),
        }
    }

    /// Everything stands still while time goes on, and then finds all that is due at once.
    async fn pause(&mut self) {
        self.stage.site.tally.count(Fault::Pause);
        let time = self.stage.dice.ms(300, 12_000);
        self.stage.site.note(&format!("everything stands still for {time:?}"));
        tokio::time::advance(time).await;
    }
}
