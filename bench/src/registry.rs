//! The registry: what heartbeats of many instances cost, how fast a change and an end are seen, how long a look takes.

use crate::measure::{Figures, Tally, figures};
use crate::server::{PATIENCE, Server};
use crate::tenure_load::{run, start};
use crate::{Args, Failure};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, Conversation, v1};
use tenure_api::v1::tenure_client::TenureClient;
use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

/// How often an instance says that it lives.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Watchers of one service, and on how many connections they are.
const WATCHERS: usize = 1000;
const CONNECTIONS: usize = 20;

/// Changes that all of them are told, one after the other.
const CHANGES: usize = 50;

/// Services, of which one is looked for, and instances that it has.
const SERVICES: usize = 10_000;
const INSTANCES: usize = 10;

/// Instances that fall silent, in cohorts that are too small to be guarded, and how long they are believed then.
const SILENT: usize = 1000;
const COHORT: usize = 8;
const TTL: Duration = Duration::from_secs(3);

/// Service time is counted in whole milliseconds.
const MILLISECOND: Duration = Duration::from_millis(1);

/// What is measured.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    Heartbeats,
    Watch,
    Discover,
    Expiry,
}

/// The rows of this page.
pub(crate) const ROWS: [(&str, Load); 4] = [
    ("registry: heartbeats of all instances, one every 10 s", Load::Heartbeats),
    ("registry: a change to 1,000 watchers", Load::Watch),
    ("registry: one service among 10,000", Load::Discover),
    ("registry: silent instances, gone after their TTL", Load::Expiry),
];

pub(crate) async fn measure(args: &Args, load: Load) -> Result<Figures, Failure> {
    let server = start(args).await?;
    match load {
        Load::Heartbeats => heartbeats(args, &server).await,
        Load::Watch => watch(&server).await,
        Load::Discover => discover(args, &server).await,
        Load::Expiry => expiry(&server).await,
    }
}

async fn caller(server: &Server) -> Result<TenureClient<Channel>, Failure> {
    let channel = Endpoint::from_shared(server.addr.clone())?.tcp_nodelay(true).connect().await?;
    Ok(TenureClient::new(channel))
}

fn register(service: String, id: usize, ttl: Duration) -> Result<v1::RegisterRequest, Failure> {
    let grant = v1::GrantRequest {
        lease: (rand::random::<u64>() >> 1).max(1),
        holder: format!("agent-{id}"),
        ttl_ms: i64::try_from(ttl.as_millis())?,
        request: 1,
        ..Default::default()
    };
    let details = v1::Details {
        endpoints: vec![format!("http://10.{}.{}.{}:8080", id >> 16 & 255, id >> 8 & 255, id & 255)],
        capabilities: vec!["chat".into(), "tools".into()],
        zone: format!("zone-{}", id % 3),
        ..Default::default()
    };
    Ok(v1::RegisterRequest {
        service,
        id: format!("i{id}"),
        grant: Some(grant),
        details: Some(details),
        ..Default::default()
    })
}

/// Registers all of them, in big steps, and tells their leases.
async fn register_all(server: &Server, requests: &[v1::RegisterRequest]) -> Result<Vec<u64>, Failure> {
    let mut stream: Conversation = Client::connect(&server.addr).await?.converse().await?;
    let mut leases = Vec::new();
    for some in requests.chunks(500) {
        for (number, request) in (1..).zip(some) {
            stream.send(v1::Request { id: number, body: Some(Ask::Register(request.clone())) }).await?;
        }
        for _ in some {
            match stream.next().await?.body {
                Some(Tell::Register(reply)) => leases.push(reply.lease),
                other => return Err(format!("a registration was answered {other:?}").into()),
            }
        }
    }
    Ok(leases)
}

/// Every instance is renewed by a message of its own each ten seconds. Also says what that costs the server.
async fn heartbeats(args: &Args, server: &Server) -> Result<Figures, Failure> {
    let before = Process::of(server)?;
    let requests: Result<Vec<_>, _> =
        (0..args.leases).map(|id| register(format!("agents/{}", id / 100), id, 3 * HEARTBEAT)).collect();
    let leases = register_all(server, &requests?).await?;
    let registered = Process::of(server)?;
    let time = args.time().max(HEARTBEAT);
    let begun = Instant::now();
    let share = leases.len().div_ceil(args.clients);
    let told = run(leases.chunks(share).map(|mine| beat(server, mine.to_vec(), time))).await?;
    let cores = (Process::of(server)?.busy - registered.busy).as_secs_f64() / begun.elapsed().as_secs_f64();
    let bytes = registered.resident.saturating_sub(before.resident) / leases.len() as u64;
    println!("{} instances: heartbeats take {cores:.2} cores of the server; {bytes} bytes an instance", leases.len());
    Ok(told)
}

/// Renews each of these leases in its turn, all of them once in the time of a heartbeat.
async fn beat(server: &Server, leases: Vec<u64>, time: Duration) -> Result<Tally, Failure> {
    let mut stream: Conversation = Client::connect(&server.addr).await?.converse().await?;
    let client = async move {
        let (mut tally, start) = (Tally::default(), Instant::now());
        let pause = HEARTBEAT.div_f64(leases.len() as f64);
        for (lease, n) in leases.iter().cycle().zip(0_u32..) {
            let due = start + pause * n;
            if due > start + time {
                break;
            }
            tokio::time::sleep_until(due.into()).await;
            let sent = Instant::now();
            let renew = v1::RenewRequest { leases: vec![*lease], ..Default::default() };
            stream.send(v1::Request { id: 1, body: Some(Ask::Renew(renew)) }).await?;
            match stream.next().await?.body {
                Some(Tell::Renew(reply)) if reply.failures.is_empty() => tally.add(sent, 1),
                other => return Err(format!("a heartbeat was answered {other:?}").into()),
            }
        }
        Ok::<Tally, Failure>(tally)
    };
    tokio::spawn(client).await?
}

/// What a server has used up, by the books of the kernel.
struct Process {
    busy: Duration,
    resident: u64,
}

impl Process {
    fn of(server: &Server) -> Result<Self, Failure> {
        let id = server.nodes.first().and_then(|node| node.process.id()).ok_or("the server has ended")?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        let (_, fields) = stat.rsplit_once(')').ok_or("no name in stat")?;
        let field = |at: usize| fields.split_whitespace().nth(at).and_then(|field| field.parse::<u64>().ok());
        // In hundredths of a second and pages of 4 KiB on every Linux that this runs on.
        let ticks = field(11).zip(field(12)).map(|(user, system)| user + system).ok_or("no times in stat")?;
        let pages = field(21).ok_or("no size in stat")?;
        Ok(Self { busy: Duration::from_millis(10 * ticks), resident: 4096 * pages })
    }
}

async fn watch_all(
    client: &mut TenureClient<Channel>,
    service: &str,
) -> Result<Streaming<v1::WatchInstancesReply>, Failure> {
    let asked = v1::WatchInstancesRequest { service: service.into(), ..Default::default() };
    let mut stream = client.watch_instances(asked).await?.into_inner();
    while !stream.message().await?.ok_or("the watch has ended")?.last {}
    Ok(stream)
}

/// How long after it was asked for a change reaches each of many watchers: the acknowledgement of the disk included.
async fn watch(server: &Server) -> Result<Figures, Failure> {
    let requests: Result<Vec<_>, _> = (0..INSTANCES).map(|id| register("agents".into(), id, 600 * TTL)).collect();
    register_all(server, &requests?).await?;
    let (heard, mut told) = mpsc::channel(WATCHERS);
    for _ in 0..CONNECTIONS {
        let mut client = caller(server).await?;
        for _ in 0..WATCHERS / CONNECTIONS {
            let (mut stream, heard) = (watch_all(&mut client, "agents").await?, heard.clone());
            tokio::spawn(async move {
                while let Ok(Some(reply)) = stream.message().await {
                    if !reply.put.is_empty() && heard.send(Instant::now()).await.is_err() {
                        return;
                    }
                }
            });
        }
    }
    let (mut client, mut tally, start) = (caller(server).await?, Tally::default(), Instant::now());
    for n in 0..CHANGES {
        let sent = Instant::now();
        let weight = Some(u32::try_from(n)? + 2);
        let change =
            v1::UpdateInstanceRequest { service: "agents".into(), id: "i0".into(), weight, ..Default::default() };
        client.update_instance(change).await?;
        for _ in 0..WATCHERS {
            let at = tokio::time::timeout(PATIENCE, told.recv()).await?.ok_or("no watcher is left")?;
            tally.add_latency(at - sent);
        }
    }
    Ok(figures(vec![tally], start.elapsed()))
}

/// One client looks for one service after the other, and hears of its instances.
async fn discover(args: &Args, server: &Server) -> Result<Figures, Failure> {
    let name = |number: usize| format!("agents/{number}");
    let all = (0..SERVICES * INSTANCES).map(|id| register(name(id / INSTANCES), id, 600 * TTL));
    register_all(server, &all.collect::<Result<Vec<_>, _>>()?).await?;
    let (mut client, mut tally, start) = (caller(server).await?, Tally::default(), Instant::now());
    while start.elapsed() < args.time() {
        let service = name(rand::random_range(0..SERVICES));
        let sent = Instant::now();
        let found = client.discover(v1::DiscoverRequest { service, ..Default::default() }).await?.into_inner();
        tally.add(sent, 1);
        if found.items.len() != INSTANCES {
            return Err("a service has lost instances".into());
        }
    }
    Ok(figures(vec![tally], start.elapsed()))
}

/// How long after its TTL, counted from when it was asked for, each silent instance is seen to be gone.
async fn expiry(server: &Server) -> Result<Figures, Failure> {
    let mut client = caller(server).await?;
    let asked = v1::WatchInstancesRequest { service_prefix: "agents/".into(), ..Default::default() };
    let mut stream = client.watch_instances(asked).await?.into_inner();
    let (mut sent, mut tally, mut seen) = (HashMap::new(), Tally::default(), 0);
    let start = Instant::now();
    for id in 0..SILENT {
        let request = register(format!("agents/{}", id / COHORT), id, TTL)?;
        sent.insert(request.id.clone(), Instant::now());
        client.register(request).await?;
    }
    while seen < SILENT {
        let reply = tokio::time::timeout(PATIENCE, stream.message()).await??.ok_or("the watch has ended")?;
        for gone in reply.removed {
            let at = *sent.get(&gone.id).ok_or("who was never there cannot go")?;
            let lived = at.elapsed();
            if lived + MILLISECOND < TTL {
                return Err("an instance was gone before its TTL".into());
            }
            tally.add_latency(lived.saturating_sub(TTL));
            seen += 1;
        }
    }
    Ok(figures(vec![tally], start.elapsed()))
}
