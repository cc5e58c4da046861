//! Asking for an instance to be listed.

use super::life::{Life, Registration, Said};
use super::minder;
use crate::client::Client;
use crate::error::Error;
use crate::keeper::{Orders, Patience, Quest, Waiting, Want};
use crate::terms::Terms;
use crate::v1;
use std::time::Duration;
use tenure_api::Code;

/// The class of the leases that are made for instances.
const CLASS: &str = "registration";

/// Who did not say how often it has started learns at most so often what others have said.
const EPOCHS_TRIED_MAX: u32 = 3;

/// A check that the instance tells by itself, with [`Registration::status`].
pub fn pushed(name: impl Into<String>) -> v1::Check {
    v1::Check { name: name.into(), kind: v1::CheckKind::Pushed.into(), ..v1::Check::default() }
}

/// Asks for an instance of a service to be listed.
#[derive(Clone, Debug)]
#[must_use = "nothing is listed until `begin`"]
pub struct RegisterAsk {
    client: Client,
    service: String,
    id: Option<String>,
    epoch: Option<u64>,
    /// The lease that it hangs on; none for one of its own, on these terms.
    on: Option<u64>,
    terms: Terms,
    details: v1::Details,
}

impl RegisterAsk {
    pub(crate) fn new(client: Client, service: String) -> Self {
        let terms = Terms { class: CLASS.into(), ..Terms::default() };
        Self { client, service, id: None, epoch: None, on: None, terms, details: v1::Details::default() }
    }

    /// What it is called within the service; else `host-pid-` and something drawn.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Where it can be reached, as `http://10.0.0.7:8080`. Several may be said; the first is the one that most use.
    pub fn endpoint(mut self, url: impl Into<String>) -> Self {
        self.details.endpoints.push(url.into());
        self
    }

    /// Something that it can do.
    pub fn capability(mut self, word: impl Into<String>) -> Self {
        self.details.capabilities.push(word.into());
        self
    }

    /// Something else to find it by.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.details.labels.insert(key.into(), value.into());
        self
    }

    /// Where it is. Instances of one service in one zone are likely to fall silent together.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.details.zone = zone.into();
        self
    }

    /// How much it can take, beside the others; 1 unless said, and 0 takes nothing.
    pub fn weight(mut self, weight: u32) -> Self {
        self.details.weight = Some(weight);
        self
    }

    /// Which version it is.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.details.version = version.into();
        self
    }

    /// A check: one that it tells by itself ([`pushed`]), or one that the server does.
    pub fn check(mut self, check: v1::Check) -> Self {
        self.details.checks.push(check);
        self
    }

    /// If it is critical for so long, its lease ends, and with it all that hangs on it.
    pub fn revoke_when_critical_for(mut self, span: Duration) -> Self {
        self.details.on_critical = v1::OnCritical::Revoke.into();
        self.details.revoke_after_ms = crate::terms::millis(span).max(1);
        self
    }

    /// What becomes of it when it is critical, in the words of the treaty.
    pub fn on_critical(mut self, (what, revoke_after_ms): (v1::OnCritical, i64)) -> Self {
        (self.details.on_critical, self.details.revoke_after_ms) = (what.into(), revoke_after_ms);
        self
    }

    /// Its checks are shown, and do not decide whether it gets work.
    pub fn only_observe(mut self) -> Self {
        self.details.on_critical = v1::OnCritical::Observe.into();
        self
    }

    /// How long it stays listed after its last sign of life; 15 s unless said.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.terms.ttl = Some(ttl);
        self
    }

    /// For whom it is listed; else `user@host:pid`.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.terms.holder = Some(holder.into());
        self
    }

    /// How often it has started, by its own count: it takes the place of one with the same id and a lower one. Without
    /// this, somebody who has the id already is not moved.
    pub fn epoch(mut self, epoch: u64) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// On a lease that a guard of this client keeps, such as one that holds claims and keys: they end together. Then it
    /// does not come back by itself, because that lease does not.
    pub fn on(mut self, lease: u64) -> Self {
        self.on = Some(lease);
        self
    }

    /// Has it listed, and keeps it so while the guard lives.
    pub async fn begin(self) -> Result<Registration, Error> {
        if self.on.is_some() && (self.terms.ttl.is_some() || self.terms.holder.is_some()) {
            let why = "an instance on a lease has the terms of that lease: say ttl and holder where it begins";
            return Err(Error::Local(why.into()));
        }
        let orders = self.client.orders()?;
        let id = self.id.clone().unwrap_or_else(draw_id);
        let mut epoch = self.epoch.unwrap_or(1);
        let mut tried = 0;
        let life = loop {
            tried += 1;
            let request = self.request(&id, epoch);
            match enlist(&orders, request).await {
                // Another one of this id counted further, and has ended: the count goes on from there. If it lives, the next
                // answer says so.
                Err(Error::Refused(failure))
                    if self.epoch.is_none()
                        && tried < EPOCHS_TRIED_MAX
                        && tenure_api::code_of(&failure) == Some(Code::OlderEpoch) =>
                {
                    epoch = failure.epoch;
                }
                other => break other?,
            }
        };
        let said = Said::new(self.service, id, self.on.is_some(), self.terms, self.details);
        Ok(minder::start(self.client, &orders, said, life))
    }

    fn request(&self, id: &str, epoch: u64) -> v1::RegisterRequest {
        v1::RegisterRequest {
            service: self.service.clone(),
            id: id.into(),
            epoch,
            grant: self.on.is_none().then(|| self.terms.request(self.client.holder(), self.client.chance())),
            lease: self.on.unwrap_or_default(),
            details: Some(self.details.clone()),
            ..v1::RegisterRequest::default()
        }
    }
}

/// Has the keeper register an instance, which it then keeps.
pub(super) async fn enlist(orders: &Orders, request: v1::RegisterRequest) -> Result<Life, Error> {
    let epoch = request.epoch;
    let quest = Quest { want: Want::Instance(request), gate: None, patience: Patience::Answer, place: None };
    let got = Waiting::start(orders, quest).outcome().await?;
    Ok(Life { lease: got.lease, epoch, ttl: got.ttl, fate: got.fate, what: got.what })
}

/// An id that nobody else has, and that tells people whose it is.
fn draw_id() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let fits = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let host: String = host.chars().map(fits).take(64).collect();
    let host = host.trim_start_matches(['.', '_', '-']);
    let host = if host.is_empty() { "host" } else { host };
    format!("{host}-{}-{:04x}", std::process::id(), rand::random::<u16>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_id_is_a_word() {
        let id = draw_id();
        assert!(tenure_api::read_instance("service", &id).is_ok(), "{id}");
        assert!(id.contains(&std::process::id().to_string()), "{id}");
    }
}
