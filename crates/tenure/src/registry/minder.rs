//! Whoever looks after an instance that is listed: tells what becomes of it, and has it listed again when its lease was lost
//! and nobody meant it to be. It runs on the keeper's thread, so that a busy program does not hold it up.

use super::asking::enlist;
use super::life::{Change, Life, Registration, Said, Shared};
use crate::client::Client;
use crate::error::Error;
use crate::fate::{Loss, Standing};
use crate::keeper::{Order, Orders};
use crate::v1;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::Code;

/// The longest pause between two attempts to be listed again, and how long the first one is: a third of the TTL, at most
/// this. Each is drawn by chance below that, because many come back after the same outage.
const PAUSE_MAX: Duration = Duration::from_secs(30);
const FIRST_PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Starts to look after an instance, and hands out its guard.
pub(super) fn start(client: Client, orders: Orders, said: Said, life: Life) -> Registration {
    let shared = Arc::new(Shared::new(client, orders, said, life));
    shared.orders.tell(Order::Mind(Box::pin(mind(shared.clone()))));
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
            again = enlist_again(&shared, &life) => again,
        };
        match again {
            Ok(life) => {
                let (lease, epoch) = (life.lease, life.epoch);
                shared.life.send_replace(life);
                if shared.dropped.is_cancelled() {
                    // The guard has given back the life before, and this one would outlive it.
                    let Life { what, fate, .. } = shared.life();
                    shared.orders.tell(Order::LetGo { what, fate, reply: None });
                    return shared.end(Loss::GivenBack);
                }
                say_again(&shared).await;
                shared.tell(Change::Again { lease, epoch });
            }
            Err(loss) => return shared.end(loss),
        }
    }
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
    let mut pause = (lost.ttl / 3).clamp(PAUSE_MIN, FIRST_PAUSE_MAX);
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

/// A new life knows nothing of what was told of the one before. What cannot be told now is told by the next status.
async fn say_again(shared: &Shared) {
    let said = shared.said().clone();
    if let Some(reason) = &said.draining {
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
