//! Certificates: what this node shows to whoever connects, and whom it believes. It reads no files, and never falls back to
//! speaking in the clear.

use crate::limits::{FIRST_WORD_PATIENCE, PEER_CONNECT_TIMEOUT};
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, InconsistentKeys, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

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

/// How a listener speaks TLS.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Shows a certificate to whoever connects, and asks for none.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Self, BadPem> {
        let config = builder(Part::Certificate)?.with_no_client_auth();
        let (chain, key) = (chain(certificate)?, private_key(key)?);
        Self::of(config.with_single_cert(chain, key).map_err(unfit)?)
    }

    fn of(mut config: ServerConfig) -> Result<Self, BadPem> {
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Shakes hands with whoever has connected, and waits for that no longer than for anybody's first word.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        let shaken = tokio::time::timeout(FIRST_WORD_PATIENCE, self.acceptor.accept(stream));
        shaken.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// How peers speak with each other: both sides show a certificate of the cluster's own authority.
#[derive(Clone, Debug)]
pub struct PeerTls {
    pub(crate) listening: Tls,
    pub(crate) asking: ClientTlsConfig,
}

impl PeerTls {
    /// Believes this authority and no other.
    pub fn new(authority: &[u8], certificate: &[u8], key: &[u8]) -> Result<Self, BadPem> {
        let mut roots = RootCertStore::empty();
        for root in certificates(authority, Part::Authority)? {
            roots.add(root).map_err(|error| BadPem::new(Part::Authority, error.to_string()))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
        let verifier = verifier.build().map_err(|error| BadPem::new(Part::Authority, error.to_string()))?;
        let config = builder(Part::Certificate)?.with_client_cert_verifier(verifier);
        let listening = Tls::of(config.with_single_cert(chain(certificate)?, private_key(key)?).map_err(unfit)?)?;
        let asking = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority))
            .identity(Identity::from_pem(certificate, key))
            .timeout(PEER_CONNECT_TIMEOUT);
        Ok(Self { listening, asking })
    }
}

/// What encrypts. Named, so that no other crate decides it by being there.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

type Verifying = rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>;

fn builder(part: Part) -> Result<Verifying, BadPem> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    builder.map_err(|error| BadPem::new(part, error.to_string()))
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
