//! What keeps a web page in somebody's browser from using a server on the same machine: on loopback the Host must be
//! this machine or a name that was configured, a foreign Origin is refused, and CORS is off.

use super::problem::Problem;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;
use std::sync::Arc;
use tenure_api::Code;

/// Whose requests are answered.
#[derive(Clone)]
pub(crate) struct Guard {
    hosts: Arc<[String]>,
    is_local: bool,
}

impl Guard {
    /// Answers requests to this machine and to `hosts`; beyond loopback to any host, unless some are named.
    pub(crate) fn new(hosts: &[String], is_local: bool) -> Self {
        let hosts = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Self { hosts, is_local }
    }

    fn knows(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        is_loopback(&host) || self.hosts.contains(&host) || (!self.is_local && self.hosts.is_empty())
    }
}

pub(super) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Result<Response, Problem> {
    let host = host(&request);
    if !host.as_deref().is_some_and(|host| guard.knows(host)) {
        let detail = format!(
            "the Host {:?} is not known here; nothing was changed; use 127.0.0.1, or start the server with --host",
            host.unwrap_or_default()
        );
        return Err(Problem::new(Code::BadHost, detail));
    }
    let origins = request.headers().get_all(header::ORIGIN).iter().map(text);
    if let Some(origin) = origins.into_iter().find(|origin| !is_own(origin, host.as_deref())) {
        let detail = format!("the Origin {origin:?} is a page of another host; nothing was changed");
        return Err(Problem::new(Code::BadOrigin, detail));
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Whether a page of this origin may ask: one of this machine, or one that was loaded from the host that is asked.
fn is_own(origin: &str, host: Option<&str>) -> bool {
    let origin = origin.parse::<Uri>().ok().filter(|origin| origin.scheme().is_some());
    let origin = origin.and_then(|origin| origin.host().map(str::to_ascii_lowercase));
    origin.is_some_and(|origin| is_loopback(&origin) || host.is_some_and(|host| host.eq_ignore_ascii_case(&origin)))
}

/// The host of a request, without its port: HTTP/2 has it in the address, HTTP/1 in a header.
fn host(request: &Request) -> Option<String> {
    let mut said = request.headers().get_all(header::HOST).iter().map(text);
    let named = request.uri().authority().map(ToString::to_string).or_else(|| said.next());
    // Two hosts, or a user before the host, are somebody's attempt to be read in two ways.
    let named = named.filter(|name| said.next().is_none() && !name.contains('@'))?;
    named.parse::<Authority>().ok().map(|authority| authority.host().to_owned())
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_loopback_only_this_machine_and_named_hosts_are_known() {
        let guard = Guard::new(&["Leases.example".into()], true);
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "[::1]", "leases.example"] {
            assert!(guard.knows(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0"] {
            assert!(!guard.knows(host), "{host}");
        }
    }

    #[test]
    fn beyond_loopback_any_host_is_known_unless_some_are_named() {
        assert!(Guard::new(&[], false).knows("leases.example"));
        let guard = Guard::new(&["leases.example".into()], false);
        assert!(guard.knows("leases.example") && !guard.knows("evil.example"));
    }

    #[test]
    fn a_page_of_another_host_is_foreign() {
        for origin in ["http://localhost:3000", "http://127.0.0.1", "https://leases.example"] {
            assert!(is_own(origin, Some("leases.example")), "{origin}");
        }
        for origin in ["null", "", "localhost", "http://evil.example", "http://localhost.evil.example", "file://"] {
            assert!(!is_own(origin, Some("leases.example")), "{origin}");
        }
    }
}
