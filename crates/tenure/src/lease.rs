//! A lease of one's own: a life on which claims, keys and other leases hang.

use crate::ask::Ask;
use crate::client::Client;
use crate::clock::BootTime;
use crate::error::Error;
use crate::fate::{Events, Fate, Loss, Standing};
use crate::keeper::{Gate, Got, LetGo, Order, Orders, Patience, Quest, Waiting, Want};
use crate::terms::{Terms, millis, with_terms};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// What every guard can tell about what it guards, and how it gives it back.
#[derive(Debug)]
pub(crate) struct Grip {
    pub(crate) orders: Orders,
    pub(crate) fate: Arc<Fate>,
    gate: Option<Gate>,
    pub(crate) lease: u64,
    pub(crate) ttl: Duration,
    /// None once it was given back.
    what: Option<LetGo>,
}

impl Grip {
    pub(crate) fn new(orders: Orders, gate: Option<Gate>, got: Got) -> Self {
        Self { orders, fate: got.fate, gate, lease: got.lease, ttl: got.ttl, what: Some(got.what) }
    }

    pub(crate) fn progress(&self) {
        if let Some(gate) = &self.gate {
            gate.progressed(self.orders.clock.now());
        }
    }

    pub(crate) async fn renew(&self, ttl: Option<Duration>) -> Result<Duration, Error> {
        self.fate.ensure()?;
        let (reply, answer) = oneshot::channel();
        // No TTL at all is for the server to refuse, not another word for the one it has.
        let ttl_ms = ttl.map_or(0, |ttl| millis(ttl).max(1));
        self.orders.tell(Order::Renew { lease: self.lease, ttl_ms, reply });
        answer.await.unwrap_or(Err(Error::Lost(Loss::KeeperGone)))
    }

    pub(crate) fn touch(&self) {
        self.orders.tell(Order::Touch { lease: self.lease });
    }

    pub(crate) async fn release(mut self) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        if let Some(what) = self.what.take() {
            self.orders.tell(Order::LetGo { what, fate: self.fate.clone(), reply: Some(reply) });
        }
        answer.await.unwrap_or(Err(Error::Lost(Loss::KeeperGone)))
    }

    /// A lease is left to run out by itself: it is not renewed any longer, and not given back. Claims stay with their lease.
    pub(crate) fn leave(mut self) {
        if let Some(LetGo::Lease(lease)) = self.what.take() {
            self.orders.tell(Order::Leave { lease });
        }
    }
}

impl Drop for Grip {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            self.orders.tell(Order::LetGo { what, fate: self.fate.clone(), reply: None });
        }
    }
}

/// The words with which a guard tells of what it guards, for whoever has a field `grip`.
macro_rules! with_grip {
    ($name:ident) => {
        impl $name {
            /// The id of the lease.
            pub fn lease(&self) -> u64 {
                self.grip.lease
            }

            /// The effective TTL that it began with.
            pub fn ttl(&self) -> Duration {
                self.grip.ttl
            }

            /// How long it may be relied on without another renewal, by this machine's clock alone.
            pub fn remaining(&self) -> Duration {
                self.grip.fate.remaining()
            }

            /// Until when it may be relied on without another renewal.
            pub fn safe_until(&self) -> BootTime {
                self.grip.fate.safe_until()
            }

            /// The same, and every later time that a renewal has promised.
            pub fn promises(&self) -> watch::Receiver<BootTime> {
                self.grip.fate.promises()
            }

            /// Whether it may be relied on at this moment. It asks nobody, so it can be asked before every write; and it is
            /// careful: it says no a little before anybody else can have it.
            pub fn ensure(&self) -> Result<(), Loss> {
                self.grip.fate.ensure()
            }

            /// Resolves when it is lost: at the latest when it may not be relied on any longer, with no network at all.
            pub async fn lost(&self) -> Loss {
                self.grip.fate.lost().await
            }

            /// Cancelled when it is lost.
            pub fn cancellation_token(&self) -> CancellationToken {
                self.grip.fate.token()
            }

            /// How it stands, and every change of that.
            pub fn standing(&self) -> watch::Receiver<Standing> {
                self.grip.fate.standing()
            }

            /// What a holder may want to act on, from now on.
            pub fn events(&self) -> Events {
                self.grip.fate.events()
            }

            /// The work goes on. Needed only with a progress timeout.
            pub fn progress(&self) {
                self.grip.progress();
            }

            /// Something was done with it: what renews a lease whose class says *on activity*.
            pub fn touch(&self) {
                self.grip.touch();
            }

            /// Renews it now, because somebody decided so: what renews a lease whose class says *explicit*. It tells the
            /// effective TTL.
            pub async fn renew(&self) -> Result<Duration, Error> {
                self.grip.renew(None).await
            }

            /// Renews it now with another TTL from now on. A shorter one never moves its end earlier.
            pub async fn renew_for(&self, ttl: Duration) -> Result<Duration, Error> {
                self.grip.renew(Some(ttl)).await
            }

            /// Gives it back, and waits until the server has heard it.
            pub async fn release(self) -> Result<(), Error> {
                self.grip.release().await
            }

            /// Lets it run out by itself: it is neither renewed any longer nor given back. A claim on a lease that has a guard
            /// of its own stays with that lease.
            pub fn leave(self) {
                self.grip.leave();
            }
        }
    };
}

pub(crate) use with_grip;

/// A lease without claims of its own, renewed while this guard lives. What hangs on it ends with it.
#[derive(Debug)]
#[must_use = "the lease is given back when this is dropped"]
pub struct Lease {
    client: Client,
    grip: Grip,
}

with_grip!(Lease);

impl Lease {
    /// Claims a resource on this lease.
    pub fn claim(&self, resource: impl Into<String>) -> Ask {
        Ask::on(self.client.clone(), resource.into(), self.grip.lease)
    }

    /// Asks for a lease that ends with this one.
    pub fn child(&self) -> GrantAsk {
        GrantAsk::new(self.client.clone()).child_of(self.grip.lease)
    }

    /// Writes a key that ends with this lease.
    pub async fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<u64, Error> {
        let version = self.client.keys().put_on(self.grip.lease, key, value).await?;
        self.touch();
        Ok(version)
    }
}

/// Asks for a lease without claims.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for until `begin`"]
pub struct GrantAsk {
    client: Client,
    terms: Terms,
}

with_terms!(GrantAsk);

impl GrantAsk {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, terms: Terms::default() }
    }

    /// Begins the lease.
    pub async fn begin(self) -> Result<Lease, Error> {
        let orders = self.client.orders()?;
        let gate = self.terms.gate(&orders.clock);
        let want = Want::Lease(self.terms.request(self.client.holder(), self.client.chance()));
        let quest = Quest { want, gate: gate.clone(), patience: Patience::Answer, place: None };
        let got = Waiting::start(&orders, quest).outcome().await?;
        let grip = Grip::new(orders, gate, got);
        Ok(Lease { client: self.client, grip })
    }
}
