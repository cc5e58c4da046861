//! Requests become commands here, once: what passes is valid, what does not is refused with a stable code.

mod claim;
mod key;
mod lease;
mod registry;
#[cfg(test)]
mod tests;
mod value;

pub use registry::{read_details, read_instance, read_service, read_wanted, read_word};
pub use value::{read_class_name, read_handle, read_holder, read_key, read_label, read_lease, read_name, read_prefix};

use crate::bad::BadRequest;
use crate::v1::request::Body;
use tenure_core::{Command, LeaseId, Proof, Release, ReleaseLease, Secret};

/// Draws a lease id for a client that left this to the server.
pub type Draw<'a> = &'a dyn Fn() -> LeaseId;

/// Reads one request as a command.
pub fn read_request(body: Option<Body>, draw: Draw<'_>) -> Result<Command, BadRequest> {
    Ok(match body.ok_or(BadRequest::Empty)? {
        Body::Grant(grant) => Command::Grant(lease::grant(&grant, draw)?),
        Body::Acquire(acquire) => Command::Acquire(claim::acquire(&acquire, draw)?),
        Body::Renew(renew) => Command::Renew(lease::renew(&renew)?),
        Body::RenewHandle(renew) => Command::RenewHandle(lease::renew_handle(&renew)?),
        Body::Release(release) => Command::Release(Release {
            handle: read_handle(&release.handle)?,
            proof: Proof::of(Secret::new(release.release_secret)),
        }),
        Body::ReleaseLease(release) => Command::ReleaseLease(ReleaseLease {
            lease: read_lease(release.lease)?,
            proof: Proof::of(Secret::new(release.release_secret)),
        }),
        Body::Cancel(cancel) => Command::Cancel(claim::cancel(&cancel)?),
        Body::Revoke(revoke) => Command::Revoke(lease::revoke(&revoke)?),
        Body::BreakClaims(order) => Command::Break(claim::break_claims(&order)?),
        Body::Transfer(transfer) => Command::Transfer(claim::transfer(&transfer)?),
        Body::DefineResource(define) => Command::Define(claim::define(&define)?),
        Body::SetClass(set) => Command::SetClass(lease::class(&set.class.ok_or(BadRequest::Missing("which class"))?)?),
        Body::Put(put) => Command::Put(key::put(&put)?),
        Body::Delete(delete) => Command::Delete(key::delete(&delete)?),
        Body::Register(register) => Command::Register(registry::register(&register, draw)?),
        Body::UpdateInstance(update) => Command::UpdateInstance(registry::update(&update)?),
        Body::Drain(drain) => Command::Drain(registry::drain(&drain)?),
        Body::Deregister(order) => Command::Deregister(registry::deregister(&order)?),
        Body::SetHealth(set) => Command::SetHealth(registry::set_health(&set)?),
    })
}
