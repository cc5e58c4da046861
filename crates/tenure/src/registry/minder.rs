//! Whoever looks after an instance that is listed: tells what becomes of it, and has it listed again when its lease was lost
//! and nobody meant it to be. It runs on the keeper's thread, so that a busy program does not hold it up.

use super::asking::enlist;
use super::life::{Change, Life, Registration, Said, Shared};
use crate::client::Client;
use crate::error::Error;
use crate::fate::{Loss, Standing};
use crate::keeper::{Order, Orders, Resumed};
use crate::v1;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::Code;
use tokio::sync::oneshot;

/// Pauses between two attempts to be listed again. Each is drawn by chance below what it has grown to, because many come
/// back after the same outage.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long the answer to one attempt may take.
const ANSWER: Duration = Duration::from_secs(2);

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
        shared.tell(Change::Lost(loss.clone()));
        let again = tokio::select! {
            biased;
            () = shared.dropped.cancelled() => {
                // It may have been resumed in this very moment.
                shared.orders.tell(Order::Leave { lease: life.lease });
                return shared.end(Loss::GivenBack);
            }
            again = come_back(&shared, &life, &loss) => again,
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
async fn come_back(shared: &Shared, lost: &Life, loss: &Loss) -> Result<Life, Loss> {
    let resumed = match loss {
        Loss::Unanswered => resumed(shared, lost).await,
        // The server has said what became of it.
        over => Err(over.clone()),
    };
    match resumed {
        Ok(life) => still_listed(shared, lost).await.map(|()| life),
        Err(loss) if !comes_back(&loss) => Err(loss),
        Err(_) => enlist_again(shared, lost).await,
    }
}

/// Has the keeper renew the lease of a life that was lost, as often as it would be renewed, so that this is heard before it
/// ends. A late answer counts, too: a server that stood still answers all at once.
async fn resumed(shared: &Shared, lost: &Life) -> Result<Life, Loss> {
    let pause = (lost.ttl / 3).clamp(PAUSE_MIN, PAUSE_MAX);
    let mut answers = FuturesUnordered::new();
    loop {
        let (reply, answer) = oneshot::channel();
        shared.orders.tell(Order::Resume { lease: lost.lease, reply });
        answers.push(answer);
        let again = tokio::time::sleep(pause.mul_f64((1.0 + rand::random::<f64>()) / 2.0));
        tokio::pin!(again);
        loop {
            tokio::select! {
                biased;
                Some(answer) = answers.next() => match answer {
                    Ok(Resumed::Lives { ttl, fate }) => return Ok(Life { ttl, fate, ..lost.clone() }),
                    Ok(Resumed::Over(loss)) => return Err(loss),
                    // Its connection is gone, or the server cannot tell now.
                    Ok(Resumed::Unknown) | Err(_) => {}
                },
                () = &mut again => break,
            }
        }
    }
}

/// A lease lives on without the instance if something else hangs on it: then somebody took the instance out, or its place.
async fn still_listed(shared: &Shared, life: &Life) -> Result<(), Loss> {
    let (service, id) = {
        let said = shared.said();
        (said.service.clone(), said.id.clone())
    };
    let asked = shared.client.show_instance(v1::ShowInstanceRequest { service, id, stale: false });
    // If it cannot be known now, what is told next of the instance is refused, and says so.
    let Ok(Ok(shown)) = tokio::time::timeout(ANSWER, asked).await else { return Ok(()) };
    if shown.living.is_some_and(|living| living.lease == life.lease) {
        return Ok(());
    }
    shared.orders.tell(Order::Leave { lease: life.lease });
    let end = shown.past.into_iter().find(|past| past.lease == life.lease).and_then(|past| past.end);
    Err(Loss::Ended(Box::new(end.unwrap_or_else(|| v1::End { how: "superseded".into(), ..v1::End::default() }))))
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
        grant: Some(said.terms.request(shared.client.holder(), shared.client.chance())),
        details: Some(said.details.clone()),
        ..v1::RegisterRequest::default()
    }
}

/// A new life knows nothing of what was told of the one before, and what was told while no server answered was not heard.
/// What cannot be told now is told by the next status.
async fn say_again(shared: &Shared, is_new: bool) {
    let (draining, is_unheard) = {
        let said = shared.said();
        (said.draining.clone(), said.is_drain_unheard)
    };
    if is_unheard || is_new && draining.is_some() {
        let (undrain, reason) = (draining.is_none(), draining.unwrap_or_default());
        let _ = tokio::time::timeout(ANSWER, shared.order_drain(undrain, &reason)).await;
    }
    let checks: Vec<String> = shared.said().statuses.keys().cloned().collect();
    for check in checks {
        // Whatever is newest by then.
        let status = shared.said().statuses.get(&check).cloned();
        if let Some((health, note)) = status {
            let _ = tokio::time::timeout(ANSWER, shared.push(&check, health, &note)).await;
        }
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
