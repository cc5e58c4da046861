//! Whoever looks after an instance that is listed: tells what becomes of it, and has it listed again when its lease was lost
//! and nobody meant it to be. It runs on the keeper's thread, so that a busy program does not hold it up.

use super::asking::enlist;
use super::life::{Change, Life, Registration, Said, Shared};
use crate::client::Client;
use crate::error::Error;
use crate::fate::{Fate, Loss, Standing};
use crate::keeper::{Order, Orders};
use crate::timing::safe_for;
use crate::v1;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::Code;

/// Pauses between two attempts to be listed again. Each is drawn by chance below what it has grown to, because many come
/// back after the same outage.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long the answer to one attempt may take.
const ANSWER: Duration = Duration::from_secs(10);

/// Starts to look after an instance, and hands out its guard.
pub(super) fn start(client: Client, orders: &Orders, said: Said, life: Life) -> Registration {
    let shared = Arc::new(Shared::new(client, orders.clone(), said, life));
    orders.tell(Order::Mind(Box::pin(mind(shared.clone()))));
    Registration::of(shared)
}

async fn mind(shared: Arc<Shared>) {
    loop {
        let life = shared.life();
        let loss = follow(&shared, &life).await;
        if shared.said().is_guest || !comes_back(&loss) {
            return shared.end(loss);
        }
        shared.tell(Change::Lost(loss));
        let again = tokio::select! {
            biased;
            () = shared.dropped.cancelled() => return shared.end(Loss::GivenBack),
            again = come_back(&shared, &life) => again,
        };
        let life = match again {
            Ok(life) => life,
            Err(loss) => return shared.end(loss),
        };
        let (lease, epoch) = (life.lease, life.epoch);
        let is_new = lease != shared.life().lease;
        shared.life.send_replace(life);
        if shared.dropped.is_cancelled() {
            // The guard has given back the life before, and this one would outlive it.
            let Life { what, fate, .. } = shared.life();
            shared.orders.tell(Order::LetGo { what, fate, reply: None });
            return shared.end(Loss::GivenBack);
        }
        say_again(&shared, is_new).await;
        shared.tell(if is_new { Change::Again { lease, epoch } } else { Change::Held });
    }
}

/// Goes on with the life that was lost if the server has kept it, else with a new one. A server that was away counts on from
/// where it stopped, so that the lease may have most of its time left when it is back.
async fn come_back(shared: &Shared, lost: &Life) -> Result<Life, Loss> {
    // As often as it would be renewed, so that it is renewed before it ends.
    let pause = (lost.ttl / 3).clamp(PAUSE_MIN, PAUSE_MAX);
    loop {
        match go_on(shared, lost).await {
            Heard::Lives(life) => return Ok(life),
            Heard::Over(loss) if !comes_back(&loss) => return Err(loss),
            Heard::Over(_) => return enlist_again(shared, lost).await,
            Heard::Nothing => tokio::time::sleep(pause.mul_f64((1.0 + rand::random::<f64>()) / 2.0)).await,
        }
    }
}

/// What is heard of a life that was lost.
enum Heard {
    /// The server has kept it, and it is kept here again.
    Lives(Life),
    /// It is over.
    Over(Loss),
    /// No server answers.
    Nothing,
}

/// Renews the lease of a life that was lost.
async fn go_on(shared: &Shared, lost: &Life) -> Heard {
    let sent = shared.orders.clock.now();
    let request = v1::RenewRequest { leases: vec![lost.lease], ..v1::RenewRequest::default() };
    let Ok(Ok(reply)) = tokio::time::timeout(ANSWER, shared.client.renew(request)).await else { return Heard::Nothing };
    if let Some(failed) = reply.failures.into_iter().next() {
        let failure = failed.failure.unwrap_or_default();
        return match tenure_api::code_of(&failure) {
            Some(Code::Lapsed | Code::NoLease) => {
                Heard::Over(failure.end.map_or(Loss::Unheard, |end| Loss::Ended(Box::new(end))))
            }
            _ => Heard::Nothing,
        };
    }
    let ttl = Duration::from_millis(reply.ttls_ms.first().copied().unwrap_or_default());
    if ttl.is_zero() {
        return Heard::Nothing;
    }
    let fate = Arc::new(Fate::new(shared.orders.clock.clone(), sent + safe_for(ttl)));
    shared.orders.tell(Order::Keep { lease: lost.lease, sent, ttl, fate: fate.clone() });
    Heard::Lives(Life { ttl, fate, ..lost.clone() })
}

/// Tells how a life stands until it is lost.
async fn follow(shared: &Shared, life: &Life) -> Loss {
    let mut standing = life.fate.standing();
    let mut was = Standing::Held;
    loop {
        let is = standing.borrow_and_update().clone();
        match &is {
            Standing::Lost(loss) => return loss.clone(),
            Standing::Held if was != is => shared.tell(Change::Held),
            Standing::Jeopardy if was != is => shared.tell(Change::Jeopardy),
            Standing::Held | Standing::Jeopardy => {}
        }
        was = is;
        if standing.changed().await.is_err() {
            return Loss::KeeperGone;
        }
    }
}

/// Whether it was nobody's will that it ended.
fn comes_back(loss: &Loss) -> bool {
    match loss {
        Loss::Unanswered | Loss::TimeOver | Loss::Unheard => true,
        Loss::Ended(end) => end.how == "expired",
        Loss::NoProgress | Loss::GivenBack | Loss::KeeperGone => false,
    }
}

/// Asks until it is listed again. Each time in a higher epoch, so that an attempt whose answer never came does not stand in
/// the way of the next one.
async fn enlist_again(shared: &Shared, lost: &Life) -> Result<Life, Loss> {
    let mut pause = (lost.ttl / 10).clamp(PAUSE_MIN, PAUSE_MAX);
    let mut epoch = lost.epoch;
    loop {
        tokio::time::sleep(pause.mul_f64(rand::random())).await;
        epoch += 1;
        match enlist(&shared.orders, request(shared, epoch)).await {
            Ok(life) => return Ok(life),
            Err(Error::Lost(loss)) => return Err(loss),
            Err(error) if matches!(error.code(), Some(Code::OlderEpoch | Code::InstanceExists)) => {
                let end = v1::End { how: "superseded".into(), ..v1::End::default() };
                return Err(Loss::Ended(Box::new(end)));
            }
            // The server is not there yet, or has no room for it now.
            Err(_) => pause = (pause * 2).min(PAUSE_MAX),
        }
    }
}

fn request(shared: &Shared, epoch: u64) -> v1::RegisterRequest {
    let said = shared.said();
    v1::RegisterRequest {
        service: said.service.clone(),
        id: said.id.clone(),
        epoch,
        grant: Some(said.terms.request(shared.client.holder())),
        lease: 0,
        details: Some(said.details.clone()),
    }
}

/// A new life knows nothing of what was told of the one before, and what was told while no server answered was not heard.
/// What cannot be told now is told by the next status.
async fn say_again(shared: &Shared, is_new: bool) {
    let said = shared.said().clone();
    if let Some(reason) = said.draining.as_ref().filter(|_| is_new) {
        let _ = shared.order_drain(false, reason).await;
    }
    for (check, (health, note)) in &said.statuses {
        let _ = shared.push(check, *health, note).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_that_nobody_meant_is_undone() {
        let ended = |how: &str| Loss::Ended(Box::new(v1::End { how: how.into(), ..v1::End::default() }));
        for loss in [Loss::Unanswered, Loss::TimeOver, Loss::Unheard, ended("expired")] {
            assert!(comes_back(&loss), "{loss:?}");
        }
        for how in ["released", "revoked", "superseded", "unhealthy", "parent_ended", "max_lifetime"] {
            assert!(!comes_back(&ended(how)), "{how}");
        }
        assert!(!comes_back(&Loss::GivenBack) && !comes_back(&Loss::KeeperGone) && !comes_back(&Loss::NoProgress));
    }
}
