//! A local view of the instances of a service, kept by a watch that goes on where it stopped, at whichever node.

use super::discovery::Discovery;
use super::picking::{best, by_key, by_weight};
use super::set::{Anchor, Found, Living, Set};
use crate::clock::{BootTime, Clock};
use crate::error::Error;
use crate::v1;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::time::Duration;
use tenure_api::Code;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tonic::Streaming;

/// Pauses between attempts to connect again.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Another server is not tried sooner than this after something was heard.
const DOUBT_MIN: Duration = Duration::from_secs(1);

/// The pause after a question about the service time that was not answered.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// The instances of a service that are there, kept in this process. Reading it never waits. Each instance is dropped when its
/// time is over, with no network at all: by a clock that goes on while the machine sleeps.
#[derive(Debug)]
pub struct View {
    clock: Clock,
    near: String,
    living: watch::Receiver<Living>,
    keeping: AbortHandle,
}

impl Drop for View {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

impl View {
    /// Those that may be used now, by service and id.
    pub fn instances(&self) -> Vec<Found> {
        let now = self.clock.now();
        self.living.borrow().found.iter().filter(|found| found.until > now).cloned().collect()
    }

    /// Those that a server told of last and did not take back since, also if their time is over because no server is heard:
    /// for whoever would rather go on with what was there than stop. While a server is heard, they are those that may be used,
    /// and for a moment one that has just run out.
    pub fn told(&self) -> Vec<Found> {
        self.living.borrow().told().to_vec()
    }

    /// Whether the server says that there is none, and what is seen here are the last that were there.
    pub fn is_last_good(&self) -> bool {
        self.living.borrow().is_last_good && !self.instances().is_empty()
    }

    /// Resolves when there is something else to see than when this was last called, or than at the beginning.
    pub async fn changed(&mut self) {
        if self.living.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// One that work can go to: well before degraded, near before far, and among equals by weight.
    pub fn pick(&self) -> Option<Found> {
        let found = self.instances();
        by_weight(&best(&found, &self.near), rand::random()).cloned()
    }

    /// The one for a key: the same each time, at every client that sees the same instances, and when an instance goes, only
    /// its keys move. Those that are well and near are the ones to choose from, as for [`View::pick`].
    pub fn pick_for(&self, key: impl AsRef<[u8]>) -> Option<Found> {
        let found = self.instances();
        by_key(&best(&found, &self.near), key.as_ref()).cloned()
    }
}

/// Begins to keep a view. It comes when the first snapshot is complete.
pub(super) async fn open(discovery: Discovery) -> Result<View, Error> {
    let clock = discovery.client.clock();
    let near = discovery.near.clone();
    let (tell, living) = watch::channel(Living::default());
    let now = clock.now();
    let mut keeper = Keeper {
        clock: clock.clone(),
        heard: now,
        asking: None,
        ask_after: now,
        discovery,
        set: Set::default(),
        stream: None,
        pause: PAUSE_MIN,
        tell,
    };
    while !keeper.set.is_whole() {
        keeper.turn().await?;
    }
    keeper.show();
    let mut living = living;
    living.mark_unchanged();
    let keeping = tokio::spawn(keeper.keep()).abort_handle();
    Ok(View { clock, near, living, keeping })
}

struct Keeper {
    discovery: Discovery,
    clock: Clock,
    set: Set,
    stream: Option<Streaming<v1::WatchInstancesReply>>,
    /// When something was heard last, or the stream was asked for.
    heard: BootTime,
    /// A question about the service time that is on its way. Ends are told in service time, and counted from when it was asked.
    asking: Option<BoxFuture<'static, Result<Anchor, Error>>>,
    /// After one that failed, the next is not asked before.
    ask_after: BootTime,
    pause: Duration,
    tell: watch::Sender<Living>,
}

impl Keeper {
    /// For ever: whoever drops the view ends this.
    async fn keep(mut self) {
        loop {
            let now = self.clock.now();
            let clock = self.clock.clone();
            let (next_end, doubt_at) = (self.set.next_end(now), self.doubt_at());
            let mut asking = self.asking.take();
            let ask_at = self.set.ask_at(now).filter(|_| asking.is_none() && self.stream.is_some());
            let ask_at = ask_at.map(|at| at.max(self.ask_after));
            tokio::select! {
                biased;
                answer = next_answer(&mut asking) => {
                    asking = None;
                    match answer {
                        Ok(anchor) => self.set.answered(anchor),
                        Err(_) => self.ask_after = self.clock.now() + ASK_AGAIN,
                    }
                }
                turned = self.turn() => if turned.is_err() {
                    // It was let in before; it will be again, or what it has runs out.
                    self.give_up_stream().await;
                },
                () = clock.until(next_end) => {}
                () = clock.until(ask_at) => asking = Some(self.discovery.clone().ask_time().boxed()),
                () = clock.until(doubt_at) => {
                    self.discovery.client.turn_away();
                    (self.stream, self.heard, asking) = (None, self.clock.now(), None);
                }
            }
            self.asking = asking;
            self.show();
        }
    }

    fn doubt_at(&self) -> Option<BootTime> {
        let doubt_at = self.set.doubt_at(self.heard)?;
        self.stream.is_some().then(|| doubt_at.max(self.heard + DOUBT_MIN))
    }

    /// Takes the next message, or makes one more attempt to have one. It fails for good alone.
    async fn turn(&mut self) -> Result<(), Error> {
        match self.next().await {
            Ok(Some(reply)) => {
                self.set.apply(reply);
                (self.heard, self.pause) = (self.clock.now(), PAUSE_MIN);
                Ok(())
            }
            Err(error) if matches!(error.code(), Some(Code::Compacted | Code::Ahead)) => {
                self.set.begin_anew();
                self.stream = None;
                Ok(())
            }
            Err(error) if !error.is_for_now() => Err(error),
            ended => {
                // A server that hears of no leader says so on the stream, and another one may hear of one.
                if matches!(ended, Err(Error::Refused(_))) {
                    self.discovery.client.turn_away();
                }
                self.give_up_stream().await;
                Ok(())
            }
        }
    }

    async fn give_up_stream(&mut self) {
        self.stream = None;
        let pause = self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        tokio::time::sleep(pause).await;
    }

    /// The next message. Before a stream is opened, the service time is asked for.
    async fn next(&mut self) -> Result<Option<v1::WatchInstancesReply>, Error> {
        if self.stream.is_none() {
            self.heard = self.clock.now();
            self.set.answered(self.discovery.clone().ask_time().await?);
            let mut request = self.discovery.request.clone();
            request.after = self.set.revision();
            if request.after == 0 {
                self.set.begin_anew();
            }
            self.stream = Some(self.discovery.client.watch_instances(request).await?);
        }
        let Some(stream) = &mut self.stream else { return Ok(None) };
        Ok(stream.message().await?)
    }

    /// Shows what may be used now. Whoever waits for changes is woken by those alone; that something is valid for longer is
    /// none.
    fn show(&self) {
        let living = self.set.living(self.clock.now(), self.discovery.keeps_last_good);
        self.tell.send_if_modified(|shown| {
            let is_new = !living.is_like(shown);
            *shown = living;
            is_new
        });
    }
}

/// The answer to a question that is on its way; never, if there is none.
async fn next_answer(asking: &mut Option<BoxFuture<'static, Result<Anchor, Error>>>) -> Result<Anchor, Error> {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}
