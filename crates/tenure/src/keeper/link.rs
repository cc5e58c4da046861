//! The keeper's links to servers, as far as the keeper decides about them: which ones there are, which one is spoken over, and
//! since when each is silent. An older one stays for a while, because a late answer still counts. It connects to nothing; it
//! says what is to be opened, sent and closed.

use super::Output;
use crate::clock::BootTime;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::v1::{Request, Response};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Connections that are kept; beyond that the oldest is given up.
const LINKS_MAX: usize = 4;

/// One connection; later ones have higher numbers.
pub type LinkId = u64;

/// What a connection brings.
#[derive(Debug)]
pub enum News {
    /// It stands.
    Open,
    /// An answer.
    Answer(Response),
    /// It is over, or never came to be.
    Closed(Error),
}

/// All connections of a keeper.
#[derive(Debug)]
pub(super) struct Links {
    endpoints: Arc<[Endpoint]>,
    /// The endpoint of the next connection, by its place in the list.
    next: usize,
    last: LinkId,
    links: BTreeMap<LinkId, Link>,
    outputs: Vec<Output>,
}

#[derive(Debug)]
struct Link {
    /// Since when it is silent: from the first request that it has brought nothing after.
    silent_since: BootTime,
    is_asked: bool,
}

impl Links {
    pub(super) fn new(endpoints: Arc<[Endpoint]>) -> Self {
        Self { endpoints, next: 0, last: 0, links: BTreeMap::new(), outputs: Vec::new() }
    }

    /// What is to be done, in this order.
    pub(super) fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// How many servers there are to try.
    pub(super) fn count(&self) -> usize {
        self.endpoints.len()
    }

    /// Notes that a connection has brought something. False: it is not kept any longer.
    pub(super) fn heard(&mut self, link: LinkId, now: BootTime) -> bool {
        let Some(link) = self.links.get_mut(&link) else { return false };
        (link.silent_since, link.is_asked) = (now, false);
        true
    }

    /// A connection is over.
    pub(super) fn closed(&mut self, link: LinkId) {
        if self.links.remove(&link).is_some() {
            self.outputs.push(Output::Close { link });
        }
    }

    /// Whether this is the connection that is spoken over.
    pub(super) fn is_current(&self, link: LinkId) -> bool {
        self.links.last_key_value().is_some_and(|(last, _)| *last == link)
    }

    /// Sends over the newest connection, or over a new one if there is none.
    pub(super) fn send(&mut self, request: Request, now: BootTime) -> LinkId {
        if self.links.is_empty() {
            self.open(now);
        }
        let mut newest = self.links.last_entry().expect("a connection was opened if there was none");
        let (id, link) = (*newest.key(), newest.get_mut());
        if !link.is_asked {
            (link.silent_since, link.is_asked) = (now, true);
        }
        self.outputs.push(Output::Send { link: id, request });
        id
    }

    /// Goes on to the next server over a new connection, if the newest one has been silent for so long. It tells the ones
    /// that were given up for it.
    pub(super) fn turn_from_silence(&mut self, now: BootTime, silence: Duration) -> Option<Vec<LinkId>> {
        let (_, newest) = self.links.last_key_value()?;
        (newest.is_asked && now.since(newest.silent_since) >= silence).then(|| self.turn(None, now))
    }

    /// Goes on to the next server over a new connection, or to the one at an address that it was sent to.
    pub(super) fn turn(&mut self, to: Option<&str>, now: BootTime) -> Vec<LinkId> {
        match to.map(|address| self.at(address)) {
            Some(endpoint) => self.open_to(endpoint, now),
            None => self.open(now),
        }
        let beyond = self.links.len().saturating_sub(LINKS_MAX);
        let given_up: Vec<LinkId> = self.links.keys().take(beyond).copied().collect();
        given_up.iter().for_each(|link| self.closed(*link));
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

    fn open_to(&mut self, to: Endpoint, now: BootTime) {
        self.last += 1;
        self.links.insert(self.last, Link { silent_since: now, is_asked: false });
        self.outputs.push(Output::Open { link: self.last, to });
    }
}
