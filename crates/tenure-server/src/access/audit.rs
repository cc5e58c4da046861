//! What the audit log receives: one event for each change that a client asks for, and for each request that is refused for lack of
//! rights. Reads and renewals are no changes. It tells names and never values, and decides nothing; who writes it down listens at
//! [`AUDIT_TARGET`].

use super::Caller;
use crate::limits::{AUDIT_NAME_BYTES_MAX, AUDIT_NAMES_MAX};
use crate::node::Node;
use std::sync::atomic::{AtomicBool, Ordering};
use tenure_core::{Command, Keys, LeaseId, Name, On, Op, Txn, Which};

/// The target of these events. No log of the server has them.
pub const AUDIT_TARGET: &str = "audit";

/// A change that is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    call: &'static str,
    names: Vec<String>,
    lease: Option<LeaseId>,
}

impl Change {
    /// What a command would change. None: it changes nothing that is logged, or there is no audit log.
    pub(crate) fn of(command: &Command) -> Option<Self> {
        is_kept().then(|| of_command(command)).flatten()
    }

    /// The same, called by another name: a client of etcd puts a key by a transaction of one operation.
    pub(crate) fn called(self, call: &'static str) -> Self {
        Self { call, ..self }
    }

    /// A change that is no command.
    pub(crate) fn named(call: &'static str, name: String) -> Option<Self> {
        is_kept().then(|| Self { call, names: vec![name], lease: None })
    }

    /// Tells how it was answered, and the lease if that was drawn for it.
    pub(crate) fn answered(self, wall_ms: u64, caller: &Caller, code: &str, drawn: Option<u64>) {
        let lease = self.lease.map(LeaseId::number).or(drawn).filter(|lease| *lease > 0);
        tell(wall_ms, caller, self.call, &self.names, code, lease);
    }
}

/// Tells of a request that was refused before it was read.
pub(crate) fn refused(wall_ms: u64, caller: &Caller, path: &str, code: &str) {
    if is_kept() {
        tell(wall_ms, caller, path, &[], code, None);
    }
}

impl Node {
    /// The wall clock, for people.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.metrics().wall_ms()
    }

    /// Counts lines of the audit log that could not be written.
    pub fn audit_lines_lost(&self, lines: u64) {
        self.metrics().audit_lines_lost(lines);
    }
}

/// Whether this process writes an audit log. A flag, for the reason in `trace.rs`.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// Sends audit events from now on, to a subscriber that this process has.
pub fn keep_audit_log() {
    IS_KEPT.store(true, Ordering::Relaxed);
}

fn is_kept() -> bool {
    IS_KEPT.load(Ordering::Relaxed)
}

fn tell(wall_ms: u64, caller: &Caller, call: &str, names: &[String], code: &str, lease: Option<u64>) {
    let key = caller.key_name().map_or("", |key| key.as_str());
    let peer = caller.address().map_or_else(String::new, |at| at.to_canonical().to_string());
    let more = names.len().saturating_sub(AUDIT_NAMES_MAX);
    let names: Vec<&str> = names.iter().take(AUDIT_NAMES_MAX).map(|name| cut(name)).collect();
    let names = serde_json::Value::from(names).to_string();
    let lease = lease.map_or_else(String::new, |lease| format!("{lease:x}"));
    tracing::info!(target: AUDIT_TARGET, wall_ms, key, peer, call, names, more, lease, code);
}

fn cut(name: &str) -> &str {
    let most = name.len().min(AUDIT_NAME_BYTES_MAX);
    let at = (0..=most).rev().find(|at| name.is_char_boundary(*at)).unwrap_or_default();
    &name[..at]
}

fn of_command(command: &Command) -> Option<Change> {
    let change = |call, names: Vec<String>, lease| Some(Change { call, names, lease });
    let one = |name: &Name| vec![name.to_string()];
    match command.plain() {
        Command::Renew(_) | Command::RenewHandle(_) | Command::Attributed(_) => None,
        Command::Grant(it) => change("grant", Vec::new(), Some(it.lease)),
        Command::Acquire(it) => {
            change("acquire", it.wants.iter().map(|want| want.resource.to_string()).collect(), given(&it.on))
        }
        Command::Release(it) => change("release", vec![it.handle.to_string()], None),
        Command::ReleaseLease(it) => change("release_lease", Vec::new(), Some(it.lease)),
        Command::Cancel(it) => change("cancel", it.resources.iter().map(ToString::to_string).collect(), Some(it.lease)),
        Command::Revoke(it) => match &it.which {
            Which::Lease(lease) => change("revoke", Vec::new(), Some(*lease)),
            Which::Prefix { prefix, .. } => change("revoke", vec![format!("{prefix}*")], None),
            Which::Holder { holder, .. } => change("revoke", vec![format!("holder {holder}")], None),
            Which::Label { label, .. } => change("revoke", vec![format!("label {}", label.key())], None),
        },
        Command::Break(it) => change("break", one(&it.resource), None),
        Command::Transfer(it) => change("transfer", vec![it.handle.to_string()], Some(it.to)),
        Command::Define(it) => change("define_resource", one(&it.resource), None),
        Command::SetClass(it) => change("set_class", one(&it.name), None),
        Command::Put(it) => change("put", vec![shown(it.key.bytes())], None),
        Command::Delete(it) => change("delete", vec![range(&it.keys)], None),
        Command::Txn(it) => change("txn", written(it), None),
        Command::Compact(it) => change("compact", vec![it.revision.to_string()], None),
        Command::Register(it) => change("register", vec![it.instance.to_string()], given(&it.on)),
        Command::UpdateInstance(it) => change("update_instance", vec![it.instance.to_string()], it.lease),
        Command::Drain(it) => change("drain", vec![it.instance.to_string()], it.lease),
        Command::Deregister(it) => change("deregister", vec![it.instance.to_string()], it.lease),
        Command::SetHealth(it) => change("set_health", vec![it.instance.to_string()], Some(it.lease)),
    }
}

/// The lease that was named; the answer has the lease of a new one.
const fn given(on: &On) -> Option<LeaseId> {
    match on {
        On::Given(lease) => Some(*lease),
        On::New(_) => None,
    }
}

/// The keys that a transaction would write or remove, whichever way it goes.
fn written(txn: &Txn) -> Vec<String> {
    let of = |op: &Op| match op {
        Op::Range(_) => Vec::new(),
        Op::Put { put, .. } => vec![shown(put.key.bytes())],
        Op::Delete { keys, .. } => vec![range(keys)],
        Op::Txn(txn) => written(txn),
    };
    txn.then.iter().chain(&txn.otherwise).flat_map(of).collect()
}

fn range(keys: &Keys) -> String {
    match keys {
        Keys::One(key) => shown(key.bytes()),
        Keys::Prefix(prefix) => format!("{}*", shown(prefix)),
        Keys::From { first, end: Some(end) } => format!("{} to {}", shown(first), shown(end)),
        Keys::From { first, end: None } => format!("{} to the last", shown(first)),
    }
}

fn shown(bytes: &[u8]) -> String {
    // More of it would be cut off anyway.
    String::from_utf8_lossy(&bytes[..bytes.len().min(AUDIT_NAME_BYTES_MAX)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{Hang, Key, Put};

    #[test]
    fn change_of_transaction_tells_keys_and_no_values() {
        let key = Key::parse(b"a/b").unwrap();
        let put = Put { key, value: Some(b"secret"[..].into()), lease: Hang::Free };
        let put = Txn::of(Op::Put { put, prev: false });
        let told = of_command(&Command::Txn(put.clone())).unwrap();
        assert_eq!(told.called("put"), Change { call: "put", names: vec!["a/b".into()], lease: None });
        let keys = Keys::From { first: b"a"[..].into(), end: Some(b"b"[..].into()) };
        let delete = Op::Delete { keys, prev: false };
        assert_eq!(of_command(&Command::Txn(Txn::of(delete.clone()))).unwrap().names, ["a to b"]);
        let both = of_command(&Command::Txn(Txn { otherwise: vec![delete], ..put })).unwrap();
        assert_eq!((both.call, both.names.len()), ("txn", 2));
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let long = "ä".repeat(AUDIT_NAME_BYTES_MAX);
        assert!(cut(&long).len() <= AUDIT_NAME_BYTES_MAX && long.starts_with(cut(&long)));
        assert_eq!(cut("a"), "a");
    }
}
