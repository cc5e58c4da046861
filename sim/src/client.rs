//! How holders and the operator ask: over a network that is a little slow, at one node after the other.

use crate::dice::Dice;
use crate::net::{Net, machine_at};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tenure_core::{Command, Outcome};
use tenure_server::Unready;
use tokio::time::timeout;

/// How often a client follows what it is told of the leader before it takes a breath.
const HOPS_MAX: usize = 3;

pub(crate) struct Client {
    net: Net,
    dice: Dice,
    /// The machine that is asked next.
    at: AtomicUsize,
}

impl Client {
    pub(crate) fn new(net: Net, dice: Dice) -> Self {
        let at = AtomicUsize::new(dice.between(0, net.machines() as u64 - 1) as usize);
        Self { net, dice, at }
    }

    /// Sends a command and waits a little for the answer, at each node that it is sent on to. None: unknown.
    pub(crate) async fn ask(&self, command: Command, patience: Duration) -> Option<Outcome> {
        let first = self.at.load(Ordering::Relaxed);
        let mut machine = first;
        for _ in 0..HOPS_MAX {
            match timeout(patience, self.ask_at(machine, command.clone())).await.ok().flatten() {
                Some(Ok(outcome)) => {
                    self.at.store(machine, Ordering::Relaxed);
                    return Some(outcome);
                }
                Some(Err(Unready::NotLeader { leader: Some(leader) })) => machine = machine_at(&leader)?,
                _ => break,
            }
        }
        // Whoever was asked first may know no better than to send everybody to a machine that is gone.
        self.at.store((first + 1) % self.net.machines(), Ordering::Relaxed);
        None
    }

    async fn ask_at(&self, machine: usize, command: Command) -> Option<Result<Outcome, Unready>> {
        self.net.reach(machine, self.dice.ms(0, 30)).await;
        let answer = self.net.node(machine)?.order(command).await;
        self.net.reach(machine, self.dice.ms(0, 30)).await;
        Some(answer)
    }
}
