//! Asking for claims, and holding them.

use crate::client::Client;
use crate::clock::BootTime;
use crate::error::Error;
use crate::fate::{Events, Loss, Standing};
use crate::keeper::{Patience, Quest, Waiting, Want};
use crate::lease::{Grip, with_grip};
use crate::terms::{Terms, millis, span, with_terms};
use crate::v1;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Several resources can be waited for at most so long.
const SEVERAL_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Asks for one resource or several, all or none of them.
///
/// ```no_run
/// # async fn example() -> Result<(), tenure::Error> {
/// use std::time::Duration;
///
/// let client = tenure::Client::from_env().await?;
/// let outcome = client
///     .lease("jobs/nightly")
///     .ttl(Duration::from_secs(15))
///     .wait(Duration::from_secs(60))
///     .reason("the nightly report")
///     .run(async |held| {
///         println!("writing with fence {}", held.fence());
///     })
///     .await;
/// # outcome }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for until `acquire` or `run`"]
pub struct Ask {
    client: Client,
    wants: Vec<v1::Want>,
    /// The lease that it hangs on; none for one of its own, on these terms.
    on: Option<u64>,
    terms: Terms,
    patience: Patience,
    priority: i32,
    lock_delay: Duration,
    epoch: u64,
    place: Option<watch::Sender<u64>>,
    by_handle: bool,
}

with_terms!(Ask);

impl Ask {
    pub(crate) fn new(client: Client, resource: String) -> Self {
        let first = v1::Want { resource, mode: v1::Mode::Exclusive.into(), ..v1::Want::default() };
        Self {
            client,
            wants: vec![first],
            on: None,
            terms: Terms::default(),
            patience: Patience::Answer,
            priority: 0,
            lock_delay: Duration::ZERO,
            epoch: 0,
            place: None,
            by_handle: false,
        }
    }

    /// On a lease that lives already: the terms of a new one do not count.
    pub(crate) fn on(client: Client, resource: String, lease: u64) -> Self {
        Self { on: Some(lease), ..Self::new(client, resource) }
    }

    pub(crate) fn of(client: Client, request: &v1::AcquireRequest) -> Self {
        let mut ask = Self::new(client, request.resource.clone());
        if !request.wants.is_empty() {
            ask.wants.clone_from(&request.wants);
        }
        ask.on = request.grant.is_none().then_some(request.lease);
        ask.terms = request.grant.as_ref().map(Terms::of).unwrap_or_default();
        if request.wait {
            let limit = u64::try_from(request.wait_limit_ms).unwrap_or_default();
            ask.patience = if limit == 0 { Patience::Ever } else { Patience::Line(Duration::from_millis(limit)) };
        }
        (ask.priority, ask.epoch) = (request.priority, request.epoch);
        ask.lock_delay = span(request.lock_delay_ms);
        ask
    }

    /// And this resource, too.
    pub fn and(mut self, resource: impl Into<String>) -> Self {
        let mode = v1::Mode::Exclusive.into();
        self.wants.push(v1::Want { resource: resource.into(), mode, ..v1::Want::default() });
        self
    }

    /// The resource that was named last is shared with others who share it.
    pub fn shared(mut self) -> Self {
        self.last().mode = v1::Mode::Shared.into();
        self
    }

    /// So many units of the resource that was named last.
    pub fn units(mut self, units: u64) -> Self {
        let want = self.last();
        (want.mode, want.units) = (v1::Mode::Units.into(), units);
        self
    }

    /// The resource that was named last is expected to have so many units; the first who says so defines it.
    pub fn of_capacity(mut self, capacity: u64) -> Self {
        self.last().capacity = capacity;
        self
    }

    /// Waits in line for so long.
    pub fn wait(mut self, patience: Duration) -> Self {
        self.patience = Patience::Line(patience);
        self
    }

    /// Waits in line for as long as it takes.
    pub fn wait_for_ever(mut self) -> Self {
        self.patience = Patience::Ever;
        self
    }

    /// From -1000 to 1000: one step is worth ten seconds of arrival.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Keeps everybody off for so long after an end that was not asked for.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// How often this holder has started: its claims of lower epochs are superseded at once. It needs a `holder`.
    pub fn epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }

    /// Tells the place in line, from 1, when it is known.
    pub fn tell_place(mut self, place: watch::Sender<u64>) -> Self {
        self.place = Some(place);
        self
    }

    /// A release by its handle, from any client, frees it at once: for what is held beyond this process. Without this, a release
    /// by another client leaves the resource vacating until this holder has certainly stopped.
    pub fn released_by_handle(mut self) -> Self {
        self.by_handle = true;
        self
    }

    /// Gets it, in line if a wait was allowed. Whoever drops this future has left the line.
    pub async fn acquire(self) -> Result<Hold, Error> {
        if self.on.is_some() && self.terms != Terms::default() {
            let why =
                "a claim on a lease has the terms of that lease: say ttl, class, holder and the like where it begins";
            return Err(Error::Local(why.into()));
        }
        let orders = self.client.orders()?;
        let gate = self.terms.gate(&orders.clock);
        let release_secret = if self.by_handle { 0 } else { orders.secret };
        let want = Want::Claims(v1::AcquireRequest { release_secret, ..self.request() });
        let quest = Quest { want, gate: gate.clone(), patience: self.patience, place: self.place };
        let got = Waiting::start(&orders, quest).outcome().await?;
        let claims = got.claims.iter().cloned().map(Claim::from).collect();
        Ok(Hold { grip: Grip::new(orders, gate, got), claims })
    }

    /// Gets it, does the work, and gives it back. The work is dropped the moment the lease is lost, and that is the error
    /// then; what it had begun elsewhere is the fence's business.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Hold) -> T) -> Result<T, Error> {
        let hold = self.acquire().await?;
        let done = hold.during(work(&hold)).await?;
        // The work is done, whether or not the server hears now that it was given back.
        let _ = hold.release().await;
        Ok(done)
    }

    fn last(&mut self) -> &mut v1::Want {
        self.wants.last_mut().expect("an ask begins with a resource, and none is ever taken away")
    }

    fn request(&self) -> v1::AcquireRequest {
        let wait_limit = match self.patience {
            _ if self.wants.len() == 1 => None,
            Patience::Answer => None,
            Patience::Line(span) => Some(span),
            Patience::Ever => Some(SEVERAL_WAIT_MAX),
        };
        v1::AcquireRequest {
            wants: self.wants.clone(),
            grant: self.on.is_none().then(|| self.terms.request(self.client.holder(), self.client.chance())),
            lease: self.on.unwrap_or_default(),
            wait: self.patience != Patience::Answer,
            priority: self.priority,
            lock_delay_ms: millis(self.lock_delay),
            epoch: self.epoch,
            wait_limit_ms: wait_limit.map_or(0, |span| millis(span).max(1)),
            ..v1::AcquireRequest::default()
        }
    }
}

/// A resource that is held, and the fence with which it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub resource: String,
    /// The fencing token: higher than that of everybody who held it before.
    pub fence: u64,
}

impl Claim {
    /// What people and scripts pass around: `NAME@FENCE`.
    pub fn handle(&self) -> String {
        format!("{}@{}", self.resource, self.fence)
    }
}

impl From<v1::Claim> for Claim {
    fn from(claim: v1::Claim) -> Self {
        Self { resource: claim.resource, fence: claim.fence }
    }
}

/// What is held, renewed while this guard lives. Dropping it gives it back soon; `release` gives it back now.
#[derive(Debug)]
#[must_use = "what is held is given back when this is dropped"]
pub struct Hold {
    grip: Grip,
    claims: Vec<Claim>,
}

with_grip!(Hold);

impl Hold {
    /// The fence of the first resource. Show it to whatever the work writes to: see [`crate::guard`].
    pub fn fence(&self) -> u64 {
        self.claims.first().map_or(0, |claim| claim.fence)
    }

    /// Does something while it is held. It is dropped the moment the lease is lost.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, Loss> {
        tokio::select! {
            biased;
            loss = self.lost() => Err(loss),
            done = work => Ok(done),
        }
    }

    /// Everything that is held, in the order in which it was asked for.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }
}
