//! Certificates: what this node shows on new connections, and which authority it trusts. They can be replaced while connections are
//! open; new connections use the new ones. It reads no files, and never falls back to speaking in the clear.

use crate::certificates::{Certificate, PeerIdentities, PeerIdentity};
use crate::limits::FIRST_WORD_PATIENCE;
use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ClientConfig, InconsistentKeys, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// HTTP/2 for gRPC and whoever can, HTTP/1 for the rest.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What a file of PEM was to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A certificate, with those of the authorities between it and the root, if any.
    Certificate,
    /// Its private key.
    Key,
    /// The certificates of the authorities that are believed.
    Authority,
}

/// Why certificates cannot be used. It says nothing of what is in a key.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct BadPem {
    /// Which of them.
    pub part: Part,
    why: String,
}

impl BadPem {
    fn new(part: Part, why: impl Into<String>) -> Self {
        Self { part, why: why.into() }
    }
}

/// How a listener speaks TLS. Clones are the same.
#[derive(Clone)]
pub struct Tls {
    current: Arc<RwLock<Shown>>,
}

/// The certificate that is shown now.
#[derive(Clone)]
struct Shown {
    acceptor: TlsAcceptor,
    not_after: Option<u64>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Shows a certificate to whoever connects, and asks for none.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Self, BadPem> {
        Ok(Self::of(Shown::new(certificate, key)?))
    }

    /// Shows another certificate on new connections. One that cannot be used changes nothing.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), BadPem> {
        self.show(Shown::new(certificate, key)?);
        Ok(())
    }

    /// Until when the certificate is valid, in seconds since 1970, if that can be read.
    pub fn expires(&self) -> Option<u64> {
        self.shown().not_after
    }

    fn of(shown: Shown) -> Self {
        Self { current: Arc::new(RwLock::new(shown)) }
    }

    fn show(&self, shown: Shown) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    fn shown(&self) -> Shown {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shakes hands with whoever has connected, and waits for that no longer than for anybody's first word.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        let shaken = tokio::time::timeout(FIRST_WORD_PATIENCE, self.shown().acceptor.accept(stream));
        shaken.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Shown {
    fn new(certificate: &[u8], key: &[u8]) -> Result<Self, BadPem> {
        let config = server()?.with_no_client_auth();
        let (chain, key) = (chain(certificate)?, private_key(key)?);
        // rustls reads certificates by itself; that this reader cannot says nothing against one for clients.
        let not_after = Certificate::read(&chain[0]).ok().map(|read| read.not_after);
        Ok(Self::of(config.with_single_cert(chain, key).map_err(unfit)?, not_after))
    }

    fn of(mut config: ServerConfig, not_after: Option<u64>) -> Self {
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Self { acceptor: TlsAcceptor::from(Arc::new(config)), not_after }
    }
}

/// The files of TLS between peers, as PEM.
#[derive(Clone, Copy, Debug)]
pub struct PeerPem<'a> {
    /// The authority that is believed, and no other.
    pub authority: &'a [u8],
    /// The certificate of this node, and those between it and the authority.
    pub certificate: &'a [u8],
    /// Its private key.
    pub key: &'a [u8],
}

/// How peers speak with each other: both sides show a certificate of the cluster's own authority. Clones are the same.
#[derive(Clone, Debug)]
pub struct PeerTls {
    listening: Tls,
    asking: Arc<RwLock<Asking>>,
    identities: Arc<PeerIdentities>,
}

#[derive(Clone, Debug)]
struct Asking {
    config: Arc<ClientConfig>,
    authority_not_after: Option<u64>,
}

impl PeerTls {
    /// By these files. The choice says what is done with certificates that have no identity.
    pub fn new(pem: PeerPem<'_>, choice: PeerIdentity) -> Result<Self, BadPem> {
        let (shown, asking, own) = ends(pem)?;
        let identities = Arc::new(PeerIdentities::new(own, choice));
        Ok(Self { listening: Tls::of(shown), asking: Arc::new(RwLock::new(asking)), identities })
    }

    /// Uses other files for connections from now on, on both sides. What cannot be used changes nothing.
    pub fn replace(&self, pem: PeerPem<'_>) -> Result<(), BadPem> {
        let (shown, asking, own) = ends(pem)?;
        self.identities.check_renewal(&own).map_err(|why| BadPem::new(Part::Certificate, why))?;
        self.listening.show(shown);
        *self.asking.write().unwrap_or_else(PoisonError::into_inner) = asking;
        self.identities.renew(own);
        Ok(())
    }

    /// Until when the certificate of this node is valid, in seconds since 1970.
    pub fn expires(&self) -> u64 {
        self.identities.own().not_after
    }

    /// Until when the authority is valid, in seconds since 1970, if that can be read; of several, the first that ends.
    pub fn authority_expires(&self) -> Option<u64> {
        self.asking.read().unwrap_or_else(PoisonError::into_inner).authority_not_after
    }

    pub(crate) fn listening(&self) -> &Tls {
        &self.listening
    }

    pub(crate) fn asking(&self) -> Arc<ClientConfig> {
        self.asking.read().unwrap_or_else(PoisonError::into_inner).config.clone()
    }

    /// Which certificates of peers are accepted.
    pub(crate) fn identities(&self) -> &Arc<PeerIdentities> {
        &self.identities
    }
}

/// Both ends of connections between peers, and what this node's own certificate says.
fn ends(pem: PeerPem<'_>) -> Result<(Shown, Asking, Certificate), BadPem> {
    let mut roots = RootCertStore::empty();
    let authorities = certificates(pem.authority, Part::Authority)?;
    let ends = authorities.iter().filter_map(|root| Certificate::read(root).ok());
    let authority_not_after = ends.map(|root| root.not_after).min();
    for root in authorities {
        roots.add(root).map_err(|error| BadPem::new(Part::Authority, error.to_string()))?;
    }
    let roots = Arc::new(roots);
    let chain = chain(pem.certificate)?;
    let own = Certificate::read(&chain[0]).map_err(|bad| BadPem::new(Part::Certificate, bad.to_string()))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider());
    let verifier = verifier.build().map_err(|error| BadPem::new(Part::Authority, error.to_string()))?;
    let listening = server()?.with_client_cert_verifier(verifier);
    let listening = listening.with_single_cert(chain.clone(), private_key(pem.key)?).map_err(unfit)?;
    let asking = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let asking = asking.map_err(|error| BadPem::new(Part::Certificate, error.to_string()))?;
    let asking = asking.with_root_certificates(roots);
    let mut asking = asking.with_client_auth_cert(chain, private_key(pem.key)?).map_err(unfit)?;
    asking.alpn_protocols = vec![PROTOCOLS[0].to_vec()];
    let shown = Shown::of(listening, Some(own.not_after));
    Ok((shown, Asking { config: Arc::new(asking), authority_not_after }, own))
}

/// What encrypts. Named, so that no other crate decides it by being there.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

type Verifying = rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>;

fn server() -> Result<Verifying, BadPem> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    builder.map_err(|error| BadPem::new(Part::Certificate, error.to_string()))
}

fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadPem> {
    certificates(pem, Part::Certificate)
}

fn certificates(pem: &[u8], part: Part) -> Result<Vec<CertificateDer<'static>>, BadPem> {
    let read: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| BadPem::new(part, format!("it is no PEM: {error}")))?;
    if read.is_empty() {
        return Err(BadPem::new(part, "there is no certificate in it (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(read)
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, BadPem> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        let why = match error {
            pem::Error::NoItemsFound => "there is no private key in it (-----BEGIN PRIVATE KEY-----)".to_owned(),
            other => format!("it is no PEM: {other}"),
        };
        BadPem::new(Part::Key, why)
    })
}

/// Which of the two does not fit, of a certificate and its key.
fn unfit(error: rustls::Error) -> BadPem {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            BadPem::new(Part::Key, "it is not the key of the certificate")
        }
        rustls::Error::InvalidCertificate(_) => BadPem::new(Part::Certificate, error.to_string()),
        other => BadPem::new(Part::Key, other.to_string()),
    }
}
