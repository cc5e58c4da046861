//! The load on a Tenure server.

use crate::claims::{Claim, Claims};
use crate::measure::{Figures, Tally, figures};
use crate::server::Server;
use crate::{Args, Failure};
use futures::future::try_join_all;
use std::time::{Duration, Instant};
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, Conversation, v1};

pub(crate) async fn start(args: &Args) -> Result<Server, Failure> {
    Server::start(&args.binary, &args.data, |port, data| {
        ["serve", "--listen", &format!("127.0.0.1:{port}"), "--data-dir", data].map(String::from).into()
    })
    .await
}

impl Claims for Conversation {
    async fn open(server: &Server) -> Result<Self, Failure> {
        Ok(Client::connect(&server.addr).await?.converse().await?)
    }

    async fn claim(&mut self, claim: Claim) -> Result<(), Failure> {
        let grant = v1::GrantRequest {
            lease: rand::random::<u64>() >> 1,
            holder: claim.holder,
            ttl_ms: claim.ttl_ms.into(),
            request: 1,
            ..Default::default()
        };
        let acquire = v1::AcquireRequest { resource: claim.resource, grant: Some(grant), ..Default::default() };
        self.send(v1::Request { id: 1, body: Some(Ask::Acquire(acquire)) }).await?;
        match self.next().await?.body {
            Some(Tell::Acquire(_)) => Ok(()),
            other => Err(format!("an acquire was answered {other:?}").into()),
        }
    }
}

pub(crate) async fn run(
    clients: impl Iterator<Item = impl Future<Output = Result<Tally, Failure>>>,
) -> Result<Figures, Failure> {
    let start = Instant::now();
    let tallies = try_join_all(clients).await?;
    Ok(figures(tallies, start.elapsed()))
}

/// Grants so many leases, in big steps.
async fn grant_all(server: &Server, count: usize) -> Result<Vec<u64>, Failure> {
    let mut stream = Conversation::open(server).await?;
    let leases: Vec<u64> = (0..count).map(|_| (rand::random::<u64>() >> 1).max(1)).collect();
    for some in leases.chunks(500) {
        for lease in some {
            let grant = v1::GrantRequest {
                lease: *lease,
                holder: "bench".into(),
                ttl_ms: 600_000,
                request: 1,
                ..Default::default()
            };
            stream.send(v1::Request { id: *lease, body: Some(Ask::Grant(grant)) }).await?;
        }
        for _ in some {
            stream.next().await?;
        }
    }
    Ok(leases)
}

/// Each client renews its own leases, `batch` at a time, with `ahead` requests in flight.
async fn renew(server: &Server, leases: &[u64], batch: usize, ahead: usize, time: Duration) -> Result<Tally, Failure> {
    let mut stream = Conversation::open(server).await?;
    let leases = leases.to_vec();
    let client = async move {
        let mut tally = Tally::default();
        let start = Instant::now();
        let mut sent = std::collections::VecDeque::new();
        let mut batches = leases.chunks(batch).cycle();
        loop {
            while sent.len() < ahead && start.elapsed() < time {
                let leases = batches.next().unwrap_or_default().to_vec();
                sent.push_back((Instant::now(), leases.len() as u64));
                let renew = v1::RenewRequest { leases, ..Default::default() };
                stream.send(v1::Request { id: 1, body: Some(Ask::Renew(renew)) }).await?;
            }
            let Some((at, count)) = sent.pop_front() else { return Ok::<Tally, Failure>(tally) };
            match stream.next().await?.body {
                Some(Tell::Renew(reply)) if reply.failures.is_empty() => tally.add(at, count),
                other => return Err(format!("a renewal was answered {other:?}").into()),
            }
        }
    };
    tokio::spawn(client).await?
}

/// Each client renews one lease after the other.
pub(crate) async fn renew_singly(args: &Args) -> Result<Figures, Failure> {
    let server = start(args).await?;
    let leases = grant_all(&server, args.clients).await?;
    run(leases.chunks(1).map(|mine| renew(&server, mine, 1, 1, args.time()))).await
}

/// Each client renews its share of all leases in batches.
pub(crate) async fn renew_in_batches(args: &Args) -> Result<Figures, Failure> {
    let server = start(args).await?;
    let leases = grant_all(&server, args.leases).await?;
    let share = leases.len().div_ceil(args.clients);
    run(leases.chunks(share).map(|mine| renew(&server, mine, args.batch, 1, args.time()))).await
}
