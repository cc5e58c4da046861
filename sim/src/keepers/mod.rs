//! Clients of the Rust crate: programs that take, wait for, give up, release and rely on resources through real keepers, which
//! run on simulated clocks, links and chance. What a guard says is held against the guards of other clients and the ledger.

mod judge;
mod meddler;
mod planted;
mod program;
mod runner;
mod trouble;
mod wire;

use crate::client::Client;
use crate::dice::Dice;
use crate::machine::Site;
use crate::mix::Mix;
use crate::net::client_address;
use crate::run::Plan;
use judge::Judge;
use meddler::Meddler;
use program::Program;
use runner::Runner;
use std::time::Duration;
use tenure::clock::{BootTime, Clock};
use tenure::sans_io::{self, Chance};
use tokio::task::JoinHandle;
use trouble::Trouble;
use wire::Uplink;

/// How many clients have a keeper, and how many programs each of them works for.
const CLIENTS: usize = 3;
const PROGRAMS: usize = 2;

/// The machine of a client was started up to so long before the simulation.
const UPTIME_MS_MAX: u64 = 1_000_000;

/// Starts the clients, what befalls them, and who judges them.
pub(crate) fn spawn(plan: &Plan, site: &Site, mix: Mix, dice: &Dice, meddles: Client) -> Vec<JoinHandle<()>> {
    let judge = Judge::new(site.clone());
    let mut all = Vec::new();
    for number in 0..CLIENTS {
        let (rate, uptime, origin) = (dice.rate(), dice.ms(0, UPTIME_MS_MAX), site.origin);
        let clock =
            Clock::simulated(move || BootTime::from_start(uptime + crate::ground::true_time(origin).mul_f64(rate)));
        let draws = dice.fork();
        let chance = Chance::from_source(move || draws.next());
        let addrs: Vec<String> = (0..site.net.machines()).map(client_address).collect();
        let (client, keeper, orders) = sans_io::client(&addrs.join(","), &judge::holder(number), clock.clone(), chance);
        let uplink = Uplink::new(site.clone(), dice.fork(), mix.post, plan.plant);
        let trouble = Trouble { uplink: uplink.clone(), dice: dice.fork(), site: site.clone(), until: plan.length };
        let runner = Runner::new(number, keeper, orders, clock.clone(), uplink, judge.clone());
        all.push(tokio::spawn(trouble.rage()));
        all.push(tokio::spawn(runner.run()));
        for _ in 0..PROGRAMS {
            let program = Program {
                number,
                client: client.clone(),
                clock: clock.clone(),
                dice: dice.fork(),
                judge: judge.clone(),
                site: site.clone(),
                until: plan.length,
            };
            all.push(tokio::spawn(program.live()));
        }
    }
    let meddler =
        Meddler { client: meddles, dice: dice.fork(), judge: judge.clone(), site: site.clone(), until: plan.length };
    all.push(tokio::spawn(meddler.live()));
    // It ends by itself when no client is left.
    tokio::spawn(judge.watch(dice.fork()));
    all
}

/// The longest TTL that programs ask for.
const TTL_MAX: Duration = Duration::from_secs(6);
