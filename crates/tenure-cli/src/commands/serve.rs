//! `tenure serve`: one durable node on this machine.

use super::stop_signal;
use crate::args::Serve;
use crate::audit_log::{AuditLog, Orders};
use crate::certificates::Certificates;
use crate::config::{Effective, Settings};
use crate::failure::Failure;
use crate::log::Voice;
use crate::place::{self, Plan};
use crate::print;
use crate::secure;
use crate::supervisor;
use crate::traces::Traces;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tenure_server::Host;
use tenure_server::Settings as Doors;
use tenure_server::disk::{Directory, SharedDisk};
use tenure_server::peers::Wire;
use tenure_server::raft::{BadEntry, Fault, OpenError};
use tenure_server::{
    Access, Begin, Clock, Environment, Lock, Node, PeerTls, Place, Served, SystemClock, SystemEntropy, Tuning, Workers,
};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) async fn serve(serve: Serve) -> Result<ExitCode, Failure> {
    let clock = Arc::new(SystemClock::start());
    let settings = Effective::of(&serve)?.settings;
    let traces = settings.otlp_endpoint.as_deref().map(|endpoint| Traces::open(endpoint, settings.otlp_ratio));
    let traces = traces.transpose()?;
    let audit = settings.audit_log.as_deref().map(AuditLog::open).transpose()?;
    let voice = Voice::raise(settings.log_format, &settings.log, traces.as_ref(), audit.as_ref())?;
    let orders = audit.as_ref().map(AuditLog::orders);
    let ended = run(settings, serve.said.try_entry_again, voice, (traces, orders), clock).await;
    if let Some(audit) = audit {
        audit.close();
    }
    match (ended, voice) {
        (Err(failure), Voice::Json) => Ok(failure.log()),
        (ended, _) => ended,
    }
}

async fn run(
    settings: Settings,
    try_entry_again: bool,
    voice: Voice,
    (traces, audit): (Option<Traces>, Option<Orders>),
    clock: Arc<SystemClock>,
) -> Result<ExitCode, Failure> {
    let what = "cannot serve";
    let directory = settings.data_dir.clone().ok_or_else(|| {
        Failure::usage(what, "neither $XDG_STATE_HOME nor $HOME is set", "Say where the data goes with --data-dir DIR.")
    })?;
    let lock = Lock::take(&directory).map_err(|error| Failure::new(what, &error.to_string(), ""))?;
    // The end of the process frees the lock and nothing before it: a stuck writer may outlive the serving.
    std::mem::forget(lock);
    if try_entry_again {
        forget_deaths(&directory)?;
    }
    let plan = place::of(&settings, what)?;
    let certificates = Certificates::open(&settings, what)?;
    let (tls, peer_tls) = (certificates.tls(), certificates.peer_tls());
    let access = secure::access(&settings, what)?;
    let secrets = secure::secrets(&settings);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let doors = Doors { tls, access: access.clone(), peers_speak_tls: peer_tls.is_some(), ..doors(&settings, what)? };
    let listener = bind(settings.listen, "--listen").await?;
    let for_etcd = listen_for_etcd(&settings, what).await?;
    let peers = peers(&settings, &plan).await?;
    voice.starting(&directory);
    let place = place(plan, scheme, &listener, peers.as_ref());
    let begins_alone = place.begin == Begin::Alone;
    let node = open(&directory, place, Wire::new(peer_tls.clone()), clock.clone(), voice).await?;
    let stop = stop_signal().map_err(|error| Failure::new(what, &error.to_string(), ""))?;
    let is_alone = begins_alone && !node.has_peers().await;
    match peers {
        Some(peers) => drop(tokio::spawn(answer_peers(node.clone(), peers, peer_tls))),
        None if !is_alone => return Err(unheard(what)),
        None => {}
    }
    let hangups = || signal(SignalKind::hangup()).map_err(|error| Failure::new(what, &error.to_string(), ""));
    if let Some(path) = settings.api_keys {
        tokio::spawn(read_keys_again(path, access, hangups()?));
    }
    if let Some(audit) = audit {
        tokio::spawn(AuditLog::keep(audit, node.clone(), hangups()?));
    }
    if !certificates.are_none() {
        tokio::spawn(certificates.keep(node.clone(), hangups()?));
    }
    let address = listener.local_addr().map_or_else(|_| String::from("?"), |address| format!("{scheme}://{address}"));
    let ready = async {
        node.ready().await.map_err(|why| Failure::new(&cannot_open(&directory), &why, "See the log above."))?;
        voice.ready(&node, &directory, &address, clock.monotonic());
        supervisor::ready();
        warn_of_readers(&directory, &secrets);
        Ok::<(), Failure>(())
    };
    let serve = async {
        let stop = async {
            stop.await;
            voice.stopping();
            supervisor::stopping();
        };
        tokio::spawn(supervisor::feed_watchdog(node.clone()));
        let listeners = [Some(listener), for_etcd].into_iter().flatten().collect();
        tenure_server::serve(node.clone(), listeners, &doors, stop).await
    };
    let served = if is_alone {
        // Whoever connects before waits in the kernel, and never hears that nobody leads.
        ready.await?;
        serve.await
    } else {
        // A node among others answers while they find each other. That it fails is told by serving.
        let ready = async {
            let _ = ready.await;
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            served = serve => served,
            never = ready => match never {},
        }
    };
    if let Some(traces) = traces {
        traces.close().await;
    }
    ended(served.map_err(|error| Failure::new(what, &error.to_string(), ""))?, voice)
}

/// How the process ends after it has served.
fn ended(served: Served, voice: Voice) -> Result<ExitCode, Failure> {
    match served {
        Served::Stopped => {
            voice.stopped();
            Ok(ExitCode::SUCCESS)
        }
        Served::Failed(why) => Err(Failure::new(
            "the server has stopped itself",
            &why,
            "Everything acknowledged is on disk. See When things break in docs/operating.md.",
        )),
    }
}

/// A member of a cluster that its peers could not reach.
fn unheard(what: &str) -> Failure {
    let why = "the data directory is of a cluster, and with these settings peers cannot come to this node safely";
    Failure::before(what, why, "Say --peer-tls-ca, --peer-tls-cert and --peer-tls-key, or --insecure.")
}

/// Reads the API keys anew at every SIGHUP. A file that cannot be used changes nothing.
async fn read_keys_again(path: PathBuf, access: Access, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        match secure::api_keys(&path, "the API keys are as they were") {
            Ok(keys) => {
                let count = keys.count();
                access.replace(keys);
                tracing::info!(path = %path.display(), keys = count, "the API keys were read again");
            }
            Err(failure) => drop(failure.log()),
        }
    }
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let why = format!("cannot listen on {address}: {error}");
        let next = format!("No data was changed. Choose another address with {flag}, or stop what listens there.");
        Failure::new("cannot serve", &why, &next)
    })
}

/// What the settings say of the doors, but for how they are shut.
fn doors(settings: &Settings, what: &str) -> Result<Doors, Failure> {
    let (compaction, probe_allow) = (place::compaction(settings, what)?, place::probe_allow(settings, what)?);
    let connections_per_address = Some(settings.connections_per_address);
    let hosts = settings.hosts.clone();
    Ok(Doors { hosts, compaction, probe_allow, connections_per_address, ..Doors::default() })
}

async fn listen_for_etcd(settings: &Settings, what: &str) -> Result<Option<TcpListener>, Failure> {
    match place::etcd_listen(settings, what)? {
        Some(address) => Ok(Some(bind(address, "--etcd-listen").await?)),
        None => Ok(None),
    }
}

/// Listens for peers. A node that is alone, and was not told where to listen for them, does without if it must.
async fn peers(settings: &Settings, plan: &Plan) -> Result<Option<TcpListener>, Failure> {
    if secure::is_deaf_to_peers(settings, &plan.begin) {
        return Ok(None);
    }
    match bind(plan.peer_listen, "--peer-listen").await {
        Ok(listener) => Ok(Some(listener)),
        Err(_) if settings.peer_listen.is_empty() && plan.begin == Begin::Alone => {
            let address = plan.peer_listen;
            tracing::warn!(%address, "something else listens where peers would look for this node: it stays alone");
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Data and secrets that other users of the machine can read are worth a line each, after those that say that the server is
/// ready.
fn warn_of_readers(directory: &Path, secrets: &[PathBuf]) {
    if let Some(mode) = tenure_server::mode_for_others(directory) {
        let (directory, mode) = (directory.display(), format!("{mode:o}"));
        tracing::warn!(%directory, mode, "the data directory can be read by other users; close it with chmod go-rwx");
    }
    for file in secrets {
        if let Some(mode) = tenure_server::mode_for_others(file) {
            let (file, mode) = (file.display(), format!("{mode:o}"));
            tracing::warn!(%file, mode, "a file with secrets can be read by other users; close it with chmod go-rwx");
        }
    }
}

fn place(plan: Plan, scheme: &str, listener: &TcpListener, peers: Option<&TcpListener>) -> Place {
    // Whoever listens on every interface has not said where it is.
    let bound = |listener: &TcpListener| match listener.local_addr() {
        Ok(address) if !address.ip().is_unspecified() => address.to_string(),
        _ => String::new(),
    };
    let client_addr = plan.advertise.unwrap_or_else(|| bound(listener));
    Place {
        node: plan.node,
        peer_addr: peers.map(|peers| plan.peer_advertise.unwrap_or_else(|| bound(peers))).unwrap_or_default(),
        client_addr: if client_addr.is_empty() { client_addr } else { format!("{scheme}://{client_addr}") },
        begin: plan.begin,
        election_timeout: plan.election_timeout,
    }
}

async fn answer_peers(node: Node, listener: TcpListener, tls: Option<PeerTls>) {
    let stopped = node.clone();
    let until = async move { drop(stopped.failed().await) };
    if let Err(error) = tenure_server::serve_peers(Host::new(node), listener, tls, until).await {
        tracing::error!(%error, "peers are not answered any longer");
    }
}

fn cannot_open(directory: &Path) -> String {
    format!("cannot open {}", directory.display())
}

/// The next start tries an entry again at which this node died.
fn forget_deaths(directory: &Path) -> Result<(), Failure> {
    let disk: SharedDisk = Arc::new(Directory::new(directory));
    tenure_server::raft::forget_deaths(&disk)
        .map_err(|error| Failure::before(&cannot_open(directory), &error.to_string(), "See who may write there."))
}

/// An entry of the log that stops every start.
fn stopped_by(directory: &Path, entry: &BadEntry) -> Failure {
    let (from, index) = (directory.display(), entry.index);
    let again = match entry.what {
        Fault::Died(_) => "Try it again with `tenure serve --try-entry-again`, or start a newer build.",
        Fault::Unreadable(_) | Fault::Panics => "Start a newer build, if there is one.",
    };
    let next = format!(
        "It is not started again. If other nodes of its cluster run, rebuild this one from them.\n        \
         {again}\n        \
         Or stop all nodes, and make a new cluster without the entry:\n        \
         tenure cluster recover --from {from} --skip-entry {index} --data-dir NEW\n        \
         See An entry that stops every node in docs/operating.md."
    );
    Failure::stuck(&cannot_open(directory), &entry.to_string(), &next)
}

async fn open(
    directory: &Path,
    place: Place,
    wire: Wire,
    clock: Arc<SystemClock>,
    voice: Voice,
) -> Result<Node, Failure> {
    let environment = Environment {
        clock,
        entropy: Arc::new(SystemEntropy),
        disk: Arc::new(Directory::new(directory)),
        workers: Workers::Threads,
        tuning: Tuning::default(),
        network: Arc::new(wire),
        place,
    };
    let opened = Node::open(environment).await;
    let (node, opened) = opened.map_err(|error| match error {
        OpenError::Entry(entry) => stopped_by(directory, &entry),
        error => Failure::new(&cannot_open(directory), &error.to_string(), ""),
    })?;
    if let Some(torn) = opened.torn {
        voice.recovered(&torn);
    }
    Ok(node)
}

/// What the server says of itself: in lines that people read at a glance, or as events with fields.
impl Voice {
    fn starting(self, directory: &Path) {
        if self == Self::Json {
            let pid = std::process::id();
            tracing::info!(version = env!("CARGO_PKG_VERSION"), data_dir = %directory.display(), pid, "starting");
        }
    }

    fn recovered(self, torn: &str) {
        let words = "the log ended in an unfinished write, as a crash leaves it";
        match self {
            Self::Text => print::say(&format!("{words}; cut {torn}")),
            Self::Json => tracing::warn!(cut = torn, "{words}"),
        }
    }

    fn ready(self, node: &Node, directory: &Path, address: &str, took: Duration) {
        let status = node.status();
        let (listen, data_dir) = (address, directory.display());
        let (leases, took_ms) = (status.leases as u64, took.as_millis());
        if self == Self::Json {
            let (term, took_ms) = (status.leads_in, u64::try_from(took_ms).unwrap_or(u64::MAX));
            tracing::info!(listen, %data_dir, leases, term, took_ms, "ready");
            return;
        }
        let leases = print::count(leases, "lease", "leases");
        let kind = match node.is_alone() {
            true => "one durable node".to_owned(),
            false => format!("node {} of a cluster", status.identity.node),
        };
        print::say(&format!("tenure {}, {kind}", env!("CARGO_PKG_VERSION")));
        print::say(&format!("data       {data_dir} ({leases} recovered)"));
        print::say(&format!("listening  {listen}"));
        print::say(&format!("ready      in {took_ms} ms; try: tenure acquire jobs/nightly --ttl 30s"));
    }

    fn stopping(self) {
        if self == Self::Json {
            tracing::info!("stopping");
        }
    }

    fn stopped(self) {
        let words = "stopped; everything acknowledged is on disk";
        match self {
            Self::Text => print::say(words),
            Self::Json => tracing::info!("{words}"),
        }
    }
}
