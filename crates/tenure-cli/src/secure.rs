//! What a server needs to leave loopback: certificates for its clients and its peers, and API keys. It reads the files and
//! says which of them is wrong.

use crate::args::PeerIdentity;
use crate::config::Settings;
use crate::failure::Failure;
use crate::place;
use std::path::{Path, PathBuf};
use tenure_server::PeerIdentity as Choice;
use tenure_server::{Access, ApiKeys, BadPem, Begin, Part, PeerPem};

const TRUSTED: &str = "Listen on 127.0.0.1, or say --insecure if the network is trusted.";

/// Refuses what would leave loopback in the clear, or let in whoever comes.
pub(crate) fn check(settings: &Settings, what: &str) -> Result<(), Failure> {
    let usage = |why: &str, next: &str| Err(Failure::usage(what, why, next));
    if settings.tls_cert.is_some() != settings.tls_key.is_some() {
        return usage("a certificate and its key go together", "Name both with --tls-cert and --tls-key, or none.");
    }
    let peer = [&settings.peer_tls_ca, &settings.peer_tls_cert, &settings.peer_tls_key];
    if peer.iter().any(|file| file.is_some()) && !peer.iter().all(|file| file.is_some()) {
        let next = "Name all three with --peer-tls-ca, --peer-tls-cert and --peer-tls-key, or none.";
        return usage("TLS between peers needs an authority, a certificate and its key", next);
    }
    if settings.peer_identity == PeerIdentity::Require && settings.peer_tls_ca.is_none() {
        let why = "peers show no certificates without TLS, so no identity can be required of them";
        return usage(why, "Name certificates with --peer-tls-ca, --peer-tls-cert and --peer-tls-key.");
    }
    if settings.insecure {
        return Ok(());
    }
    let listens = [Some(settings.listen), place::etcd_listen(settings, what)?];
    let beyond = listens.into_iter().flatten().find(|address| !address.ip().is_loopback());
    let missing: Vec<&str> =
        [("TLS (--tls-cert, --tls-key)", &settings.tls_cert), ("API keys (--api-keys)", &settings.api_keys)]
            .into_iter()
            .filter_map(|(name, file)| file.is_none().then_some(name))
            .collect();
    if let Some(address) = beyond.filter(|_| !missing.is_empty()) {
        let why = format!("{address} is beyond loopback, and that needs {}", missing.join(" and "));
        return usage(&why, TRUSTED);
    }
    check_peers(settings, what)
}

/// Whoever can speak to a node as a peer needs no API key. So with keys, or beyond loopback, peers have to prove to be some.
fn check_peers(settings: &Settings, what: &str) -> Result<(), Failure> {
    let plan = place::of(settings, what)?;
    if settings.peer_tls_ca.is_some() || is_deaf_to_peers(settings, &plan.begin) {
        return Ok(());
    }
    let usage = |why: &str| {
        Err(Failure::usage(what, why, "Make certificates with `tenure cluster pki init`, or say --insecure."))
    };
    if !plan.peer_listen.ip().is_loopback() {
        return usage(&format!("{} is beyond loopback, and peers there need TLS (--peer-tls-ca)", plan.peer_listen));
    }
    if settings.api_keys.is_some() {
        return usage("API keys would be in vain if anybody could pass for a peer, and that needs TLS (--peer-tls-ca)");
    }
    Ok(())
}

/// Whether a node does not listen for peers: one that has none, and that only the wrong ones could come to.
pub(crate) fn is_deaf_to_peers(settings: &Settings, begin: &Begin) -> bool {
    let is_unasked = *begin == Begin::Alone && settings.peer_listen.is_empty();
    let is_open = settings.peer_tls_ca.is_none() && !settings.insecure;
    is_unasked && is_open && (settings.api_keys.is_some() || !settings.listen.ip().is_loopback())
}

/// What is done with certificates of peers that have no identity.
pub(crate) fn peer_identity(settings: &Settings) -> Choice {
    match settings.peer_identity {
        PeerIdentity::Auto => Choice::Auto,
        PeerIdentity::Require => Choice::Require,
        PeerIdentity::Allow => Choice::Allow,
    }
}

/// The files of one side of a server.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    key: PathBuf,
    /// Of peers alone.
    pub(crate) authority: Option<PathBuf>,
}

/// What is in them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pem {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
    authority: Vec<u8>,
}

impl Pem {
    pub(crate) fn for_peers(&self) -> PeerPem<'_> {
        PeerPem { authority: &self.authority, certificate: &self.certificate, key: &self.key }
    }
}

impl Files {
    pub(crate) fn for_clients(settings: &Settings) -> Option<Self> {
        let (certificate, key) = (settings.tls_cert.clone()?, settings.tls_key.clone()?);
        Some(Self { certificate, key, authority: None })
    }

    pub(crate) fn for_peers(settings: &Settings) -> Option<Self> {
        let (certificate, key) = (settings.peer_tls_cert.clone()?, settings.peer_tls_key.clone()?);
        Some(Self { certificate, key, authority: Some(settings.peer_tls_ca.clone()?) })
    }

    pub(crate) fn read(&self, what: &str) -> Result<Pem, Failure> {
        let authority = self.authority.as_deref().map(|path| read(path, what)).transpose()?;
        Ok(Pem {
            certificate: read(&self.certificate, what)?,
            key: read(&self.key, what)?,
            authority: authority.unwrap_or_default(),
        })
    }

    pub(crate) fn wrong(&self, bad: &BadPem, what: &str) -> Failure {
        let file = match bad.part {
            Part::Certificate => &self.certificate,
            Part::Key => &self.key,
            Part::Authority => self.authority.as_ref().unwrap_or(&self.certificate),
        };
        let why = format!("{}: {bad}", file.display());
        Failure::before(what, &why, "Name a PEM file; `tenure cluster pki init` makes certificates and keys.")
    }
}

/// Who may ask; everybody, unless a file says otherwise.
pub(crate) fn access(settings: &Settings, what: &str) -> Result<Access, Failure> {
    let keys = settings.api_keys.as_deref().map(|path| api_keys(path, what)).transpose()?;
    Ok(keys.map(Access::by).unwrap_or_default())
}

/// The files that hold private keys, or what is enough to check API keys.
pub(crate) fn secrets(settings: &Settings) -> Vec<PathBuf> {
    [&settings.tls_key, &settings.peer_tls_key, &settings.api_keys].into_iter().flatten().cloned().collect()
}

/// The API keys of a file.
pub(crate) fn api_keys(path: &Path, what: &str) -> Result<ApiKeys, Failure> {
    let text =
        String::from_utf8(read(path, what)?).unwrap_or_else(|bytes| String::from_utf8_lossy(bytes.as_bytes()).into());
    ApiKeys::parse(&text).map_err(|bad| {
        let why = format!("{}, {bad}", path.display());
        Failure::before(
            what,
            &why,
            "Draw keys with `tenure cluster keygen NAME`; the second line that it prints goes here.",
        )
    })
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        let why = format!("cannot read {}: {error}", path.display());
        Failure::before(what, &why, "See that it is there, and that this user may read it.")
    })
}
