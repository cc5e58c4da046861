//! Answers that end when the key of the request is revoked: a stream may stay open for days, and must not outlive its key.

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::Response;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use tenure_api::failure_status;
use tenure_api::v1::Failure;

/// Ends the answer when the rights are revoked that its request was let in with. An answer whose length is known is on its way
/// already.
pub(super) fn revocable(
    response: Response,
    revoked: Option<impl Future<Output = Failure> + Send + 'static>,
    is_grpc: bool,
) -> Response {
    let is_whole = response.body().size_hint().exact().is_some();
    match revoked {
        Some(revoked) if !is_whole => {
            response.map(|body| Body::new(Revocable { body, revoked: revoked.boxed(), is_grpc, is_over: false }))
        }
        _ => response,
    }
}

struct Revocable {
    body: Body,
    revoked: BoxFuture<'static, Failure>,
    is_grpc: bool,
    is_over: bool,
}

impl HttpBody for Revocable {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        match self.revoked.poll_unpin(context) {
            Poll::Pending => Pin::new(&mut self.body).poll_frame(context),
            Poll::Ready(failure) => {
                self.is_over = true;
                // Other answers have no place for a reason: they end, and the next request is refused in words.
                let last = self.is_grpc.then(|| Ok(Frame::trailers(trailers(&failure))));
                Poll::Ready(last)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn trailers(failure: &Failure) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // A failure without a reason is one all the same, and its words are plain text.
    let _ = failure_status(failure).add_header(&mut trailers);
    trailers
}
