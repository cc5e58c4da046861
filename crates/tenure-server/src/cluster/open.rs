//! Opens a node and gives it its part in a cluster: it begins one, joins one, or goes on in the one that its log names.

use super::{Beginning, announce, compare, watch_for_removal};
use crate::environment::Environment;
use crate::node::{Node, Opened};
use crate::place::Begin;
use crate::raft::OpenError;
use std::collections::BTreeMap;
use std::time::Duration;

impl Node {
    /// Opens the data and takes its place: a cluster of one leads at once, others elect a leader, and a node with a new
    /// data directory asks around. What it holds is served once [`Node::ready`] returns.
    pub async fn open(environment: Environment) -> Result<(Self, Opened), OpenError> {
        let (begin, audit_interval) = (environment.place.begin.clone(), environment.tuning.audit_interval);
        let (node, opened) = Self::assemble(environment).await?;
        if !node.consensus().is_initialized().await {
            match begin {
                Begin::Alone => {
                    let us = BTreeMap::from([(node.identity().node, node.member())]);
                    node.consensus().initialize(us).await?;
                }
                begin => drop(tokio::spawn(node.clone().begin(begin))),
            }
        }
        tokio::spawn(node.clone().announced());
        tokio::spawn(node.clone().judge(audit_interval));
        Ok((node, opened))
    }

    /// Lets the others know where this node is, and looks whether it is still one of them, until it stops.
    async fn announced(self) {
        tokio::select! {
            ((), ()) = futures::future::join(announce(self.clone()), watch_for_removal(self.clone())) => {}
            _ = self.consensus().failed() => {}
        }
    }

    /// Becomes part of a cluster, unless the node stops before.
    async fn begin(self, begin: Begin) {
        tokio::select! {
            () = Beginning::new(self.clone(), begin).run() => {}
            _ = self.consensus().failed() => {}
        }
    }

    /// Compares this node with the others, and condemns it if it differs from them.
    async fn judge(self, every: Duration) {
        tokio::select! {
            why = compare(self.clone(), every) => self.condemn(why).await,
            _ = self.consensus().failed() => {}
        }
    }
}
