//! What an entry that was left out would have done, in words for an operator. It names leases, resources, keys and instances, and
//! never a value.

use super::types::{Payload, contents, decode_entry};
use tenure_core::{Command, Keys, Name, On, Op, Put, Txn, Which};

/// A key or a prefix is shown up to so many bytes.
const KEY_BYTES_SHOWN: usize = 128;

/// Each command of an entry. Of one that cannot be decoded, only the kinds of its commands are known.
pub(super) fn commands(bytes: &[u8]) -> Vec<String> {
    match decode_entry(0, 0, bytes).map(|entry| entry.payload) {
        Ok(Payload::Normal(proposal)) => proposal.entry.commands.iter().map(words).collect(),
        Ok(Payload::Blank | Payload::Membership(_)) => Vec::new(),
        Err(_) => vec![format!("{} (cannot be decoded)", contents(bytes))],
    }
}

fn words(command: &Command) -> String {
    match command.plain() {
        Command::Grant(it) => format!("grant lease {} to {}", it.lease, it.holder),
        Command::Acquire(it) => {
            let names = it.wants.iter().map(|want| &want.resource);
            format!("acquire {} {}", listed(names), on(&it.on))
        }
        Command::Renew(it) => match &it.leases[..] {
            [only] => format!("renew lease {}", only.lease),
            many => format!("renew {} leases", many.len()),
        },
        Command::RenewHandle(it) => format!("renew the lease of {}", it.handle),
        Command::Release(it) => format!("release {}", it.handle),
        Command::ReleaseLease(it) => format!("release lease {}", it.lease),
        Command::Cancel(it) => format!("cancel {} of lease {}", listed(it.resources.iter()), it.lease),
        Command::Revoke(it) => match &it.which {
            Which::Lease(lease) => format!("revoke lease {lease}"),
            Which::Prefix { prefix, .. } => format!("revoke the leases that hold {prefix:?} and what begins so"),
            Which::Holder { holder, .. } => format!("revoke the leases of {holder}"),
            Which::Label { label, .. } => format!("revoke the leases with label {}", label.key()),
        },
        Command::Break(it) => format!("break claims on {}", it.resource),
        Command::Transfer(it) => format!("transfer {} to lease {}", it.handle, it.to),
        Command::Define(it) => format!("define {}", it.resource),
        Command::SetClass(it) => format!("set class {}", it.name),
        Command::Put(it) => put(it),
        Command::Delete(it) => delete(&it.keys),
        Command::Txn(it) => txn(it),
        Command::Compact(it) => format!("compact keys to revision {}", it.revision),
        Command::Register(it) => format!("register {} {}", it.instance, on(&it.on)),
        Command::UpdateInstance(it) => format!("update instance {}", it.instance),
        Command::Drain(it) if it.on => format!("drain instance {}", it.instance),
        Command::Drain(it) => format!("end the draining of instance {}", it.instance),
        Command::Deregister(it) => format!("deregister {}", it.instance),
        Command::SetHealth(it) => format!("health of {} by check {}", it.instance, it.check),
        Command::Attributed(_) => unreachable!("a plain command has no key"),
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    names.map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn on(on: &On) -> String {
    match on {
        On::New(grant) => format!("by {} on the new lease {}", grant.holder, grant.lease),
        On::Given(lease) => format!("on lease {lease}"),
    }
}

fn put(put: &Put) -> String {
    format!("put key {}", shown(put.key.bytes()))
}

fn delete(keys: &Keys) -> String {
    match keys {
        Keys::One(key) => format!("delete key {}", shown(key.bytes())),
        Keys::Prefix(prefix) => format!("delete the keys that begin with {}", shown(prefix)),
        Keys::From { first, end: Some(end) } => format!("delete the keys from {} to {}", shown(first), shown(end)),
        Keys::From { first, end: None } => format!("delete the keys from {} on", shown(first)),
    }
}

/// What a transaction may write, whichever way it would have gone.
fn txn(txn: &Txn) -> String {
    let mut writes = Vec::new();
    may_write(txn, &mut writes);
    match writes.is_empty() {
        true => "transaction that writes nothing".into(),
        false => format!("transaction that may {}", writes.join(", ")),
    }
}

fn may_write(txn: &Txn, writes: &mut Vec<String>) {
    for op in txn.then.iter().chain(&txn.otherwise) {
        match op {
            Op::Range(_) => {}
            Op::Put { put: it, .. } => writes.push(put(it)),
            Op::Delete { keys, .. } => writes.push(delete(keys)),
            Op::Txn(txn) => may_write(txn, writes),
        }
    }
}

fn shown(key: &[u8]) -> String {
    let cut = &key[..key.len().min(KEY_BYTES_SHOWN)];
    let more = if cut.len() < key.len() { "…" } else { "" };
    format!("{:?}{more}", String::from_utf8_lossy(cut))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::types::{Proposal, encode_payload};
    use std::sync::Arc;
    use tenure_core::limits::RULES_MAX;
    use tenure_core::{Entry, Grant, Hang, Holder, Key, Leader, LeaseId, Moment, Renew, Renewal, Ttl};

    fn stored(commands: Vec<Command>) -> Vec<u8> {
        let leader = Leader { term: 1, node: 1 };
        let entry = Entry { leader, now: Moment::from_millis(1), wall_ms: 1, rules: RULES_MAX, commands };
        encode_payload(&Payload::Normal(Proposal { entry: Arc::new(entry), is_audited: false }))
    }

    fn secret(key: &str) -> Put {
        Put { key: Key::parse(key.as_bytes()).unwrap(), value: Some(b"hunter2"[..].into()), lease: Hang::Free }
    }

    #[test]
    fn commands_are_named_without_values() {
        let lease = LeaseId::from_number(7).unwrap();
        let grant = Grant::plain(lease, Holder::parse("ann").unwrap(), Ttl::from_millis(1_000).unwrap(), 1);
        let renew = Renew { leases: vec![Renewal { lease, ttl: None }; 3], kind: tenure_core::Kind::Auto };
        let then = vec![Op::Put { put: secret("b"), prev: false }];
        let inner =
            Txn { otherwise: vec![Op::Delete { keys: Keys::Prefix(b"c/"[..].into()), prev: false }], ..Txn::default() };
        let both = Txn { then: [then, vec![Op::Txn(inner)]].concat(), ..Txn::default() };
        let all = vec![
            Command::Grant(grant),
            Command::Renew(renew),
            Command::Put(secret("a/\n")),
            Command::Txn(both),
            Command::Txn(Txn::default()),
        ];
        let told = commands(&stored(all));
        assert!(told.iter().all(|line| !line.contains("hunter2")), "{told:?}");
        assert_eq!(
            told,
            [
                "grant lease 0000000000000007 to ann",
                "renew 3 leases",
                r#"put key "a/\n""#,
                r#"transaction that may put key "b", delete the keys that begin with "c/""#,
                "transaction that writes nothing",
            ]
        );
    }

    #[test]
    fn an_entry_that_cannot_be_decoded_is_told_by_its_kinds() {
        let nested = (0..60).fold(Txn::default(), |inner, _| Txn::of(Op::Txn(inner)));
        assert_eq!(commands(&stored(vec![Command::Txn(nested)])), ["1 x transaction (cannot be decoded)"]);
    }
}
