//! The requests of a program to its keeper, and their queue.

use super::errand::{Got, Quest};
use super::{Keeper, thread};
use crate::chance::Chance;
use crate::clock::{BootTime, Clock};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::fate::{Fate, Loss};
use futures::future::BoxFuture;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A request to a keeper. There is no limit to the queue, but at most a few orders for each guard that lives.
pub(crate) enum Order {
    /// Get something.
    Get { errand: u64, quest: Quest, reply: oneshot::Sender<Result<Got, Error>> },
    /// It is not wanted any longer, whether it was got or not.
    Forget { errand: u64 },
    /// Renew a lease because the program decided so, with another TTL if it is not 0.
    Renew { lease: u64, ttl_ms: i64, reply: oneshot::Sender<Result<Duration, Error>> },
    /// Something was done with a lease.
    Touch { lease: u64 },
    /// Give something back.
    LetGo { what: LetGo, fate: Arc<Fate>, reply: Option<oneshot::Sender<Result<(), Error>>> },
    /// Renew a lease that was given up, once, and keep it on if the server has kept it.
    Resume { lease: u64, reply: oneshot::Sender<Resumed> },
    /// Renew a lease no longer, and do not give it back either.
    Leave { lease: u64 },
    /// Look after something that comes back by itself, beside the keeper.
    Mind(BoxFuture<'static, ()>),
    /// Tell when nothing is left to be given back, or how many are left at that time.
    Flush { until: BootTime, reply: oneshot::Sender<usize> },
}

/// What became of a lease that was given up.
#[derive(Debug)]
pub(crate) enum Resumed {
    /// The server has kept it, and it is renewed again.
    Lives { ttl: Duration, fate: Arc<Fate> },
    /// It is over, or others were told that it is.
    Over(Loss),
    /// The server cannot tell now.
    Unknown,
}

/// What is given back.
#[derive(Clone, Debug)]
pub(crate) enum LetGo {
    /// A lease with all that hangs on it.
    Lease(u64),
    /// Claims that are held; the lease lives on. By handle, so that what is claimed anew under the same name is not meant.
    Claims { lease: u64, handles: Vec<String> },
    /// Claims that are in line, or on their way there; the lease lives on. With the number of their request, if it has one.
    Line { lease: u64, resources: Vec<String>, number: u64 },
    /// An instance on a lease that lives on. With the number of its registration, if it has one.
    Instance { lease: u64, service: String, id: String, number: u64 },
}

/// The way to a keeper. When the last one is gone, the keeper gives back what it was asked to, and ends.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    orders: mpsc::UnboundedSender<Order>,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    /// The secret of this client's claims: a release that shows it frees them at once.
    pub(crate) secret: u64,
}

/// The orders that a keeper has not been given yet.
#[derive(Debug)]
pub struct OrderQueue {
    orders: mpsc::UnboundedReceiver<Order>,
}

/// One order, as it is given to a keeper.
pub struct Ordered(pub(super) Order);

impl fmt::Debug for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ordered")
    }
}

impl OrderQueue {
    /// The next order; none when nothing can be ordered any longer.
    pub async fn next(&mut self) -> Option<Ordered> {
        self.orders.recv().await.map(Ordered)
    }
}

impl Orders {
    /// Starts a keeper on a thread of its own.
    pub(crate) fn start(endpoints: Arc<[Endpoint]>, clock: Clock) -> io::Result<Self> {
        let (orders, keeper, queue) = Self::to_a_new_keeper(endpoints, clock.clone(), Chance::default());
        thread::start(keeper, clock, queue)?;
        Ok(orders)
    }

    /// A keeper that nothing runs yet, the way to it, and what is on this way.
    pub(crate) fn to_a_new_keeper(
        endpoints: Arc<[Endpoint]>,
        clock: Clock,
        chance: Chance,
    ) -> (Self, Keeper, OrderQueue) {
        #[expect(
            clippy::disallowed_methods,
            reason = "a guard that is dropped never waits, and there are few orders a guard"
        )]
        let (orders, taken) = mpsc::unbounded_channel();
        let secret = chance.draw().max(1);
        let keeper = Keeper::new(endpoints, clock.clone(), chance.clone(), secret);
        (Self { orders, clock, chance, secret }, keeper, OrderQueue { orders: taken })
    }

    /// Tells the keeper. It does not wait.
    pub(crate) fn tell(&self, order: Order) {
        // A keeper that is gone has told every guard so.
        let _ = self.orders.send(order);
    }
}
