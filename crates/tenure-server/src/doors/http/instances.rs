//! Instances over HTTP: what an agent says of itself and of how it is, in any language that has an HTTP client. Five lines of
//! shell are an agent: a heartbeat, and if that is refused a registration.

use super::body::{Asked, Body, Fresh, Named, read_id};
use super::problem::{NotDone, NotRead, Problem};
use super::{Answer, HttpDoor};
use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tenure_api::json::{HealthWord, Id, OnCriticalWord};
use tenure_api::v1::request::Body as Ask;
use tenure_api::v1::response::Body as Tell;
use tenure_api::{Code, code_of, read_instance, v1};
use tenure_core::{InstanceKey, LeaseId};
use utoipa::{IntoParams, ToSchema};

/// `SERVICE/ID` as the last part of a path. The service may have slashes.
pub(super) struct Instanced {
    service: String,
    id: String,
}

impl Instanced {
    fn key(&self) -> Result<InstanceKey, Problem> {
        Ok(read_instance(&self.service, &self.id)?)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Instanced {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Named(text) = Named::from_request_parts(parts, state).await?;
        let detail = "an instance is named SERVICE/ID, such as planner/a7; nothing was changed";
        let (service, id) = text.rsplit_once('/').ok_or_else(|| Problem::new(Code::BadName, detail))?;
        Ok(Self { service: service.into(), id: id.into() })
    }
}

/// What an instance says of itself, and the lease that it hangs on.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"endpoints": ["http://10.0.0.7:8080"], "capabilities": ["gpu"], "epoch": 1763300000, "ttl_ms": 15000}))]
pub(super) struct RegisterBody {
    /// Where it can be reached, as `SCHEME://HOST:PORT`: from 1 to 16.
    endpoints: Vec<String>,
    /// What it can do: at most 64 words.
    capabilities: Vec<String>,
    /// At most 16.
    #[serde(deserialize_with = "tenure_api::json::labels")]
    labels: BTreeMap<String, String>,
    /// Where it is. Instances of one service in one zone are likely to fall silent together.
    zone: String,
    /// How much it can take, beside the others, at most 65,535; 1 unless said.
    weight: Option<u32>,
    /// Which version it is.
    version: String,
    /// At most 8. An instance without checks is passing.
    #[serde(deserialize_with = "tenure_api::json::objects")]
    checks: Vec<v1::Check>,
    /// What becomes of it when it is critical; `mark` unless said.
    on_critical: Option<OnCriticalWord>,
    /// With `revoke`: how long it may be critical.
    revoke_after_ms: i64,
    /// How often it has started, by its own count, such as the time at which it did: a higher one takes the place of a
    /// lower one, and the same one says the same again.
    epoch: u64,
    /// How long it lasts without a heartbeat; what the class of its lease says unless said, which is 15 s.
    ttl_ms: i64,
    /// Whose it is; `SERVICE/ID` unless said.
    holder: String,
    /// With a holder: the id of the new lease, drawn at random by the client, so that a retry is the same request.
    /// Without: the living lease that it is to hang on.
    lease: Option<Id>,
    /// With the lease id and the holder it tells a retry from another request.
    request: u64,
    /// The class of the new lease; `registration` unless said.
    class: String,
    /// The lease that the new one ends with.
    parent: Option<Id>,
    /// What the new lease is for, in a sentence.
    reason: String,
    /// With `lease` and without a holder: the number of this request, counted up from 1, so that a copy of it that arrives late
    /// registers nothing.
    number: u64,
    /// With `number`: every request about this lease with a lower number than this was answered.
    answered_below: u64,
}

impl RegisterBody {
    /// The message that gRPC would have carried.
    fn message(self, of: &Instanced) -> Result<v1::RegisterRequest, Problem> {
        let is_given = self.holder.is_empty() && self.lease.is_some();
        let has_terms = self.ttl_ms != 0 || self.request != 0 || !self.class.is_empty();
        if is_given && (has_terms || self.parent.is_some() || !self.reason.is_empty()) {
            return Err(tenure_api::BadRequest::Both("a living `lease` and the terms of a new one").into());
        }
        let lease = self.lease.map_or(0, |id| id.0);
        let grant = v1::GrantRequest {
            lease,
            holder: if self.holder.is_empty() { format!("{}/{}", of.service, of.id) } else { self.holder },
            ttl_ms: self.ttl_ms,
            request: self.request,
            class: self.class,
            parent: self.parent.map_or(0, |id| id.0),
            reason: self.reason,
            ..v1::GrantRequest::default()
        };
        Ok(v1::RegisterRequest {
            service: of.service.clone(),
            id: of.id.clone(),
            epoch: self.epoch,
            lease: if is_given { lease } else { 0 },
            number: self.number,
            answered_below: self.answered_below,
            grant: (!is_given).then_some(grant),
            details: Some(v1::Details {
                endpoints: self.endpoints,
                capabilities: self.capabilities,
                labels: self.labels,
                zone: self.zone,
                weight: self.weight,
                version: self.version,
                checks: self.checks,
                on_critical: self.on_critical.map_or(0, |word| v1::OnCritical::from(word).into()),
                revoke_after_ms: self.revoke_after_ms,
            }),
        })
    }
}

/// Registers an instance. With an epoch it can be repeated: then it says the same again, or something else, and is a
/// heartbeat, too.
#[utoipa::path(put, path = "/v1/instances/{*instance}", tag = "registry",
    params(("instance" = String, Path, description = "SERVICE/ID; the service may have slashes.")),
    request_body = RegisterBody,
    responses((status = 200, description = "Registered. Count the TTL from the moment the request was sent.",
        body = v1::RegisterReply), NotDone))]
pub(super) async fn register(
    door: HttpDoor,
    instance: Instanced,
    Body(body): Body<RegisterBody>,
) -> Answer<v1::RegisterReply> {
    let message = body.message(&instance)?;
    match door.desk.order(Ask::Register(message.clone())).await {
        Ok(Tell::Register(reply)) => Ok(Json(reply)),
        Ok(other) => unreachable!("a command is answered by a reply of its own kind, not {other:?}"),
        Err(failure) if is_own(&failure, &message) => again(&door, &instance.key()?, message).await,
        Err(failure) => Err(failure.into()),
    }
}

/// Whether what stands in the way is the same instance, registered in this epoch by the same holder before. Whoever has
/// drawn the id of its lease says by that what is the same.
fn is_own(failure: &v1::Failure, message: &v1::RegisterRequest) -> bool {
    let grant = message.grant.as_ref().filter(|grant| grant.lease == 0);
    code_of(failure) == Some(Code::InstanceExists)
        && message.epoch != 0
        && message.epoch == failure.epoch
        && grant.is_some_and(|grant| grant.holder == failure.holder)
}

/// Registers on the lease that the instance hangs on already, and renews that.
async fn again(door: &HttpDoor, key: &InstanceKey, message: v1::RegisterRequest) -> Answer<v1::RegisterReply> {
    let lease = door.desk.lease_of(key, (message.epoch, 0), false).await?;
    let ttl_ms = message.grant.as_ref().map_or(0, |grant| grant.ttl_ms);
    let message = v1::RegisterRequest { grant: None, lease: lease.number(), ..message };
    let registered: Answer<v1::RegisterReply> = ordered!(door, Register(message));
    let Json(reply) = registered?;
    let ttl_ms = renew(door, lease, ttl_ms).await?;
    Ok(Json(v1::RegisterReply { ttl_ms, ..reply }))
}

/// Renews a lease, and says for how long.
async fn renew(door: &HttpDoor, lease: LeaseId, ttl_ms: i64) -> Result<u64, v1::Failure> {
    let ask = v1::RenewRequest { leases: vec![lease.number()], ttls_ms: vec![ttl_ms], ..v1::RenewRequest::default() };
    let Tell::Renew(mut reply) = door.desk.order(Ask::Renew(ask)).await? else {
        unreachable!("a command is answered by a reply of its own kind")
    };
    match reply.failures.pop().and_then(|one| one.failure) {
        Some(failure) => Err(failure),
        None => Ok(reply.ttls_ms.first().copied().unwrap_or_default()),
    }
}

/// Whose life is meant.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Beat {
    /// Only if it was registered in this epoch.
    epoch: u64,
    /// Only if it hangs on this lease.
    lease: String,
    /// How long it lasts from now on without another; as before unless said.
    ttl_ms: i64,
}

/// An instance that was heard of.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Heard {
    lease: Id,
    /// How long it lasts without a heartbeat.
    ttl_ms: u64,
    /// How long it lasts from now on: count from the moment the request was sent. Less than the TTL only if its lease may
    /// not be renewed any further.
    remaining_ms: u64,
    /// What is shown of it.
    health: Option<HealthWord>,
    /// Whether it drains: it is to finish what it has, and gets nothing new.
    draining: bool,
}

/// Says that an instance is alive: it renews its lease. If there is no such instance it has to be registered again.
#[utoipa::path(put, path = "/v1/heartbeat/{*instance}", tag = "registry",
    params(("instance" = String, Path, description = "SERVICE/ID; the service may have slashes."), Beat),
    responses((status = 200, description = "Heard.", body = Heard), NotDone))]
pub(super) async fn heartbeat(door: HttpDoor, instance: Instanced, Asked(beat): Asked<Beat>) -> Answer<Heard> {
    let key = instance.key()?;
    let named = if beat.lease.is_empty() { 0 } else { read_id(&beat.lease)? };
    let (lease, remaining_ms) = match beaten(&door, &key, (named, &beat), true).await {
        // This node's own copy may be behind.
        Err(failure) if is_over(&failure) => beaten(&door, &key, (named, &beat), false).await?,
        beaten => beaten?,
    };
    let shown = door.desk.node().read_stale(|ledger| {
        let instance = ledger.instance(&key).filter(|instance| instance.lease() == lease)?;
        let ttl_ms = ledger.lease(lease)?.ttl().millis();
        Some((ttl_ms, HealthWord::from(instance.overall()), instance.draining().is_some()))
    });
    let (ttl_ms, health, draining) = match shown {
        Some((ttl_ms, health, draining)) => (ttl_ms, Some(health), draining),
        None => (remaining_ms, None, false),
    };
    Ok(Json(Heard { lease: Id(lease.number()), ttl_ms, remaining_ms, health, draining }))
}

async fn beaten(
    door: &HttpDoor,
    key: &InstanceKey,
    (named, beat): (u64, &Beat),
    stale: bool,
) -> Result<(LeaseId, u64), v1::Failure> {
    let lease = door.desk.lease_of(key, (beat.epoch, named), stale).await?;
    Ok((lease, renew(door, lease, beat.ttl_ms).await?))
}

/// Whether there is no such life.
fn is_over(failure: &v1::Failure) -> bool {
    let over = [Code::NoInstance, Code::OlderEpoch, Code::OtherLease, Code::NoLease, Code::Lapsed];
    code_of(failure).is_some_and(|code| over.contains(&code))
}

/// What a check found.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"check": "ready", "health": "passing", "note": "warmed up"}))]
pub(super) struct HealthBody {
    /// The name of the check, which the instance was registered with.
    check: String,
    health: Option<HealthWord>,
    /// What was found, in a sentence.
    note: String,
    /// Only if it was registered in this epoch.
    epoch: u64,
    /// Only if it hangs on this lease.
    lease: Option<Id>,
}

/// Tells what a check of an instance found.
#[utoipa::path(put, path = "/v1/health/{*instance}", tag = "registry",
    params(("instance" = String, Path, description = "SERVICE/ID; the service may have slashes.")),
    request_body = HealthBody,
    responses((status = 200, description = "Known.", body = v1::SetHealthReply), NotDone))]
pub(super) async fn set_health(
    door: HttpDoor,
    instance: Instanced,
    Body(body): Body<HealthBody>,
) -> Answer<v1::SetHealthReply> {
    let lease = match body.lease {
        Some(lease) => lease.0,
        None => door.desk.lease_of(&instance.key()?, (body.epoch, 0), false).await?.number(),
    };
    ordered!(
        door,
        SetHealth(v1::SetHealthRequest {
            service: instance.service,
            id: instance.id,
            lease,
            check: body.check,
            health: body.health.map_or(0, |word| v1::Health::from(word).into()),
            note: body.note,
        })
    )
}

/// What is said otherwise of an instance; what is absent stays as it is.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"weight": 5}))]
pub(super) struct UpdateBody {
    /// Only if it hangs on this lease.
    lease: Option<Id>,
    endpoints: Option<Vec<String>>,
    capabilities: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
    /// Empty: none from now on.
    zone: Option<String>,
    weight: Option<u32>,
    /// Empty: none from now on.
    version: Option<String>,
    /// A check that stays as it was keeps what it found.
    checks: Option<Vec<v1::Check>>,
    on_critical: Option<OnCriticalWord>,
    /// With `revoke`: how long it may be critical.
    revoke_after_ms: i64,
}

/// Changes what an instance says of itself, in part.
#[utoipa::path(patch, path = "/v1/instances/{*instance}", tag = "registry",
    params(("instance" = String, Path, description = "SERVICE/ID; the service may have slashes.")),
    request_body = UpdateBody,
    responses((status = 200, description = "Changed.", body = v1::UpdateInstanceReply), NotDone))]
pub(super) async fn update(
    door: HttpDoor,
    instance: Instanced,
    Body(body): Body<UpdateBody>,
) -> Answer<v1::UpdateInstanceReply> {
    ordered!(
        door,
        UpdateInstance(v1::UpdateInstanceRequest {
            service: instance.service,
            id: instance.id,
            lease: body.lease.map_or(0, |id| id.0),
            endpoints: body.endpoints.map(|items| v1::Endpoints { items }),
            capabilities: body.capabilities.map(|items| v1::Capabilities { items }),
            labels: body.labels.map(|labels| v1::LabelSet { labels }),
            zone: body.zone,
            weight: body.weight,
            version: body.version,
            checks: body.checks.map(|items| v1::Checks { items }),
            on_critical: body.on_critical.map_or(0, |word| v1::OnCritical::from(word).into()),
            revoke_after_ms: body.revoke_after_ms,
        })
    )
}

/// By whose order, and why.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Ordered {
    /// Who orders it, for the history; `SERVICE/ID`, if that is left out.
    by: String,
    reason: String,
    /// Only if it hangs on this lease.
    lease: String,
}

impl Ordered {
    fn message(self, instance: Instanced, undrain: bool) -> Result<v1::DrainRequest, Problem> {
        let Instanced { service, id } = instance;
        let by = if self.by.is_empty() { format!("{service}/{id}") } else { self.by };
        let lease = if self.lease.is_empty() { 0 } else { read_id(&self.lease)? };
        Ok(v1::DrainRequest { service, id, undrain, by, reason: self.reason, lease })
    }
}

/// Keeps new work from an instance.
#[utoipa::path(put, path = "/v1/drain/{*instance}", tag = "registry",
    params(("instance" = String, Path, description = "SERVICE/ID; the service may have slashes."), Ordered),
    responses((status = 200, description = "It drains.", body = v1::DrainReply), NotDone))]
pub(super) async fn drain(
    door: HttpDoor,
    instance: Instanced,
    Asked(ordered): Asked<Ordered>,
) -> Answer<v1::DrainReply> {
    ordered!(door, Drain(ordered.message(instance, false)?))
}

/// Lets an instance have new work again.
#[utoipa::path(delete, path = "/v1/drain/{*instance}", tag = "registry",
    params(("instance" = String, Path, description = "SERVICE/ID; the service may have slashes."), Ordered),
    responses((status = 200, description = "It does not drain.", body = v1::DrainReply), NotDone))]
pub(super) async fn undrain(
    door: HttpDoor,
    instance: Instanced,
    Asked(ordered): Asked<Ordered>,
) -> Answer<v1::DrainReply> {
    ordered!(door, Drain(ordered.message(instance, true)?))
}

/// Which life ends, and by whose order if it is not its own will.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Leaving {
    /// Only if it was registered in this epoch.
    epoch: u64,
    /// Only if it hangs on this lease.
    lease: String,
    /// Somebody else than the instance orders it, who: then it was revoked, not released.
    by: String,
    reason: String,
}

/// Takes an instance out. A lease that was made for it ends with it, unless something else hangs on that lease.
#[utoipa::path(delete, path = "/v1/instances/{*instance}", tag = "registry",
    params(("instance" = String, Path, description = "SERVICE/ID; the service may have slashes."), Leaving),
    responses((status = 200, description = "It is gone.", body = v1::DeregisterReply), NotDone))]
pub(super) async fn deregister(
    door: HttpDoor,
    instance: Instanced,
    Asked(leaving): Asked<Leaving>,
) -> Answer<v1::DeregisterReply> {
    let lease = match leaving.lease.as_str() {
        "" if leaving.epoch == 0 => 0,
        "" => door.desk.lease_of(&instance.key()?, (leaving.epoch, 0), false).await?.number(),
        text => read_id(text)?,
    };
    let is_forced = !leaving.by.is_empty() || !leaving.reason.is_empty();
    let force = is_forced.then_some(v1::Force { by: leaving.by, reason: leaving.reason, now: false });
    let Instanced { service, id, .. } = instance;
    ordered!(door, Deregister(v1::DeregisterRequest { service, id, lease, force, ..v1::DeregisterRequest::default() }))
}

/// Shows one instance in full: how it is, why it is shown so, and how those before it ended.
#[utoipa::path(get, path = "/v1/instances/{*instance}", tag = "registry",
    params(("instance" = String, Path, description = "SERVICE/ID; the service may have slashes."), Fresh),
    responses((status = 200, description = "The instance.", body = v1::ShowInstanceReply), NotRead))]
pub(super) async fn show(
    door: HttpDoor,
    Instanced { service, id }: Instanced,
    Asked(fresh): Asked<Fresh>,
) -> Answer<v1::ShowInstanceReply> {
    Ok(Json(door.desk.show_instance(&v1::ShowInstanceRequest { service, id, stale: fresh.stale }).await?))
}
