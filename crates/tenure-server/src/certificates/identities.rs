//! Which certificates of peers are accepted: those of this cluster, for the node number in question, and not those of a node
//! that was removed. The answering side, the connecting side and the membership share one of these.

use super::certificate::{Certificate, NodeName};
use crate::limits::{PEERS_SEEN_MAX, REFUSALS_TOLD_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::sync::watch;

/// What a node hears that was removed and shows its old certificate, after its number.
pub(crate) const REMOVED: &str = "was removed, and the certificate is not newer";

/// What is done with certificates of peers that have no identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerIdentity {
    /// As `Require`, if the data directory was made by a build that knows identities and the node's own certificate has one;
    /// otherwise as `Allow`.
    #[default]
    Auto,
    /// They are refused.
    Require,
    /// They are accepted, with one warning for each peer.
    Allow,
}

/// Why a certificate is refused. The words are stable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotThem {
    /// The certificate is of another cluster.
    #[error(
        "the certificate is for node {} of cluster {}, and this node belongs to cluster {ours}",
        .theirs.node,
        .theirs.cluster
    )]
    Cluster {
        /// The identity in the certificate.
        theirs: NodeName,
        /// The name of this node's cluster.
        ours: String,
    },
    /// The certificate is of another node.
    #[error("the certificate is for node {certified}, not for node {claimed}")]
    Node {
        /// The number in the certificate.
        certified: u64,
        /// The number that was claimed, or meant.
        claimed: u64,
    },
    /// The certificate has no identity.
    #[error(
        "the certificate of node {claimed} has no identity (tenure://CLUSTER/node/N), and --peer-identity is `require`; \
         make one with `tenure cluster pki add`, or start with --peer-identity allow"
    )]
    Nameless {
        /// The number that was claimed, or meant; 0 if none was.
        claimed: u64,
    },
    /// The node was removed, and the certificate is from before that.
    #[error(
        "node {node} {removed} than the last one of the removed node; make another with `tenure cluster pki add`",
        removed = REMOVED
    )]
    Removed {
        /// The number.
        node: u64,
    },
}

/// What is known of certificates of peers.
#[derive(Debug)]
pub struct PeerIdentities {
    own: RwLock<Arc<Certificate>>,
    choice: PeerIdentity,
    /// The number of this node; 0 until it is known.
    node: AtomicU64,
    /// What `Auto` has come to; `Require` until the data directory was looked at.
    is_required: AtomicBool,
    /// For each removed number the time that the certificate has to be later than.
    removed: RwLock<BTreeMap<u64, u64>>,
    /// The newest certificate seen of each number.
    seen: Mutex<BTreeMap<u64, u64>>,
    /// What was logged, so that it is logged once.
    told: Mutex<BTreeSet<String>>,
    renewed: watch::Sender<()>,
}

impl PeerIdentities {
    /// Of a node with this certificate.
    pub(crate) fn new(own: Certificate, choice: PeerIdentity) -> Self {
        Self {
            own: RwLock::new(Arc::new(own)),
            choice,
            node: AtomicU64::default(),
            is_required: AtomicBool::new(choice != PeerIdentity::Allow),
            removed: RwLock::default(),
            seen: Mutex::default(),
            told: Mutex::default(),
            renewed: watch::Sender::default(),
        }
    }

    /// The node's own certificate.
    pub(crate) fn own(&self) -> Arc<Certificate> {
        self.own.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From when on the node's own certificate is valid; 0 if it has no identity.
    pub(crate) fn own_certified(&self) -> u64 {
        let own = self.own();
        if own.name.is_some() { own.not_before } else { 0 }
    }

    /// The node shows another certificate from now on. It must be for the same node of the same cluster.
    pub(crate) fn renew(&self, own: Certificate) {
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(own);
        self.renewed.send_replace(());
    }

    /// Told when the node shows another certificate.
    pub(crate) fn renewals(&self) -> watch::Receiver<()> {
        self.renewed.subscribe()
    }

    /// Whether another certificate may take the place of the node's own: why not.
    pub(crate) fn check_renewal(&self, new: &Certificate) -> Result<(), String> {
        match (&self.own().name, &new.name) {
            (Some(old), Some(new)) if old != new => Err(format!("it is for {new}, and the one in use is for {old}")),
            (Some(old), None) => Err(format!("it has no identity, and the one in use is for {old}")),
            (None, Some(new)) => self.check_own(new.node),
            (Some(_), Some(_)) | (None, None) => Ok(()),
        }
    }

    fn check_own(&self, certified: u64) -> Result<(), String> {
        match self.node.load(Ordering::Relaxed) {
            node if node != 0 && node != certified => {
                Err(format!("the peer certificate is for node {certified}, and this is node {node}"))
            }
            _ => Ok(()),
        }
    }

    /// The node has a number and a data directory now. The error says that its certificate is for another number.
    pub(crate) fn settle(&self, node: u64, directory_knows_identities: bool) -> Result<(), String> {
        self.node.store(node, Ordering::Relaxed);
        let own = self.own();
        own.name.as_ref().map_or(Ok(()), |name| self.check_own(name.node))?;
        if self.choice == PeerIdentity::Auto {
            self.is_required.store(directory_knows_identities && own.name.is_some(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Replaces what is known of removed numbers.
    pub(crate) fn set_removed(&self, removed: BTreeMap<u64, u64>) {
        *self.removed.write().unwrap_or_else(PoisonError::into_inner) = removed;
    }

    /// The newest certificate seen of a number: from when on it is valid; 0 if none with an identity was seen.
    pub(crate) fn seen(&self, node: u64) -> u64 {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied().unwrap_or_default()
    }

    /// Whether a peer that shows this certificate is the node that it claims to be, or that was meant; 0 for any node.
    pub(crate) fn check(&self, shown: &Certificate, claimed: u64) -> Result<(), NotThem> {
        let checked = self.judge(shown, claimed);
        match (&checked, &shown.name) {
            // Who is greeted without a number is spoken with by its number next.
            (Ok(()), None) if claimed == 0 => {}
            (Ok(()), None) => self.tell(format!(
                "the certificate of node {claimed} has no identity (tenure://CLUSTER/node/N), so its messages are believed as \
                 they are; make one with `tenure cluster pki add`, and then start with --peer-identity require"
            )),
            (Ok(()), Some(name)) => self.note(name.node, shown.not_before),
            (Err(why), _) => self.tell(format!("a peer was refused: {why}")),
        }
        checked
    }

    fn judge(&self, shown: &Certificate, claimed: u64) -> Result<(), NotThem> {
        let Some(name) = &shown.name else {
            return match self.is_required.load(Ordering::Relaxed) {
                true => Err(NotThem::Nameless { claimed }),
                false => Ok(()),
            };
        };
        if let Some(ours) = self.own().name.as_ref().filter(|ours| ours.cluster != name.cluster) {
            return Err(NotThem::Cluster { theirs: name.clone(), ours: ours.cluster.clone() });
        }
        if claimed != 0 && claimed != name.node {
            return Err(NotThem::Node { certified: name.node, claimed });
        }
        let removed = self.removed.read().unwrap_or_else(PoisonError::into_inner);
        match removed.get(&name.node) {
            Some(until) if shown.not_before <= *until => Err(NotThem::Removed { node: name.node }),
            _ => Ok(()),
        }
    }

    fn note(&self, node: u64, not_before: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= PEERS_SEEN_MAX && !seen.contains_key(&node) {
            seen.clear();
        }
        let newest = seen.entry(node).or_default();
        *newest = not_before.max(*newest);
    }

    /// Logs a sentence once. There are few different ones, unless a peer makes up numbers: then logging stops at the limit.
    fn tell(&self, text: String) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < REFUSALS_TOLD_MAX && !told.contains(&text) {
            tracing::warn!("{text}");
            told.insert(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(name: Option<(&str, u64)>, not_before: u64) -> Certificate {
        let name = name.map(|(cluster, node)| NodeName::new(cluster, node).unwrap());
        Certificate { name, not_before, not_after: u64::MAX }
    }

    fn of(name: Option<(&str, u64)>, choice: PeerIdentity) -> PeerIdentities {
        PeerIdentities::new(certificate(name, 100), choice)
    }

    #[test]
    fn a_certificate_is_good_for_its_own_number_in_its_own_cluster() {
        let us = of(Some(("blue", 1)), PeerIdentity::Require);
        let two = certificate(Some(("blue", 2)), 100);
        assert_eq!(us.check(&two, 2), Ok(()));
        assert_eq!(us.check(&two, 0), Ok(()), "any node was meant");
        assert_eq!(us.check(&two, 3), Err(NotThem::Node { certified: 2, claimed: 3 }));
        let other = certificate(Some(("red", 2)), 100);
        for claimed in [0, 2] {
            let refused = us.check(&other, claimed).unwrap_err().to_string();
            assert_eq!(refused, "the certificate is for node 2 of cluster red, and this node belongs to cluster blue");
        }
    }

    #[test]
    fn one_without_an_identity_is_refused_or_allowed_as_was_chosen() {
        let nameless = certificate(None, 100);
        assert_eq!(of(None, PeerIdentity::Allow).check(&nameless, 2), Ok(()));
        let refused = Err(NotThem::Nameless { claimed: 2 });
        assert_eq!(of(None, PeerIdentity::Require).check(&nameless, 2), refused);
        // By default it depends on the data directory and on the node's own certificate.
        for (own, knows, expected) in [
            (Some(("blue", 1)), true, refused),
            (Some(("blue", 1)), false, Ok(())),
            (None, true, Ok(())),
            (None, false, Ok(())),
        ] {
            let us = of(own, PeerIdentity::Auto);
            us.settle(1, knows).unwrap();
            assert_eq!(us.check(&nameless, 2), expected, "{own:?} {knows}");
        }
    }

    #[test]
    fn allowing_certificates_without_an_identity_allows_no_wrong_one() {
        let us = of(Some(("blue", 1)), PeerIdentity::Allow);
        assert!(us.check(&certificate(Some(("red", 2)), 100), 2).is_err());
        assert!(us.check(&certificate(Some(("blue", 3)), 100), 2).is_err());
        // A node that does not know the name of its cluster compares the number alone.
        let us = of(None, PeerIdentity::Allow);
        assert!(us.check(&certificate(Some(("red", 2)), 100), 2).is_ok());
        assert!(us.check(&certificate(Some(("red", 3)), 100), 2).is_err());
    }

    #[test]
    fn a_removed_number_needs_a_newer_certificate() {
        let us = of(Some(("blue", 1)), PeerIdentity::Require);
        us.set_removed(BTreeMap::from([(3, 100)]));
        let three = |not_before| us.check(&certificate(Some(("blue", 3)), not_before), 3);
        assert_eq!(three(99), Err(NotThem::Removed { node: 3 }));
        assert_eq!(three(100), Err(NotThem::Removed { node: 3 }));
        assert_eq!(three(101), Ok(()));
        assert_eq!(us.check(&certificate(Some(("blue", 2)), 1), 2), Ok(()));
        us.set_removed(BTreeMap::new());
        assert_eq!(three(99), Ok(()));
    }

    #[test]
    fn the_newest_certificate_of_each_number_is_remembered() {
        let us = of(Some(("blue", 1)), PeerIdentity::Allow);
        for not_before in [5, 7, 6] {
            us.check(&certificate(Some(("blue", 2)), not_before), 2).unwrap();
        }
        us.check(&certificate(None, 9), 3).unwrap();
        us.check(&certificate(Some(("red", 4)), 9), 4).unwrap_err();
        assert_eq!([2, 3, 4].map(|node| us.seen(node)), [7, 0, 0]);
    }

    #[test]
    fn a_node_keeps_its_name_when_its_certificate_is_renewed() {
        let us = of(Some(("blue", 1)), PeerIdentity::Require);
        assert!(us.settle(2, true).is_err());
        assert!(us.settle(1, true).is_ok());
        assert!(us.check_renewal(&certificate(Some(("blue", 1)), 200)).is_ok());
        for other in [Some(("blue", 2)), Some(("red", 1)), None] {
            assert!(us.check_renewal(&certificate(other, 200)).is_err(), "{other:?}");
        }
        // The first identity of a node that had none.
        let us = of(None, PeerIdentity::Allow);
        us.settle(1, false).unwrap();
        assert!(us.check_renewal(&certificate(Some(("blue", 1)), 200)).is_ok());
        assert!(us.check_renewal(&certificate(Some(("blue", 2)), 200)).is_err());
    }
}
