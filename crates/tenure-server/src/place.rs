//! The place of a node among others, as its operator states it.

use crate::limits::ELECTION_TIMEOUT;
use std::collections::BTreeMap;
use std::time::Duration;

/// Where a node is among others.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its number in the cluster. A data directory keeps the one that it was made with.
    pub node: Option<u64>,
    /// Where peers reach it; empty if they do not.
    pub peer_addr: String,
    /// Where clients reach it, with the scheme; empty if no client needs to know.
    pub client_addr: String,
    /// What to do if the data directory is new.
    pub begin: Begin,
    /// How long a follower hears nothing from its leader before it stands for election; up to one and a half times that, by
    /// lot.
    pub election_timeout: Duration,
}

/// How a node with a new data directory begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// As a cluster of one.
    #[default]
    Alone,
    /// As one of these, by number and peer address, which begin together.
    With(BTreeMap<u64, String>),
    /// As a new member of the cluster that one of these peer addresses belongs to.
    Join(Vec<String>),
}

impl Default for Place {
    fn default() -> Self {
        Self {
            node: None,
            peer_addr: String::new(),
            client_addr: String::new(),
            begin: Begin::Alone,
            election_timeout: ELECTION_TIMEOUT,
        }
    }
}
