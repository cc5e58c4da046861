//! The client crate against a real server: what is held is held, what is lost is known in time, what is let go is free.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tenure::clock::Clock;
use tenure::timing::safe_for;
use tenure::{Client, Code, Error, Event, Loss, v1};
use tenure_testkit as support;
use tenure_testkit::holds::{show, until, verify};
use tenure_testkit::proxy::Proxy;
use tenure_testkit::{Server, soon};

const TTL: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(60);

async fn house() -> (Server, Client) {
    let server = Server::start();
    let client = server.client().await;
    (server, client)
}

#[tokio::test]
async fn what_is_held_is_renewed_for_as_long_as_its_guard_lives() {
    let (_server, client) = house().await;
    let hold = client.lease("db").ttl(TTL).reason("a test").holder("ann").acquire().await.unwrap();
    let (first, clock) = (hold.safe_until(), Clock::system());
    clock.until(first + TTL * 2).await;
    assert!(hold.ensure().is_ok() && hold.remaining() > Duration::ZERO);
    let held = &show(&client, "db").await.holders[0];
    assert_eq!((held.fence, held.reason.as_str(), held.holder.as_str()), (hold.fence(), "a test", "ann"));
    let fence = hold.fence();
    hold.release().await.unwrap();
    assert!(show(&client, "db").await.holders.is_empty());
    let next = client.lease("db").acquire().await.unwrap();
    assert!(next.fence() > fence);
}

#[tokio::test]
async fn a_taken_resource_is_refused_with_its_holder_unless_a_wait_was_allowed() {
    let (_server, client) = house().await;
    let hold = client.lease("db").ttl(LONG).holder("ann").acquire().await.unwrap();
    let refused = client.lease("db").acquire().await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::Taken), "{refused}");
    assert!(refused.to_string().contains("ann"), "{refused}");
    let waited = client.lease("db").wait(Duration::from_millis(300)).acquire().await;
    assert!(matches!(waited, Err(Error::WaitedOut)), "{waited:?}");
    until(&client, "db", |shown| shown.waiting == 0).await;
    hold.release().await.unwrap();
    let _next = client.lease("db").wait(LONG).acquire().await.unwrap();
}

#[tokio::test]
async fn a_waiter_is_kept_in_line_seated_in_its_turn_and_gone_when_nobody_waits_for_it() {
    let (server, client) = house().await;
    let hold = client.lease("db").ttl(LONG).acquire().await.unwrap();
    // No renewal wakes the keeper of the second one while anybody looks: when it leaves, it is told to.
    let other = server.client().await;
    let second = tokio::spawn(other.lease("db").ttl(LONG * 10).wait_for_ever().acquire());
    until(&client, "db", |shown| shown.waiting == 1).await;
    let third = tokio::spawn(client.lease("db").ttl(TTL).wait_for_ever().acquire());
    let line = until(&client, "db", |shown| shown.waiting == 2).await.line;
    // Longer than the TTL of the third one: it is renewed while it waits.
    let clock = Clock::system();
    clock.until(clock.now() + TTL * 2).await;
    assert_eq!(show(&client, "db").await.line.len(), 2);
    second.abort();
    until(&client, "db", |shown| shown.waiting == 1).await;
    hold.release().await.unwrap();
    let third = soon("the seat", third).await.unwrap().unwrap();
    assert_eq!(show(&client, "db").await.holders[0].lease, line[1].lease);
    assert!(third.remaining() <= safe_for(TTL) && third.ensure().is_ok());
}

#[tokio::test]
async fn a_late_answer_does_not_lengthen_what_it_promises() {
    let (server, _) = house().await;
    let proxy = Proxy::start(&server.addr).await;
    // Long enough for a renewal that is answered late on a machine that stalls for seconds.
    let (ttl, delay) = (Duration::from_secs(20), Duration::from_secs(2));
    let client = Client::connect(&proxy.addr).await.unwrap();
    let clock = Clock::system();
    proxy.delay(delay);
    let hold = client.lease("db").ttl(ttl).acquire().await.unwrap();
    // The answer is here now, so it was sent before that long.
    assert!(hold.safe_until() + delay <= clock.now() + safe_for(ttl), "it counts from the answer");
    let mut events = hold.events();
    let first = hold.safe_until();
    while hold.safe_until() == first {
        // Held back for longer than an answer may take, renewals still count, from when each was sent.
        let event = tokio::time::timeout(Duration::from_millis(50), events.next()).await;
        assert!(!matches!(event, Ok(Some(Event::Lost(_)))), "{event:?}");
    }
    assert!(hold.safe_until() + delay <= clock.now() + safe_for(ttl), "a renewal counts from its answer");
}

#[tokio::test]
async fn answers_that_come_a_retransmission_later_cost_nothing() {
    let (server, direct) = house().await;
    let proxy = Proxy::start(&server.addr).await;
    let client = Client::connect(&proxy.addr).await.unwrap();
    let hold = client.lease("db").ttl(TTL).acquire().await.unwrap();
    // A lost packet comes again after some 200 ms: later than an answer is waited for here, so that each is asked twice.
    proxy.delay(Duration::from_millis(250));
    let clock = Clock::system();
    clock.until(clock.now() + TTL * 3).await;
    assert!(hold.ensure().is_ok() && verify(&direct, &hold).await.is_ok());
    assert!(proxy.connections() < 60, "{} connections", proxy.connections());
}

#[test]
fn a_runtime_that_is_busy_for_three_ttls_does_not_lose_the_lease() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_server, client) = runtime.block_on(house());
    let hold = runtime.block_on(client.lease("db").ttl(TTL).acquire()).unwrap();
    // Nothing of the runtime runs meanwhile: this is its only thread.
    std::thread::sleep(TTL * 3);
    assert!(hold.ensure().is_ok());
    assert_eq!(runtime.block_on(verify(&client, &hold)).unwrap().lease, hold.lease());
}

#[tokio::test]
async fn a_machine_that_slept_knows_at_once_that_the_lease_is_over() {
    let (server, _) = house().await;
    let (clock, mover) = Clock::movable();
    let client = Client::builder().addrs(&server.addr).clock(clock).connect().await.unwrap();
    // So long that a timer which had slept, too, would not tell it while anybody waits here.
    let ttl = LONG * 10;
    let hold = client.lease("db").ttl(ttl).acquire().await.unwrap();
    // Once this is answered, the keeper is about to wait for its timer.
    client.close(LONG).await;
    mover.sleep(safe_for(ttl) - Duration::from_secs(30));
    assert!(hold.ensure().is_ok(), "a nap does not matter");
    mover.sleep(ttl);
    assert!(hold.ensure().is_err());
    soon("the loss", hold.lost()).await;
}

#[tokio::test]
async fn a_server_that_falls_silent_is_left_for_the_next_one() {
    let (server, direct) = house().await;
    let (first, second) = (Proxy::start(&server.addr).await, Proxy::start(&server.addr).await);
    let client = Client::connect(&format!("{},{}", first.addr, second.addr)).await.unwrap();
    let hold = client.lease("db").ttl(Duration::from_secs(9)).acquire().await.unwrap();
    let taken = direct.lease("log").ttl(LONG).acquire().await.unwrap();
    let (tell, mut place) = tokio::sync::watch::channel(0);
    let asking = client.lease("log").ttl(Duration::from_secs(9)).wait_for_ever().tell_place(tell);
    let waiter = tokio::spawn(asking.acquire());
    soon("its place in line", place.wait_for(|place| *place == 1)).await.unwrap();
    let before = hold.safe_until();
    first.mute();
    let clock = Clock::system();
    clock.until(before + Duration::from_secs(1)).await;
    assert!(hold.ensure().is_ok(), "it was renewed over the other way");
    assert!(second.connections() > 0);
    assert!(verify(&direct, &hold).await.is_ok());
    taken.release().await.unwrap();
    let free = clock.now();
    let seated = soon("the seat", waiter).await.unwrap().unwrap();
    assert!(clock.now().since(free) < LONG / 3, "it was told over the other way, before the silent one was given up");
    assert!(verify(&direct, &seated).await.is_ok());
}

#[tokio::test]
async fn a_dropped_guard_gives_back_and_close_waits_for_it() {
    let (_server, client) = house().await;
    for n in 0..10 {
        drop(client.lease(format!("db/{n}")).ttl(LONG).acquire().await.unwrap());
    }
    assert_eq!(client.close(LONG).await, 0);
    let held = client.list_resources(v1::ListResourcesRequest { held: true, ..Default::default() }).await.unwrap();
    assert!(held.items.is_empty(), "{held:?}");
}

#[tokio::test]
async fn work_is_dropped_the_moment_its_lease_is_lost_and_given_back_when_it_is_done() {
    let (_server, client) = house().await;
    let (begun, dropped) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicBool::new(false)));
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let run = tokio::spawn({
        let (ask, begun, dropped) = (client.lease("db").ttl(TTL), begun.clone(), Dropped(dropped.clone()));
        async move {
            ask.run(async |_| {
                let _dropped = dropped;
                begun.notify_one();
                std::future::pending::<()>().await;
            })
            .await
        }
    });
    soon("the work", begun.notified()).await;
    let lease = show(&client, "db").await.holders[0].lease;
    client.revoke(support::revoke(lease, "op", "test")).await.unwrap();
    let lost = soon("the loss", run).await.unwrap().unwrap_err();
    let Error::Lost(Loss::Ended(end)) = &lost else { panic!("{lost:?}") };
    assert_eq!((end.how.as_str(), end.by.as_str(), end.reason.as_str()), ("revoked", "op", "test"));
    assert!(dropped.load(Ordering::SeqCst));
    let done = client.lease("log").run(async |held| held.fence()).await.unwrap();
    assert!(done > 0 && show(&client, "log").await.holders.is_empty());
}

#[tokio::test]
async fn many_things_hang_on_one_lease_and_one_that_is_broken_does_not_take_the_others() {
    let (_server, client) = house().await;
    let life = client.begin().ttl(TTL).holder("agent").begin().await.unwrap();
    let (db, log) =
        (life.claim("db").acquire().await.unwrap(), life.claim("log").and("queue").acquire().await.unwrap());
    let child = life.child().ttl(LONG).begin().await.unwrap();
    life.put("agents/7", "here").await.unwrap();
    assert_eq!((db.lease(), log.lease(), log.claims().len()), (life.lease(), life.lease(), 2));
    assert!(child.remaining() <= TTL, "a child lives no longer than its parent");
    let request =
        v1::BreakRequest { resource: "db".into(), by: "op".into(), reason: "test".into(), ..Default::default() };
    client.break_claims(request).await.unwrap();
    assert!(matches!(soon("the loss", db.lost()).await, Loss::Ended(end) if end.how == "revoked"));
    let until = log.safe_until();
    Clock::system().until(until).await;
    assert!(log.ensure().is_ok() && life.ensure().is_ok() && child.ensure().is_ok());
    log.release().await.unwrap();
    assert!(show(&client, "queue").await.holders.is_empty());
    assert_eq!(client.keys().list("agents/").await.unwrap().len(), 1);
    life.release().await.unwrap();
    assert!(client.keys().get("agents/7").await.unwrap().is_none());
    let loss = soon("the child's end", child.lost()).await;
    assert!(matches!(loss, Loss::Ended(ref end) if end.how == "parent_ended"), "{loss:?}");
}

#[tokio::test]
async fn shared_and_counted_claims_sit_beside_each_other() {
    let (_server, client) = house().await;
    let readers = [client.lease("table").shared().acquire().await, client.lease("table").shared().acquire().await];
    assert!(readers.iter().all(Result::is_ok));
    assert_eq!(client.lease("table").acquire().await.unwrap_err().code(), Some(Code::Taken));
    let _three = client.lease("gpus").units(3).of_capacity(4).acquire().await.unwrap();
    let refused = client.lease("gpus").units(2).of_capacity(4).acquire().await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::Taken));
    let _one = client.lease("gpus").units(1).of_capacity(4).acquire().await.unwrap();
}

#[tokio::test]
async fn a_program_that_makes_no_progress_loses_its_lease() {
    let (_server, client) = house().await;
    let hold = client.lease("db").ttl(TTL).progress_timeout(Duration::from_millis(400)).acquire().await.unwrap();
    let (clock, mut events) = (Clock::system(), hold.events());
    let end = hold.safe_until() + TTL;
    while clock.now() < end {
        hold.progress();
        clock.until(clock.now() + Duration::from_millis(50)).await;
    }
    assert!(hold.ensure().is_ok());
    assert_eq!(soon("the loss", hold.lost()).await, Loss::NoProgress);
    assert_eq!(soon("an event", events.next()).await, Some(Event::Jeopardy));
}

#[tokio::test]
async fn sessions_live_by_being_used_and_reservations_by_decisions() {
    let (_server, client) = house().await;
    let class = |name: &str, renew: v1::RenewPolicy| {
        let class = v1::Class { name: name.into(), ttl_ms: 6_000, renew: renew.into(), ..Default::default() };
        client.set_class(v1::SetClassRequest { class: Some(class) })
    };
    class("visit", v1::RenewPolicy::Activity).await.unwrap();
    class("booking", v1::RenewPolicy::Explicit).await.unwrap();
    let visit = client.lease("cart/1").class("visit").acquire().await.unwrap();
    let booking = client.lease("gpu/1").class("booking").acquire().await.unwrap();
    let clock = Clock::system();
    let end = clock.now() + TTL * 2;
    while clock.now() < end {
        visit.touch();
        booking.renew().await.unwrap();
        clock.until(clock.now() + Duration::from_millis(100)).await;
    }
    assert!(visit.ensure().is_ok() && booking.ensure().is_ok());
    assert_eq!(soon("the end of the visit", visit.lost()).await, Loss::TimeOver);
    assert_eq!(soon("the end of the booking", booking.lost()).await, Loss::TimeOver);
    assert!(matches!(booking.renew().await, Err(Error::Lost(Loss::TimeOver))));
    let long = client.lease("gpu/2").class("booking").acquire().await.unwrap();
    assert_eq!(long.renew_for(LONG).await.unwrap(), LONG);
    assert!(long.remaining() > LONG / 2);
}

#[tokio::test]
async fn an_election_has_one_leader_and_the_next_one_stands_by() {
    let (server, client) = house().await;
    let mut seen = client.election("primary").observe();
    assert_eq!(soon("nobody", seen.next()).await.unwrap(), None);
    let first = client.election("primary").ttl(TTL).holder("ann").campaign().await.unwrap();
    let leader = soon("ann", seen.next()).await.unwrap().unwrap();
    assert_eq!((leader.holder.as_str(), leader.fence), ("ann", first.fence()));
    let other = server.client().await;
    let second = tokio::spawn(async move {
        let election = other.election("primary").ttl(TTL).holder("bob");
        let terms = Arc::new(AtomicU64::new(0));
        election
            .lead(async move |held| match terms.fetch_add(1, Ordering::SeqCst) {
                0 => std::future::pending().await,
                _ => held.fence(),
            })
            .await
    });
    let thrown_out = |lease| v1::RevokeRequest { now: true, ..support::revoke(lease, "op", "test") };
    let line = until(&client, "primary", |shown| shown.waiting == 1).await.line;
    // Whoever is thrown out stands again by itself, whether it stood in line or led.
    client.revoke(thrown_out(line[0].lease)).await.unwrap();
    until(&client, "primary", |shown| shown.waiting == 1 && shown.line[0].lease != line[0].lease).await;
    first.release().await.unwrap();
    let leader = soon("bob", async {
        loop {
            if let Some(leader) = seen.next().await.unwrap() {
                return leader;
            }
        }
    })
    .await;
    assert_eq!(leader.holder, "bob");
    client.revoke(thrown_out(leader.lease)).await.unwrap();
    let again = soon("the second time", second).await.unwrap().unwrap();
    assert!(again > leader.fence);
}

#[tokio::test]
async fn what_is_given_back_is_not_what_is_claimed_anew() {
    let (server, direct) = house().await;
    let proxy = Proxy::start(&server.addr).await;
    let client = Client::connect(&proxy.addr).await.unwrap();
    let life = client.begin().ttl(LONG).begin().await.unwrap();
    let first = life.claim("db").acquire().await.unwrap();
    // So slow that the release is sent again before it is answered.
    proxy.delay(Duration::from_secs(1));
    drop(first);
    let second = life.claim("db").acquire().await.unwrap();
    assert_eq!(client.close(LONG).await, 0);
    assert!(verify(&direct, &second).await.is_ok() && second.ensure().is_ok());
    // Given up before the answer, and asked for anew.
    second.release().await.unwrap();
    let hasty = tokio::time::timeout(Duration::from_millis(100), life.claim("db").acquire()).await;
    assert!(hasty.is_err());
    let third = life.claim("db").acquire().await.unwrap();
    assert_eq!(client.close(LONG).await, 0);
    assert!(verify(&direct, &third).await.is_ok() && third.ensure().is_ok());
}

#[tokio::test]
async fn a_claim_that_outlives_its_lease_is_lost_and_one_lease_claims_nothing_twice() {
    let (_server, client) = house().await;
    let life = client.begin().ttl(LONG).begin().await.unwrap();
    let hold = life.claim("db").acquire().await.unwrap();
    let again = life.claim("db").acquire().await.unwrap_err();
    assert_eq!(again.code(), Some(Code::Claimed), "{again}");
    assert!(verify(&client, &hold).await.is_ok(), "who was refused has let nothing go");
    let token = hold.cancellation_token();
    drop(life);
    assert_eq!(soon("the loss", hold.lost()).await, Loss::GivenBack);
    assert!(token.is_cancelled() && hold.ensure().is_err());
    until(&client, "db", |shown| shown.holders.is_empty()).await;
    let terms = client.begin().begin().await.unwrap();
    let refused = terms.claim("db").ttl(TTL).acquire().await.unwrap_err();
    assert!(refused.to_string().contains("terms of that lease"), "{refused}");
}

#[tokio::test]
async fn a_ttl_that_cannot_be_is_refused_and_the_lease_lives_on() {
    let (_server, client) = house().await;
    let hold = client.lease("db").ttl(TTL).acquire().await.unwrap();
    for bad in [Duration::from_millis(50), Duration::ZERO] {
        let refused = soon("the refusal", hold.renew_for(bad)).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::BadTtl), "{refused}");
    }
    let before = hold.safe_until();
    Clock::system().until(before).await;
    assert!(hold.ensure().is_ok());
    // A shorter one counts from the next renewal, and does not move the end earlier.
    let long = client.lease("log").ttl(LONG).acquire().await.unwrap();
    long.renew_for(TTL).await.unwrap();
    assert!(long.remaining() > LONG / 2);
}

/// More claims on one lease than requests fit into a connection's queue: the break of one costs one guard, and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_break_among_many_claims_loses_one_guard() {
    const CLAIMS: usize = 1_500;
    let (_server, client) = house().await;
    let life = client.begin().ttl(LONG).holder("agent").begin().await.unwrap();
    let mut holds = Vec::new();
    for first in (0..CLAIMS).step_by(100) {
        let claims = (first..first + 100).map(|n| life.claim(format!("r/{n}")).acquire());
        holds.extend(futures::future::join_all(claims).await.into_iter().map(Result::unwrap));
    }
    let before: Vec<_> = holds.iter().map(|hold| hold.safe_until()).collect();
    let request =
        v1::BreakRequest { resource: "r/7".into(), by: "op".into(), reason: "test".into(), ..Default::default() };
    client.break_claims(request).await.unwrap();
    life.renew().await.unwrap();
    assert!(matches!(soon("the loss", holds[7].lost()).await, Loss::Ended(end) if end.how == "revoked"));
    // A guard whose claim is in doubt is promised nothing; all the others are vouched for.
    let is_vouched = |(n, hold): (usize, &tenure::Hold)| n == 7 || hold.safe_until() > before[n];
    let vouched = async {
        while !holds.iter().enumerate().all(is_vouched) {
            tokio::task::yield_now().await;
        }
    };
    soon("word of the others", vouched).await;
    assert_eq!(holds.iter().filter(|hold| hold.ensure().is_err()).count(), 1);
}
