//! What each call needs, of all protocols, in one table each: which role, and whether it can be limited to the prefixes of a
//! key. A call that is not named here needs a key of role `full` without prefixes.

use super::Role;
use axum::http::Method;

/// What a call needs of the API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// No key: the call says only whether the server is there.
    Nothing,
    /// A key that may read.
    Read,
    /// A key that may change what is its own. The ledger refuses what belongs to others.
    Hold,
    /// A key that may do everything.
    Full,
}

/// How far a call can be limited to the prefixes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The request says which names, keys or leases it is about, and each of them is compared with the prefixes.
    Names,
    /// It shows no names.
    Nameless,
    /// It is about all names at once: a key with prefixes is refused.
    Whole,
}

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) need: Need,
    pub(crate) scope: Scope,
    pub(crate) counts: Counts,
}

/// What a call counts as, for the limits of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// A request.
    Request,
    /// A request that opens a watch.
    Watch,
    /// Nothing: it keeps or gives back what is held, so that no key loses a lease by its limit; or what it carries is counted.
    Nothing,
}

impl Rule {
    /// Open to everybody.
    pub(crate) const OPEN: Self = Self::new(Need::Nothing, Scope::Nameless);
    const READ: Self = Self::new(Need::Read, Scope::Names);
    const WATCH: Self = Self { counts: Counts::Watch, ..Self::READ };
    const READ_NAMELESS: Self = Self::new(Need::Read, Scope::Nameless);
    const READ_WHOLE: Self = Self::new(Need::Read, Scope::Whole);
    const HOLD: Self = Self::new(Need::Hold, Scope::Names);
    /// It keeps or gives back what is held.
    const KEEP: Self = Self { counts: Counts::Nothing, ..Self::HOLD };
    const DEFINE: Self = Self::new(Need::Full, Scope::Names);
    const FULL: Self = Self::new(Need::Full, Scope::Whole);

    const fn new(need: Need, scope: Scope) -> Self {
        Self { need, scope, counts: Counts::Request }
    }

    /// Whether a key of this role may make the call at all.
    pub(crate) const fn allows(self, role: Role) -> bool {
        match (self.need, role) {
            (Need::Nothing | Need::Read, _) | (_, Role::Full) | (Need::Hold, Role::Hold) => true,
            (Need::Full, Role::Read | Role::Hold) | (Need::Hold, Role::Read) => false,
        }
    }
}

/// The calls of `tenure.v1.Tenure`. What a stream carries is compared and counted message by message.
const NATIVE: &[(&str, Rule)] = &[
    ("Stream", Rule::KEEP),
    ("Grant", Rule::HOLD),
    ("Acquire", Rule::HOLD),
    ("Renew", Rule::KEEP),
    ("RenewHandle", Rule::KEEP),
    ("Release", Rule::KEEP),
    ("ReleaseLease", Rule::KEEP),
    ("Cancel", Rule::KEEP),
    ("Revoke", Rule::HOLD),
    ("BreakClaims", Rule::HOLD),
    ("Transfer", Rule::HOLD),
    ("Put", Rule::HOLD),
    ("Delete", Rule::HOLD),
    ("Register", Rule::KEEP),
    ("UpdateInstance", Rule::HOLD),
    ("Drain", Rule::HOLD),
    ("Deregister", Rule::KEEP),
    ("SetHealth", Rule::KEEP),
    ("DefineResource", Rule::DEFINE),
    ("SetClass", Rule::FULL),
    ("AddMember", Rule::FULL),
    ("RemoveMember", Rule::FULL),
    ("TransferLead", Rule::FULL),
    ("Backup", Rule::FULL),
    ("Discover", Rule::READ),
    ("GetKey", Rule::READ),
    ("History", Rule::READ),
    ("ListClasses", Rule::READ_NAMELESS),
    ("ListKeys", Rule::READ),
    ("ListLeases", Rule::READ_WHOLE),
    ("ListResources", Rule::READ),
    ("ListServices", Rule::READ),
    ("Members", Rule::READ_WHOLE),
    ("Show", Rule::READ),
    ("ShowInstance", Rule::READ),
    ("ShowLease", Rule::READ),
    ("Status", Rule::READ_NAMELESS),
    ("Verify", Rule::READ),
    ("Watch", Rule::WATCH),
    ("WatchInstances", Rule::WATCH),
];

const NATIVE_SERVICE: &str = "/tenure.v1.Tenure/";
const HEALTH: &str = "/grpc.health.v1.Health/";
const REFLECTION: &str = "/grpc.reflection.";

/// The services of Envoy's dialect. They change nothing, and name what they are about.
const XDS: [&str; 2] =
    ["/envoy.service.discovery.v3.AggregatedDiscoveryService/", "/envoy.service.endpoint.v3.EndpointDiscoveryService/"];

/// The calls of etcd, over gRPC and as JSON. A transaction may write, so a key that may only read makes none. The watches of a
/// stream are counted one by one.
const ETCD: &[(&str, Rule)] = &[
    ("Auth/Authenticate", Rule::OPEN),
    ("KV/Range", Rule::READ),
    ("Watch/Watch", Rule::READ),
    ("Lease/LeaseTimeToLive", Rule::READ),
    ("Lease/LeaseLeases", Rule::READ_WHOLE),
    ("Cluster/MemberList", Rule::READ_WHOLE),
    ("Maintenance/Status", Rule::READ_NAMELESS),
    ("Maintenance/HashKV", Rule::READ_WHOLE),
    ("Auth/AuthStatus", Rule::READ_NAMELESS),
    ("Election/Leader", Rule::READ),
    ("Election/Observe", Rule::WATCH),
    ("KV/Put", Rule::HOLD),
    ("KV/DeleteRange", Rule::HOLD),
    ("KV/Txn", Rule::HOLD),
    ("Lease/LeaseGrant", Rule::HOLD),
    ("Lease/LeaseRevoke", Rule::KEEP),
    ("Lease/LeaseKeepAlive", Rule::KEEP),
    ("Lock/Lock", Rule::HOLD),
    ("Lock/Unlock", Rule::KEEP),
    ("Election/Campaign", Rule::HOLD),
    ("Election/Proclaim", Rule::HOLD),
    ("Election/Resign", Rule::KEEP),
    // Named so that the test knows them: they are administration.
    ("KV/Compact", Rule::FULL),
    ("Cluster/MemberAdd", Rule::FULL),
    ("Cluster/MemberRemove", Rule::FULL),
    ("Cluster/MemberUpdate", Rule::FULL),
    ("Cluster/MemberPromote", Rule::FULL),
    ("Maintenance/Alarm", Rule::FULL),
    ("Maintenance/Defragment", Rule::FULL),
    ("Maintenance/Hash", Rule::FULL),
    ("Maintenance/Snapshot", Rule::FULL),
    ("Maintenance/MoveLeader", Rule::FULL),
    ("Maintenance/Downgrade", Rule::FULL),
];

/// The calls of HTTP: methods, and a path or what it begins with.
const HTTP: &[(&[Method], Path, Rule)] = &[
    (&[Method::GET], Path::Is("/healthz"), Rule::OPEN),
    (&[Method::GET], Path::Is("/readyz"), Rule::OPEN),
    (&[Method::GET], Path::Is("/metrics"), Rule::READ_NAMELESS),
    (&[Method::GET], Path::Is("/openapi.json"), Rule::READ_NAMELESS),
    (&[Method::POST], Path::Is("/v1/acquire"), Rule::HOLD),
    (&[Method::POST], Path::Is("/v1/renew"), Rule::KEEP),
    (&[Method::POST], Path::Is("/v1/release"), Rule::KEEP),
    (&[Method::POST], Path::Is("/v1/cancel"), Rule::KEEP),
    (&[Method::POST], Path::Is("/v1/break"), Rule::HOLD),
    (&[Method::POST], Path::Is("/v1/transfer"), Rule::HOLD),
    (&[Method::GET], Path::Is("/v1/verify"), Rule::READ),
    (&[Method::GET], Path::Is("/v1/resources"), Rule::READ),
    (&[Method::GET], Path::Under("/v1/resources/"), Rule::READ),
    (&[Method::PUT, Method::DELETE], Path::Under("/v1/resources/"), Rule::DEFINE),
    (&[Method::GET], Path::Is("/v1/leases"), Rule::READ_WHOLE),
    (&[Method::POST], Path::Is("/v1/leases"), Rule::HOLD),
    (&[Method::POST], Path::Is("/v1/leases/renew"), Rule::KEEP),
    (&[Method::GET], Path::Under("/v1/leases/"), Rule::READ),
    (&[Method::DELETE], Path::Under("/v1/leases/"), Rule::KEEP),
    (&[Method::POST], Path::Is("/v1/revoke"), Rule::HOLD),
    (&[Method::GET], Path::Is("/v1/classes"), Rule::READ_NAMELESS),
    (&[Method::PUT], Path::Under("/v1/classes/"), Rule::FULL),
    (&[Method::GET], Path::Is("/v1/keys"), Rule::READ),
    (&[Method::DELETE], Path::Is("/v1/keys"), Rule::HOLD),
    (&[Method::GET], Path::Under("/v1/keys/"), Rule::READ),
    (&[Method::PUT, Method::DELETE], Path::Under("/v1/keys/"), Rule::HOLD),
    (&[Method::GET], Path::Is("/v1/history"), Rule::READ),
    (&[Method::GET], Path::Is("/v1/watch"), Rule::WATCH),
    (&[Method::GET], Path::Is("/v1/instances"), Rule::READ),
    (&[Method::GET], Path::Under("/v1/instances/"), Rule::READ),
    (&[Method::PUT, Method::DELETE], Path::Under("/v1/instances/"), Rule::KEEP),
    (&[Method::PATCH], Path::Under("/v1/instances/"), Rule::HOLD),
    (&[Method::PUT], Path::Under("/v1/heartbeat/"), Rule::KEEP),
    (&[Method::PUT], Path::Under("/v1/health/"), Rule::KEEP),
    (&[Method::PUT, Method::DELETE], Path::Under("/v1/drain/"), Rule::HOLD),
    (&[Method::GET], Path::Is("/v1/services"), Rule::READ),
    (&[Method::GET], Path::Is("/v1/watch/instances"), Rule::WATCH),
    (&[Method::GET], Path::Is("/v1/prometheus/targets"), Rule::READ),
    (&[Method::GET], Path::Is("/v1/status"), Rule::READ_NAMELESS),
    (&[Method::GET], Path::Is("/v1/cluster/members"), Rule::READ_WHOLE),
    (&[Method::POST], Path::Under("/v1/cluster/"), Rule::FULL),
    (&[Method::DELETE], Path::Under("/v1/cluster/"), Rule::FULL),
];

/// A path of HTTP.
#[derive(Clone, Copy)]
enum Path {
    Is(&'static str),
    Under(&'static str),
}

impl Path {
    fn is_of(self, path: &str) -> bool {
        match self {
            Self::Is(is) => is == path,
            Self::Under(under) => path.strip_prefix(under).is_some_and(|rest| !rest.is_empty()),
        }
    }
}

/// What a call of HTTP needs, but for those of etcd as JSON. What only reads needs no more than that it reads everything.
pub(crate) fn of_http(method: &Method, path: &str) -> Rule {
    let asked = if method == Method::HEAD { &Method::GET } else { method };
    let named = HTTP.iter().find(|(methods, known, _)| methods.contains(asked) && known.is_of(path));
    match named {
        Some((_, _, rule)) => *rule,
        None if asked == Method::GET => Rule::READ_WHOLE,
        None => Rule::FULL,
    }
}

/// What a call of gRPC needs, but for those of etcd.
pub(crate) fn of_grpc(path: &str) -> Rule {
    let native = path.strip_prefix(NATIVE_SERVICE);
    let named = native.and_then(|call| NATIVE.iter().find(|(known, _)| *known == call));
    match named {
        Some((_, rule)) => *rule,
        None if path.starts_with(HEALTH) => Rule::OPEN,
        None if path.starts_with(REFLECTION) => Rule::READ_NAMELESS,
        None if XDS.iter().any(|calls| path.starts_with(calls)) => Rule::WATCH,
        None => Rule::FULL,
    }
}

/// What a call of etcd needs.
pub(crate) fn of_etcd(call: &str) -> Rule {
    ETCD.iter().find(|(known, _)| *known == call).map_or(Rule::FULL, |(_, rule)| *rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use prost_types::FileDescriptorSet;
    use std::collections::BTreeSet;

    /// What a call needs is decided where it is added: it has to be in the table, and the table has no others.
    #[test]
    fn every_native_call_is_in_the_table() {
        let set = FileDescriptorSet::decode(tenure_api::v1::DESCRIPTORS).unwrap();
        let services = set.file.iter().flat_map(|file| &file.service).filter(|service| service.name() == "Tenure");
        let calls: BTreeSet<&str> = services.flat_map(|service| &service.method).map(|it| it.name()).collect();
        assert_eq!(calls, NATIVE.iter().map(|(call, _)| *call).collect());
        assert_eq!(calls.len(), NATIVE.len(), "each is there once");
    }

    #[test]
    fn every_etcd_call_is_in_the_table_or_is_full() {
        let set = FileDescriptorSet::decode(tenure_api::etcd::DESCRIPTORS).unwrap();
        let services = set.file.iter().flat_map(|file| &file.service);
        let calls: BTreeSet<String> = services
            .flat_map(|service| service.method.iter().map(move |it| format!("{}/{}", service.name(), it.name())))
            .collect();
        for (call, _) in ETCD {
            assert!(calls.contains(*call), "{call} is no call of etcd");
        }
        // There are no users and roles, so whatever else there is of them is refused anyway.
        for call in calls.iter().filter(|call| !call.starts_with("Auth/")) {
            assert!(ETCD.iter().any(|(known, _)| known == call), "{call} is not in the table");
        }
        assert_eq!(of_etcd("Auth/UserAdd"), Rule::FULL);
    }

    #[test]
    fn what_administers_needs_a_full_key_without_prefixes() {
        for call in ["SetClass", "AddMember", "RemoveMember", "TransferLead", "Backup"] {
            assert_eq!(of_grpc(&format!("{NATIVE_SERVICE}{call}")), Rule::FULL, "{call}");
        }
        for call in ["KV/Compact", "Maintenance/Snapshot", "Maintenance/MoveLeader", "Cluster/MemberAdd"] {
            assert_eq!(of_etcd(call), Rule::FULL, "{call}");
        }
        for path in ["/v1/cluster/members", "/v1/cluster/leader", "/v1/cluster/backup"] {
            assert_eq!(of_http(&Method::POST, path), Rule::FULL, "{path}");
        }
        assert_eq!(of_http(&Method::DELETE, "/v1/cluster/members/2"), Rule::FULL);
        assert_eq!(of_http(&Method::PUT, "/v1/classes/mine"), Rule::FULL);
        assert_eq!(of_http(&Method::PUT, "/v1/resources/a").need, Need::Full);
    }

    #[test]
    fn what_is_not_named_needs_a_full_key() {
        for path in ["", "/", "/tenure.v1.Tenure/Show/", "/tenure.v1.Tenure/show", "/tenure.v2.Tenure/Show", "/healthz"]
        {
            assert_eq!(of_grpc(path), Rule::FULL, "{path}");
        }
        assert_eq!(of_grpc("/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters"), Rule::FULL);
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            assert_eq!(of_http(&method, "/v1/nowhere"), Rule::FULL, "{method}");
            assert_eq!(of_http(&method, "/healthz"), Rule::FULL, "{method}");
        }
        for path in ["/nowhere", "/healthz/", "//healthz", "/v1/resources/", "/v1/leases/"] {
            assert_eq!(of_http(&Method::GET, path), Rule::READ_WHOLE, "{path}");
        }
    }

    #[test]
    fn a_role_may_do_what_the_roles_below_may() {
        let roles = [Role::Read, Role::Hold, Role::Full];
        let allowed = |rule: Rule| roles.map(|role| rule.allows(role));
        assert_eq!(allowed(Rule::OPEN), [true; 3]);
        assert_eq!(allowed(Rule::READ), [true; 3]);
        assert_eq!(allowed(Rule::HOLD), [false, true, true]);
        assert_eq!(allowed(Rule::FULL), [false, false, true]);
    }
}
