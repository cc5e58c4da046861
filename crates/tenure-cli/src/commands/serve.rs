//! `tenure serve`: one durable node on this machine.

use super::stop_signal;
use crate::args::Serve;
use crate::failure::Failure;
use crate::print;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tenure_server::disk::Directory;
use tenure_server::{Clock, Environment, Lock, Node, Served, SystemClock, SystemEntropy, Tuning, Workers};
use tokio::net::TcpListener;

pub(crate) async fn serve(args: Serve) -> Result<ExitCode, Failure> {
    let what = "cannot serve";
    let clock = Arc::new(SystemClock::start());
    log_to_stderr();
    if !args.listen.ip().is_loopback() && !args.insecure {
        let why = format!("{} is beyond loopback, and nothing there would be encrypted or checked", args.listen);
        return Err(Failure::usage(what, &why, "Listen on 127.0.0.1, or say --insecure if the network is trusted."));
    }
    let directory = args.data_dir.or_else(default_directory).ok_or_else(|| {
        Failure::usage(what, "neither $XDG_STATE_HOME nor $HOME is set", "Say where the data goes with --data-dir DIR.")
    })?;
    let lock = Lock::take(&directory).map_err(|error| Failure::new(what, &error.to_string(), ""))?;
    // The end of the process frees the lock and nothing before it: a stuck writer may outlive the serving.
    std::mem::forget(lock);
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        let why = format!("cannot listen on {}: {error}", args.listen);
        Failure::new(
            what,
            &why,
            "Nothing was changed. Choose another address with --listen, or stop what listens there.",
        )
    })?;
    let node = open(&directory, clock.clone()).await?;
    banner(&node, &directory, &listener, clock.monotonic());
    let stop = stop_signal().map_err(|error| Failure::new(what, &error.to_string(), ""))?;
    let served = tenure_server::serve(node, listener, stop).await;
    match served.map_err(|error| Failure::new(what, &error.to_string(), ""))? {
        Served::Stopped => {
            print::say("stopped; everything acknowledged is on disk");
            Ok(ExitCode::SUCCESS)
        }
        Served::Failed(why) => Err(Failure::new(
            "the server has stopped itself",
            &why,
            "Everything acknowledged is on disk. Mend the disk or free some space, and start it again.",
        )),
    }
}

async fn open(directory: &Path, clock: Arc<SystemClock>) -> Result<Node, Failure> {
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
        print::say(&format!("the log ended in an unfinished write, as a crash leaves it; cut {torn}"));
    }
    node.ready().await.map_err(|why| Failure::new(&what, &why, "See the log above."))?;
    Ok(node)
}

fn banner(node: &Node, directory: &Path, listener: &TcpListener, took: Duration) {
    let status = node.status();
    let leases = match status.leases {
        1 => "1 lease".into(),
        count => format!("{count} leases"),
    };
    let address = listener.local_addr().map_or_else(|_| String::from("?"), |address| address.to_string());
    print::say(&format!("tenure {}, one durable node", env!("CARGO_PKG_VERSION")));
    print::say(&format!("data       {} ({leases} recovered)", directory.display()));
    print::say(&format!("listening  http://{address}"));
    print::say(&format!("ready      in {} ms; try: tenure acquire jobs/nightly --ttl 30s", took.as_millis()));
}

pub(super) fn default_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("tenure"))
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TENURE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,tenure=info,tenure_server=info,openraft=error"));
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
}
