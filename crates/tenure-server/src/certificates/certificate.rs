//! What an X.509 certificate says of a node: its identity, as the URI `tenure://CLUSTER/node/N`, and from when until when it is
//! valid. It verifies nothing: rustls has verified the chain before.

use std::fmt;
use std::str::FromStr;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

const SCHEME: &str = "tenure://";

/// As long as one label of DNS, so that a name can be used in host names as well.
const NAME_BYTES_MAX: usize = 63;

/// The identity of a node: the name of its cluster, and its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// The name that `tenure cluster pki init` drew or was given.
    pub cluster: String,
    /// From 1 on.
    pub node: u64,
}

impl NodeName {
    /// None if this cannot be the name of a cluster, or the number is 0.
    pub fn new(cluster: &str, node: u64) -> Option<Self> {
        (is_cluster_name(cluster) && node > 0).then(|| Self { cluster: cluster.to_owned(), node })
    }
}

/// Lower-case letters, digits and hyphens, with neither the first nor the last a hyphen.
pub fn is_cluster_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_part)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/node/{}", self.cluster, self.node)
    }
}

/// A URI of the scheme `tenure` that is not the identity of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the identity of a node (tenure://CLUSTER/node/N)")]
pub struct NotANodeName(String);

impl FromStr for NodeName {
    type Err = NotANodeName;

    fn from_str(uri: &str) -> Result<Self, NotANodeName> {
        let parts = uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once("/node/"));
        let name = parts.and_then(|(cluster, number)| Self::new(cluster, number.parse().ok()?));
        // One spelling only: neither `+1` nor `01` is the number 1.
        name.filter(|name| name.to_string() == uri).ok_or_else(|| NotANodeName(uri.chars().take(100).collect()))
    }
}

/// What is used of a certificate. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// None for a certificate without an identity.
    pub name: Option<NodeName>,
    /// From when on it is valid.
    pub not_before: u64,
    /// Until when it is valid.
    pub not_after: u64,
}

/// Why a certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    /// Not X.509, or damaged.
    #[error("it is not an X.509 certificate: {0}")]
    Unreadable(String),
    /// A URI that begins like an identity and is none.
    #[error(transparent)]
    Name(#[from] NotANodeName),
    /// Two identities: which of them is meant is not known.
    #[error("it has more than one identity of a node")]
    Ambiguous,
}

impl Certificate {
    /// Reads the first certificate of a PEM file.
    pub fn read_pem(pem: &[u8]) -> Result<Self, BadCertificate> {
        let first = CertificateDer::from_pem_slice(pem);
        Self::read(&first.map_err(|_| BadCertificate::Unreadable("there is no PEM certificate in it".into()))?)
    }

    /// Reads a certificate.
    pub fn read(der: &CertificateDer<'_>) -> Result<Self, BadCertificate> {
        let unreadable = |error: &dyn fmt::Display| BadCertificate::Unreadable(error.to_string());
        let (rest, read) = parse_x509_certificate(der).map_err(|error| unreadable(&error))?;
        if !rest.is_empty() {
            return Err(unreadable(&"bytes follow it"));
        }
        let alternatives = read.subject_alternative_name().map_err(|error| unreadable(&error))?;
        let names = alternatives.iter().flat_map(|extension| &extension.value.general_names);
        let mut names = names.filter_map(|name| match name {
            GeneralName::URI(uri) if uri.to_ascii_lowercase().starts_with(SCHEME) => Some(uri.parse::<NodeName>()),
            _ => None,
        });
        let name = names.next().transpose()?;
        if names.next().is_some() {
            return Err(BadCertificate::Ambiguous);
        }
        let seconds = |time: i64| u64::try_from(time).unwrap_or_default();
        let (not_before, not_after) = (read.validity().not_before, read.validity().not_after);
        Ok(Self { name, not_before: seconds(not_before.timestamp()), not_after: seconds(not_after.timestamp()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType, date_time_ymd};

    /// A certificate with these URIs beside the name of a host.
    fn with(uris: &[&str]) -> Result<Certificate, BadCertificate> {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let uris = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap()));
        params.subject_alt_names.extend(uris);
        params.not_before = date_time_ymd(2025, 1, 1);
        params.not_after = date_time_ymd(2026, 1, 1);
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Certificate::read(made.der())
    }

    #[test]
    fn a_certificate_says_which_node_it_is_for_and_until_when() {
        let read = with(&["https://example.com/", "tenure://blue-1/node/42"]).unwrap();
        assert_eq!(read.name, NodeName::new("blue-1", 42));
        assert_eq!((read.not_before, read.not_after), (1_735_689_600, 1_767_225_600));
        assert_eq!(with(&[]).unwrap().name, None);
        assert_eq!(with(&["https://example.com/node/1"]).unwrap().name, None);
    }

    #[test]
    fn what_only_looks_like_an_identity_is_refused() {
        for bad in [
            "tenure://",
            "tenure:///node/1",
            "tenure://a",
            "tenure://a/node/",
            "tenure://a/node/0",
            "tenure://a/node/01",
            "tenure://a/node/+1",
            "tenure://a/node/1/",
            "tenure://a/node/1?x",
            "tenure://a/node/18446744073709551616",
            "tenure://A/node/1",
            "TENURE://a/node/1",
            "tenure://-a/node/1",
            "tenure://a:1/node/1",
            "tenure://a/node/1/node/2",
        ] {
            assert!(matches!(with(&[bad]), Err(BadCertificate::Name(_))), "{bad}: {:?}", with(&[bad]));
        }
        assert_eq!(with(&["tenure://a/node/1", "tenure://a/node/2"]), Err(BadCertificate::Ambiguous));
        let cut = CertificateDer::from(vec![0x30, 0x82, 0x01]);
        assert!(matches!(Certificate::read(&cut), Err(BadCertificate::Unreadable(_))));
    }

    #[test]
    fn names_are_written_as_they_are_read() {
        let name = NodeName::new(&"a".repeat(NAME_BYTES_MAX), u64::MAX).unwrap();
        assert_eq!(name.to_string().parse(), Ok(name));
        assert!(!is_cluster_name("") && !is_cluster_name(&"a".repeat(NAME_BYTES_MAX + 1)) && !is_cluster_name("a.b"));
        assert_eq!(NodeName::new("a", 0), None);
    }
}
