//! Certificates of nodes: the identity in one, and which of them are accepted.

mod certificate;
mod identities;

pub use certificate::{BadCertificate, Certificate, NodeName, NotANodeName, is_cluster_name};
pub(crate) use identities::REMOVED;
pub use identities::{NotThem, PeerIdentities, PeerIdentity};
