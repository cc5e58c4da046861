//! Where an instance can be reached. Nothing here looks a name up.

use crate::limits::{HOST_BYTES_MAX, SCHEME_BYTES_MAX};
use alloc::string::ToString;
use alloc::sync::Arc;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU16;

/// Where an instance can be reached: `http://10.0.0.7:8080`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    scheme: Arc<str>,
    host: Arc<str>,
    port: NonZeroU16,
}

impl Endpoint {
    /// Reads `SCHEME://HOST:PORT`, or says why it is no endpoint. Upper case becomes lower case, and an address is kept
    /// in its shortest form, so that equal endpoints are equal.
    pub fn parse(text: &str) -> Result<Self, BadEndpoint> {
        let (scheme, rest) = text.split_once("://").ok_or(BadEndpoint::NoScheme)?;
        if let Some(at) = rest.find(['@', '/', '?', '#', '\\']) {
            return Err(BadEndpoint::TooMuch { at: scheme.len() + 3 + at });
        }
        let (host, port) = rest.rsplit_once(':').ok_or(BadEndpoint::NoPort)?;
        // `[::1]` alone ends with a bracket, and what follows its last colon is no port.
        if port.ends_with(']') {
            return Err(BadEndpoint::NoPort);
        }
        Ok(Self { scheme: scheme_of(scheme)?, host: host_of(host)?, port: port_of(port)? })
    }

    /// Its scheme, such as `http`.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Its host: a name, or an address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.port.get()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.scheme.len() + self.host.len() + 2
    }
}

fn scheme_of(text: &str) -> Result<Arc<str>, BadEndpoint> {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let fits = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    if begins && fits && text.len() <= SCHEME_BYTES_MAX {
        return Ok(text.to_ascii_lowercase().into());
    }
    Err(BadEndpoint::Scheme)
}

fn host_of(text: &str) -> Result<Arc<str>, BadEndpoint> {
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| BadEndpoint::Host)?;
        return Ok(address.to_string().into());
    }
    let is_label = |label: &str| {
        let fits = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        !label.is_empty() && label.len() <= 63 && fits && !label.starts_with('-') && !label.ends_with('-')
    };
    if text.len() > HOST_BYTES_MAX || !text.split('.').all(is_label) {
        return Err(BadEndpoint::Host);
    }
    // What ends in a number is an address. Programs disagree on those that are written in other ways, so that the one
    // that is checked would not be the one that is reached.
    let last = text.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let hex = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    if (hex || last.bytes().all(|b| b.is_ascii_digit())) && text.parse::<Ipv4Addr>().is_err() {
        return Err(BadEndpoint::Host);
    }
    Ok(text.to_ascii_lowercase().into())
}

fn port_of(text: &str) -> Result<NonZeroU16, BadEndpoint> {
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if text.is_empty() {
        return Err(BadEndpoint::NoPort);
    }
    text.parse().ok().filter(|_| is_plain).ok_or(BadEndpoint::Port)
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, port } = self;
        if host.contains(':') { write!(f, "{scheme}://[{host}]:{port}") } else { write!(f, "{scheme}://{host}:{port}") }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text cannot be an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// There is no `://`.
    #[error("it has no scheme: an endpoint reads http://10.0.0.7:8080")]
    NoScheme,
    /// What stands before `://` is no scheme.
    #[error("its scheme is none: a letter, then letters, digits, `+`, `-` and `.`, at most {SCHEME_BYTES_MAX}")]
    Scheme,
    /// The host is neither a name nor an address.
    #[error("its host is neither a name nor an address (IPv4 as 10.0.0.7, IPv6 as [::1])")]
    Host,
    /// There is no port.
    #[error("it has no port: write it even if it is the usual one")]
    NoPort,
    /// The port is none.
    #[error("its port is not a whole number from 1 to 65535")]
    Port,
    /// It has a user, a path, a query or a fragment.
    #[error("it has more than scheme, host and port, from byte {at} on")]
    TooMuch {
        /// Where that begins.
        at: usize,
    },
}
