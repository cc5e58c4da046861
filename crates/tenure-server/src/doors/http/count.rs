//! Counts requests by what was asked for and how it was answered, whether or not it came as far as its call.

use super::HttpDoor;
use crate::metrics::{Call, Door, OK};
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

/// The code of a problem, on its way out.
#[derive(Clone)]
pub(super) struct Refused(pub(super) String);

pub(super) async fn count(State(door): State<HttpDoor>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let asked = door.desk.node().metrics().asked(Door::Http, call(request.method(), path));
    let response = asked.follow(next.run(request)).await;
    asked.answered(response.extensions().get::<Refused>().map_or(OK, |Refused(code)| code));
    response
}

/// The call of a path, as it is called everywhere else.
fn call(method: &Method, path: &str) -> Call {
    match (method.as_str(), path) {
        ("POST", "/v1/acquire") => Call::Acquire,
        ("POST", "/v1/renew") => Call::RenewHandle,
        ("POST", "/v1/release") => Call::Release,
        ("POST", "/v1/cancel") => Call::Cancel,
        ("POST", "/v1/break") => Call::Break,
        ("POST", "/v1/transfer") => Call::Transfer,
        ("GET", "/v1/verify") => Call::Verify,
        ("GET", "/v1/resources") => Call::ListResources,
        ("GET", "/v1/resources/{*name}") => Call::Show,
        ("PUT" | "DELETE", "/v1/resources/{*name}") => Call::DefineResource,
        ("GET", "/v1/leases") => Call::ListLeases,
        ("POST", "/v1/leases") => Call::Grant,
        ("POST", "/v1/leases/renew") => Call::Renew,
        ("GET", "/v1/leases/{lease}") => Call::ShowLease,
        ("DELETE", "/v1/leases/{lease}") => Call::ReleaseLease,
        ("POST", "/v1/revoke") => Call::Revoke,
        ("GET", "/v1/classes") => Call::ListClasses,
        ("PUT", "/v1/classes/{*class}") => Call::SetClass,
        ("GET", "/v1/keys") => Call::ListKeys,
        ("GET", "/v1/keys/{*key}") => Call::GetKey,
        ("PUT", "/v1/keys/{*key}") => Call::Put,
        ("DELETE", "/v1/keys" | "/v1/keys/{*key}") => Call::Delete,
        ("GET", "/v1/history") => Call::History,
        ("GET", "/v1/watch") => Call::Watch,
        ("GET", "/v1/instances" | "/v1/prometheus/targets") => Call::Discover,
        ("GET", "/v1/instances/{*instance}") => Call::ShowInstance,
        ("PUT", "/v1/instances/{*instance}") => Call::Register,
        ("PATCH", "/v1/instances/{*instance}") => Call::UpdateInstance,
        ("DELETE", "/v1/instances/{*instance}") => Call::Deregister,
        ("PUT", "/v1/heartbeat/{*instance}") => Call::Renew,
        ("PUT", "/v1/health/{*instance}") => Call::SetHealth,
        ("PUT" | "DELETE", "/v1/drain/{*instance}") => Call::Drain,
        ("GET", "/v1/services") => Call::ListServices,
        ("GET", "/v1/watch/instances") => Call::WatchInstances,
        ("GET", "/v1/status") => Call::Status,
        ("GET", "/v1/cluster/members") => Call::Members,
        ("POST", "/v1/cluster/members") => Call::AddMember,
        ("DELETE", "/v1/cluster/members/{node}") => Call::RemoveMember,
        ("POST", "/v1/cluster/leader") => Call::TransferLead,
        ("POST", "/v1/cluster/backup") => Call::Backup,
        _ => Call::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_described_call_is_counted_by_its_name() {
        let (_, description) = super::super::described().split_for_parts();
        let mut count = 0;
        for (path, item) in &description.paths.paths {
            let methods = [
                (Method::GET, &item.get),
                (Method::POST, &item.post),
                (Method::PUT, &item.put),
                (Method::DELETE, &item.delete),
                (Method::PATCH, &item.patch),
            ];
            for (method, _) in methods.into_iter().filter(|(_, described)| described.is_some()) {
                assert_ne!(call(&method, path), Call::Other, "{method} {path}");
                count += 1;
            }
        }
        assert_eq!(count, 44);
    }
}
