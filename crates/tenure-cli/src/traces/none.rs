//! A build without OTLP: there are no traces, and a setting that asks for them is refused at the start.

use crate::failure::Failure;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Identity;

/// Traces under way to a collector: there are none.
#[derive(Debug)]
pub(crate) enum Traces {}

impl Traces {
    pub(crate) fn open(endpoint: &str, _: f64) -> Result<Self, Failure> {
        super::check_endpoint(endpoint)?;
        Err(Failure::usage("cannot serve", "this build of tenure cannot send traces", super::NEXT))
    }

    pub(crate) fn layer<S: tracing::Subscriber>(&self) -> impl Layer<S> + Send + Sync + use<S> {
        Identity::new()
    }

    pub(crate) async fn close(self) {}
}
