//! A backup that is taken in the middle of a run, and the clusters that are made of it when the old one is gone. Whatever the
//! old one gave out after the backup, no new one gives out again.

use crate::dice::Dice;
use crate::fault::Fault;
use crate::machine::{Machine, Site};
use std::time::Duration;
use tenure_core::{Acquire, Command, Grant, Holder, LeaseId, Name, On, Reply, Ttl, Wait};
use tenure_server::Node;
use tenure_server::backup;
use tokio::time::{sleep, timeout};

/// How long a node may take to give a backup before another one is asked.
const PATIENCE: Duration = Duration::from_secs(5);

/// Claims that are made in each new cluster.
const CLAIMS: u64 = 3;

/// A backup, and when it was taken in true time.
pub(crate) struct Archive {
    bytes: Vec<u8>,
    taken: Duration,
}

/// Takes a backup as soon as any node gives one after that time.
pub(crate) async fn take(site: Site, after: Duration) -> Archive {
    sleep(after.saturating_sub(site.now())).await;
    loop {
        for (life, node) in site.net.nodes() {
            if let Ok(Ok(bytes)) = timeout(PATIENCE, node.backup()).await {
                site.note(&format!("machine {} gives a backup", life.machine));
                return Archive { bytes, taken: site.now() };
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

impl Archive {
    /// Makes a cluster of it on one machine after the other, each gone before the next begins.
    pub(crate) async fn restore(&self, site: &Site, machines: &[Machine], dice: &Dice) {
        let last_of = |(_, node): (_, Node)| node.read_stale(|ledger| ledger.last_fence());
        let mut last = site.net.nodes().into_iter().map(last_of).max().unwrap_or_default();
        machines.iter().for_each(Machine::give_up);
        for machine in &machines[..2] {
            // The operator's clock is right, whatever those of the nodes say: only the time between matters.
            sleep(dice.ms(1, 5_000)).await;
            let passed = site.now().saturating_sub(self.taken);
            let (about, copied) = backup::read(&self.bytes).expect("a backup that was just taken can be read");
            let now_ms = about.wall_ms + u64::try_from(passed.as_millis()).expect("a run is short");
            let Some(node) = machine.begin_from(copied, now_ms).await else { return };
            site.tally.count(Fault::Restore);
            last = claim(site, &node, dice, last).await;
            machine.give_up();
        }
    }
}

/// Claims a few new things. Every fence is above all that were ever given out.
async fn claim(site: &Site, node: &Node, dice: &Dice, mut last: u64) -> u64 {
    if let Err(why) = node.ready().await {
        site.broken("liveness", &format!("a new cluster does not begin: {why}"));
        return last;
    }
    for number in 0..CLAIMS {
        let lease = LeaseId::from_number((dice.next() >> 1).max(1)).expect("a positive 63-bit number is an id");
        let holder = Holder::parse("after").expect("this is a name");
        let grant = Grant::plain(lease, holder, Ttl::from_millis(1_000).expect("in range"), 1);
        let name = Name::parse(&format!("after/{number}")).expect("this is a name");
        match node.propose(Command::Acquire(Acquire::exclusive(On::New(grant), name, Wait::IN_LINE))).await {
            Ok(Ok(Reply::Seated(seat))) => {
                let fence = seat.claims[0].fence.number();
                site.note(&format!("a new cluster gives out fence {fence}, after {last}"));
                if fence <= last {
                    site.broken("S5", &format!("fence {fence} of a restored cluster is not above {last}"));
                }
                last = last.max(fence);
            }
            other => site.broken("liveness", &format!("a new cluster grants nothing: {other:?}")),
        }
        sleep(Duration::from_secs(2)).await;
    }
    last
}
