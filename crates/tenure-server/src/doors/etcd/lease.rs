//! Leases, as etcd's clients ask for them. They are Tenure's leases, with times in seconds.

use super::access::of_stream;
use super::{EtcdDesk, Replies};
use crate::access::audit::Change;
use crate::limits::{KEEP_ALIVE_LOTS_MAX, KEEP_ALIVES_MAX};
use futures::{Stream, StreamExt};
use std::pin::pin;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::{Fault, read_lease};
use tenure_core::limits::TTL_MS_MAX;
use tenure_core::{Command, Grant, Kind, LeaseId, Proof, ReleaseLease, Renew, Renewal, Reply, Ttl};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// The TTL of a lease that asks for none, in seconds.
const TTL_SECONDS_MIN: i64 = 2;

fn number(lease: LeaseId) -> i64 {
    i64::try_from(lease.number()).unwrap_or(i64::MAX)
}

fn seconds(ms: u64) -> i64 {
    i64::try_from(ms / 1000).unwrap_or(i64::MAX)
}

impl EtcdDesk {
    pub(super) async fn lease_grant(&self, asked: pb::LeaseGrantRequest) -> Result<pb::LeaseGrantResponse, Fault> {
        let ttl = if asked.ttl <= 0 { TTL_SECONDS_MIN } else { asked.ttl };
        let ms = u64::try_from(ttl).ok().and_then(|seconds| seconds.checked_mul(1000));
        let ms = ms.filter(|ms| *ms <= TTL_MS_MAX).and_then(|ms| Ttl::from_millis(ms).ok());
        let ms = ms.ok_or_else(Fault::long_ttl)?;
        let lease = match asked.id {
            0 => self.node().draw_lease(),
            number => read_lease(number).ok_or_else(|| {
                Fault::ours(tonic::Code::InvalidArgument, "tenure: the number of a lease is not negative")
            })?,
        };
        let command = Command::Grant(Grant::plain(lease, self.holder(), ms, self.node().draw_number()));
        self.audited(Change::of(&command), self.submit(command)).await?;
        let header = Some(self.header_now());
        Ok(pb::LeaseGrantResponse { header, id: number(lease), ttl, error: String::new() })
    }

    pub(super) async fn lease_revoke(&self, asked: pb::LeaseRevokeRequest) -> Result<pb::LeaseRevokeResponse, Fault> {
        let lease = read_lease(asked.id).ok_or_else(Fault::no_lease)?;
        // Of claims on the lease, the caller need not know: their holders may still be at work.
        let command = Command::ReleaseLease(ReleaseLease { lease, proof: Proof::Nothing });
        let change = Change::of(&command);
        let answer = async {
            match self.submit(command).await? {
                // To give a lease back twice is no error by our rules, and one by etcd's.
                Reply::AlreadyReleased => Err(Fault::no_lease()),
                _ => Ok(()),
            }
        };
        self.audited(change, answer).await?;
        Ok(pb::LeaseRevokeResponse { header: Some(self.header_now()) })
    }

    pub(super) async fn time_to_live(
        &self,
        asked: pb::LeaseTimeToLiveRequest,
    ) -> Result<pb::LeaseTimeToLiveResponse, Fault> {
        let gone = pb::LeaseTimeToLiveResponse { id: asked.id, ttl: -1, ..pb::LeaseTimeToLiveResponse::default() };
        let (told, kv_revision) = self
            .read(false, |ledger, now| {
                let lease = read_lease(asked.id).and_then(|id| ledger.lease(id));
                self.may_see_lease(lease)?;
                let told = lease.map(|lease| pb::LeaseTimeToLiveResponse {
                    ttl: seconds(lease.ends_at().millis_since(now)),
                    granted_ttl: seconds(lease.ttl().millis()),
                    keys: lease.keys().filter(|_| asked.keys).map(|key| key.bytes().to_vec()).collect(),
                    ..gone.clone()
                });
                Ok::<_, Fault>((told, ledger.kv_revision()))
            })
            .await??;
        Ok(pb::LeaseTimeToLiveResponse { header: Some(self.header(kv_revision)), ..told.unwrap_or(gone) })
    }

    /// All leases, those that end first before the others.
    pub(super) async fn leases(&self) -> Result<pb::LeaseLeasesResponse, Fault> {
        self.read(false, |_, _| ()).await?;
        let (mut all, kv_revision) = self.look_at_leases().await;
        all.sort_unstable();
        let leases = all.into_iter().map(|(_, id)| pb::LeaseStatus { id: number(id) }).collect();
        Ok(pb::LeaseLeasesResponse { header: Some(self.header(kv_revision)), leases })
    }

    /// Renews leases as they are named, those that are named at once together, each answered in its turn. While one lot is
    /// on its way through the log the next is gathered.
    pub(super) fn keep_alives(
        &self,
        asked: impl Stream<Item = Result<pb::LeaseKeepAliveRequest, Status>> + Send + Unpin + 'static,
    ) -> Replies<pb::LeaseKeepAliveResponse> {
        let (replies, receiver) = mpsc::channel(KEEP_ALIVES_MAX);
        let desk = self.clone();
        tokio::spawn(async move {
            let lots = asked.ready_chunks(KEEP_ALIVES_MAX).map(|lot| desk.kept_alive(lot));
            let mut kept = pin!(lots.buffered(KEEP_ALIVE_LOTS_MAX));
            while let Some(answers) = kept.next().await {
                for answer in answers {
                    let is_last = answer.is_err();
                    if replies.send(answer).await.is_err() || is_last {
                        return;
                    }
                }
            }
        });
        ReceiverStream::new(receiver).boxed()
    }

    /// The answers to one lot. The last is an error if the stream is over after it.
    async fn kept_alive(
        &self,
        asked: Vec<Result<pb::LeaseKeepAliveRequest, Status>>,
    ) -> Vec<Result<pb::LeaseKeepAliveResponse, Status>> {
        let (mut leases, mut end) = (Vec::new(), None);
        for one in asked {
            match one {
                Ok(one) if end.is_none() => leases.push(one.id),
                Ok(_) => {}
                Err(status) => end = end.or(Some(Err(of_stream(status)))),
            }
        }
        // What was asked before the stream broke off is answered before that is.
        self.renewed(leases).await.into_iter().chain(end).collect()
    }

    async fn renewed(&self, leases: Vec<i64>) -> Vec<Result<pb::LeaseKeepAliveResponse, Status>> {
        if leases.is_empty() {
            return Vec::new();
        }
        match self.keep_alive(&leases).await {
            Ok(ttls) => {
                let header = Some(self.header_now());
                let reply = |(id, ttl)| Ok(pb::LeaseKeepAliveResponse { header, id, ttl });
                leases.into_iter().zip(ttls).map(reply).collect()
            }
            Err(fault) => vec![Err(fault.status())],
        }
    }

    /// Renews leases. The seconds of each in the order asked; 0 of one that is gone.
    async fn keep_alive(&self, asked: &[i64]) -> Result<Vec<i64>, Fault> {
        self.has_its_key()?;
        let ids: Vec<Option<LeaseId>> = asked.iter().map(|number| read_lease(*number)).collect();
        let leases: Vec<Renewal> = ids.iter().flatten().map(|lease| Renewal { lease: *lease, ttl: None }).collect();
        let mut renewed = match leases.is_empty() {
            true => Vec::new(),
            false => match self.submit(Command::Renew(Renew { leases, kind: Kind::Auto })).await? {
                Reply::Renewed(each) => each,
                other => unreachable!("a renewal is answered as one, not {other:?}"),
            },
        }
        .into_iter();
        let ttl = |id: &Option<LeaseId>| match id.and_then(|_| renewed.next()) {
            Some(Ok(renewed)) => seconds(renewed.ttl_ms).max(1),
            Some(Err(_)) | None => 0,
        };
        Ok(ids.iter().map(ttl).collect())
    }
}
