//! The calls of a sequence, as both servers get them.

use tenure_api::etcd::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest,
    TxnRequest, WatchCreateRequest,
};

/// Lease ids from here on stand for those that the server picked: the first is `PICKED`, the second `PICKED + 1`.
pub(crate) const PICKED: i64 = 1 << 40;

/// The key that tells a test that all before it was heard.
pub(crate) const BELL: &[u8] = b"~";

/// Watch streams that are open at once.
pub(crate) const STREAMS: usize = 3;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Range(RangeRequest),
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Txn(TxnRequest),
    Compact(CompactionRequest),
    Grant(LeaseGrantRequest),
    Revoke(i64),
    TimeToLive(LeaseTimeToLiveRequest),
    Leases,
    KeepAlive(i64),
    /// Grants a short lease, hangs keys on it, and waits for its end.
    Expire {
        ttl: i64,
        keys: Vec<Vec<u8>>,
    },
    Watch {
        stream: usize,
        create: WatchCreateRequest,
    },
    Cancel {
        stream: usize,
        watch: i64,
    },
    Progress {
        stream: usize,
    },
    Reopen {
        stream: usize,
    },
    /// Rings the bell, and tells what every stream heard before it.
    Settle,
}

impl Step {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Range(_) => "range",
            Self::Put(_) => "put",
            Self::Delete(_) => "delete",
            Self::Txn(_) => "txn",
            Self::Compact(_) => "compact",
            Self::Grant(_) => "grant",
            Self::Revoke(_) => "revoke",
            Self::TimeToLive(_) => "time to live",
            Self::Leases => "leases",
            Self::KeepAlive(_) => "keep alive",
            Self::Expire { .. } => "expire",
            Self::Watch { .. } => "watch",
            Self::Cancel { .. } => "cancel",
            Self::Progress { .. } => "progress",
            Self::Reopen { .. } => "reopen",
            Self::Settle => "settle",
        }
    }
}
