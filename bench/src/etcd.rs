//! The calls of etcd, by one and the same client, against etcd and against Tenure: one run after another, the same load.

use crate::measure::{Figures, Tally, figures};
use crate::server::{PATIENCE, Server};
use crate::{Args, Failure, tenure_load};
use futures::future::try_join_all;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::kv_client::KvClient;
use tenure_api::etcd::etcdserverpb::lease_client::LeaseClient;
use tenure_api::etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use tenure_api::etcd::v3lockpb::lock_client::LockClient;
use tenure_api::etcd::v3lockpb::{LockRequest, UnlockRequest};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

/// Renewals under way on one stream.
const OUTSTANDING: usize = 256;

/// Clients that want one lock.
const RIVALS: usize = 16;

/// How long the leases live that end together: long enough to make them all, also for who is slow.
const SHARED_TTL: Duration = Duration::from_secs(90);

/// How long all of them may take to end.
const ENDING_PATIENCE: Duration = Duration::from_secs(300);

/// Whose server it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Tenure,
    Etcd,
}

/// What is asked of it.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    Grant,
    Put,
    KeepAlive,
    Lock,
    Expiry,
}

/// The rows of this page.
pub(crate) const ROWS: [(&str, Load, Whose); 10] = [
    ("etcd's calls: grant, tenure", Load::Grant, Whose::Tenure),
    ("etcd's calls: grant, etcd", Load::Grant, Whose::Etcd),
    ("etcd's calls: put, tenure", Load::Put, Whose::Tenure),
    ("etcd's calls: put, etcd", Load::Put, Whose::Etcd),
    ("etcd's calls: keepalive on one stream, tenure", Load::KeepAlive, Whose::Tenure),
    ("etcd's calls: keepalive on one stream, etcd", Load::KeepAlive, Whose::Etcd),
    ("etcd's calls: 16 clients want one lock, tenure", Load::Lock, Whose::Tenure),
    ("etcd's calls: 16 clients want one lock, etcd", Load::Lock, Whose::Etcd),
    ("etcd's calls: leases due together, tenure", Load::Expiry, Whose::Tenure),
    ("etcd's calls: leases due together, etcd", Load::Expiry, Whose::Etcd),
];

/// Runs one of them. None: there is no etcd.
pub(crate) async fn run(args: &Args, load: Load, whose: Whose) -> Result<Option<Figures>, Failure> {
    if whose == Whose::Etcd && tokio::process::Command::new(&args.etcd).arg("--version").output().await.is_err() {
        return Ok(None);
    }
    let server = match whose {
        Whose::Tenure => tenure_load::start(args).await?,
        Whose::Etcd => start(args).await?,
    };
    let addr = leader(&server).await?;
    let run = match load {
        Load::Grant => grant(args, &addr).await,
        Load::Put => put(args, &addr).await,
        Load::KeepAlive => keep_alive(args, &addr).await,
        Load::Lock => lock(args, &addr).await,
        Load::Expiry => expiry(args, &addr).await,
    };
    run.map(Some)
}

async fn start(args: &Args) -> Result<Server, Failure> {
    Server::start(&args.etcd, &args.data, args.nodes, |seat| {
        let client = format!("http://127.0.0.1:{}", seat.port);
        let peer = |at: usize| format!("http://127.0.0.1:{}", seat.peers[at]);
        let all: Vec<String> = (0..seat.peers.len()).map(|at| format!("n{}={}", at + 1, peer(at))).collect();
        let (name, us, all) = (format!("n{}", seat.number), peer(seat.number - 1), all.join(","));
        let flags = ["--data-dir", &seat.data, "--listen-client-urls", &client, "--advertise-client-urls", &client];
        let peers = ["--listen-peer-urls", &us, "--initial-advertise-peer-urls", &us, "--initial-cluster", &all];
        flags.into_iter().chain(peers).chain(["--name", &name]).map(String::from).collect()
    })
    .await
}

async fn channel(addr: &str) -> Result<Channel, Failure> {
    Ok(Endpoint::from_shared(addr.to_owned())?.tcp_nodelay(true).connect().await?)
}

/// The node that leads: clients of both are connected to their leader.
async fn leader(server: &Server) -> Result<String, Failure> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        for node in &server.nodes {
            let mut client = MaintenanceClient::new(channel(&node.addr).await?);
            let Ok(status) = client.status(pb::StatusRequest {}).await else { continue };
            let status = status.into_inner();
            if status.leader != 0 && status.header.is_some_and(|header| header.member_id == status.leader) {
                return Ok(node.addr.clone());
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err("no node leads".into())
}

/// So many clients, each with a connection of its own, do one thing after the other.
async fn each<F>(count: usize, addr: &str, work: impl Fn(usize, Channel) -> F) -> Result<Figures, Failure>
where
    F: Future<Output = Result<Tally, Failure>> + Send + 'static,
{
    let mut clients = Vec::new();
    for number in 0..count {
        clients.push(work(number, channel(addr).await?));
    }
    let start = Instant::now();
    let done = try_join_all(clients.into_iter().map(tokio::spawn)).await?;
    Ok(figures(done.into_iter().collect::<Result<_, _>>()?, start.elapsed()))
}

async fn grant(args: &Args, addr: &str) -> Result<Figures, Failure> {
    let time = args.time();
    each(args.clients, addr, |_, channel| async move {
        let (mut client, mut tally, start) = (LeaseClient::new(channel), Tally::default(), Instant::now());
        while start.elapsed() < time {
            let sent = Instant::now();
            client.lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 0 }).await?;
            tally.add(sent, 1);
        }
        Ok(tally)
    })
    .await
}

async fn put(args: &Args, addr: &str) -> Result<Figures, Failure> {
    let time = args.time();
    each(args.clients, addr, |number, channel| async move {
        let (mut client, mut tally, start) = (KvClient::new(channel), Tally::default(), Instant::now());
        for n in 0_u64.. {
            if start.elapsed() >= time {
                break;
            }
            let sent = Instant::now();
            let key = format!("bench/{number}/{}", n % 1000).into_bytes();
            client.put(pb::PutRequest { key, value: vec![b'x'; 64], ..Default::default() }).await?;
            tally.add(sent, 1);
        }
        Ok(tally)
    })
    .await
}

/// A stream of renewals, with some of them under way.
struct Renewing {
    asks: mpsc::Sender<pb::LeaseKeepAliveRequest>,
    answers: Streaming<pb::LeaseKeepAliveResponse>,
    sent: VecDeque<Instant>,
}

impl Renewing {
    async fn open(channel: Channel) -> Result<Self, Failure> {
        let (asks, asked) = mpsc::channel(OUTSTANDING);
        let mut client = LeaseClient::new(channel);
        let answers = client.lease_keep_alive(ReceiverStream::new(asked));
        // The stream is answered once something was asked.
        asks.send(pb::LeaseKeepAliveRequest { id: 1 }).await?;
        let mut answers = answers.await?.into_inner();
        answers.message().await?;
        Ok(Self { asks, answers, sent: VecDeque::new() })
    }

    async fn ask(&mut self, id: i64) -> Result<(), Failure> {
        self.sent.push_back(Instant::now());
        Ok(self.asks.send(pb::LeaseKeepAliveRequest { id }).await?)
    }

    async fn answer(&mut self) -> Result<Instant, Failure> {
        let reply = self.answers.message().await?.ok_or("the stream has ended")?;
        if reply.ttl <= 0 {
            return Err("a renewal found no lease".into());
        }
        Ok(self.sent.pop_front().ok_or("an answer to nothing")?)
    }
}

async fn keep_alive(args: &Args, addr: &str) -> Result<Figures, Failure> {
    let channel = channel(addr).await?;
    let mut leases = Vec::new();
    for _ in 0..OUTSTANDING {
        let granted = LeaseClient::new(channel.clone()).lease_grant(pb::LeaseGrantRequest { ttl: 600, id: 0 }).await?;
        leases.push(granted.into_inner().id);
    }
    let (mut renewing, mut tally) = (Renewing::open(channel).await?, Tally::default());
    let mut next = leases.iter().cycle();
    let start = Instant::now();
    while start.elapsed() < args.time() {
        while renewing.sent.len() < OUTSTANDING {
            renewing.ask(*next.next().ok_or("there are leases")?).await?;
        }
        let sent = renewing.answer().await?;
        tally.add(sent, 1);
    }
    Ok(figures(vec![tally], start.elapsed()))
}

async fn lock(args: &Args, addr: &str) -> Result<Figures, Failure> {
    let time = args.time();
    each(RIVALS, addr, |_, channel| async move {
        let granted = LeaseClient::new(channel.clone()).lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 0 }).await?;
        let lease = granted.into_inner().id;
        let (mut client, mut tally, start) = (LockClient::new(channel), Tally::default(), Instant::now());
        while start.elapsed() < time {
            let sent = Instant::now();
            let key = client.lock(LockRequest { name: b"bench".to_vec(), lease }).await?.into_inner().key;
            tally.add(sent, 1);
            client.unlock(UnlockRequest { key }).await?;
        }
        Ok(tally)
    })
    .await
}

/// Many leases with a key each that are renewed together and then left alone: how long after the last was due all are gone.
async fn expiry(args: &Args, addr: &str) -> Result<Figures, Failure> {
    let share = args.leases.div_ceil(args.clients);
    let ttl = i64::try_from(SHARED_TTL.as_secs())?;
    let mut makers = Vec::new();
    for number in 0..args.clients {
        let channel = channel(addr).await?;
        makers.push(tokio::spawn(async move {
            let (mut leases, mut keys) = (LeaseClient::new(channel.clone()), KvClient::new(channel));
            let mut made = Vec::new();
            for n in 0..share {
                let lease = leases.lease_grant(pb::LeaseGrantRequest { ttl, id: 0 }).await?.into_inner().id;
                let key = format!("due/{number}/{n}").into_bytes();
                keys.put(pb::PutRequest { key, lease, ..Default::default() }).await?;
                made.push(lease);
            }
            Ok::<_, Failure>(made)
        }));
    }
    let made = try_join_all(makers).await?.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    let mut renewing = Renewing::open(channel(addr).await?).await?;
    let mut left = made.iter();
    loop {
        while renewing.sent.len() < OUTSTANDING
            && let Some(lease) = left.next()
        {
            renewing.ask(*lease).await?;
        }
        if renewing.sent.is_empty() {
            break;
        }
        renewing.answer().await?;
    }
    let due = Instant::now() + SHARED_TTL;
    tokio::time::sleep_until(due.into()).await;
    let mut keys = KvClient::new(channel(addr).await?);
    let all = pb::RangeRequest { key: b"due/".to_vec(), range_end: b"due0".to_vec(), ..Default::default() };
    let all = pb::RangeRequest { count_only: true, ..all };
    while keys.range(all.clone()).await?.into_inner().count > 0 {
        if due.elapsed() > ENDING_PATIENCE {
            return Err("the leases do not end".into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut tally = Tally::default();
    tally.add(due, made.len() as u64);
    Ok(figures(vec![tally], due.elapsed()))
}
