//! In front of all doors: authentication, and whether the role of the key allows the call, by the tables of `access/calls.rs`.
//! A client that names another cluster than this one is refused, too.

use super::revocable::revocable;
use super::{etcd, http};
use crate::access::audit;
use crate::access::{Access, Caller, Counts, Need, Rule, WatchRoom, of_grpc, of_http};
use crate::listen::Peer;
use crate::metrics::{Call, Door};
use crate::node::Node;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use tenure_api::v1::Failure;
use tenure_api::{CLUSTER_HEADER, Code, failure_status};

/// Looks at whoever asks.
#[derive(Clone)]
pub(crate) struct Entrance {
    access: Access,
    node: Node,
}

impl Entrance {
    pub(crate) fn new(access: Access, node: Node) -> Self {
        Self { access, node }
    }

    /// What a request shows, and what it needs; or the answer to one that may not ask, in the words of its protocol.
    pub(super) fn admit(&self, request: &Request, door: Door) -> Result<Ticket, Response> {
        let (path, headers) = (request.uri().path(), request.headers());
        let is_etcd = etcd::is_etcd(door, path);
        let (rule, shown) = match door {
            _ if is_etcd => (etcd::rule(door, path), etcd::token(headers)),
            Door::Http => (of_http(request.method(), path), shown(headers)),
            Door::Etcd | Door::Grpc | Door::Stream => (of_grpc(path), shown(headers)),
        };
        let peer = request.extensions().get::<Peer>();
        let admitted = self.access.admit(shown, rule, peer.and_then(Peer::ip));
        let admitted = admitted.and_then(|caller| self.count(caller, rule));
        let failure = match (admitted, self.other_cluster(headers)) {
            (Ok((caller, room)), None) => {
                if rule.need != Need::Nothing {
                    peer.iter().for_each(|peer| peer.is_known());
                }
                return Ok(Ticket { rule, caller, room });
            }
            (Ok(_), Some(failure)) | (Err(failure), _) => failure,
        };
        tracing::debug!(path, code = failure.code, "a request was refused");
        if failure.code == Code::Denied.text() && rule.need != Need::Read {
            let who = self.access.who(shown, peer.and_then(Peer::ip));
            audit::refused(self.node.wall_ms(), &who, path, &failure.code);
        }
        self.node.metrics().asked(door, Call::Other).answered(&failure.code);
        Err(match door {
            _ if is_etcd => etcd::refusal(door, headers, &failure),
            Door::Http => http::refused(failure),
            Door::Etcd | Door::Grpc | Door::Stream => failure_status(&failure).into_http::<Body>(),
        })
    }

    /// Counts a request against the limits of its key.
    fn count(&self, caller: Caller, rule: Rule) -> Result<(Caller, WatchRoom), Failure> {
        if rule.counts != Counts::Nothing {
            caller.take_request(self.node.monotonic())?;
        }
        let room = if rule.counts == Counts::Watch { caller.take_watcher()? } else { WatchRoom::default() };
        Ok((caller, room))
    }

    /// The refusal of a client that has been using another cluster. One that names none is answered by any.
    fn other_cluster(&self, headers: &HeaderMap) -> Option<Failure> {
        let meant = headers.get(CLUSTER_HEADER)?.as_bytes();
        let ours = self.node.identity().cluster;
        if ours == 0 || meant == cluster_text(ours).as_bytes() {
            return None;
        }
        let code = Code::OtherCluster.text().into();
        let message = format!(
            "this server belongs to cluster {}, and the client has been using cluster {}; nothing was changed",
            cluster_text(ours),
            String::from_utf8_lossy(meant).escape_default()
        );
        Some(Failure { code, message, ..Failure::default() })
    }

    /// Names the cluster in an answer, so that the client notices another one at the same address.
    pub(super) fn name_cluster(&self, response: &mut Response) {
        let ours = self.node.identity().cluster;
        if ours != 0
            && let Ok(name) = HeaderValue::from_str(&cluster_text(ours))
        {
            response.headers_mut().insert(CLUSTER_HEADER, name);
        }
    }

    /// Ends an answer that takes long when the key of its request is revoked.
    pub(super) fn follow(&self, ticket: Ticket, door: Door, response: Response) -> Response {
        let Ticket { rule, caller, room } = ticket;
        let revoked = self.access.revoked(&caller, rule).map(|revoked| async move {
            let failure = revoked.await;
            // A watch counts until its answer is over.
            drop(room);
            failure
        });
        revocable(response, revoked, door != Door::Http)
    }
}

/// Who makes a request that was let in, and what it needs.
pub(super) struct Ticket {
    rule: Rule,
    pub(super) caller: Caller,
    room: WatchRoom,
}

impl Ticket {
    pub(super) const fn need(&self) -> Need {
        self.rule.need
    }
}

/// A cluster as clients and people see it.
fn cluster_text(cluster: u64) -> String {
    format!("{cluster:016x}")
}

/// The secret that is shown. Whoever shows two shows none.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let mut said = headers.get_all(header::AUTHORIZATION).iter();
    let (scheme, secret) = said.next()?.as_bytes().split_at_checked("Bearer ".len())?;
    (said.next().is_none() && scheme.eq_ignore_ascii_case(b"Bearer ")).then_some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn one_secret_is_shown_or_none() {
        let shown_by = |said: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for said in said {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(said));
            }
            shown(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(shown_by(&["Bearer tnr_a"]), Some(b"tnr_a".to_vec()));
        assert_eq!(shown_by(&["bearer tnr_a"]), Some(b"tnr_a".to_vec()));
        for none in [&[][..], &["tnr_a"], &["Basic tnr_a"], &["Bearer"], &["Bearer tnr_a", "Bearer tnr_b"]] {
            assert_eq!(shown_by(none), None, "{none:?}");
        }
    }
}
