//! What a server needs to leave loopback: certificates for its clients and its peers, and API keys. It reads the files and
//! says which of them is wrong.

use crate::config::Settings;
use crate::failure::Failure;
use crate::place;
use std::path::{Path, PathBuf};
use tenure_server::{Access, ApiKeys, BadPem, Begin, Part, PeerTls, Tls};

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

/// How clients are spoken with.
pub(crate) fn tls(settings: &Settings, what: &str) -> Result<Option<Tls>, Failure> {
    let (Some(certificate), Some(key)) = (&settings.tls_cert, &settings.tls_key) else { return Ok(None) };
    let made = Tls::new(&read(certificate, what)?, &read(key, what)?);
    made.map(Some).map_err(|bad| wrong(&bad, what, [certificate, key, certificate]))
}

/// How peers are spoken with.
pub(crate) fn peer_tls(settings: &Settings, what: &str) -> Result<Option<PeerTls>, Failure> {
    let named = (&settings.peer_tls_ca, &settings.peer_tls_cert, &settings.peer_tls_key);
    let (Some(authority), Some(certificate), Some(key)) = named else { return Ok(None) };
    let made = PeerTls::new(&read(authority, what)?, &read(certificate, what)?, &read(key, what)?);
    made.map(Some).map_err(|bad| wrong(&bad, what, [certificate, key, authority]))
}

/// Who may ask; everybody, unless a file says otherwise.
pub(crate) fn access(settings: &Settings, what: &str) -> Result<Access, Failure> {
    let keys = settings.api_keys.as_deref().map(|path| api_keys(path, what)).transpose()?;
    Ok(keys.map(Access::by).unwrap_or_default())
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

fn wrong(bad: &BadPem, what: &str, [certificate, key, authority]: [&PathBuf; 3]) -> Failure {
    let file = match bad.part {
        Part::Certificate => certificate,
        Part::Key => key,
        Part::Authority => authority,
    };
    let why = format!("{}: {bad}", file.display());
    Failure::before(what, &why, "Name a PEM file; `tenure cluster pki init` makes certificates and keys.")
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        let why = format!("cannot read {}: {error}", path.display());
        Failure::before(what, &why, "See that it is there, and that this user may read it.")
    })
}
