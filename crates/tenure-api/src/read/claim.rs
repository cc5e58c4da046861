//! What is asked of resources: claims, cancels, breaks, transfers, definitions.

use super::value::{
    capacity, epoch_if_said, fence_or_all, force, free, mode, number, number_of_given, priority, read_handle,
    read_lease, read_name, span, span_if_said,
};
use super::{Draw, lease};
use crate::bad::BadRequest;
use crate::v1;
use tenure_core::limits::{BREAK_DELAY_MS_MAX, LOCK_DELAY_MS_MAX, RESOURCES_MAX, TTL_MS_MAX};
use tenure_core::{Acquire, Break, Cancel, Define, Mode, Name, On, Proof, Secret, Transfer, Wait, Want};

pub(super) fn acquire(acquire: &v1::AcquireRequest, draw: Draw<'_>) -> Result<Acquire, BadRequest> {
    Ok(Acquire {
        on: match (&acquire.grant, acquire.lease) {
            (Some(grant), 0) => On::New(lease::grant(grant, draw)?),
            (None, lease) if lease != 0 => On::Given(read_lease(lease)?),
            _ => return Err(BadRequest::OneLease),
        },
        wants: wants(acquire)?,
        wait: wait(acquire)?,
        priority: priority(acquire.priority)?,
        lock_delay: span("a lock-delay", acquire.lock_delay_ms, LOCK_DELAY_MS_MAX)?,
        epoch: epoch_if_said(acquire.epoch)?,
        request: number_of_given(acquire.grant.is_none(), acquire.number, acquire.answered_below)?,
        secret: Secret::new(acquire.release_secret),
    })
}

fn wants(acquire: &v1::AcquireRequest) -> Result<Vec<Want>, BadRequest> {
    if acquire.wants.is_empty() {
        let resource = read_name(&acquire.resource)?;
        return Ok(vec![Want { resource, mode: Mode::Exclusive, capacity: None }]);
    }
    one_or_several(&acquire.resource, acquire.wants.len())?;
    let wants = acquire.wants.iter().map(want).collect::<Result<Vec<_>, _>>()?;
    none_twice(wants.iter().map(|want| &want.resource))?;
    Ok(wants)
}

fn want(want: &v1::Want) -> Result<Want, BadRequest> {
    Ok(Want {
        resource: read_name(&want.resource)?,
        mode: mode(want.mode, want.units)?,
        capacity: if want.capacity == 0 { None } else { Some(capacity(want.capacity)?) },
    })
}

fn wait(acquire: &v1::AcquireRequest) -> Result<Wait, BadRequest> {
    let limit = span_if_said("a wait limit", acquire.wait_limit_ms, TTL_MS_MAX)?;
    match limit {
        limit if acquire.wait => Ok(Wait::InLine { limit }),
        Some(_) => Err(BadRequest::NoWait),
        None => Ok(Wait::Never),
    }
}

pub(super) fn cancel(cancel: &v1::CancelRequest) -> Result<Cancel, BadRequest> {
    let (lease, resources) = (read_lease(cancel.lease)?, cancelled(cancel)?);
    let proof = Proof::of(Secret::new(cancel.release_secret));
    Ok(Cancel { lease, resources, request: number(cancel.number, cancel.answered_below)?, proof })
}

fn cancelled(cancel: &v1::CancelRequest) -> Result<Vec<Name>, BadRequest> {
    if cancel.resources.is_empty() {
        return Ok(vec![read_name(&cancel.resource)?]);
    }
    one_or_several(&cancel.resource, cancel.resources.len())?;
    let resources = cancel.resources.iter().map(|name| read_name(name)).collect::<Result<Vec<_>, _>>()?;
    none_twice(resources.iter())?;
    Ok(resources)
}

fn one_or_several(one: &str, several: usize) -> Result<(), BadRequest> {
    if !one.is_empty() {
        return Err(BadRequest::OneOrSeveral);
    }
    if several > RESOURCES_MAX {
        return Err(BadRequest::ManyResources(several));
    }
    Ok(())
}

fn none_twice<'a>(names: impl Iterator<Item = &'a Name> + Clone) -> Result<(), BadRequest> {
    let mut rest = names;
    while let Some(name) = rest.next() {
        if rest.clone().any(|other| other == name) {
            return Err(BadRequest::Twice(name.clone()));
        }
    }
    Ok(())
}

pub(super) fn break_claims(order: &v1::BreakRequest) -> Result<Break, BadRequest> {
    Ok(Break {
        resource: read_name(&order.resource)?,
        fence: fence_or_all(order.fence)?,
        force: force(&order.by, &order.reason, free(order.now))?,
        delay: span("a delay", order.delay_ms, BREAK_DELAY_MS_MAX)?,
    })
}

pub(super) fn transfer(transfer: &v1::TransferRequest) -> Result<Transfer, BadRequest> {
    let by_other = transfer.force.as_ref();
    Ok(Transfer {
        handle: read_handle(&transfer.handle)?,
        to: read_lease(transfer.to)?,
        force: by_other.map(|order| force(&order.by, &order.reason, free(order.now))).transpose()?,
    })
}

pub(super) fn define(define: &v1::DefineResourceRequest) -> Result<Define, BadRequest> {
    Ok(Define { resource: read_name(&define.resource)?, capacity: define.capacity.map(capacity).transpose()? })
}
