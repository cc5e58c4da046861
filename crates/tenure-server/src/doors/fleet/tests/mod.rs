//! What a watcher may rely on, on simulated time: it never runs out of who is heard of in time, and is never told that
//! somebody is valid for longer than their lease.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use super::*;
use crate::clock::Clock;
use crate::cluster::tests::{Room, leader, open_by};
use crate::disk::MemoryDisk;
use crate::environment::Environment;
use crate::limits::FRESH_SHARED;
use crate::node::Node;
use crate::workers::Workers;
use futures::StreamExt;
use tenure_core::{
    Command, Deregister, Details, Draft, Endpoint, Grant, Holder, Kind, LeaseId, On, Register, Renew, Renewal, Ttl,
};
use tokio::time::Instant;

/// The time of tokio, which goes on when everybody waits.
struct Simulated(Instant);

impl Clock for Simulated {
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        1
    }
}

async fn open_desk() -> Desk {
    let environment = Environment {
        clock: Arc::new(Simulated(Instant::now())),
        workers: Workers::Tasks,
        ..Environment::alone(Arc::new(MemoryDisk::new().attach()))
    };
    let (node, _) = Node::open(environment).await.unwrap();
    node.ready().await.unwrap();
    Desk::new(node)
}

fn lease(n: u64) -> LeaseId {
    LeaseId::from_number(n).unwrap()
}

fn key(n: u64) -> InstanceKey {
    InstanceKey::parse(&format!("s/i{n}")).unwrap()
}

async fn register(node: &Node, n: u64, ttl_ms: u64) {
    let (holder, ttl) = (Holder::parse("ann").unwrap(), Ttl::from_millis(ttl_ms).unwrap());
    let details = Details::new(Draft::at(vec![Endpoint::parse("http://h:1").unwrap()])).unwrap();
    let on = On::New(Grant::plain(lease(n), holder, ttl, n));
    let register = Register { instance: key(n), epoch: None, on, details, request: None };
    node.propose(Command::Register(register)).await.unwrap().unwrap();
}

async fn deregister(node: &Node, n: u64) {
    let order = Deregister { instance: key(n), lease: None, force: None, request: None };
    node.propose(Command::Deregister(order)).await.unwrap().unwrap();
}

async fn beat(node: Node, n: u64, every_ms: u64) {
    loop {
        sleep(Duration::from_millis(every_ms)).await;
        let leases = vec![Renewal { lease: lease(n), ttl: None }];
        node.propose(Command::Renew(Renew { leases, kind: Kind::Auto })).await.unwrap().unwrap();
    }
}

fn watch_all(desk: &Desk) -> Replies {
    open(desk.clone(), WatchInstancesRequest { service: "s".into(), ..Default::default() }).unwrap()
}

/// What a watcher knows: until when each instance is valid, in service time.
#[derive(Default)]
struct View {
    until: BTreeMap<String, u64>,
    fresh: u64,
}

impl View {
    /// Takes a reply in, and looks whether what it tells is true now.
    fn take(&mut self, node: &Node, reply: &WatchInstancesReply) {
        let now = node.service_time().unwrap().millis();
        if reply.snapshot {
            self.until.clear();
        }
        for put in &reply.put {
            self.until.insert(put.id.clone(), now + put.valid_for_ms);
        }
        for removed in &reply.removed {
            self.until.remove(&removed.id);
        }
        for fresh in &reply.fresh {
            self.fresh += 1;
            for (id, until) in &mut self.until {
                let named = fresh.items.iter().find(|item| item.id == *id);
                *until = (*until).max(now + named.map_or(fresh.valid_for_ms, |item| item.valid_for_ms));
            }
        }
        for (id, until) in &self.until {
            let key = InstanceKey::parse(&format!("s/{id}")).unwrap();
            // It may be gone by now, and that is on its way.
            let end = node.read_stale(|ledger| {
                ledger.instance(&key).and_then(|it| ledger.lease(it.lease())).map(tenure_core::Lease::ends_at)
            });
            assert!(end.is_none_or(|end| *until <= end.millis()), "{id} ends {end:?}, told {until}: {reply:?}");
        }
    }

    fn knows(&self, node: &Node, id: &str) -> bool {
        let now = node.service_time().unwrap().millis();
        self.until.get(id).is_some_and(|until| *until > now)
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_heard_of_stays_valid_and_who_is_not_ends_in_time() {
    let desk = open_desk().await;
    let node = desk.node().clone();
    register(&node, 1, 10_000).await;
    register(&node, 2, 10_000).await;
    register(&node, 3, 600_000).await;
    let beating = tokio::spawn(beat(node.clone(), 2, 3_000));
    let (mut replies, mut view) = (watch_all(&desk), View::default());
    let gone = loop {
        let reply = replies.next().await.unwrap().unwrap();
        assert!(view.until.is_empty() || view.knows(&node, "i2") && view.knows(&node, "i3"), "{:?}", view.until);
        view.take(&node, &reply);
        if !reply.removed.is_empty() {
            break reply;
        }
    };
    assert_eq!(gone.removed[0].id, "i1");
    assert_eq!(gone.removed[0].end.as_ref().unwrap().how, "expired");
    assert!(!gone.became_empty && view.fresh >= 2, "{} fresh", view.fresh);
    let revision = gone.revision;
    while view.fresh < 20 {
        let reply = replies.next().await.unwrap().unwrap();
        assert!(view.knows(&node, "i2"));
        assert!(reply.revision >= revision && reply.put.is_empty() && reply.removed.is_empty());
        view.take(&node, &reply);
    }
    beating.abort();
    deregister(&node, 3).await;
    let last = loop {
        let reply = replies.next().await.unwrap().unwrap();
        view.take(&node, &reply);
        if view.until.is_empty() {
            break reply;
        }
    };
    assert!(last.became_empty);
}

#[tokio::test(start_paused = true)]
async fn changes_neither_put_off_nor_spoil_what_is_told_of_validity() {
    let desk = open_desk().await;
    let node = desk.node().clone();
    register(&node, 1, 4_000).await;
    register(&node, 2, 600_000).await;
    tokio::spawn(beat(node.clone(), 1, 1_000));
    let (mut replies, mut view) = (watch_all(&desk), View::default());
    let others = node.clone();
    tokio::spawn(async move {
        // Some come with a much shorter TTL than all before, and nobody is heard of again.
        for n in 3.. {
            sleep(Duration::from_millis(90)).await;
            register(&others, n, if n % 2 == 0 { 1_000 } else { 300_000 }).await;
        }
    });
    while view.fresh < 20 {
        let reply = replies.next().await.unwrap().unwrap();
        assert!(view.until.is_empty() || view.knows(&node, "i1"), "{:?}", view.until.get("i1"));
        view.take(&node, &reply);
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_heard_of_at_the_last_moment_is_not_lost() {
    let desk = open_desk().await;
    let node = desk.node().clone();
    register(&node, 1, 10_000).await;
    register(&node, 2, 600_000).await;
    tokio::spawn(beat(node.clone(), 1, 9_000));
    let (mut replies, mut view) = (watch_all(&desk), View::default());
    while view.fresh < 100 {
        let reply = replies.next().await.unwrap().unwrap();
        assert!(view.until.is_empty() || view.knows(&node, "i1"), "{:?}", view.until);
        view.take(&node, &reply);
    }
}

/// It knows until when the leases were granted, but not any more whether they still are.
#[tokio::test(start_paused = true)]
async fn a_node_that_hears_nothing_any_more_vouches_for_nobody() {
    let desk = open_desk().await;
    let node = desk.node().clone();
    register(&node, 1, 600_000).await;
    let (service, floor) = (Name::parse("s").unwrap(), Revision(0));
    desk.fresh().of(&node, &service, floor).await.unwrap();
    let mut replies = watch_all(&desk);
    while replies.next().await.unwrap().unwrap().fresh.is_empty() {}
    let (at, revision) = (node.service_time_about(), node.read_stale(Ledger::revision));
    node.stop().await;
    sleep(FRESH_SHARED).await;
    for again in 0..4 {
        sleep(FRESH_SHARED / 4 + Duration::from_millis(1)).await;
        let vouched = desk.fresh().of(&node, &service, floor).await;
        assert!(vouched.is_err(), "asked {again} times in vain, and then {vouched:?}");
    }
    let about = node.service_time_about();
    assert!(about.millis_since(at) >= FRESH_SHARED.as_millis() as u64, "nothing seems to last: {at} to {about}");
    let resume = WatchInstancesRequest { service: "s".into(), after: revision.0, ..Default::default() };
    let resumed = open(desk.clone(), resume).unwrap().next().await.unwrap();
    assert!(resumed.is_err(), "{resumed:?}");
}

/// It asks until somebody leads, and says nothing meanwhile, so that nobody stays with it for that.
#[tokio::test(start_paused = true)]
async fn a_node_that_heard_nothing_for_a_while_tells_more_at_once() {
    let (room, disk, begun) = (Room::default(), MemoryDisk::new, Instant::now());
    let mut nodes = Vec::new();
    for node in 1..=3 {
        nodes.push(open_by(&room, node, &disk(), Arc::new(Simulated(begun))).await);
    }
    let first = leader(&nodes).await;
    register(&first, 1, 6_000).await;
    let left: Vec<Node> = nodes.into_iter().filter(|node| node.identity() != first.identity()).collect();
    let desk = Desk::new(left[0].clone());
    let mut replies = watch_all(&desk);
    while replies.next().await.unwrap().unwrap().fresh.is_empty() {}
    // Shortly before it would be told more, for nobody was heard of.
    sleep(Duration::from_millis(2_500)).await;
    first.stop().await;
    leader(&left).await;
    let told = async { while replies.next().await.unwrap().unwrap().fresh.is_empty() {} };
    timeout(FRESH_MIN + 2 * FRESH_PATIENCE, told).await.expect("it is told in time");
}

#[tokio::test(start_paused = true)]
async fn that_nobody_is_left_is_said_however_many_came_and_went() {
    let desk = open_desk().await;
    let node = desk.node().clone();
    let mut replies = watch_all(&desk);
    assert!(replies.next().await.unwrap().unwrap().snapshot);
    // Nothing is read for so long that all of it is told at once, and last of all of some that nobody has heard of.
    sleep(3 * FRESH_MAX).await;
    let (many, last) = (PAGE as u64, 9_000..9_100);
    futures::future::join_all((1_000..1_000 + many).chain(last.clone()).map(|n| register(&node, n, 600_000))).await;
    futures::future::join_all(last.map(|n| deregister(&node, n))).await;
    let there = node.read_stale(Ledger::revision).0;
    while replies.next().await.unwrap().unwrap().revision < there {}
    futures::future::join_all((1_000..1_000 + many).map(|n| deregister(&node, n))).await;
    let gone = node.read_stale(Ledger::revision).0;
    let mut marked = false;
    loop {
        let reply = replies.next().await.unwrap().unwrap();
        marked |= reply.became_empty;
        if reply.revision >= gone {
            break;
        }
    }
    assert!(marked);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_no_longer_kept_is_said_to_be_compacted() {
    let desk = open_desk().await;
    let node = desk.node().clone();
    register(&node, 1, 600_000).await;
    let place = node.read_stale(Ledger::revision);
    // Who comes and goes makes four events. Many at once come into one entry.
    for round in 0..=tenure_core::limits::EVENTS_MAX as u64 / 4 / 4096 {
        let numbers = || (round + 1) * 4096..(round + 2) * 4096;
        futures::future::join_all(numbers().map(|n| register(&node, n, 600_000))).await;
        futures::future::join_all(numbers().map(|n| deregister(&node, n))).await;
    }
    let resume = |after: u64| WatchInstancesRequest { service: "s".into(), after, ..Default::default() };
    let refused = open(desk.clone(), resume(place.0)).unwrap().next().await.unwrap().unwrap_err();
    assert_eq!((refused.code.as_str(), refused.oldest > place.0), ("compacted", true));
    let ahead = open(desk.clone(), resume(u64::MAX >> 1)).unwrap().next().await.unwrap().unwrap_err();
    assert_eq!(ahead.code, "ahead");
}
