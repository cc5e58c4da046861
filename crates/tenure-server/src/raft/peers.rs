//! The way to other nodes. A cluster of one has none, so every call says that nobody is there.

use super::types::Types;
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use std::future::Future;
use std::io;
use std::sync::Arc;

/// The peers of a cluster of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone;

fn nobody() -> Unreachable<Types> {
    Unreachable::new(&io::Error::new(io::ErrorKind::NotConnected, "a cluster of one has no peers"))
}

impl RaftNetworkFactory<Types> for Alone {
    type Network = Self;

    async fn new_client(&mut self, _target: u64, _node: &super::types::Member) -> Self {
        Self
    }
}

impl RaftNetworkV2<Types> for Alone {
    type SnapshotData = Arc<Vec<u8>>;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(RPCError::Unreachable(nobody()))
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(RPCError::Unreachable(nobody()))
    }

    async fn pre_vote(
        &mut self,
        _rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(RPCError::Unreachable(nobody()))
    }

    async fn full_snapshot(
        &mut self,
        _vote: super::types::RaftVote,
        _snapshot: openraft::alias::SnapshotOf<Types, Self::SnapshotData>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(StreamingError::Unreachable(nobody()))
    }

    async fn transfer_leader(
        &mut self,
        _request: TransferLeaderRequest<Types>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        Err(RPCError::Unreachable(nobody()))
    }
}
