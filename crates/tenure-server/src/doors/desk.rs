//! Where both native doors have their questions answered, each by a reply or a failure. What the doors add is only how
//! these look on their wire.

use super::fresh::Freshness;
use super::look::{instance, key, lease, past, resource};
use super::unready;
use crate::access::Caller;
use crate::access::audit::Change;
use crate::metrics::OK;
use crate::node::Node;
use crate::peers::v1 as peer;
use crate::peers::v1::change::Body as Member;
use crate::raft::CannotChange;
use bytes::Bytes;
use std::sync::Arc;
use tenure_api::v1::Failure;
use tenure_api::v1::request::Body as Ask;
use tenure_api::v1::response::Body as Tell;
use tenure_api::{
    BadRequest, Code, failure, read_handle, read_instance, read_key, read_lease, read_name, read_request, v1,
    write_outcome,
};
use tenure_core::{Command, InstanceKey, Keys, Lease, LeaseId, Ledger, Moment, Outcome, Refusal};

#[derive(Clone)]
pub(crate) struct Desk {
    node: Node,
    fresh: Arc<Freshness>,
    /// In whose name it orders and looks.
    caller: Caller,
}

impl Desk {
    pub(crate) fn new(node: Node) -> Self {
        Self { node, fresh: Arc::default(), caller: Caller::default() }
    }

    /// The same desk for a caller.
    pub(crate) fn of(&self, caller: Caller) -> Self {
        Self { caller, ..self.clone() }
    }

    pub(super) const fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// How long instances are valid, worked out once for all who watch them through this desk.
    pub(super) fn fresh(&self) -> &Freshness {
        &self.fresh
    }

    /// Does what one request asks for.
    pub(crate) async fn order(&self, ask: Ask) -> Result<Tell, Failure> {
        let command = read_request(Some(ask), &|| self.node.draw_lease()).map_err(bad)?;
        let change = Change::of(&command);
        let answer = self.submit(command).await;
        self.audit(change, answer.as_ref());
        answer
    }

    /// Tells the audit log how a change was answered.
    pub(super) fn audit(&self, change: Option<Change>, answer: Result<&Tell, &Failure>) {
        let Some(change) = change else { return };
        let drawn = match answer {
            Ok(Tell::Grant(reply)) => Some(reply.lease),
            Ok(Tell::Acquire(reply)) => Some(reply.lease),
            Ok(Tell::Register(reply)) => Some(reply.lease),
            _ => None,
        };
        change.answered(self.node.wall_ms(), &self.caller, answer.err().map_or(OK, |failure| &failure.code), drawn);
    }

    async fn submit(&self, command: Command) -> Result<Tell, Failure> {
        self.caller.may_order(&command)?;
        let outcome = self.node.submit(self.caller.sign(command)).await.map_err(|not_yet| unready(&not_yet))?;
        self.answer(&outcome)
    }

    /// What the caller may see of an outcome.
    pub(super) fn answer(&self, outcome: &Outcome) -> Result<Tell, Failure> {
        match write_outcome(outcome) {
            Tell::Failure(failure) => Err(self.caller.as_may_be_seen(failure)),
            tell => Ok(tell),
        }
    }

    /// Proposes a command in the name of the caller, if this node leads. A stream is not forwarded: its client moves to the leader.
    pub(super) async fn propose(&self, command: Command) -> Result<Outcome, Failure> {
        self.caller.may_order(&command)?;
        self.node.propose(self.caller.sign(command)).await.map_err(|not_yet| unready(&not_yet))
    }

    /// Whether the caller may discover a service, or the services under a prefix.
    pub(super) fn may_discover(&self, service: &str, prefix: &str) -> Result<(), Failure> {
        if service.is_empty() { self.caller.may_list(prefix) } else { self.caller.may_use_service(service) }
    }

    async fn read<T>(&self, stale: bool, look: impl FnOnce(&Ledger, Moment) -> T) -> Result<T, Failure> {
        if stale {
            let now = self.node.service_time_about();
            return Ok(self.node.read_stale(|ledger| look(ledger, now.max(ledger.now()))));
        }
        self.node.read(look).await.map_err(|not_yet| unready(&not_yet))
    }

    pub(super) async fn verify(&self, request: &v1::VerifyRequest) -> Result<v1::VerifyReply, Failure> {
        let handle = read_handle(&request.handle).map_err(bad)?;
        self.caller.may_use(handle.resource.as_str())?;
        self.read(false, |ledger, now| resource::verify(ledger, &handle, now)).await?.map_err(refused)
    }

    pub(super) async fn show(&self, request: &v1::ShowRequest) -> Result<v1::ShowReply, Failure> {
        let name = read_name(&request.resource).map_err(bad)?;
        self.caller.may_use(name.as_str())?;
        let mut reply = self.read(request.stale, |ledger, now| resource::show(ledger, &name, now)).await?;
        if self.caller.is_limited() {
            // Who waits here may wait elsewhere, too.
            let is_inside = |name: &str| self.caller.may_use(name).is_ok();
            reply.blockers.retain(|blocker| is_inside(&blocker.resource));
            reply.line.iter_mut().for_each(|waiter| waiter.resources.retain(|name| is_inside(name)));
        }
        Ok(reply)
    }

    pub(super) async fn show_lease(&self, request: v1::ShowLeaseRequest) -> Result<v1::ShowLeaseReply, Failure> {
        let id = read_lease(request.lease).map_err(bad)?;
        let look = |ledger: &Ledger, now| {
            self.caller.may_see_lease(ledger.lease(id).and_then(Lease::owner))?;
            lease::show(ledger, id, now).map_err(refused)
        };
        self.read(request.stale, look).await?
    }

    pub(super) async fn list_resources(
        &self,
        request: &v1::ListResourcesRequest,
    ) -> Result<v1::ListResourcesReply, Failure> {
        self.caller.may_list(&request.prefix)?;
        self.read(request.stale, |ledger, now| resource::list(ledger, request, now)).await
    }

    pub(super) async fn list_leases(&self, request: &v1::ListLeasesRequest) -> Result<v1::ListLeasesReply, Failure> {
        let wanted = lease::Wanted::read(request).map_err(bad)?;
        self.read(request.stale, |ledger, now| lease::list(ledger, request, &wanted, now)).await
    }

    pub(super) async fn list_classes(&self, request: v1::ListClassesRequest) -> Result<v1::ListClassesReply, Failure> {
        self.read(request.stale, |ledger, _| lease::classes(ledger)).await
    }

    pub(super) async fn get_key(&self, request: &v1::GetKeyRequest) -> Result<v1::GetKeyReply, Failure> {
        let key = read_key(&request.key).map_err(bad)?;
        self.caller.may_use_key(&key)?;
        self.read(request.stale, |ledger, _| key::get(ledger, &key)).await
    }

    pub(super) async fn list_keys(&self, request: &v1::ListKeysRequest) -> Result<v1::ListKeysReply, Failure> {
        self.caller.may_use_keys(&Keys::Prefix(request.prefix.as_slice().into()))?;
        self.read(request.stale, |ledger, _| key::list(ledger, request)).await
    }

    pub(super) async fn discover(&self, request: &v1::DiscoverRequest) -> Result<v1::DiscoverReply, Failure> {
        let wanted = instance::Wanted::read(request).map_err(bad)?;
        let from = instance::read_from(&request.from).map_err(bad)?;
        self.may_discover(&request.service, &request.service_prefix)?;
        let page = (from.as_ref(), request.limit);
        self.read(request.stale, |ledger, now| instance::discover(ledger, &wanted, page, now)).await
    }

    pub(super) async fn show_instance(
        &self,
        request: &v1::ShowInstanceRequest,
    ) -> Result<v1::ShowInstanceReply, Failure> {
        let key = read_instance(&request.service, &request.id).map_err(bad)?;
        self.caller.may_use_service(key.service.as_str())?;
        self.read(request.stale, |ledger, now| instance::show(ledger, &key, now)).await?.map_err(refused)
    }

    /// The lease that an instance hangs on, if it lives in the epoch and on the lease that are named; 0 names none.
    pub(super) async fn lease_of(&self, key: &InstanceKey, named: (u64, u64), stale: bool) -> Result<LeaseId, Failure> {
        self.caller.may_use_service(key.service.as_str())?;
        self.read(stale, |ledger, _| instance::lease_of(ledger, key, named)).await?.map_err(refused)
    }

    pub(super) async fn list_services(
        &self,
        request: &v1::ListServicesRequest,
    ) -> Result<v1::ListServicesReply, Failure> {
        self.caller.may_list(&request.prefix)?;
        self.read(request.stale, |ledger, now| instance::services(ledger, request, now)).await
    }

    pub(super) async fn history(&self, request: &v1::HistoryRequest) -> Result<v1::HistoryReply, Failure> {
        let wanted = past::Wanted::read(request).map_err(bad)?;
        match request.resource.as_str() {
            "" => self.caller.may_list(&request.prefix)?,
            name => self.caller.may_use(name)?,
        }
        self.read(request.stale, |ledger, now| past::history(ledger, request, &wanted, &self.caller, now)).await
    }

    pub(super) fn status(&self) -> v1::StatusReply {
        let status = self.node.status();
        v1::StatusReply {
            version: env!("CARGO_PKG_VERSION").into(),
            cluster: status.identity.cluster,
            node: status.identity.node,
            leads: status.leads_in.is_some(),
            term: status.term,
            applied_index: status.applied,
            revision: status.revision.0,
            leases: status.leases as u64,
            now_ms: status.now.millis(),
            dropped_ms: status.dropped_ms,
            leader: status.leader.unwrap_or_default(),
            last_index: status.last_index,
            committed_index: status.committed,
            snapshot_index: status.snapshot,
            log_entries: status.last_index - status.purged.min(status.last_index),
            log_bytes: status.log_bytes,
        }
    }

    pub(super) fn members(&self) -> v1::MembersReply {
        self.told_of(self.node.standings())
    }

    fn told_of(&self, standings: Vec<peer::Standing>) -> v1::MembersReply {
        let member = |standing: peer::Standing| {
            let peer::Member { node, peer_addr, client_addr, .. } = standing.member.unwrap_or_default();
            v1::Member { node, peer_addr, client_addr, votes: standing.votes }
        };
        v1::MembersReply {
            cluster: self.node.identity().cluster,
            leader: self.node.status().leader.unwrap_or_default(),
            members: standings.into_iter().map(member).collect(),
        }
    }

    pub(super) async fn add_member(&self, request: &v1::AddMemberRequest) -> Result<v1::MembersReply, Failure> {
        let v1::AddMemberRequest { node, peer_addr } = request.clone();
        let change = Change::named("add_member", node.to_string());
        self.change(change, Member::Admit(peer::Admit { node, peer_addr })).await
    }

    pub(super) async fn remove_member(&self, node: u64) -> Result<v1::MembersReply, Failure> {
        self.change(Change::named("remove_member", node.to_string()), Member::Remove(node)).await
    }

    pub(super) async fn transfer_lead(&self, node: u64) -> Result<v1::MembersReply, Failure> {
        self.change(Change::named("transfer_lead", node.to_string()), Member::TransferTo(node)).await
    }

    /// A backup of everything that was acknowledged before the call.
    pub(super) async fn backup(&self) -> Result<Bytes, Failure> {
        let change = Change::named("backup", String::new());
        let backup = self.node.backup().await.map_err(|not_yet| unready(&not_yet));
        let code = backup.as_ref().err().map_or(OK, |failure| &failure.code);
        change.into_iter().for_each(|it| it.answered(self.node.wall_ms(), &self.caller, code, None));
        backup.map(Bytes::from)
    }

    async fn change(&self, told: Option<Change>, change: Member) -> Result<v1::MembersReply, Failure> {
        let cannot = |cannot: CannotChange| {
            let code = match cannot {
                CannotChange::Refused(_) => Code::NotChanged,
                CannotChange::NotNow(_) => Code::NotLeader,
            };
            Failure { code: code.text().into(), message: cannot.to_string(), ..Failure::default() }
        };
        let members = self.node.change(change).await.map_err(cannot);
        let code = members.as_ref().err().map_or(OK, |failure| &failure.code);
        told.into_iter().for_each(|it| it.answered(self.node.wall_ms(), &self.caller, code, None));
        Ok(self.told_of(members?))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn bad(bad: BadRequest) -> Failure {
    bad.failure()
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn refused(refusal: Refusal) -> Failure {
    failure(&refusal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{ApiKeys, KeyRights, Role, draw_api_key, of_grpc};
    use crate::cluster::tests::{Room, leader, open};
    use crate::disk::MemoryDisk;

    fn caller(name: &str, rights: KeyRights) -> Caller {
        let (secret, line) = draw_api_key(name, rights).unwrap();
        let access = crate::access::Access::by(ApiKeys::parse(&line).unwrap());
        access.admit(Some(secret.as_bytes()), of_grpc("/tenure.v1.Tenure/Acquire"), None).unwrap()
    }

    fn acquire(resource: &str, lease: u64) -> Ask {
        let grant =
            v1::GrantRequest { lease, holder: "h".into(), ttl_ms: 60_000, request: 1, ..v1::GrantRequest::default() };
        Ask::Acquire(v1::AcquireRequest {
            resource: resource.into(),
            grant: Some(grant),
            ..v1::AcquireRequest::default()
        })
    }

    fn release(lease: u64) -> Ask {
        Ask::ReleaseLease(v1::ReleaseLeaseRequest { lease, ..v1::ReleaseLeaseRequest::default() })
    }

    /// A follower looks at the key, and the leader decides by it as if it had been asked itself.
    #[tokio::test(start_paused = true)]
    async fn follower_passes_the_key_on() {
        let (room, disk) = (Room::default(), MemoryDisk::new);
        let mut nodes = Vec::new();
        for node in 1..=3 {
            nodes.push(open(&room, node, &disk()).await);
        }
        let first = leader(&nodes).await;
        let follower = nodes.iter().find(|node| node.identity() != first.identity()).unwrap();
        let of = |node: &Node, name: &str, rights: KeyRights| Desk::new(node.clone()).of(caller(name, rights));
        let hold = || KeyRights::from(Role::Hold);
        of(follower, "ann", hold()).order(acquire("db/leader", 1)).await.unwrap();
        let owner = first.read_stale(|ledger| ledger.leases_from(None).next().and_then(|(_, it)| it.owner().cloned()));
        assert_eq!(owner.unwrap().as_str(), "ann", "the leader knows whose lease it is");
        for node in [follower, &first] {
            let denied = of(node, "bob", hold()).order(release(1)).await.unwrap_err();
            assert_eq!(denied.code, "denied", "{denied:?}");
        }
        let under = KeyRights { prefixes: vec!["jobs/".into()], ..KeyRights::default() };
        let denied = of(follower, "dan", under.clone()).order(acquire("db/other", 2)).await.unwrap_err();
        assert_eq!(denied.code, "denied", "names are compared before they are passed on");
        of(follower, "dan", under).order(acquire("jobs/a", 2)).await.unwrap();
        let few = || KeyRights { leases: Some(1), ..hold() };
        of(follower, "eve", few()).order(acquire("jobs/b", 3)).await.unwrap();
        let full = of(&first, "eve", few()).order(acquire("jobs/c", 4)).await.unwrap_err();
        assert_eq!((full.code.as_str(), full.max), ("too_many", 1), "leases are counted over all nodes");
        of(follower, "ann", hold()).order(release(1)).await.unwrap();
    }
}
