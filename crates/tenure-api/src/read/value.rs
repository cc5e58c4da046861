//! The values that requests are made of.

use crate::bad::BadRequest;
use crate::v1;
use tenure_core::limits::NAME_BYTES_MAX;
use tenure_core::{
    BadText, Counts, Epoch, Fence, Force, Free, Handle, Holder, Key, Kind, Label, LeaseId, Lifetime, Mode, Name, Note,
    Policy, Priority, RequestNumber, Span, Ttl, Units,
};

/// Reads the name of a resource.
pub fn read_name(text: &str) -> Result<Name, BadRequest> {
    Name::parse(text).map_err(BadRequest::Name)
}

/// Reads how names start. Nothing but the length is wrong with a prefix that no name can have.
pub fn read_prefix(text: &str) -> Result<String, BadRequest> {
    match text.len() {
        bytes if bytes > NAME_BYTES_MAX => Err(BadRequest::Prefix(BadText::TooLong { bytes, max: NAME_BYTES_MAX })),
        _ => Ok(text.to_owned()),
    }
}

/// Reads a holder's name.
pub fn read_holder(text: &str) -> Result<Holder, BadRequest> {
    Holder::parse(text).map_err(BadRequest::Holder)
}

/// Reads the name of a class.
pub fn read_class_name(text: &str) -> Result<Name, BadRequest> {
    Name::parse(text).map_err(BadRequest::Class)
}

/// Reads a label.
pub fn read_label(label: &v1::Label) -> Result<Label, BadRequest> {
    Label::parse(&label.key, &label.value).map_err(BadRequest::Label)
}

/// Reads a handle.
pub fn read_handle(text: &str) -> Result<Handle, BadRequest> {
    Handle::parse(text).map_err(BadRequest::Handle)
}

/// Reads the id of a lease.
pub fn read_lease(number: u64) -> Result<LeaseId, BadRequest> {
    LeaseId::from_number(number).ok_or(BadRequest::Lease(number))
}

/// Reads a key.
pub fn read_key(bytes: &[u8]) -> Result<Key, BadRequest> {
    Key::parse(bytes).map_err(BadRequest::Key)
}

pub(super) fn note(text: &str) -> Result<Note, BadRequest> {
    Note::parse(text).map_err(BadRequest::Reason)
}

/// Who orders a forced end, why, and when what it takes is free.
pub(super) fn force(by: &str, reason: &str, free: Free) -> Result<Force, BadRequest> {
    Ok(Force { by: read_holder(by)?, reason: note(reason)?, free })
}

pub(super) fn free(now: bool) -> Free {
    if now { Free::Now } else { Free::WhenVacated }
}

pub(super) fn fence_or_all(number: u64) -> Result<Option<Fence>, BadRequest> {
    match number {
        0 => Ok(None),
        _ => Fence::from_number(number).map(Some).ok_or(BadRequest::Fence(number)),
    }
}

pub(super) fn ttl(ms: i64) -> Result<Ttl, BadRequest> {
    let ms = u64::try_from(ms).map_err(|_| BadRequest::NegativeTtl(ms))?;
    Ttl::from_millis(ms).map_err(BadRequest::Ttl)
}

pub(super) fn ttl_if_said(ms: i64) -> Result<Option<Ttl>, BadRequest> {
    if ms == 0 { Ok(None) } else { ttl(ms).map(Some) }
}

/// A length of time, and what it is called if it cannot be one.
pub(super) fn span(what: &'static str, ms: i64, max_ms: u64) -> Result<Span, BadRequest> {
    let ms = u64::try_from(ms).map_err(|_| BadRequest::NegativeSpan { what, ms })?;
    Span::at_most(ms, max_ms).map_err(|bad| BadRequest::Span { what, bad })
}

pub(super) fn span_if_said(what: &'static str, ms: i64, max_ms: u64) -> Result<Option<Span>, BadRequest> {
    if ms == 0 { Ok(None) } else { span(what, ms, max_ms).map(Some) }
}

pub(super) fn lifetime(ms: i64, while_others_wait: bool) -> Result<Option<Lifetime>, BadRequest> {
    let span = span_if_said("a maximum lifetime", ms, tenure_core::limits::TTL_MS_MAX)?;
    match span {
        Some(span) if while_others_wait => Ok(Some(Lifetime { span, counts: Counts::WhileOthersWait })),
        Some(span) => Ok(Some(Lifetime { span, counts: Counts::Always })),
        None if while_others_wait => Err(BadRequest::NoLifetime),
        None => Ok(None),
    }
}

pub(super) fn mode(mode: i32, units: u64) -> Result<Mode, BadRequest> {
    match v1::Mode::try_from(mode).map_err(|_| BadRequest::Mode(mode))? {
        v1::Mode::Units => Units::from_number(units).map(Mode::Units).ok_or(BadRequest::Units(units)),
        _ if units != 0 => Err(BadRequest::UnitsOfMode),
        v1::Mode::Unspecified | v1::Mode::Exclusive => Ok(Mode::Exclusive),
        v1::Mode::Shared => Ok(Mode::Shared),
    }
}

pub(super) fn capacity(number: u64) -> Result<Units, BadRequest> {
    Units::from_number(number).ok_or(BadRequest::Capacity(number))
}

pub(super) fn priority(number: i32) -> Result<Priority, BadRequest> {
    Priority::from_number(number).ok_or(BadRequest::Priority(number))
}

pub(super) fn epoch_if_said(number: u64) -> Result<Option<Epoch>, BadRequest> {
    match i64::try_from(number) {
        Ok(_) => Ok(Epoch::from_number(number)),
        Err(_) => Err(BadRequest::Epoch(number)),
    }
}

pub(super) fn kind(kind: i32) -> Result<Kind, BadRequest> {
    match v1::RenewKind::try_from(kind).map_err(|_| BadRequest::Kind(kind))? {
        v1::RenewKind::Auto => Ok(Kind::Auto),
        v1::RenewKind::Touch => Ok(Kind::Touch),
        v1::RenewKind::Explicit => Ok(Kind::Explicit),
    }
}

pub(super) fn policy(policy: i32) -> Result<Policy, BadRequest> {
    match v1::RenewPolicy::try_from(policy).map_err(|_| BadRequest::Policy(policy))? {
        v1::RenewPolicy::Unspecified | v1::RenewPolicy::Auto => Ok(Policy::Auto),
        v1::RenewPolicy::Activity => Ok(Policy::Activity),
        v1::RenewPolicy::Explicit => Ok(Policy::Explicit),
        v1::RenewPolicy::Never => Ok(Policy::Never),
    }
}

/// The number of a request, if it has one.
pub(super) fn number(number: u64, answered_below: u64) -> Result<Option<RequestNumber>, BadRequest> {
    if number == 0 && answered_below == 0 {
        return Ok(None);
    }
    RequestNumber::new(number, answered_below).map(Some).ok_or(BadRequest::Number(number))
}

/// The same for a request that must be about a lease that lives.
pub(super) fn number_of_given(
    is_given: bool,
    it: u64,
    answered_below: u64,
) -> Result<Option<RequestNumber>, BadRequest> {
    match number(it, answered_below)? {
        Some(_) if !is_given => Err(BadRequest::NumberOfNew),
        read => Ok(read),
    }
}
