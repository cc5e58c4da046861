//! `tenure serve`: one durable node on this machine.

use super::stop_signal;
use crate::args::Serve;
use crate::config::{Effective, Settings};
use crate::failure::Failure;
use crate::log::Voice;
use crate::print;
use crate::supervisor;
use crate::traces::Traces;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tenure_server::Settings as Doors;
use tenure_server::disk::Directory;
use tenure_server::{Clock, Environment, Lock, Node, Served, Status, SystemClock, SystemEntropy, Tuning, Workers};
use tokio::net::TcpListener;

pub(crate) async fn serve(serve: Serve) -> Result<ExitCode, Failure> {
    let clock = Arc::new(SystemClock::start());
    let settings = Effective::of(&serve)?.settings;
    let traces = settings.otlp_endpoint.as_deref().map(|endpoint| Traces::open(endpoint, settings.otlp_ratio));
    let traces = traces.transpose()?;
    let voice = Voice::raise(settings.log_format, &settings.log, traces.as_ref())?;
    match (run(settings, voice, traces, clock).await, voice) {
        (Err(failure), Voice::Json) => Ok(failure.log()),
        (ended, _) => ended,
    }
}

async fn run(
    settings: Settings,
    voice: Voice,
    traces: Option<Traces>,
    clock: Arc<SystemClock>,
) -> Result<ExitCode, Failure> {
    let what = "cannot serve";
    let directory = settings.data_dir.ok_or_else(|| {
        Failure::usage(what, "neither $XDG_STATE_HOME nor $HOME is set", "Say where the data goes with --data-dir DIR.")
    })?;
    let lock = Lock::take(&directory).map_err(|error| Failure::new(what, &error.to_string(), ""))?;
    // The end of the process frees the lock and nothing before it: a stuck writer may outlive the serving.
    std::mem::forget(lock);
    let listener = TcpListener::bind(settings.listen).await.map_err(|error| {
        let why = format!("cannot listen on {}: {error}", settings.listen);
        Failure::new(
            what,
            &why,
            "No data was changed. Choose another address with --listen, or stop what listens there.",
        )
    })?;
    voice.starting(&directory);
    let node = open(&directory, clock.clone(), voice).await?;
    voice.ready(&node.status(), &directory, &listener, clock.monotonic());
    let stop = stop_signal().map_err(|error| Failure::new(what, &error.to_string(), ""))?;
    let doors = Doors { hosts: settings.hosts };
    supervisor::ready();
    tokio::spawn(supervisor::feed_watchdog(node.clone()));
    let stop = async {
        stop.await;
        voice.stopping();
        supervisor::stopping();
    };
    let served = tenure_server::serve(node, listener, &doors, stop).await;
    if let Some(traces) = traces {
        traces.close().await;
    }
    match served.map_err(|error| Failure::new(what, &error.to_string(), ""))? {
        Served::Stopped => {
            voice.stopped();
            Ok(ExitCode::SUCCESS)
        }
        Served::Failed(why) => Err(Failure::new(
            "the server has stopped itself",
            &why,
            "Everything acknowledged is on disk. Mend the disk or free some space, and start it again.",
        )),
    }
}

async fn open(directory: &Path, clock: Arc<SystemClock>, voice: Voice) -> Result<Node, Failure> {
    let what = format!("cannot open {}", directory.display());
    let environment = Environment {
        clock,
        entropy: Arc::new(SystemEntropy),
        disk: Arc::new(Directory::new(directory)),
        workers: Workers::Threads,
        tuning: Tuning::default(),
    };
    let (node, opened) = Node::open(environment).await.map_err(|error| Failure::new(&what, &error.to_string(), ""))?;
    if let Some(torn) = opened.torn {
        voice.recovered(&torn);
    }
    node.ready().await.map_err(|why| Failure::new(&what, &why, "See the log above."))?;
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

    fn ready(self, status: &Status, directory: &Path, listener: &TcpListener, took: Duration) {
        let address = listener.local_addr().map_or_else(|_| String::from("?"), |address| address.to_string());
        let (listen, data_dir) = (format!("http://{address}"), directory.display());
        let (leases, took_ms) = (status.leases as u64, took.as_millis());
        if self == Self::Json {
            let (term, took_ms) = (status.leads_in, u64::try_from(took_ms).unwrap_or(u64::MAX));
            tracing::info!(listen, %data_dir, leases, term, took_ms, "ready");
            return;
        }
        let leases = print::count(leases, "lease", "leases");
        print::say(&format!("tenure {}, one durable node", env!("CARGO_PKG_VERSION")));
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
