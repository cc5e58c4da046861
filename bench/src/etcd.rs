//! etcd's grants, by the same clients in the same run. Only the two messages that are needed are spelled out here.

use crate::measure::{Figures, Tally, figures};
use crate::server::Server;
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

/// Each client grants one lease after the other. None: there is no etcd.
pub(crate) async fn grant(args: &Args) -> Result<Option<Figures>, Failure> {
    let is_there = tokio::process::Command::new(&args.etcd).arg("--version").output().await.is_ok();
    if !is_there {
        return Ok(None);
    }
    let server = Server::start(&args.etcd, &args.data, |port, data| {
        let client = format!("http://127.0.0.1:{port}");
        let flags = ["--data-dir", data, "--listen-client-urls", &client, "--advertise-client-urls", &client];
        let peer = ["--listen-peer-urls", "http://127.0.0.1:0"];
        flags.into_iter().chain(peer).map(String::from).collect()
    })
    .await?;
    let time = args.time();
    let start = Instant::now();
    let clients = (0..args.clients).map(|_| {
        let endpoint = Endpoint::from_shared(server.addr.clone());
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
