//! The guard of an instance that is listed, and what it knows without asking.

use crate::client::Client;
use crate::clock::BootTime;
use crate::error::Error;
use crate::fate::{Fate, Loss};
use crate::keeper::{LetGo, Order, Orders};
use crate::terms::Terms;
use crate::v1;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Changes that a slow listener may be behind before it misses some.
const CHANGES_MAX: usize = 64;

/// One time of being listed: it ends with its lease.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) lease: u64,
    pub(super) epoch: u64,
    pub(super) ttl: Duration,
    pub(super) fate: Arc<Fate>,
    pub(super) what: LetGo,
}

/// What an instance says of itself, so that it can say so again.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) service: String,
    pub(super) id: String,
    /// Whether it hangs on a lease that is not its own.
    pub(super) is_guest: bool,
    pub(super) terms: Terms,
    pub(super) details: v1::Details,
    /// What its checks were told to have found last.
    pub(super) statuses: BTreeMap<String, (v1::Health, String)>,
    /// Why it drains, if it does.
    pub(super) draining: Option<String>,
    /// That it drains, or drains no longer, was not answered yet.
    pub(super) is_drain_unheard: bool,
}

impl Said {
    pub(super) fn new(service: String, id: String, is_guest: bool, terms: Terms, details: v1::Details) -> Self {
        Self {
            service,
            id,
            is_guest,
            terms,
            details,
            statuses: BTreeMap::new(),
            draining: None,
            is_drain_unheard: false,
        }
    }
}

/// What became of an instance that is listed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Renewals are failing; it is still listed.
    Jeopardy,
    /// Renewals are answered again: it was listed all the time.
    Held,
    /// It may not be listed any longer. As soon as a server answers it goes on as it was, if the server has kept it, or is
    /// listed again.
    Lost(Loss),
    /// It is listed again, on a new lease and in a higher epoch.
    Again {
        /// The lease.
        lease: u64,
        /// The epoch.
        epoch: u64,
    },
    /// It is not listed any longer, and does not come back: it was taken out, or somebody took its place.
    Over(Loss),
    /// So many changes were missed, because nobody took them.
    Missed(u64),
}

/// The changes of an instance, from when they were asked for.
#[derive(Debug)]
pub struct Changes {
    changes: broadcast::Receiver<Change>,
}

impl Changes {
    /// The next change; none when the guard is gone.
    pub async fn next(&mut self) -> Option<Change> {
        match self.changes.recv().await {
            Ok(change) => Some(change),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Change::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// What the guard and whoever minds it both see.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) orders: Orders,
    said: Mutex<Said>,
    pub(super) life: watch::Sender<Life>,
    over: watch::Sender<Option<Loss>>,
    changes: broadcast::Sender<Change>,
    /// The guard is gone.
    pub(super) dropped: CancellationToken,
}

impl Shared {
    pub(super) fn new(client: Client, orders: Orders, said: Said, life: Life) -> Self {
        Self {
            client,
            orders,
            said: Mutex::new(said),
            life: watch::Sender::new(life),
            over: watch::Sender::new(None),
            changes: broadcast::Sender::new(CHANGES_MAX),
            dropped: CancellationToken::new(),
        }
    }

    pub(super) fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn life(&self) -> Life {
        self.life.borrow().clone()
    }

    pub(super) fn tell(&self, change: Change) {
        // Nobody has to listen.
        let _ = self.changes.send(change);
    }

    pub(super) fn end(&self, loss: Loss) {
        self.over.send_replace(Some(loss.clone()));
        self.tell(Change::Over(loss));
    }

    /// Tells what a check has found, of the life that it was found in.
    pub(super) async fn push(&self, check: &str, health: v1::Health, note: &str) -> Result<v1::Health, Error> {
        let (lease, (service, id)) = (self.life().lease, self.name());
        let (check, note) = (check.into(), note.into());
        let request = v1::SetHealthRequest { service, id, lease, check, health: health.into(), note };
        Ok(self.client.set_health(request).await?.health())
    }

    /// Of this life alone: whoever took its place does not drain.
    pub(super) async fn order_drain(&self, undrain: bool, reason: &str) -> Result<(), Error> {
        let ((service, id), by, lease) = (self.name(), self.client.holder().into(), self.life().lease);
        let request = v1::DrainRequest { service, id, undrain, by, reason: reason.into(), lease };
        self.said().is_drain_unheard = true;
        self.client.drain(request).await?;
        self.said().is_drain_unheard = false;
        Ok(())
    }

    fn name(&self) -> (String, String) {
        let said = self.said();
        (said.service.clone(), said.id.clone())
    }
}

/// An instance that is listed while this guard lives. Dropping it takes it out soon; `deregister` takes it out now.
///
/// If its lease is lost while the process lives on, because no server was heard for too long, it goes on as soon as one
/// answers: on the same lease if that was kept, as after a server that was away itself, else in a higher epoch, with what it
/// said last of itself. [`Registration::changes`] tells. It does not come back after somebody took it out by order or took its
/// place, nor after it was critical for too long.
#[derive(Debug)]
#[must_use = "the instance is taken out when this is dropped"]
pub struct Registration {
    shared: Arc<Shared>,
    is_given_back: bool,
}

impl Registration {
    pub(super) fn of(shared: Arc<Shared>) -> Self {
        Self { shared, is_given_back: false }
    }

    /// The service.
    pub fn service(&self) -> String {
        self.shared.said().service.clone()
    }

    /// What it is called within the service.
    pub fn id(&self) -> String {
        self.shared.said().id.clone()
    }

    /// The lease that it hangs on now.
    pub fn lease(&self) -> u64 {
        self.shared.life().lease
    }

    /// How often it has started, itself included.
    pub fn epoch(&self) -> u64 {
        self.shared.life().epoch
    }

    /// The effective TTL of its lease.
    pub fn ttl(&self) -> Duration {
        self.shared.life().ttl
    }

    /// How long it is listed without another renewal, by this machine's clock alone.
    pub fn remaining(&self) -> Duration {
        self.shared.life().fate.remaining()
    }

    /// Until when it is listed without another renewal.
    pub fn safe_until(&self) -> BootTime {
        self.shared.life().fate.safe_until()
    }

    /// Resolves when the lease that it hangs on now is lost: at the latest when that may not be relied on any longer, with
    /// no network at all.
    pub async fn lost(&self) -> Loss {
        let life = self.shared.life();
        life.fate.lost().await
    }

    /// Resolves when it is not listed any longer and does not come back.
    pub async fn over(&self) -> Loss {
        let mut over = self.shared.over.subscribe();
        let loss = over.wait_for(Option::is_some).await.ok().and_then(|loss| loss.clone());
        loss.unwrap_or(Loss::KeeperGone)
    }

    /// What becomes of it, from now on.
    pub fn changes(&self) -> Changes {
        Changes { changes: self.shared.changes.subscribe() }
    }

    /// Tells what one of its checks has found, and why. It says what is shown of the instance then. What is told last is
    /// told again when the instance is listed again.
    pub async fn status(
        &self,
        check: impl Into<String>,
        health: v1::Health,
        note: impl Into<String>,
    ) -> Result<v1::Health, Error> {
        let (check, note) = (check.into(), note.into());
        self.shared.said().statuses.insert(check.clone(), (health, note.clone()));
        let told = self.shared.push(&check, health, &note).await;
        if told.as_ref().is_err_and(|error| error.code() == Some(tenure_api::Code::NoCheck)) {
            self.shared.said().statuses.remove(&check);
        }
        told
    }

    /// Changes what it says of itself.
    ///
    /// ```no_run
    /// # async fn example(listed: tenure::registry::Registration) -> Result<(), tenure::Error> {
    /// listed.update(|details| details.weight = Some(5)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn update(&self, change: impl FnOnce(&mut v1::Details)) -> Result<(), Error> {
        let (life, said) = (self.shared.life(), self.shared.said().clone());
        let mut details = said.details;
        change(&mut details);
        let request = v1::RegisterRequest {
            service: said.service,
            id: said.id,
            epoch: life.epoch,
            lease: life.lease,
            details: Some(details.clone()),
            ..v1::RegisterRequest::default()
        };
        self.shared.client.register_instance(request).await?;
        self.shared.said().details = details;
        Ok(())
    }

    /// Keeps new work from it. It stays listed for those who ask for all.
    pub async fn drain(&self, reason: impl Into<String>) -> Result<(), Error> {
        let reason = reason.into();
        self.shared.said().draining = Some(reason.clone());
        self.shared.order_drain(false, &reason).await
    }

    /// Lets it have new work again.
    pub async fn undrain(&self) -> Result<(), Error> {
        self.shared.said().draining = None;
        self.shared.order_drain(true, "").await
    }

    /// Takes it out, and waits until the server has heard it.
    pub async fn deregister(mut self) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.give_back(Some(reply));
        answer.await.unwrap_or(Err(Error::Lost(Loss::KeeperGone)))
    }

    /// Never waits: the keeper is told.
    fn give_back(&mut self, reply: Option<oneshot::Sender<Result<(), Error>>>) {
        self.is_given_back = true;
        self.shared.dropped.cancel();
        let Life { what, fate, .. } = self.shared.life();
        self.shared.orders.tell(Order::LetGo { what, fate, reply });
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.is_given_back {
            self.give_back(None);
        }
    }
}
