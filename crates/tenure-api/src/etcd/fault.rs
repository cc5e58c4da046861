//! The no of the etcd dialect: codes and texts, which etcd's clients match word by word.

use tenure_core::{Refusal, TXN_DEPTH, TXN_OPS_ALL};
use tonic::{Code, Status};

/// Why something was not done, in etcd's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The code of gRPC.
    pub code: Code,
    /// The text.
    pub text: String,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $code:ident, $text:literal;)*) => {
        impl Fault {
            $($(#[$doc])* pub fn $name() -> Self {
                Self { code: Code::$code, text: $text.into() }
            })*
        }
    };
}

faults! {
    /// A key is empty.
    empty_key = InvalidArgument, "etcdserver: key is not provided";
    /// What should be kept is not there.
    key_not_found = InvalidArgument, "etcdserver: key not found";
    /// A value that should be kept is given as well.
    value_provided = InvalidArgument, "etcdserver: value is provided";
    /// A lease that should be kept is given as well.
    lease_provided = InvalidArgument, "etcdserver: lease is provided";
    /// A transaction is too long.
    too_many_ops = InvalidArgument, "etcdserver: too many operations in txn request";
    /// A transaction writes a key twice.
    duplicate_key = InvalidArgument, "etcdserver: duplicate key given in txn request";
    /// There is no such order.
    bad_sort = InvalidArgument, "etcdserver: invalid sort option";
    /// A revision is forgotten.
    compacted = OutOfRange, "etcdserver: mvcc: required revision has been compacted";
    /// A revision is to come.
    future = OutOfRange, "etcdserver: mvcc: required revision is a future revision";
    /// The quota is used up.
    no_space = ResourceExhausted, "etcdserver: mvcc: database space exceeded";
    /// There is no such lease.
    no_lease = NotFound, "etcdserver: requested lease not found";
    /// There is one with this number.
    lease_exists = FailedPrecondition, "etcdserver: lease already exists";
    /// A TTL is out of bounds.
    long_ttl = OutOfRange, "etcdserver: too large lease TTL";
    /// A request is too large.
    too_large = InvalidArgument, "etcdserver: request is too large";
    /// Too much is under way.
    too_many_requests = ResourceExhausted, "etcdserver: too many requests";
    /// Nobody leads.
    no_leader = Unavailable, "etcdserver: no leader";
    /// There was no answer in time.
    timed_out = Unavailable, "etcdserver: request timed out";
    /// The same, and a leader was lost meanwhile: whether it was done is not known.
    timed_out_by_leader = Unavailable, "etcdserver: request timed out, possibly due to previous leader failure";
    /// The server is stopping.
    stopped = Unavailable, "etcdserver: server stopped";
    /// Nobody is asked who they are.
    auth_not_enabled = FailedPrecondition, "etcdserver: authentication is not enabled";
    /// A name and a password do not belong together.
    auth_failed = InvalidArgument, "etcdserver: authentication failed, invalid user ID or password";
    /// A token is none.
    bad_token = Unauthenticated, "etcdserver: invalid auth token";
    /// No token was shown.
    no_user = InvalidArgument, "etcdserver: user name is empty";
    /// A key may not do this.
    denied = PermissionDenied, "etcdserver: permission denied";
    /// There is no such member.
    no_member = NotFound, "etcdserver: member not found";
    /// Nobody has won the election.
    election_no_leader = Unknown, "election: no leader";
    /// Another leads.
    election_not_leader = Unknown, "election: not leader";
    /// A leader's key is missing.
    no_leader_key = Unknown, "\"leader\" field must be provided";
    /// The lease of whoever waits has ended.
    session_expired = Unknown, "mutex: session is expired";
}

impl Fault {
    /// A no that etcd does not know, in our words.
    pub fn ours(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// As gRPC says it.
    pub fn status(&self) -> Status {
        Status::new(self.code, self.text.clone())
    }
}

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        Self { code: status.code(), text: status.message().into() }
    }
}

impl From<&Refusal> for Fault {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NoKey { .. } => Self::key_not_found(),
            Refusal::NoLease { .. } | Refusal::Lapsed { .. } => Self::no_lease(),
            Refusal::Exists { .. } => Self::lease_exists(),
            Refusal::Compacted { .. } => Self::compacted(),
            Refusal::NotYet { .. } => Self::future(),
            Refusal::Full { what, .. } => match &**what {
                "bytes of all keys" => Self::no_space(),
                "bytes of a key with its value" => Self::too_large(),
                TXN_OPS_ALL | TXN_DEPTH => Self::too_many_ops(),
                _ => Self::ours(Code::ResourceExhausted, format!("tenure: {refusal}")),
            },
            Refusal::Overloaded { .. } => Self::too_many_requests(),
            Refusal::Denied { .. } => Self::denied(),
            Refusal::TooManyLeases { .. } => Self::ours(Code::ResourceExhausted, format!("tenure: {refusal}")),
            other => Self::ours(Code::FailedPrecondition, format!("tenure: {other}")),
        }
    }
}
