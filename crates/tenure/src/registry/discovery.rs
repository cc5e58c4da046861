//! Asking which instances of a service are there.

use super::set::{Anchor, Found};
use super::view::{self, View};
use crate::client::Client;
use crate::error::Error;
use crate::v1;

/// Asks which instances of a service are there: once, or for a view that is kept.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until `view` or `list`"]
pub struct Discovery {
    pub(super) client: Client,
    pub(super) request: v1::WatchInstancesRequest,
    pub(super) near: String,
    pub(super) keeps_last_good: bool,
}

impl Discovery {
    pub(crate) fn new(client: Client, request: v1::WatchInstancesRequest) -> Self {
        Self { client, request, near: String::new(), keeps_last_good: false }
    }

    /// Only with these capabilities: words with `&`, `|`, `!` and parentheses; a comma is an `&`.
    pub fn capabilities(mut self, expression: impl Into<String>) -> Self {
        self.request.capabilities = expression.into();
        self
    }

    /// Only with this label, and with every other that is named.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.labels.insert(key.into(), value.into());
        self
    }

    /// Only in this zone.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.request.zone = zone.into();
        self
    }

    /// Also those that new work is not for: critical, unknown, draining. They are never picked.
    pub fn all(mut self) -> Self {
        self.request.all = true;
        self
    }

    /// Those in this zone are picked before others.
    pub fn near(mut self, zone: impl Into<String>) -> Self {
        self.near = zone.into();
        self
    }

    /// When the server says that none is left, the view goes on with the last that were there, until the time of each is
    /// over. For those who would rather call somebody who may be gone than nobody.
    pub fn keep_last_good(mut self) -> Self {
        self.keeps_last_good = true;
        self
    }

    /// Those that are there now.
    pub async fn list(self) -> Result<Vec<Found>, Error> {
        let clock = self.client.clock();
        let mut request = v1::DiscoverRequest {
            service: self.request.service,
            service_prefix: self.request.service_prefix,
            capabilities: self.request.capabilities,
            labels: self.request.labels,
            zone: self.request.zone,
            all: self.request.all,
            ..v1::DiscoverRequest::default()
        };
        let mut all = Vec::new();
        loop {
            let asked = clock.now();
            let page = self.client.discover_page(request.clone()).await?;
            let anchor = Anchor { asked, service_ms: page.now_ms };
            all.extend(page.items.into_iter().map(|instance| Found::new(instance, page.now_ms, anchor)));
            if page.next.is_empty() {
                return Ok(all);
            }
            request.from = page.next;
        }
    }

    /// Asks for the service time, and says when it was asked. Any instance will do, and none.
    pub(super) async fn ask_time(self) -> Result<Anchor, Error> {
        let request = v1::DiscoverRequest {
            service: self.request.service,
            service_prefix: self.request.service_prefix,
            all: true,
            limit: 1,
            ..v1::DiscoverRequest::default()
        };
        let asked = self.client.clock().now();
        let page = self.client.discover_page(request).await?;
        Ok(Anchor { asked, service_ms: page.now_ms })
    }

    /// A view that is kept: it comes when all that is there is known, and is kept for as long as it lives.
    pub async fn view(self) -> Result<View, Error> {
        view::open(self).await
    }
}
