//! Whole keepers on a time of the test's own, and a server that answers what the test lets it answer.

use super::*;
use crate::fate::Fate;
use crate::v1::acquire_reply::State;
use crate::v1::response::Body as Tell;
use futures::FutureExt;
use std::sync::atomic::{AtomicU64, Ordering};

const TTL_MS: u64 = 6_000;
const STEP: Duration = Duration::from_millis(50);

struct Stage {
    orders: Orders,
    keeper: Keeper,
    queue: OrderQueue,
    now_ms: Arc<AtomicU64>,
    /// What was sent since it was looked at last.
    sent: Vec<Ask>,
}

impl Stage {
    fn new() -> Self {
        let now_ms = Arc::new(AtomicU64::new(1_000_000));
        let shown = now_ms.clone();
        let clock = Clock::simulated(move || BootTime::from_start(Duration::from_millis(shown.load(Ordering::SeqCst))));
        let drawn = AtomicU64::new(0);
        let chance = Chance::from_source(move || drawn.fetch_add(1 << 33, Ordering::SeqCst));
        let (orders, keeper, queue) = Orders::to_a_new_keeper(Endpoint::list("a,b").into(), clock, chance);
        Self { orders, keeper, queue, now_ms, sent: Vec::new() }
    }

    /// Lets so much time pass, with a server that answers what `answer` says.
    fn pass(&mut self, time: Duration, answer: impl Fn(&Ask) -> Option<Tell>) {
        let steps = time.as_millis().div_ceil(STEP.as_millis());
        for _ in 0..=steps {
            self.act();
            while let Some(answers) = Some(self.carry_out(&answer)).filter(|answers| !answers.is_empty()) {
                for (link, response) in answers {
                    self.keeper.hear(link, News::Answer(response), self.orders.clock.now());
                    self.act();
                }
            }
            self.now_ms.fetch_add(STEP.as_millis() as u64, Ordering::SeqCst);
        }
    }

    fn act(&mut self) {
        let now = self.orders.clock.now();
        while let Some(Some(order)) = self.queue.next().now_or_never() {
            self.keeper.follow(order, now);
        }
        self.keeper.act(now);
    }

    fn carry_out(&mut self, answer: &impl Fn(&Ask) -> Option<Tell>) -> Vec<(LinkId, v1::Response)> {
        let mut answers = Vec::new();
        for output in self.keeper.outputs() {
            if let Output::Send { link, request } = output {
                let ask = request.body.expect("a keeper asks for something");
                let body = answer(&ask);
                answers.extend(body.map(|body| (link, v1::Response { id: request.id, body: Some(body) })));
                self.sent.push(ask);
            }
        }
        answers
    }

    fn get(&mut self, want: Want) -> Got {
        let orders = self.orders.clone();
        let quest = Quest { want, gate: None, patience: Patience::Answer, place: None };
        let waiting = Waiting::start(&orders, quest);
        self.pass(STEP, all);
        waiting.outcome().now_or_never().expect("it was answered").expect("with a yes")
    }

    fn count(&mut self, is_meant: impl Fn(&Ask) -> bool) -> usize {
        std::mem::take(&mut self.sent).iter().filter(|ask| is_meant(ask)).count()
    }
}

/// A server that grants everything.
fn all(ask: &Ask) -> Option<Tell> {
    Some(match ask {
        Ask::Grant(grant) => {
            Tell::Grant(v1::GrantReply { lease: grant.lease, ttl_ms: TTL_MS, ..v1::GrantReply::default() })
        }
        Ask::Acquire(acquire) => {
            let claim = |want: &v1::Want| v1::Claim { resource: want.resource.clone(), fence: 1 };
            Tell::Acquire(v1::AcquireReply {
                lease: acquire.lease,
                ttl_ms: TTL_MS,
                claims: acquire.wants.iter().map(claim).collect(),
                state: Some(State::Fence(1)),
                ..v1::AcquireReply::default()
            })
        }
        Ask::Release(_) => Tell::Release(v1::ReleaseReply::default()),
        Ask::Cancel(_) => Tell::Cancel(v1::CancelReply::default()),
        _ => return renewals_only(ask),
    })
}

/// A server that answers nothing but renewals.
fn renewals_only(ask: &Ask) -> Option<Tell> {
    let Ask::Renew(renew) = ask else { return None };
    Some(Tell::Renew(v1::RenewReply { ttls_ms: vec![TTL_MS; renew.leases.len()], ..v1::RenewReply::default() }))
}

fn claim(lease: u64, resource: &str) -> Want {
    let want = v1::Want { resource: resource.into(), mode: v1::Mode::Exclusive.into(), ..v1::Want::default() };
    Want::Claims(v1::AcquireRequest { lease, wants: vec![want], ..v1::AcquireRequest::default() })
}

/// A lease with two claims, whose guards live.
fn lease_with_claims(stage: &mut Stage) -> (Arc<Fate>, Got, Got) {
    let grant = v1::GrantRequest { lease: 7, ttl_ms: TTL_MS as i64, ..v1::GrantRequest::default() };
    let lease = stage.get(Want::Lease(grant));
    (lease.fate, stage.get(claim(7, "a")), stage.get(claim(7, "b")))
}

/// A claim that is given back while the server answers renewals alone: the lease lives on, and the claim with it.
#[test]
fn release_is_repeated_while_its_lease_lives() {
    let mut stage = Stage::new();
    let (lease, given_back, kept) = lease_with_claims(&mut stage);
    stage.orders.tell(Order::LetGo { what: given_back.what, fate: given_back.fate, reply: None });
    stage.pass(5 * Duration::from_millis(TTL_MS), renewals_only);
    assert!(lease.ensure().is_ok() && kept.fate.ensure().is_ok(), "the lease lives on");
    stage.sent.clear();
    stage.pass(Duration::from_millis(TTL_MS), renewals_only);
    assert!(stage.count(|ask| matches!(ask, Ask::Release(_))) > 0, "the release is not sent any longer");
    stage.pass(Duration::from_millis(TTL_MS), all);
    stage.sent.clear();
    stage.pass(Duration::from_millis(TTL_MS), all);
    assert_eq!(stage.count(|ask| matches!(ask, Ask::Release(_))), 0, "it was answered");
    assert!(!stage.keeper.is_busy());
}

/// A wait that is given up while the server answers renewals alone: its place in line would become a claim without a guard.
#[test]
fn cancel_is_repeated_while_its_lease_lives() {
    let mut stage = Stage::new();
    let (lease, ..) = lease_with_claims(&mut stage);
    let orders = stage.orders.clone();
    let patience = Patience::Line(Duration::from_secs(1));
    let waiting = Waiting::start(&orders, Quest { want: claim(7, "c"), gate: None, patience, place: None });
    stage.pass(Duration::from_millis(200), renewals_only);
    drop(waiting);
    stage.pass(5 * Duration::from_millis(TTL_MS), renewals_only);
    assert!(lease.ensure().is_ok(), "the lease lives on");
    stage.sent.clear();
    stage.pass(Duration::from_millis(TTL_MS), renewals_only);
    assert!(stage.count(|ask| matches!(ask, Ask::Cancel(_))) > 0, "the cancel is not sent any longer");
}

/// When the lease is over, what was to be given back with it is over, too.
#[test]
fn release_ends_with_its_lease() {
    let mut stage = Stage::new();
    let (lease, given_back, _kept) = lease_with_claims(&mut stage);
    stage.orders.tell(Order::LetGo { what: given_back.what, fate: given_back.fate, reply: None });
    stage.pass(4 * Duration::from_millis(TTL_MS), |_| None);
    assert!(lease.ensure().is_err(), "nothing was answered");
    assert!(!stage.keeper.is_busy(), "there is nothing left to be freed");
}

/// Claims that came together are released one after the other. An answer to the first that comes twice is none to the second.
#[test]
fn answer_that_comes_twice_releases_one_claim() {
    let mut stage = Stage::new();
    let (_lease, ..) = lease_with_claims(&mut stage);
    let wants = ["x", "y"].map(|resource| v1::Want { resource: resource.into(), ..v1::Want::default() });
    let both = Want::Claims(v1::AcquireRequest { lease: 7, wants: wants.to_vec(), ..v1::AcquireRequest::default() });
    let got = stage.get(both);
    let (reply, mut released) = oneshot::channel();
    stage.orders.tell(Order::LetGo { what: got.what, fate: got.fate, reply: Some(reply) });
    let mut late = Vec::new();
    while late.len() < 2 {
        stage.act();
        for output in stage.keeper.outputs() {
            let Output::Send { link, request } = output else { continue };
            let ask = request.body.expect("a keeper asks for something");
            let response = |body| v1::Response { id: request.id, body: Some(body) };
            match renewals_only(&ask) {
                Some(body) => stage.keeper.hear(link, News::Answer(response(body)), stage.orders.clock.now()),
                None => late.extend(all(&ask).map(|body| (link, response(body)))),
            }
        }
        stage.now_ms.fetch_add(STEP.as_millis() as u64, Ordering::SeqCst);
    }
    for (link, response) in late {
        stage.keeper.hear(link, News::Answer(response), stage.orders.clock.now());
        stage.act();
    }
    stage.pass(Duration::from_secs(1), renewals_only);
    assert!(released.try_recv().is_err(), "the second was not answered");
    let of_second = |ask: &Ask| matches!(ask, Ask::Release(release) if release.handle.starts_with("y@"));
    assert!(stage.count(of_second) > 0, "so it is said again");
    stage.pass(Duration::from_secs(3), all);
    assert!(matches!(released.try_recv(), Ok(Ok(()))));
}
