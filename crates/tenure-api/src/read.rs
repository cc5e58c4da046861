//! Requests become commands here, once: what passes is valid, what does not is refused with a stable code.

use crate::failure::Code;
use crate::v1;
use crate::v1::request::Body;
use tenure_core::limits::RENEWALS_MAX;
use tenure_core::{
    Acquire, BadHandle, BadText, BadTtl, Cancel, Command, Grant, Handle, Holder, LeaseId, Name, Note, On, Release,
    Renew, RenewHandle, Renewal, Revoke, Ttl, Wait,
};

/// Draws a lease id for a client that left this to the server.
pub type Draw<'a> = &'a dyn Fn() -> LeaseId;

/// Input that is refused at the door.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// The request says nothing.
    #[error("the request has no body that this server knows")]
    Empty,
    /// A claim on two leases, or on none.
    #[error("an acquire needs either `grant` or `lease`, not both")]
    OneLease,
    /// A resource name.
    #[error("the resource name is not valid: {0}")]
    Name(BadText),
    /// A holder's name.
    #[error("the holder is not valid: {0}")]
    Holder(BadText),
    /// A reason.
    #[error("the reason is not valid: {0}")]
    Reason(BadText),
    /// A TTL that is out of range.
    #[error("{0}")]
    Ttl(BadTtl),
    /// A TTL below zero.
    #[error("a TTL of {0} ms is below zero")]
    NegativeTtl(i64),
    /// A lease id.
    #[error("{0} is not a lease id: a whole number from 1 to 2^63 - 1")]
    Lease(u64),
    /// A handle.
    #[error("the handle is not valid: {0}")]
    Handle(BadHandle),
    /// TTLs that do not match the leases.
    #[error("a renewal needs one TTL for each lease, or none at all")]
    Ttls,
    /// Too many renewals in one request.
    #[error("{0} leases are more than the {RENEWALS_MAX} that one renewal may name")]
    TooMany(usize),
}

impl BadRequest {
    /// The stable code.
    pub const fn code(&self) -> Code {
        match self {
            Self::Empty | Self::OneLease | Self::Ttls => Code::BadRequest,
            Self::Name(_) => Code::BadName,
            Self::Holder(_) => Code::BadHolder,
            Self::Reason(_) => Code::BadReason,
            Self::Ttl(_) | Self::NegativeTtl(_) => Code::BadTtl,
            Self::Lease(_) => Code::BadLease,
            Self::Handle(_) => Code::BadHandle,
            Self::TooMany(_) => Code::TooMany,
        }
    }

    /// What the client is told.
    pub fn failure(&self) -> v1::Failure {
        let message = format!("{self}; nothing was changed");
        v1::Failure { code: self.code().text().into(), message, ..v1::Failure::default() }
    }
}

/// Reads one request as a command.
pub fn read_request(body: Option<Body>, draw: Draw<'_>) -> Result<Command, BadRequest> {
    Ok(match body.ok_or(BadRequest::Empty)? {
        Body::Grant(grant) => Command::Grant(read_grant(&grant, draw)?),
        Body::Acquire(acquire) => Command::Acquire(read_acquire(&acquire, draw)?),
        Body::Renew(renew) => Command::Renew(read_renew(&renew)?),
        Body::RenewHandle(renew) => Command::RenewHandle(RenewHandle {
            handle: read_handle(&renew.handle)?,
            ttl: read_ttl_or_keep(renew.ttl_ms)?,
        }),
        Body::Release(release) => Command::Release(Release { handle: read_handle(&release.handle)? }),
        Body::Cancel(cancel) => {
            Command::Cancel(Cancel { lease: read_lease(cancel.lease)?, resource: read_name(&cancel.resource)? })
        }
        Body::Revoke(revoke) => Command::Revoke(Revoke {
            lease: read_lease(revoke.lease)?,
            by: Holder::parse(&revoke.by).map_err(BadRequest::Holder)?,
            reason: Note::parse(&revoke.reason).map_err(BadRequest::Reason)?,
        }),
    })
}

fn read_grant(grant: &v1::GrantRequest, draw: Draw<'_>) -> Result<Grant, BadRequest> {
    Ok(Grant {
        lease: if grant.lease == 0 { draw() } else { read_lease(grant.lease)? },
        holder: Holder::parse(&grant.holder).map_err(BadRequest::Holder)?,
        ttl: read_ttl(grant.ttl_ms)?,
        request: grant.request,
    })
}

fn read_acquire(acquire: &v1::AcquireRequest, draw: Draw<'_>) -> Result<Acquire, BadRequest> {
    Ok(Acquire {
        on: match (&acquire.grant, acquire.lease) {
            (Some(grant), 0) => On::New(read_grant(grant, draw)?),
            (None, lease) if lease != 0 => On::Given(read_lease(lease)?),
            _ => return Err(BadRequest::OneLease),
        },
        resource: read_name(&acquire.resource)?,
        wait: if acquire.wait { Wait::InLine } else { Wait::Never },
    })
}

fn read_renew(renew: &v1::RenewRequest) -> Result<Renew, BadRequest> {
    if renew.leases.len() > RENEWALS_MAX {
        return Err(BadRequest::TooMany(renew.leases.len()));
    }
    if !renew.ttls_ms.is_empty() && renew.ttls_ms.len() != renew.leases.len() {
        return Err(BadRequest::Ttls);
    }
    let ttls = renew.ttls_ms.iter().copied().chain(std::iter::repeat(0));
    let renewals = renew.leases.iter().zip(ttls);
    let renewals = renewals.map(|(lease, ms)| Ok(Renewal { lease: read_lease(*lease)?, ttl: read_ttl_or_keep(ms)? }));
    Ok(Renew { leases: renewals.collect::<Result<_, BadRequest>>()? })
}

fn read_name(text: &str) -> Result<Name, BadRequest> {
    Name::parse(text).map_err(BadRequest::Name)
}

/// Reads a handle.
pub fn read_handle(text: &str) -> Result<Handle, BadRequest> {
    Handle::parse(text).map_err(BadRequest::Handle)
}

fn read_lease(number: u64) -> Result<LeaseId, BadRequest> {
    LeaseId::from_number(number).ok_or(BadRequest::Lease(number))
}

fn read_ttl(ms: i64) -> Result<Ttl, BadRequest> {
    let ms = u64::try_from(ms).map_err(|_| BadRequest::NegativeTtl(ms))?;
    Ttl::from_millis(ms).map_err(BadRequest::Ttl)
}

fn read_ttl_or_keep(ms: i64) -> Result<Option<Ttl>, BadRequest> {
    if ms == 0 { Ok(None) } else { read_ttl(ms).map(Some) }
}
