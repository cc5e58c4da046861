//! The keeper's connections. It speaks over the newest one; an older one stays for a while, because a late answer still
//! counts.

use crate::clock::BootTime;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::v1::tenure_client::TenureClient;
use crate::v1::{Request, Response};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;

/// Connections that are kept; beyond that the oldest is given up.
const LINKS_MAX: usize = 4;

/// Requests that wait to be sent on one connection.
const UNSENT_MAX: usize = 1024;

/// News that wait to be taken.
const NEWS_MAX: usize = 1024;

/// One connection; later ones have higher numbers.
pub(crate) type LinkId = u64;

/// What a connection brings.
#[derive(Debug)]
pub(crate) enum News {
    /// It stands.
    Open,
    /// An answer.
    Answer(Response),
    /// It is over, or never came to be.
    Closed(Error),
}

/// All connections of a keeper.
#[derive(Debug)]
pub(crate) struct Links {
    endpoints: Arc<[Endpoint]>,
    /// The endpoint of the next connection, by its place in the list.
    next: usize,
    last: LinkId,
    links: BTreeMap<LinkId, Link>,
    bring: mpsc::Sender<(LinkId, News)>,
    news: mpsc::Receiver<(LinkId, News)>,
}

#[derive(Debug)]
struct Link {
    requests: mpsc::Sender<Request>,
    /// Since when it is silent: from the first request that it has brought nothing after.
    silent_since: BootTime,
    is_asked: bool,
    task: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Links {
    pub(crate) fn new(endpoints: Arc<[Endpoint]>) -> Self {
        let (bring, news) = mpsc::channel(NEWS_MAX);
        Self { endpoints, next: 0, last: 0, links: BTreeMap::new(), bring, news }
    }

    /// How many servers there are to try.
    pub(crate) fn count(&self) -> usize {
        self.endpoints.len()
    }

    /// The next news of a connection that is still kept.
    pub(crate) async fn news(&mut self) -> (LinkId, News) {
        loop {
            let brought = self.news.recv().await;
            let (link, news) = brought.expect("the keeper holds a sender of its own news");
            if self.links.contains_key(&link) {
                return (link, news);
            }
        }
    }

    /// Notes that a connection has brought something.
    pub(crate) fn heard(&mut self, link: LinkId, now: BootTime) {
        if let Some(link) = self.links.get_mut(&link) {
            (link.silent_since, link.is_asked) = (now, false);
        }
    }

    /// A connection is over.
    pub(crate) fn closed(&mut self, link: LinkId) {
        self.links.remove(&link);
    }

    /// Whether this is the connection that is spoken over.
    pub(crate) fn is_current(&self, link: LinkId) -> bool {
        self.links.last_key_value().is_some_and(|(last, _)| *last == link)
    }

    /// Sends over the newest connection, or over a new one if there is none; or not at all, if too much waits to be sent.
    pub(crate) fn send(&mut self, request: Request, now: BootTime) -> Option<LinkId> {
        if self.links.is_empty() {
            self.open(now);
        }
        let (id, link) = self.links.iter_mut().next_back()?;
        if !link.is_asked {
            (link.silent_since, link.is_asked) = (now, true);
        }
        link.requests.try_send(request).ok().map(|()| *id)
    }

    /// Goes on to the next server over a new connection, if the newest one has been silent for so long. It tells the ones
    /// that were given up for it.
    pub(crate) fn turn_from_silence(&mut self, now: BootTime, silence: Duration) -> Option<Vec<LinkId>> {
        let (_, newest) = self.links.last_key_value()?;
        (newest.is_asked && now.since(newest.silent_since) >= silence).then(|| self.turn(None, now))
    }

    /// Goes on to the next server over a new connection, or to the one at an address that it was sent to.
    pub(crate) fn turn(&mut self, to: Option<&str>, now: BootTime) -> Vec<LinkId> {
        match to.map(|address| self.at(address)) {
            Some(endpoint) => self.open_to(endpoint, now),
            None => self.open(now),
        }
        let mut given_up = Vec::new();
        while self.links.len() > LINKS_MAX {
            given_up.extend(self.links.pop_first().map(|(id, _)| id));
        }
        given_up
    }

    fn open(&mut self, now: BootTime) {
        let endpoint = self.endpoints[self.next % self.endpoints.len()].clone();
        self.next = (self.next + 1) % self.endpoints.len();
        self.open_to(endpoint, now);
    }

    /// The server at an address, whether or not it is one that was named at the start. After it the next one is tried.
    fn at(&mut self, address: &str) -> Endpoint {
        match self.endpoints.iter().position(|endpoint| endpoint.is_at(address)) {
            Some(place) => {
                self.next = (place + 1) % self.endpoints.len();
                self.endpoints[place].clone()
            }
            None => self.endpoints[0].moved_to(address),
        }
    }

    fn open_to(&mut self, endpoint: Endpoint, now: BootTime) {
        self.last += 1;
        let (requests, unsent) = mpsc::channel(UNSENT_MAX);
        let task = tokio::spawn(carry(self.last, endpoint, unsent, self.bring.clone())).abort_handle();
        self.links.insert(self.last, Link { requests, silent_since: now, is_asked: false, task });
    }
}

/// Carries requests there and answers back, until the connection is over.
async fn carry(id: LinkId, endpoint: Endpoint, unsent: mpsc::Receiver<Request>, bring: mpsc::Sender<(LinkId, News)>) {
    let over = match converse(id, &endpoint, unsent, &bring).await {
        Ok(()) => Error::Broken("the server closed the stream".into()),
        Err(error) => error,
    };
    // Nobody listens if the keeper is gone.
    let _ = bring.send((id, News::Closed(over))).await;
}

async fn converse(
    id: LinkId,
    endpoint: &Endpoint,
    unsent: mpsc::Receiver<Request>,
    bring: &mpsc::Sender<(LinkId, News)>,
) -> Result<(), Error> {
    let mut rpc = TenureClient::new(endpoint.connect().await?);
    let _ = bring.send((id, News::Open)).await;
    let failed = |status| endpoint.failed(status);
    let mut answers = rpc.stream(ReceiverStream::new(unsent)).await.map_err(failed)?.into_inner();
    while let Some(answer) = answers.message().await.map_err(failed)? {
        let _ = bring.send((id, News::Answer(answer))).await;
    }
    Ok(())
}
