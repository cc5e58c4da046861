//! Which cluster a client uses: the one of the first server that answered it. At the same address another cluster may answer later,
//! and what the client holds or waits for is not there. Each request names the cluster, and each answer is compared.

use crate::security::Bearer;
use futures::future::BoxFuture;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tenure_api::v1::Failure;
use tenure_api::{CLUSTER_HEADER, Code, failure_status};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};
use tonic::transport::{Channel, Error};
use tower::Service;

/// The cluster that a client uses, once it is known; shared by all its connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownCluster(Arc<OnceLock<HeaderValue>>);

impl KnownCluster {
    /// Refuses an answer of another cluster than the first one. A server that does not name its cluster is an older one, or in
    /// none yet.
    fn check(&self, headers: &HeaderMap) -> Result<(), Status> {
        let Some(theirs) = headers.get(CLUSTER_HEADER) else { return Ok(()) };
        let ours = self.0.get_or_init(|| theirs.clone());
        if ours == theirs {
            return Ok(());
        }
        let text = |name: &HeaderValue| String::from_utf8_lossy(name.as_bytes()).escape_default().to_string();
        let (ours, theirs) = (text(ours), text(theirs));
        let message = format!("this server belongs to cluster {theirs}, and the client has been using cluster {ours}");
        Err(failure_status(&Failure { code: Code::OtherCluster.text().into(), message, ..Failure::default() }))
    }
}

/// A connection to a server. Every call shows the API key and names the cluster.
#[derive(Clone)]
pub(crate) struct Connection {
    channel: Channel,
    bearer: Bearer,
    cluster: KnownCluster,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn new(channel: Channel, bearer: Bearer, cluster: KnownCluster) -> Self {
        Self { channel, bearer, cluster }
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Response<Body>, Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        self.bearer.show(request.headers_mut());
        if let Some(cluster) = self.cluster.0.get() {
            request.headers_mut().insert(CLUSTER_HEADER, cluster.clone());
        }
        let (answer, cluster) = (self.channel.call(request), self.cluster.clone());
        Box::pin(async move {
            let answer = answer.await?;
            Ok(match cluster.check(answer.headers()) {
                Ok(()) => answer,
                Err(status) => status.into_http(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_api::read_status;

    fn headers(cluster: Option<&'static str>) -> HeaderMap {
        let named = cluster.map(|cluster| (CLUSTER_HEADER.parse().unwrap(), HeaderValue::from_static(cluster)));
        named.into_iter().collect()
    }

    #[test]
    fn first_cluster_stays_and_another_is_refused() {
        let known = KnownCluster::default();
        known.check(&headers(None)).unwrap();
        known.check(&headers(Some("00000000000000aa"))).unwrap();
        known.check(&headers(Some("00000000000000aa"))).unwrap();
        known.check(&headers(None)).unwrap();
        let refused = read_status(&known.check(&headers(Some("00000000000000bb"))).unwrap_err()).unwrap();
        assert_eq!(refused.code, Code::OtherCluster.text());
        assert!(
            refused
                .message
                .contains("cluster 00000000000000bb, and the client has been using cluster 00000000000000aa")
        );
    }
}
