//! Leader election: whoever holds the name leads, one at a time, and everybody can see who.

use crate::ask::{Ask, Hold};
use crate::client::Client;
use crate::error::Error;
use crate::fate::Loss;
use crate::v1;
use crate::watch::Watch;
use std::time::Duration;
use tenure_api::Code;

/// The class of the leases of leaders.
const CLASS: &str = "election";

/// Whoever has just lost waits for up to so long, by chance, before it stands again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// An election.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// // For ever: whenever it leads, the work starts; when it loses the lead, the work is dropped, and it stands again.
/// client
///     .election("db/primary")
///     .lead(async |held| {
///         println!("leading with fence {}", held.fence());
///         std::future::pending::<()>().await
///     })
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `lead`, `campaign` or `observe`"]
pub struct Election {
    client: Client,
    ask: Ask,
    name: String,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Who.
    pub holder: String,
    /// With which fence: higher than that of every leader before.
    pub fence: u64,
    /// On which lease.
    pub lease: u64,
}

impl Election {
    pub(crate) fn new(client: Client, name: String) -> Self {
        let ask = Ask::new(client.clone(), name.clone()).class(CLASS).wait_for_ever();
        Self { client, ask, name }
    }

    /// The lead is lost when it was not renewed for so long; 10 s if nothing is said.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ask = self.ask.ttl(ttl);
        self
    }

    /// Under which name this candidate stands; else `user@host:pid`.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.ask = self.ask.holder(holder);
        self
    }

    /// Why it stands, for people.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.ask = self.ask.reason(reason);
        self
    }

    /// The lead is renewed only while progress is told at least so often.
    pub fn progress_timeout(mut self, timeout: Duration) -> Self {
        self.ask = self.ask.progress_timeout(timeout);
        self
    }

    /// Waits until it leads. The guard is the lead.
    pub async fn campaign(&self) -> Result<Hold, Error> {
        self.ask.clone().acquire().await
    }

    /// Stands for the lead, works while it leads, and stands again whenever it lost the lead, until the work is done by
    /// itself. It fails only if it is refused. In a spawned task the work has to own what it uses: `async move |held| ..`.
    pub async fn lead<T>(self, mut work: impl AsyncFnMut(&Hold) -> T) -> Result<T, Error> {
        loop {
            match self.ask.clone().acquire().await {
                Ok(lead) => match lead.during(work(&lead)).await {
                    Ok(done) => {
                        let _ = lead.release().await;
                        return Ok(done);
                    }
                    Err(Loss::KeeperGone) => return Err(Loss::KeeperGone.into()),
                    Err(_) => {}
                },
                Err(error) if error.is_for_now() || matches!(error, Error::WaitedOut) => {}
                // Somebody ended its lease before it knew that it led, or while it stood in line.
                Err(error) if matches!(error.code(), Some(Code::Lapsed | Code::NoLease)) => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(PAUSE_MAX.mul_f64(rand::random())).await;
        }
    }

    /// Who leads, and every change of it.
    pub fn observe(&self) -> Observer {
        let watch = self.client.watch(self.name.clone());
        Observer { client: self.client.clone(), name: self.name.clone(), watch, told: None }
    }
}

/// Sees who leads.
#[derive(Debug)]
pub struct Observer {
    client: Client,
    name: String,
    watch: Watch,
    told: Option<Option<Leader>>,
}

impl Observer {
    /// Who leads, at first; then who leads next, or nobody. It waits for a server for as long as it takes.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            let is_new = match &self.told {
                None => true,
                Some(_) => match self.watch.next().await {
                    Ok(reply) => reply.events.iter().any(|event| event.resource == self.name),
                    // It was away for too long to know what happened meanwhile, but not to know how things are now.
                    Err(error) if error.code() == Some(Code::Compacted) => true,
                    Err(error) => return Err(error),
                },
            };
            if !is_new {
                continue;
            }
            let leader = self.look().await?;
            if self.told.as_ref() != Some(&leader) {
                self.told = Some(leader.clone());
                return Ok(leader);
            }
        }
    }

    /// Who leads now. The watch goes on from there.
    async fn look(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            let request = v1::ShowRequest { resource: self.name.clone(), stale: false };
            match self.client.show(request).await {
                Ok(shown) => {
                    let place = v1::Cursor { revision: shown.revision, n: u32::MAX };
                    self.watch = self.client.watch(self.name.clone()).after(place);
                    let leader =
                        |held: v1::Holding| Leader { holder: held.holder, fence: held.fence, lease: held.lease };
                    return Ok(shown.holders.into_iter().next().map(leader));
                }
                Err(error) if error.is_for_now() => tokio::time::sleep(PAUSE_MAX).await,
                Err(error) => return Err(error),
            }
        }
    }
}
