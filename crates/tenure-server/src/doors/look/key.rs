//! Keys as they are shown.

use super::Page;
use tenure_api::v1;
use tenure_core::{Key, KeyValue, LeaseId, Ledger};

pub(in crate::doors) fn get(ledger: &Ledger, key: &Key) -> v1::GetKeyReply {
    v1::GetKeyReply {
        item: ledger.key(key.bytes()).map(|value| item(key, value)),
        kv_revision: ledger.kv_revision(),
        revision: ledger.revision().0,
    }
}

pub(in crate::doors) fn list(ledger: &Ledger, request: &v1::ListKeysRequest) -> v1::ListKeysReply {
    let mut page = Page::new(request.limit);
    let mut reply = v1::ListKeysReply {
        kv_revision: ledger.kv_revision(),
        revision: ledger.revision().0,
        ..v1::ListKeysReply::default()
    };
    let from = request.from.as_slice().max(&request.prefix);
    for (key, value) in ledger.keys_from(from).take_while(|(key, _)| key.bytes().starts_with(&request.prefix)) {
        let mut item = item(key, value);
        if request.keys_only {
            item.value.clear();
        }
        if !page.takes(&item) {
            reply.next = item.key;
            break;
        }
        reply.items.push(item);
    }
    reply
}

fn item(key: &Key, value: &KeyValue) -> v1::KeyValue {
    v1::KeyValue {
        key: key.bytes().to_vec(),
        value: value.value.to_vec(),
        lease: value.lease.map_or(0, LeaseId::number),
        create_revision: value.create_revision,
        mod_revision: value.mod_revision,
        version: value.version,
    }
}
