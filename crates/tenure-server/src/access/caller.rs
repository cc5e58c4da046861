//! Who makes a request: the API key that was shown, and from where. It compares names with the prefixes of the key; what the
//! key may end, the ledger decides.

use super::key::ApiKey;
use super::usage::WatchRoom;
use crate::shares::Client;
use axum::http::Extensions;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::Code;
use tenure_api::v1::Failure;
use tenure_core::{Actor, ApiKeyName, Command, Compare, Event, Key, Keys, Op, Txn};

/// Who makes a request. Without a key, the server asks for none, or makes the request itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    key: Option<Arc<ApiKey>>,
    actor: Option<Actor>,
    at: Option<IpAddr>,
}

impl Caller {
    pub(super) fn with(key: Arc<ApiKey>, at: Option<IpAddr>) -> Self {
        Self { actor: Some(key.actor()), key: Some(key), at }
    }

    /// A client from here, where no keys are asked for.
    pub(super) const fn from(at: Option<IpAddr>) -> Self {
        Self { key: None, actor: None, at }
    }

    /// Who was let in with a request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    pub(super) const fn key(&self) -> Option<&Arc<ApiKey>> {
        self.key.as_ref()
    }

    /// The name of the key.
    pub(crate) fn key_name(&self) -> Option<&ApiKeyName> {
        self.actor.as_ref().map(|actor| &actor.key)
    }

    /// Whose share its requests take from: the name of its key; without one, its address.
    pub(crate) fn client(&self) -> Client {
        match (self.key_name(), self.at) {
            (Some(key), _) => Client::named(key.as_str()),
            (None, Some(at)) => Client::named(&at.to_canonical().to_string()),
            (None, None) => Client::default(),
        }
    }

    /// From where the request came.
    pub(crate) const fn address(&self) -> Option<IpAddr> {
        self.at
    }

    /// A command, sent by this caller.
    pub(crate) fn sign(&self, command: Command) -> Command {
        match &self.actor {
            Some(actor) => command.sent_with(actor.clone()),
            None => command,
        }
    }

    /// Counts a request that neither keeps nor gives back, if the key has a limit of requests.
    pub(crate) fn take_request(&self, now: Duration) -> Result<(), Failure> {
        let Some(key) = &self.key else { return Ok(()) };
        let Some(limit) = key.rights.requests else { return Ok(()) };
        key.usage.take_request(limit, now).map_err(|after| {
            let name = &key.name;
            let message = format!(
                "the API key {name} may make {limit} requests a second, and has made them; nothing was changed; ask again a \
                 little later"
            );
            let retry_after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1);
            Failure { code: Code::Overloaded.text().into(), message, retry_after_ms, ..Failure::default() }
        })
    }

    /// Counts a watch until the room is dropped.
    pub(crate) fn take_watcher(&self) -> Result<WatchRoom, Failure> {
        let Some(key) = &self.key else { return Ok(WatchRoom::default()) };
        key.usage.take_watcher(key.rights.watchers).ok_or_else(|| {
            let (name, most) = (&key.name, key.rights.watchers.unwrap_or_default());
            let message =
                format!("the API key {name} may have {most} watches open on a node, and has them; nothing was changed");
            Failure { code: Code::TooMany.text().into(), message, max: most.into(), ..Failure::default() }
        })
    }

    fn prefixes(&self) -> &[String] {
        self.key.as_ref().map_or(&[], |key| &key.rights.prefixes)
    }

    /// Whether it may use the names under its prefixes only.
    pub(crate) fn is_limited(&self) -> bool {
        !self.prefixes().is_empty()
    }

    fn check(&self, is_inside: bool, what: &str, name: &str) -> Result<(), Failure> {
        if is_inside {
            return Ok(());
        }
        let key = self.key.as_ref().map_or("", |key| key.name.as_str());
        let under = self.prefixes().join(", ");
        Err(denied(&format!("the API key {key} may use names under {under} only, and {what} {name:?} is none of them")))
    }

    /// A refusal without what lies outside the prefixes: the holders around a circle may wait for other names.
    pub(crate) fn as_may_be_seen(&self, failure: Failure) -> Failure {
        if !self.is_limited() || failure.circle.is_empty() {
            return failure;
        }
        let message = "to wait for this would be a deadlock; nothing was changed".into();
        Failure { circle: Vec::new(), message, ..failure }
    }

    /// Whether it may use a resource by its name.
    pub(crate) fn may_use(&self, name: &str) -> Result<(), Failure> {
        let is_under = |prefix: &String| name.starts_with(prefix);
        self.check(!self.is_limited() || self.prefixes().iter().any(is_under), "the name", name)
    }

    /// Whether it may use a service by its name. Its instances are `SERVICE/ID`, so a prefix `a/b/` has the service `a/b` in it.
    pub(crate) fn may_use_service(&self, name: &str) -> Result<(), Failure> {
        let is_under = |prefix: &String| name.starts_with(prefix) || prefix.strip_suffix('/') == Some(name);
        self.check(!self.is_limited() || self.prefixes().iter().any(is_under), "the service", name)
    }

    /// Whether it may see an event: of a service outside its prefixes it sees none, also where `SERVICE/ID` begins like one inside.
    pub(crate) fn may_see(&self, event: &Event) -> bool {
        event.what.instance().is_none_or(|instance| self.may_use_service(instance.service.as_str()).is_ok())
    }

    /// Whether it may list or watch what begins so.
    pub(crate) fn may_list(&self, prefix: &str) -> Result<(), Failure> {
        let is_under = |own: &String| prefix.starts_with(own);
        self.check(!self.is_limited() || self.prefixes().iter().any(is_under), "the prefix", prefix)
    }

    /// Whether it may read or write all of these keys.
    pub(crate) fn may_use_keys(&self, keys: &Keys) -> Result<(), Failure> {
        let is_inside = |prefix: &String| {
            let prefix = prefix.as_bytes();
            match keys {
                Keys::One(key) => key.bytes().starts_with(prefix),
                Keys::Prefix(under) => under.starts_with(prefix),
                Keys::From { first, end } => first.starts_with(prefix) && is_before_end(end.as_deref(), prefix),
            }
        };
        if !self.is_limited() {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(keys.first()).into_owned();
        self.check(self.prefixes().iter().any(is_inside), "the key or range from", &shown)
    }

    pub(crate) fn may_use_key(&self, key: &Key) -> Result<(), Failure> {
        if self.is_limited() { self.may_use_keys(&Keys::One(key.clone())) } else { Ok(()) }
    }

    /// Whether it may look at a lease that was begun with this key. A lease shows all names that hang on it.
    pub(crate) fn may_see_lease(&self, owner: Option<&ApiKeyName>) -> Result<(), Failure> {
        match &self.key {
            Some(key) if self.is_limited() && owner != Some(&key.name) => {
                Err(denied(&format!("the API key {} has prefixes, and the lease was not begun with it", key.name)))
            }
            _ => Ok(()),
        }
    }

    /// Whether the key is still the one with which the caller was let in. A stream ends when it is not, but what has come before
    /// that may be read later.
    pub(crate) fn still_has_its_key(&self) -> Result<(), Failure> {
        let Some(key) = self.key.as_ref().filter(|key| key.is_retired()) else { return Ok(()) };
        let name = &key.name;
        let message =
            format!("the API key {name} was revoked, or its rights have changed; nothing was changed; connect again");
        Err(Failure { code: Code::Stopping.text().into(), message, ..Failure::default() })
    }

    /// Whether the caller may send a command: its key is valid, and all names that the command is about are inside the prefixes.
    /// Leases are the ledger's business. What gives back is not refused for a key that was revoked.
    pub(crate) fn may_order(&self, command: &Command) -> Result<(), Failure> {
        if !matches!(command, Command::Release(_) | Command::ReleaseLease(_) | Command::Cancel(_)) {
            self.still_has_its_key()?;
        }
        if !self.is_limited() {
            return Ok(());
        }
        match command {
            Command::Acquire(it) => it.wants.iter().try_for_each(|want| self.may_use(want.resource.as_str())),
            Command::RenewHandle(it) => self.may_use(it.handle.resource.as_str()),
            Command::Release(it) => self.may_use(it.handle.resource.as_str()),
            Command::Cancel(it) => it.resources.iter().try_for_each(|name| self.may_use(name.as_str())),
            Command::Break(it) => self.may_use(it.resource.as_str()),
            Command::Transfer(it) => self.may_use(it.handle.resource.as_str()),
            Command::Define(it) => self.may_use(it.resource.as_str()),
            Command::Put(it) => self.may_use_key(&it.key),
            Command::Delete(it) => self.may_use_keys(&it.keys),
            Command::Txn(it) => self.may_do(it),
            Command::Register(it) => self.may_use_service(it.instance.service.as_str()),
            Command::UpdateInstance(it) => self.may_use_service(it.instance.service.as_str()),
            Command::Drain(it) => self.may_use_service(it.instance.service.as_str()),
            Command::Deregister(it) => self.may_use_service(it.instance.service.as_str()),
            Command::SetHealth(it) => self.may_use_service(it.instance.service.as_str()),
            // The ledger looks whose leases they are, and refuses those that are about more.
            Command::Grant(_) | Command::Renew(_) | Command::ReleaseLease(_) | Command::Revoke(_) => Ok(()),
            Command::SetClass(_) | Command::Compact(_) | Command::Attributed(_) => Ok(()),
        }
    }

    /// Whether all keys of a transaction are inside, those that it compares and those of what it does not do included.
    pub(crate) fn may_do(&self, txn: &Txn) -> Result<(), Failure> {
        if !self.is_limited() {
            return Ok(());
        }
        txn.compares.iter().try_for_each(|Compare { keys, .. }| self.may_use_keys(keys))?;
        txn.then.iter().chain(&txn.otherwise).try_for_each(|op| match op {
            Op::Range(range) => self.may_use_keys(&range.keys),
            Op::Put { put, .. } => self.may_use_key(&put.key),
            Op::Delete { keys, .. } => self.may_use_keys(keys),
            Op::Txn(txn) => self.may_do(txn),
        })
    }
}

/// Whether a range that begins inside a prefix ends inside, too. Without an end it goes on to the last key.
fn is_before_end(end: Option<&[u8]>, prefix: &[u8]) -> bool {
    // The first key after all that begin so; there is none after a prefix of bytes that are all the highest.
    let after = prefix.iter().rposition(|byte| *byte < u8::MAX).map(|at| {
        let mut after = prefix[..=at].to_vec();
        after[at] += 1;
        after
    });
    match (end, after) {
        (Some(end), Some(after)) => *end <= after[..],
        (_, None) => true,
        (None, Some(_)) => false,
    }
}

pub(super) fn denied(why: &str) -> Failure {
    Failure { code: Code::Denied.text().into(), message: format!("{why}; nothing was changed"), ..Failure::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{ApiKeys, KeyRights, Role, draw_api_key};

    fn caller(prefixes: &[&str]) -> Caller {
        let prefixes = prefixes.iter().map(ToString::to_string).collect();
        let (secret, line) = draw_api_key("dan", KeyRights { prefixes, ..Role::Full.into() }).unwrap();
        Caller::with(ApiKeys::parse(&line).unwrap().find(secret.as_bytes()).unwrap().clone(), None)
    }

    #[test]
    fn names_are_inside_a_prefix_or_denied() {
        let dan = caller(&["jobs/", "gpu"]);
        for inside in ["jobs/a", "jobs/", "gpu", "gpu7", "gpu/a"] {
            assert!(dan.may_use(inside).is_ok() && dan.may_use_service(inside).is_ok(), "{inside}");
        }
        assert!(dan.may_use_service("jobs").is_ok() && dan.may_use_service("job").is_err());
        for outside in ["jobsx", "jobs-a", "a/jobs"] {
            assert_eq!(dan.may_use_service(outside).map_err(|failure| failure.code), Err("denied".into()), "{outside}");
        }
        for outside in ["job", "jobs", "jobsx", "a/jobs/", "", "Jobs/a"] {
            let failure = dan.may_use(outside).expect_err(outside);
            assert_eq!(failure.code, "denied");
            let said = format!(
                "the API key dan may use names under jobs/, gpu only, and the name {outside:?} is none of them"
            );
            assert_eq!(failure.message, format!("{said}; nothing was changed"));
        }
        assert!(dan.may_list("jobs/").is_ok() && dan.may_list("jobs/a").is_ok());
        for wider in ["", "gp", "jobs", "jobsx", "a/jobs/"] {
            assert_eq!(dan.may_list(wider).map_err(|failure| failure.code), Err("denied".into()), "{wider}");
        }
        assert!(caller(&[]).may_list("").is_ok() && Caller::default().may_use("x").is_ok());
    }

    #[test]
    fn ranges_end_where_the_prefix_ends() {
        let dan = caller(&["jobs/"]);
        let from =
            |first: &str, end: Option<&[u8]>| Keys::From { first: first.as_bytes().into(), end: end.map(Into::into) };
        assert!(dan.may_use_keys(&from("jobs/", Some(b"jobs0"))).is_ok(), "as etcd's clients say a prefix");
        assert!(dan.may_use_keys(&from("jobs/a", Some(b"jobs/b"))).is_ok());
        for outside in [from("jobs/", None), from("jobs/", Some(b"jobs1")), from("job", Some(b"jobs0")), from("", None)]
        {
            assert!(dan.may_use_keys(&outside).is_err(), "{outside:?}");
        }
        assert!(dan.may_use_keys(&Keys::Prefix(b"jobs/x"[..].into())).is_ok());
        assert!(dan.may_use_keys(&Keys::Prefix(b"jobs"[..].into())).is_err());
    }
}
