//! The warden: hands the lead on, removes members and lets others in, and gives a machine a new disk now and then. It
//! never takes a second disk before the cluster has what was on the first.

use crate::dice::Dice;
use crate::fault::Fault;
use crate::machine::{Machine, Site};
use crate::net::peer_address;
use std::time::Duration;
use tenure_server::Begin;
use tenure_server::peers::v1::change::Body as Change;
use tenure_server::peers::v1::question::Body as Ask;
use tenure_server::peers::v1::{self, Envelope, Question};
use tenure_server::{Host, Refused};
use tokio::time::{sleep, timeout};

/// How long an answer is waited for; a change goes on without anybody who waits.
const ANSWER: Duration = Duration::from_secs(15);

pub(crate) struct Warden {
    pub(crate) site: Site,
    pub(crate) dice: Dice,
    pub(crate) until: Duration,
    pub(crate) machines: Vec<Machine>,
    /// The number of the next node that nobody has been.
    pub(crate) unused: u64,
}

enum Told {
    Done,
    Refused(String),
    Unknown,
}

impl Warden {
    pub(crate) async fn watch(mut self) {
        loop {
            sleep(self.dice.ms(1_000, 12_000)).await;
            if self.site.now() >= self.until {
                return;
            }
            // A cluster that has not begun has no members to change.
            if self.site.book.applied() == 0 {
                continue;
            }
            let machine = self.machines[self.dice.between(0, self.machines.len() as u64 - 1) as usize].clone();
            match self.dice.between(0, 3) {
                0 | 1 => self.hand_on(&machine).await,
                2 => self.renew_as_planned(&machine).await,
                _ => self.renew_after_a_loss(&machine).await,
            }
        }
    }

    async fn hand_on(&self, machine: &Machine) {
        let node = machine.node();
        if let Told::Done = self.change(Change::TransferTo(node)).await {
            self.site.tally.count(Fault::Transfer);
            self.site.note(&format!("the lead was handed to node {node}"));
        }
    }

    /// A member is removed, and its machine comes back with a new disk, perhaps as another node.
    async fn renew_as_planned(&mut self, machine: &Machine) {
        self.remove(machine.node()).await;
        sleep(self.dice.ms(0, 4_000)).await;
        while !machine.take() {
            sleep(self.dice.ms(100, 1_000)).await;
        }
        let node = if self.dice.one_in(2) { machine.node() } else { self.unused };
        self.unused = self.unused.max(node + 1);
        self.begin_anew(machine, node).await;
        self.admit(machine).await;
    }

    /// A member loses its disk. It must not come back as its old self.
    async fn renew_after_a_loss(&self, machine: &Machine) {
        if !machine.take() {
            return;
        }
        let node = machine.node();
        self.begin_anew(machine, node).await;
        let admit = v1::Admit { node, peer_addr: peer_address(machine.number) };
        if let Told::Done = self.change(Change::Admit(admit)).await {
            self.site.broken("S16", &format!("node {node} was let in as its old self, without its disk"));
        }
        self.remove(node).await;
        self.admit(machine).await;
    }

    async fn begin_anew(&self, machine: &Machine, node: u64) {
        let others = (0..self.machines.len()).filter(|other| *other != machine.number);
        machine.wipe(node, Begin::Join(others.map(peer_address).collect()));
        sleep(self.dice.ms(1, 3_000)).await;
        machine.start().await;
        machine.leave();
    }

    async fn remove(&self, node: u64) {
        loop {
            match self.change(Change::Remove(node)).await {
                Told::Done => break,
                Told::Refused(why) if why.contains("is no member") => break,
                Told::Refused(_) | Told::Unknown => sleep(self.dice.ms(100, 1_000)).await,
            }
        }
        self.site.tally.count(Fault::Removal);
        self.site.note(&format!("node {node} was removed"));
    }

    async fn admit(&self, machine: &Machine) {
        let (node, peer_addr) = (machine.node(), peer_address(machine.number));
        loop {
            match self.change(Change::Admit(v1::Admit { node, peer_addr: peer_addr.clone() })).await {
                Told::Done => break,
                // A leader may have known of a removal that was then lost with it.
                Told::Refused(why) if why.contains("cluster remove") => self.remove(node).await,
                Told::Refused(_) | Told::Unknown => sleep(self.dice.ms(100, 1_000)).await,
            }
        }
        self.site.tally.count(Fault::Admission);
        self.site.note(&format!("node {node} was admitted"));
    }

    /// Asks the newest leader that there is.
    async fn change(&self, change: Change) -> Told {
        let leaders = self.site.net.nodes().into_iter().filter(|(_, node)| node.status().leads_in.is_some());
        let Some((life, leader)) = leaders.max_by_key(|(_, node)| node.status().leads_in) else { return Told::Unknown };
        let identity = leader.identity();
        let envelope = Envelope {
            // As the leader would ask itself for an operator: only members may ask for changes.
            cluster: identity.cluster,
            from: identity.node,
            from_incarnation: identity.incarnation,
            to: identity.node,
            to_incarnation: identity.incarnation,
            ..Envelope::default()
        };
        let ask = Ask::Change(v1::Change { body: Some(change.clone()) });
        let question = Question { envelope: Some(envelope), body: Some(ask) };
        let net = self.site.net.clone();
        let asked = tokio::spawn(async move {
            net.reach(life.machine, Duration::from_millis(1)).await;
            Host::new(leader).answer(question).await
        });
        let told = match timeout(ANSWER, asked).await {
            Ok(Ok(Ok(_))) => Told::Done,
            Ok(Ok(Err(Refused::No(why) | Refused::NotMeant(why)))) => Told::Refused(why),
            Ok(_) | Err(_) => Told::Unknown,
        };
        if let Told::Refused(why) = &told {
            self.site.note(&format!("{change:?} is refused: {why}"));
        }
        told
    }
}
