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
        for _ in 0..HOPS_MAX {
            let machine = self.at.load(Ordering::Relaxed);
            let next = (machine + 1) % self.net.machines();
            let answer = timeout(patience, self.ask_at(machine, command.clone())).await.ok().flatten();
            let leader = match answer {
                Some(Ok(outcome)) => return Some(outcome),
                Some(Err(Unready::NotLeader { leader })) => leader.as_deref().and_then(machine_at),
                _ => None,
            };
            self.at.store(leader.unwrap_or(next), Ordering::Relaxed);
            leader?;
        }
        None
    }

    async fn ask_at(&self, machine: usize, command: Command) -> Option<Result<Outcome, Unready>> {
        self.net.reach(machine, self.dice.ms(0, 30)).await;
        let answer = self.net.node(machine)?.order(command).await;
        self.net.reach(machine, self.dice.ms(0, 30)).await;
        Some(answer)
    }
}
