//! etcd's grants, by the same clients in the same run. Only the two messages that are needed are spelled out here.

use crate::measure::{Figures, Tally, figures};
use crate::server::{PATIENCE, Server};
use crate::{Args, Failure};
use futures::future::try_join_all;
use std::time::Instant;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
    #[prost(int64, tag = "3")]
    ttl: i64,
    #[prost(string, tag = "4")]
    error: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct StatusRequest {}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct ResponseHeader {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

/// The node that leads: clients of both are connected to their leader.
async fn leader(server: &Server) -> Result<String, Failure> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        for node in &server.nodes {
            let mut grpc = tonic::client::Grpc::new(Endpoint::from_shared(node.addr.clone())?.connect().await?);
            grpc.ready().await?;
            let path = PathAndQuery::from_static("/etcdserverpb.Maintenance/Status");
            let codec = ProstCodec::<StatusRequest, StatusResponse>::default();
            let Ok(status) = grpc.unary(tonic::Request::new(StatusRequest {}), path, codec).await else { continue };
            let status = status.into_inner();
            if status.leader != 0 && status.header.is_some_and(|header| header.member_id == status.leader) {
                return Ok(node.addr.clone());
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    Err("no node of etcd leads".into())
}

/// Each client grants one lease after the other. None: there is no etcd.
pub(crate) async fn grant(args: &Args) -> Result<Option<Figures>, Failure> {
    let is_there = tokio::process::Command::new(&args.etcd).arg("--version").output().await.is_ok();
    if !is_there {
        return Ok(None);
    }
    let server = Server::start(&args.etcd, &args.data, args.nodes, |seat| {
        let client = format!("http://127.0.0.1:{}", seat.port);
        let peer = |at: usize| format!("http://127.0.0.1:{}", seat.peers[at]);
        let all: Vec<String> = (0..seat.peers.len()).map(|at| format!("n{}={}", at + 1, peer(at))).collect();
        let (name, us, all) = (format!("n{}", seat.number), peer(seat.number - 1), all.join(","));
        let flags = ["--data-dir", &seat.data, "--listen-client-urls", &client, "--advertise-client-urls", &client];
        let peers = ["--listen-peer-urls", &us, "--initial-advertise-peer-urls", &us, "--initial-cluster", &all];
        flags.into_iter().chain(peers).chain(["--name", &name]).map(String::from).collect()
    })
    .await?;
    // Without a leader it answers with an error; the one who answers first is asked.
    let addr = leader(&server).await?;
    let time = args.time();
    let start = Instant::now();
    let clients = (0..args.clients).map(|_| {
        let endpoint = Endpoint::from_shared(addr.clone());
        tokio::spawn(async move {
            let mut grpc = tonic::client::Grpc::new(endpoint?.tcp_nodelay(true).connect().await?);
            let mut tally = Tally::default();
            while start.elapsed() < time {
                let sent = Instant::now();
                grpc.ready().await?;
                let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseGrant");
                let codec = ProstCodec::<LeaseGrantRequest, LeaseGrantResponse>::default();
                let request = tonic::Request::new(LeaseGrantRequest { ttl: 60, id: 0 });
                let reply = grpc.unary(request, path, codec).await?.into_inner();
                if reply.id == 0 {
                    return Err(format!("a grant was answered {reply:?}").into());
                }
                tally.add(sent, 1);
            }
            Ok::<Tally, Failure>(tally)
        })
    });
    let tallies = try_join_all(clients).await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(Some(figures(tallies, start.elapsed())))
}
