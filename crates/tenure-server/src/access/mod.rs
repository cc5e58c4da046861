//! Who may make which request: it finds the API key that a request shows, and compares its role with what the call needs. No
//! secret is kept, printed or logged.

pub(crate) mod audit;
mod caller;
mod calls;
mod key;
mod usage;

pub use audit::{AUDIT_TARGET, keep_audit_log};
pub(crate) use caller::Caller;
pub(crate) use calls::{Counts, Need, Rule, of_etcd, of_grpc, of_http};
pub use key::{ApiKeys, BadLine, KeyRights, Role, draw_api_key};
pub(crate) use usage::WatchRoom;

use caller::denied;
use calls::Scope;
use key::ApiKey;
use std::net::IpAddr;
use std::sync::Arc;
use tenure_api::Code;
use tenure_api::v1::Failure;
use tokio::sync::watch;

/// Whether API keys are asked for, and which. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Access {
    keys: Option<Arc<watch::Sender<ApiKeys>>>,
}

impl Access {
    /// Admits requests with these keys only. Without it, every request is admitted.
    pub fn by(keys: ApiKeys) -> Self {
        Self { keys: Some(Arc::new(watch::Sender::new(keys))) }
    }

    /// From now on lets in these keys instead. Streams of keys that are gone, or whose rights have changed, end.
    pub fn replace(&self, keys: ApiKeys) {
        if let Some(known) = &self.keys {
            known.send_modify(|before| *before = keys.going_on(before));
        }
    }

    /// Resolves with the reason when the rights of a caller are no longer those that it was let in with. None: it needs no key.
    pub(crate) fn revoked(
        &self,
        caller: &Caller,
        rule: Rule,
    ) -> Option<impl Future<Output = Failure> + Send + 'static> {
        let mut changed = self.keys.as_ref()?.subscribe();
        let key = caller.key()?.clone();
        Some(async move {
            loop {
                if let Some(failure) = changed_since(&key, &changed.borrow_and_update(), rule) {
                    return failure;
                }
                // This access keeps the other end, so there is always another change to wait for.
                if changed.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        })
    }

    /// Whether who asks is looked at at all.
    pub(crate) const fn is_asked_for(&self) -> bool {
        self.keys.is_some()
    }

    /// The caller that shows this, whatever it may do, for the log of a refusal.
    pub(crate) fn who(&self, shown: Option<&[u8]>, at: Option<IpAddr>) -> Caller {
        let key = self.keys.as_ref().zip(shown).and_then(|(known, secret)| known.borrow().find(secret).cloned());
        key.map_or_else(|| Caller::from(at), |key| Caller::with(key, at))
    }

    /// The name of the key with this secret.
    pub(crate) fn name_of(&self, secret: &[u8]) -> Option<String> {
        let known = self.keys.as_ref()?.borrow();
        known.find(secret).map(|key| key.name.to_string())
    }

    /// Who makes a request, or why it is refused.
    pub(crate) fn admit(&self, shown: Option<&[u8]>, rule: Rule, at: Option<IpAddr>) -> Result<Caller, Failure> {
        let Some(known) = self.keys.as_ref().filter(|_| rule.need != Need::Nothing) else {
            return Ok(Caller::from(at));
        };
        let Some(secret) = shown else {
            return Err(unauthenticated("an API key is needed, and none was shown"));
        };
        let key = known.borrow().find(secret).cloned();
        let key = key.ok_or_else(|| unauthenticated("the API key is not known here"))?;
        match refusal(&key, rule) {
            Some(failure) => Err(failure),
            None => Ok(Caller::with(key, at)),
        }
    }
}

/// Why a key may not make a call.
fn refusal(key: &ApiKey, rule: Rule) -> Option<Failure> {
    let name = &key.name;
    if !rule.allows(key.rights.role) {
        let may = match key.rights.role {
            Role::Read => "only read",
            Role::Hold | Role::Full => "only read, and change what hangs on its own leases",
        };
        return Some(denied(&format!("the API key {name} may {may}")));
    }
    if rule.scope == Scope::Whole && !key.rights.prefixes.is_empty() {
        let under = key.rights.prefixes.join(", ");
        return Some(denied(&format!(
            "the API key {name} may use names under {under} only, and this call is about all names"
        )));
    }
    None
}

/// Why a stream that was opened with a key has to end.
fn changed_since(key: &ApiKey, keys: &ApiKeys, rule: Rule) -> Option<Failure> {
    let Some(now) = keys.again(key) else { return Some(unauthenticated("the API key is not known here")) };
    if let Some(refused) = refusal(now, rule) {
        return Some(refused);
    }
    // What it may do was decided when the stream was opened.
    (now.rights != key.rights).then(|| {
        let message =
            format!("the rights of the API key {} have changed; nothing was changed; connect again", key.name);
        Failure { code: Code::Stopping.text().into(), message, ..Failure::default() }
    })
}

fn unauthenticated(why: &str) -> Failure {
    let message = format!("{why}; nothing was changed");
    Failure { code: Code::Unauthenticated.text().into(), message, ..Failure::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Method;
    use tenure_core::{Command, Kind, LeaseId, ReleaseLease, Renew, Renewal};

    const OPEN: Rule = Rule::OPEN;

    fn rules() -> [Rule; 4] {
        ["/v1/status", "/v1/acquire", "/v1/resources/a", "/v1/cluster/backup"].map(|path| match path {
            "/v1/status" => of_http(&Method::GET, path),
            "/v1/resources/a" => of_http(&Method::PUT, path),
            _ => of_http(&Method::POST, path),
        })
    }

    #[test]
    fn who_may_do_what() {
        let drawn = |name, rights: KeyRights| draw_api_key(name, rights).unwrap();
        let prefixes = || vec!["jobs/".to_owned()];
        let (ann, ann_line) = drawn("ann", Role::Full.into());
        let (bob, bob_line) = drawn("bob", Role::Read.into());
        let (cyd, cyd_line) = drawn("cyd", Role::Hold.into());
        let (dan, dan_line) = drawn("dan", KeyRights { prefixes: prefixes(), ..Role::Full.into() });
        let all = format!("{ann_line}\n{bob_line}\n{cyd_line}\n{dan_line}\n");
        let access = Access::by(ApiKeys::parse(&all).unwrap());
        let code = |shown: Option<&str>, rule| match access.admit(shown.map(str::as_bytes), rule, None) {
            Ok(_) => String::new(),
            Err(failure) => failure.code,
        };
        let [read, hold, define, full] = rules();
        for (shown, rule, answer) in [
            (None, OPEN, ""),
            (None, read, "unauthenticated"),
            (Some("tnr_stranger"), read, "unauthenticated"),
            (Some("tnr_stranger"), OPEN, ""),
            (Some(ann.as_str()), full, ""),
            (Some(ann.as_str()), read, ""),
            (Some(bob.as_str()), read, ""),
            (Some(bob.as_str()), hold, "denied"),
            (Some(bob.as_str()), full, "denied"),
            (Some(cyd.as_str()), read, ""),
            (Some(cyd.as_str()), hold, ""),
            (Some(cyd.as_str()), define, "denied"),
            (Some(cyd.as_str()), full, "denied"),
            (Some(dan.as_str()), read, ""),
            (Some(dan.as_str()), define, ""),
            (Some(dan.as_str()), full, "denied"),
        ] {
            assert_eq!(code(shown, rule), answer, "{shown:?} {rule:?}");
        }
        access.replace(ApiKeys::default());
        assert_eq!(code(Some(&ann), read), "unauthenticated", "what was taken out is not let in");
        assert!(Access::default().admit(None, full, None).is_ok(), "without a key file no key is needed");
    }

    #[test]
    fn a_stream_ends_when_the_rights_of_its_key_change() {
        let (secret, line) = draw_api_key("ann", Role::Full).unwrap();
        let [_, hold, _, full] = rules();
        let keys = |text: &str| ApiKeys::parse(text).unwrap();
        let key = keys(&line).find(secret.as_bytes()).unwrap().clone();
        let code = |text: &str, rule| changed_since(&key, &keys(text), rule).map(|failure| failure.code);
        assert_eq!(code(&line, hold), None);
        assert_eq!(code("", hold).as_deref(), Some("unauthenticated"));
        assert_eq!(code(&line.replace("full", "read"), hold).as_deref(), Some("denied"));
        assert_eq!(code(&line.replace("full", "hold"), hold).as_deref(), Some("stopping"));
        assert_eq!(code(&line.replace("full", "hold"), full).as_deref(), Some("denied"));
        assert_eq!(code(&format!("{line} prefix=a"), hold).as_deref(), Some("stopping"));
    }

    /// A stream sees the change later than this: what it has read of the client before is not sent any more.
    #[test]
    fn retired_key_gives_back_and_does_nothing_else() {
        let (secret, line) = draw_api_key("ann", Role::Full).unwrap();
        let keys = |text: &str| ApiKeys::parse(text).unwrap();
        let access = Access::by(keys(&line));
        let [_, hold, ..] = rules();
        let admitted = || access.admit(Some(secret.as_bytes()), hold, None).unwrap();
        let lease = LeaseId::from_number(1).unwrap();
        let renews = Command::Renew(Renew { leases: vec![Renewal { lease, ttl: None }], kind: Kind::Auto });
        let gives_back = Command::ReleaseLease(ReleaseLease::plain(lease));
        let may = |caller: &Caller| (caller.may_order(&renews).is_ok(), caller.may_order(&gives_back).is_ok());
        let caller = admitted();
        access.replace(keys(&format!("# the same\n{line}")));
        assert_eq!(may(&caller), (true, true));
        access.replace(keys(&format!("{line} prefix=a")));
        assert_eq!(may(&caller), (false, true), "its rights have changed");
        let caller = admitted();
        assert_eq!(may(&caller), (true, true));
        access.replace(ApiKeys::default());
        assert_eq!(may(&caller), (false, true), "it is gone");
    }
}
