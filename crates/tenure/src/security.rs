//! What a client believes and what it shows: the authority of the servers' certificates, and its own API key. The key is
//! never printed.

use crate::cluster::KnownCluster;
use crate::error::Error;
use std::error::Error as Cause;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{self, CertificateError};
use tonic::codegen::http::{HeaderMap, HeaderValue, header};
use tonic::transport::{Certificate, ClientTlsConfig};

/// The variable of the environment that names a file with the authorities of the servers' certificates.
pub const CA_FILE_VARIABLE: &str = "TENURE_CA_FILE";

/// The variables of the environment that have an API key, or name the file that it is in.
pub const API_KEY_VARIABLE: &str = "TENURE_API_KEY";
/// See [`API_KEY_VARIABLE`].
pub const API_KEY_FILE_VARIABLE: &str = "TENURE_API_KEY_FILE";

/// What was said, before it is looked at.
#[derive(Clone, Default)]
pub(crate) struct Said {
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) api_key: Option<String>,
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (authority, api_key) = (self.authority.is_some(), self.api_key.is_some());
        f.debug_struct("Said").field("authority", &authority).field("api_key", &api_key).finish()
    }
}

impl Said {
    /// What the environment says, unless it was said otherwise.
    pub(crate) fn or_environment(self) -> Result<Self, Error> {
        let authority = match (self.authority, file(CA_FILE_VARIABLE)) {
            (None, Some(path)) => Some(read(CA_FILE_VARIABLE, &path)?),
            (said, _) => said,
        };
        let said = self.api_key.or_else(|| std::env::var(API_KEY_VARIABLE).ok().filter(|key| !key.is_empty()));
        let api_key = match (said, file(API_KEY_FILE_VARIABLE)) {
            (None, Some(path)) => {
                let text = String::from_utf8(read(API_KEY_FILE_VARIABLE, &path)?);
                Some(text.map_err(|_| Error::Local(format!("{} is no text", path.display())))?)
            }
            (said, _) => said,
        };
        Ok(Self { authority, api_key })
    }

    /// The same, if it can be used.
    pub(crate) fn check(self) -> Result<Security, Error> {
        let authority = self.authority.map(|pem| {
            let has_certificates = CertificateDer::pem_slice_iter(&pem).next().is_some_and(|first| first.is_ok());
            let none = || Error::Local("the file of the authority (TENURE_CA_FILE) has no certificate in it".into());
            has_certificates.then(|| Arc::new(Certificate::from_pem(pem))).ok_or_else(none)
        });
        let bearer = self.api_key.map(|key| format!("Bearer {}", key.trim()).parse::<HeaderValue>());
        let mut bearer = bearer.transpose().map_err(|_| Error::Local("the API key is no API key".into()))?;
        bearer.iter_mut().for_each(|key| key.set_sensitive(true));
        Ok(Security { authority: authority.transpose()?, bearer: Bearer(bearer), cluster: KnownCluster::default() })
    }
}

fn file(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn read(variable: &str, path: &PathBuf) -> Result<Vec<u8>, Error> {
    let cannot = |error| Error::Local(format!("cannot read {} ({variable}): {error}", path.display()));
    std::fs::read(path).map_err(cannot)
}

/// What a client believes and shows. Clones are cheap.
#[derive(Clone, Default)]
pub(crate) struct Security {
    authority: Option<Arc<Certificate>>,
    pub(crate) bearer: Bearer,
    pub(crate) cluster: KnownCluster,
}

impl Security {
    /// Believes the authority that was named; without one, those of the system.
    pub(crate) fn tls(&self) -> ClientTlsConfig {
        match &self.authority {
            Some(authority) => ClientTlsConfig::new().ca_certificate(Certificate::clone(authority)),
            None => ClientTlsConfig::new().with_native_roots(),
        }
    }
}

/// Shows an API key with every call.
#[derive(Clone, Default)]
pub(crate) struct Bearer(Option<HeaderValue>);

impl Bearer {
    /// Whether there is a key to send.
    pub(crate) fn has_key(&self) -> bool {
        self.0.is_some()
    }

    /// Shows the key with a request.
    pub(crate) fn show(&self, headers: &mut HeaderMap) {
        if let Some(key) = &self.0 {
            headers.insert(header::AUTHORIZATION, key.clone());
        }
    }
}

/// Why a connection could not be secured, in words; none if that is not what failed.
pub(crate) fn unsecured(error: &(dyn Cause + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if let Some(found) = io.and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref()) {
            return Some(words(found));
        }
        if io.is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof) {
            return Some("it hung up when TLS was to begin; if it does not speak TLS, write http://".into());
        }
        cause = error.source();
    }
    None
}

fn words(error: &rustls::Error) -> String {
    use CertificateError as Bad;
    match error {
        rustls::Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "its certificate is of an authority that is not believed here; name the right one with TENURE_CA_FILE"
                .into()
        }
        rustls::Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "its certificate has expired; it needs a new one".into()
        }
        rustls::Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "its certificate is not valid yet; look at the clocks".into()
        }
        rustls::Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "its certificate is for another name; use a name that is in it".into()
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS; write http://, or start it with --tls-cert".into(),
        other => format!("TLS failed: {other}"),
    }
}
