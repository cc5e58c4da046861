//! How a node with a new data directory becomes part of a cluster, and how a member tells where it is now.

use crate::limits::{FIRST_ENTRIES_PATIENCE, KNOCK_INTERVAL, PEER_PATIENCE_SHORT};
use crate::node::Node;
use crate::peers::v1;
use crate::peers::v1::answer::Body as Tell;
use crate::peers::v1::question::Body as Ask;
use crate::place::Begin;
use crate::raft::Member;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::io;

/// A node that belongs to no cluster yet.
pub(crate) struct Beginning {
    node: Node,
    begin: Begin,
    /// What was said last, so that it is not said again and again.
    said: String,
    /// How often in a row it asked while another of its peers was part of a cluster.
    left_out: u32,
}

impl Beginning {
    pub(crate) fn new(node: Node, begin: Begin) -> Self {
        Self { node, begin, said: String::new(), left_out: 0 }
    }

    /// Asks around until this node is part of a cluster.
    pub(crate) async fn run(mut self) {
        while !self.node.consensus().is_initialized().await {
            let over = match self.begin.clone() {
                Begin::Alone => return,
                Begin::With(peers) => self.with(&peers).await,
                Begin::Join(addresses) => {
                    self.join(&addresses).await;
                    false
                }
            };
            if over {
                return;
            }
            tokio::time::sleep(KNOCK_INTERVAL).await;
        }
    }

    fn say(&mut self, text: String) {
        if self.said != text {
            tracing::warn!("{text}");
            self.said = text;
        }
    }

    /// Another of the peers is part of a cluster. Most likely it has just formed it with this node, whose first entries are on
    /// their way. Only a node that waits for long came later than the cluster, and has to be let in.
    fn wait_for_entries(&mut self, peer: u64) {
        self.left_out = self.left_out.saturating_add(1);
        if KNOCK_INTERVAL * self.left_out >= FIRST_ENTRIES_PATIENCE {
            self.wait_to_be_admitted();
        } else if self.left_out == 1 {
            tracing::info!("node {peer} is part of a cluster already; waiting for the first entries from its leader");
        }
    }

    fn us(&self) -> Member {
        self.node.member()
    }

    fn wait_to_be_admitted(&mut self) {
        let (node, address) = (self.node.identity().node, self.us().peer_addr);
        self.say(format!(
            "this node waits to be admitted to the cluster; on a machine of the cluster type: \
             tenure cluster add {node}={address}"
        ));
    }

    async fn join(&mut self, addresses: &[String]) {
        let hellos = join_all(addresses.iter().map(|address| hello(&self.node, address))).await;
        if hellos.iter().flatten().any(|hello| hello.is_initialized) {
            return self.wait_to_be_admitted();
        }
        let refused: Vec<String> = hellos.into_iter().filter_map(Result::err).flatten().collect();
        let why = if refused.is_empty() { String::new() } else { format!(" ({})", refused.join("; ")) };
        self.say(format!("no cluster answers at {}{why}; asking again", addresses.join(", ")));
    }

    /// The lowest number makes the cluster, once all others are there. True: it is made.
    async fn with(&mut self, peers: &BTreeMap<u64, String>) -> bool {
        let us = self.node.identity().node;
        let others: BTreeMap<u64, &String> =
            peers.iter().filter(|(node, _)| **node != us).map(|(node, at)| (*node, at)).collect();
        let hellos = join_all(others.values().map(|address| hello(&self.node, address))).await;
        let mut there = BTreeMap::new();
        let mut missing = Vec::new();
        for ((node, address), hello) in others.iter().zip(hellos) {
            match hello {
                Ok(hello) if hello.is_initialized => {
                    self.wait_for_entries(*node);
                    return false;
                }
                Ok(v1::HelloReply { member: Some(member), cluster, .. }) if member.node == *node => {
                    there.insert(*node, (cluster, Member::from(member)));
                }
                Ok(v1::HelloReply { member, .. }) => {
                    let found = member.map_or(0, |member| member.node);
                    self.say(format!("node {node} is expected at {address}, but node {found} answers there"));
                    return false;
                }
                Err(None) => missing.push(format!("{node}={address}")),
                Err(Some(why)) => missing.push(format!("{node}={address} ({why})")),
            }
        }
        if !missing.is_empty() {
            self.say(format!("waiting for {}", missing.join(", ")));
            return false;
        }
        if there.keys().any(|node| *node < us) {
            return false;
        }
        match self.form(there).await {
            Ok(()) => true,
            Err(error) => {
                self.say(format!("the cluster could not be made yet: {error}"));
                false
            }
        }
    }

    async fn form(&self, others: BTreeMap<u64, (u64, Member)>) -> io::Result<()> {
        let node = &self.node;
        // A start that was cut short may have drawn the cluster's number already.
        let drawn = others.values().map(|(cluster, _)| *cluster).chain([node.identity().cluster]).find(|id| *id != 0);
        let cluster = drawn.unwrap_or_else(|| node.draw_number());
        if !node.adopt(cluster).await? {
            return Err(io::Error::other("this node belongs to another cluster"));
        }
        let book = node.consensus().book();
        for (id, (_, member)) in &others {
            let adopt = Ask::Adopt(v1::Adopt { cluster });
            book.ask_at(&member.peer_addr, (*id, member.incarnation), adopt, PEER_PATIENCE_SHORT).await?;
        }
        let certified = |id: u64, member: Member| (id, book.certified(id, member));
        let mut members: BTreeMap<u64, Member> =
            others.into_iter().map(|(id, (_, member))| certified(id, member)).collect();
        members.insert(node.identity().node, self.us());
        node.consensus().initialize(members).await
    }
}

/// Asks who is at an address. The error says why a node that is there was refused, or refuses this one.
async fn hello(node: &Node, address: &str) -> Result<v1::HelloReply, Option<String>> {
    let asked = node.consensus().book().ask_at(address, (0, 0), Ask::Hello(v1::Hello {}), PEER_PATIENCE_SHORT);
    match asked.await {
        Ok(Tell::Hello(hello)) => Ok(hello),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Some(error.to_string())),
        _ => Err(None),
    }
}

/// Tells the cluster where this node is now, until its members know. An address is a fact of a start, not of the data.
pub(crate) async fn announce(node: Node) {
    let id = node.identity().node;
    if node.member().peer_addr.is_empty() {
        return;
    }
    let mut members = node.consensus().members_changed();
    let mut renewals = node.consensus().book().identities().map(|identities| identities.renewals());
    loop {
        let us = node.member();
        let known = node.consensus().book().member(id);
        match known {
            // Only the leader knows what is to be remembered of those that were removed.
            Some(known) if known == (Member { removed: known.removed.clone(), ..us.clone() }) => {}
            // Whoever was removed is not asked for its address.
            None => {}
            Some(_) => {
                if let Err(error) = node.change(v1::change::Body::Announce(us.clone().told_as(id))).await {
                    tracing::debug!(%error, "the cluster does not know this node's address yet");
                    tokio::time::sleep(KNOCK_INTERVAL).await;
                    continue;
                }
            }
        }
        let renewed = async {
            match &mut renewals {
                Some(renewals) => drop(renewals.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = members.changed() => if changed.is_err() { return },
            () = renewed => {}
        }
    }
}
