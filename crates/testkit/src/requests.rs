//! Requests that many tests make.

use std::collections::BTreeMap;
use tenure::v1::acquire_reply::State;
use tenure::{Client, Error, v1};

pub fn grant(lease: u64, holder: &str, ttl_ms: i64) -> v1::GrantRequest {
    v1::GrantRequest { lease, holder: holder.into(), ttl_ms, request: lease, ..Default::default() }
}

pub fn claim(name: &str, lease: u64, holder: &str, ttl_ms: i64) -> v1::AcquireRequest {
    v1::AcquireRequest { resource: name.into(), grant: Some(grant(lease, holder, ttl_ms)), ..Default::default() }
}

pub fn revoke(lease: u64, by: &str, reason: &str) -> v1::RevokeRequest {
    let which = Some(v1::revoke_request::Which::Lease(lease));
    v1::RevokeRequest { which, by: by.into(), reason: reason.into(), ..Default::default() }
}

/// Acquires, and gives the fence.
pub async fn acquire(client: &Client, request: v1::AcquireRequest) -> Result<u64, Error> {
    let reply = client.acquire(request).await?;
    match reply.state {
        Some(State::Fence(fence)) => Ok(fence),
        other => panic!("the claim was not seated: {other:?}"),
    }
}

pub async fn renew(client: &Client, lease: u64) -> Result<v1::RenewReply, Error> {
    client.renew(v1::RenewRequest { leases: vec![lease], ..Default::default() }).await
}

/// All resources, by name.
pub async fn resources(client: &Client) -> Vec<v1::Resource> {
    let mut items = Vec::new();
    let mut request = v1::ListResourcesRequest { limit: 500, ..Default::default() };
    loop {
        let page = client.list_resources(request.clone()).await.unwrap();
        items.extend(page.items);
        if page.next.is_empty() {
            return items;
        }
        request.from = page.next;
    }
}

/// The deadline of every living lease, in service time.
pub async fn deadlines(client: &Client) -> BTreeMap<u64, u64> {
    let mut deadlines = BTreeMap::new();
    let mut request = v1::ListLeasesRequest { limit: 500, ..Default::default() };
    loop {
        let page = client.list_leases(request.clone()).await.unwrap();
        deadlines.extend(page.items.iter().map(|item| (item.lease, page.now_ms + item.remaining_ms)));
        if page.next == 0 {
            return deadlines;
        }
        request.from = page.next;
    }
}
