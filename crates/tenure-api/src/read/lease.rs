//! What is asked of leases: grants, renewals, revokes, classes.

use super::Draw;
use super::value::{
    force, free, kind, lifetime, note, policy, read_class_name, read_handle, read_holder, read_label, read_lease,
    read_prefix, span, ttl, ttl_if_said,
};
use crate::bad::BadRequest;
use crate::v1;
use crate::v1::revoke_request::Which as Asked;
use tenure_core::limits::{GRACE_MS_MAX, RENEWALS_MAX, TTL_MS_MAX, TTL_MS_MIN};
use tenure_core::{BadText, Class, Grant, Labels, LeaseId, Renew, RenewHandle, Renewal, Revoke, Ttl, Which};

pub(super) fn grant(grant: &v1::GrantRequest, draw: Draw<'_>) -> Result<Grant, BadRequest> {
    let class = if grant.class.is_empty() { None } else { Some(read_class_name(&grant.class)?) };
    let labels = grant.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Ok(Grant {
        lease: if grant.lease == 0 { draw() } else { read_lease(grant.lease)? },
        holder: read_holder(&grant.holder)?,
        request: grant.request,
        ttl: if class.is_some() { ttl_if_said(grant.ttl_ms)? } else { Some(ttl(grant.ttl_ms)?) },
        class,
        grace: grant.grace_ms.map(grace).transpose()?,
        lifetime: lifetime(grant.lifetime_ms, grant.lifetime_while_others_wait)?,
        parent: if grant.parent == 0 { None } else { Some(read_lease(grant.parent)?) },
        labels: Labels::parse(labels).map_err(BadRequest::Label)?,
        reason: note(&grant.reason)?,
    })
}

fn grace(ms: i64) -> Result<tenure_core::Span, BadRequest> {
    span("a grace", ms, GRACE_MS_MAX)
}

pub(super) fn renew(renew: &v1::RenewRequest) -> Result<Renew, BadRequest> {
    if renew.leases.len() > RENEWALS_MAX {
        return Err(BadRequest::TooMany(renew.leases.len()));
    }
    if !renew.ttls_ms.is_empty() && renew.ttls_ms.len() != renew.leases.len() {
        return Err(BadRequest::Ttls);
    }
    let ttls = renew.ttls_ms.iter().copied().chain(std::iter::repeat(0));
    let renewals = renew.leases.iter().zip(ttls);
    let renewals = renewals.map(|(lease, ms)| Ok(Renewal { lease: read_lease(*lease)?, ttl: ttl_if_said(ms)? }));
    Ok(Renew { leases: renewals.collect::<Result<_, BadRequest>>()?, kind: kind(renew.kind)? })
}

pub(super) fn renew_handle(renew: &v1::RenewHandleRequest) -> Result<RenewHandle, BadRequest> {
    Ok(RenewHandle { handle: read_handle(&renew.handle)?, ttl: ttl_if_said(renew.ttl_ms)?, kind: kind(renew.kind)? })
}

pub(super) fn revoke(revoke: &v1::RevokeRequest) -> Result<Revoke, BadRequest> {
    let from = &revoke.from;
    let which = match revoke.which.as_ref().ok_or(BadRequest::Missing("which leases"))? {
        Asked::Lease(_) if !from.is_empty() => return Err(BadRequest::From),
        Asked::Lease(lease) => Which::Lease(read_lease(*lease)?),
        // Everything at once is never what somebody meant who forgot to say what.
        Asked::Prefix(prefix) if prefix.is_empty() => return Err(BadRequest::Prefix(BadText::Empty)),
        Asked::Prefix(prefix) => {
            Which::Prefix { prefix: read_prefix(prefix)?, from: read_prefix(from).map_err(|_| BadRequest::From)? }
        }
        Asked::Holder(holder) => Which::Holder { holder: read_holder(holder)?, from: lease_from(from)? },
        Asked::Label(label) => Which::Label { label: read_label(label)?, from: lease_from(from)? },
    };
    Ok(Revoke { which, force: force(&revoke.by, &revoke.reason, free(revoke.now))? })
}

/// The `next` of a reply that counts by leases: a lease's number, or nothing at first.
fn lease_from(from: &str) -> Result<Option<LeaseId>, BadRequest> {
    if from.is_empty() {
        return Ok(None);
    }
    from.parse().ok().and_then(LeaseId::from_number).map(Some).ok_or(BadRequest::From)
}

pub(super) fn class(class: &v1::Class) -> Result<Class, BadRequest> {
    let or = |ms: i64, bound: u64| Ok(ttl_if_said(ms)?.unwrap_or(bound_ttl(bound)));
    Ok(Class {
        name: read_class_name(&class.name)?,
        ttl: ttl(class.ttl_ms)?,
        ttl_min: or(class.ttl_min_ms, TTL_MS_MIN)?,
        ttl_max: or(class.ttl_max_ms, TTL_MS_MAX)?,
        renew: policy(class.renew)?,
        grace: grace(class.grace_ms)?,
        lifetime: lifetime(class.lifetime_ms, class.lifetime_while_others_wait)?,
    })
}

fn bound_ttl(ms: u64) -> Ttl {
    Ttl::from_millis(ms).expect("the bounds of the range are in the range")
}
