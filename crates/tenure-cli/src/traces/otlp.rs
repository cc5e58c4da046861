//! Sends the server's spans, and nothing else, to a collector. A request never waits for that: spans that the collector does
//! not accept in time are dropped.

use super::NEXT;
use crate::failure::Failure;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{RetryPolicy, SpanExporter as Otlp, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenure_server::TRACE_TARGET;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

/// A stop waits so long for the last spans to be taken.
const FLUSH_PATIENCE: Duration = Duration::from_secs(3);

/// Traces under way to a collector.
#[derive(Debug)]
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    is_lost: Arc<AtomicBool>,
}

impl Traces {
    /// Starts to send, within a runtime. Nobody looks yet whether the collector is there.
    pub(crate) fn open(endpoint: &str, ratio: f64) -> Result<Self, Failure> {
        // Traces that are late would wait in the way of newer ones.
        let otlp = Otlp::builder().with_tonic().with_endpoint(endpoint).with_retry_policy(RetryPolicy::disabled());
        let otlp = otlp.build();
        let otlp = otlp.map_err(|error| Failure::usage("cannot serve", &error.to_string(), NEXT))?;
        let is_lost = Arc::new(AtomicBool::new(false));
        let exporter = Watched { otlp, endpoint: endpoint.into(), is_lost: is_lost.clone() };
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder().with_service_name("tenure").with_attribute(version).build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))))
            .with_resource(resource)
            .build();
        global::set_text_map_propagator(TraceContextPropagator::new());
        Ok(Self { provider, is_lost })
    }

    /// What takes the spans: those of requests alone, so that what the sending itself does is not traced again.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: tracing::Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let layer = tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("tenure"))
            .with_context_activation(false)
            .with_location(false)
            .with_target(false)
            .with_threads(false)
            .with_tracked_inactivity(false);
        layer.with_filter(Targets::new().with_target(TRACE_TARGET, LevelFilter::INFO))
    }

    /// Sends what is left, and gives up after a moment.
    pub(crate) async fn close(self) {
        let closing = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(FLUSH_PATIENCE));
        let is_closed = closing.await.is_ok_and(|closed| closed.is_ok());
        // A collector that is lost was told of already, and what still becomes of the sending need not be told.
        if !is_closed && !self.is_lost.swap(true, Ordering::Relaxed) {
            tracing::warn!("the collector did not take the last traces in time: they are dropped");
        }
    }
}

/// An exporter that says once that its collector is lost, and once that it is back.
#[derive(Debug)]
struct Watched {
    otlp: Otlp,
    endpoint: String,
    is_lost: Arc<AtomicBool>,
}

impl SpanExporter for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let sent = self.otlp.export(batch).await;
        let was_lost = self.is_lost.swap(sent.is_err(), Ordering::Relaxed);
        let endpoint = &self.endpoint;
        match &sent {
            Err(error) if !was_lost => {
                tracing::warn!(endpoint, %error, "traces cannot be sent and are dropped; leases do not depend on them");
            }
            Ok(()) if was_lost => tracing::info!(endpoint, "traces are sent again"),
            _ => {}
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}
