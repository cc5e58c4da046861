//! The load on a Tenure server.

use crate::claims::{Claim, Claims};
use crate::measure::{Figures, Tally, figures};
use crate::server::{PATIENCE, Server};
use crate::{Args, Failure};
use futures::future::try_join_all;
use std::time::{Duration, Instant};
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, Conversation, v1};

/// Starts the nodes, and waits until one of them leads.
pub(crate) async fn start(args: &Args) -> Result<Server, Failure> {
    let mut server = Server::start(&args.binary, &args.data, args.nodes, |seat| {
        let mut flags = vec!["serve".into(), "--listen".into(), format!("127.0.0.1:{}", seat.port)];
        flags.extend(["--data-dir".into(), seat.data]);
        flags.extend(["--election-timeout".into(), args.election_timeout.clone()]);
        if seat.peers.len() > 1 {
            let peers: Vec<String> =
                seat.peers.iter().enumerate().map(|(at, port)| format!("{}=127.0.0.1:{port}", at + 1)).collect();
            flags.extend(["--node-id".into(), seat.number.to_string(), "--peers".into(), peers.join(",")]);
        }
        flags
    })
    .await?;
    let start = Instant::now();
    loop {
        for node in &server.nodes {
            let client = Client::connect(&node.addr).await?;
            if client.status(v1::StatusRequest {}).await?.leads {
                server.addr.clone_from(&node.addr);
                return Ok(server);
            }
        }
        if start.elapsed() > PATIENCE {
            return Err("no node leads".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
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

/// From the kill of the leader to the next grant, by a client that knows all nodes. With `leases` that live all the while.
pub(crate) async fn failover(args: &Args, leases: usize) -> Result<Figures, Failure> {
    let mut server = start(args).await?;
    grant_all(&server, leases).await?;
    let client = Client::connect(&server.addrs()).await?;
    let claim = |number: u64| {
        let grant = v1::GrantRequest { lease: number, holder: "bench".into(), ttl_ms: 60_000, ..Default::default() };
        v1::AcquireRequest { resource: format!("failover/{number}"), grant: Some(grant), ..Default::default() }
    };
    client.acquire(claim(1)).await?;
    let leader = server.addr.clone();
    let node = server.nodes.iter_mut().find(|node| node.addr == leader).ok_or("the leader is one of the nodes")?;
    node.process.kill().await?;
    let killed = Instant::now();
    let mut number = 2;
    while client.acquire(claim(number)).await.is_err() {
        number += 1;
        if killed.elapsed() > PATIENCE {
            return Err("nothing is granted after the leader was killed".into());
        }
    }
    let mut tally = Tally::default();
    tally.add(killed, 1);
    Ok(figures(vec![tally], killed.elapsed()))
}
