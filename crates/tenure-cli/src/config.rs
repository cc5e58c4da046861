//! The settings of a server, and where each comes from: a flag, else the environment, else a file, else the default. It
//! reads and explains; it starts nothing.

use crate::args::{LogFormat, PeerIdentity, Serve};
use crate::failure::Failure;
use crate::{log, place, secure, traces};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Host names in all, and the bytes of one, which is as long as a name in DNS can be.
const HOSTS_MAX: usize = 64;
const HOST_BYTES_MAX: usize = 253;

/// How many connections one address has unless it is said.
const PER_ADDRESS: NonZeroUsize = NonZeroUsize::new(tenure_server::CONNECTIONS_PER_ADDRESS).expect("it is not 0");

/// A name that is this like a key was meant to be it.
const LIKENESS_MIN: f64 = 0.75;

/// What a file may say. What it does not say is left to the defaults; what is not here is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    listen: Option<SocketAddr>,
    peer_listen: Option<String>,
    etcd_listen: Option<String>,
    etcd_compaction: Option<String>,
    advertise: Option<String>,
    peer_advertise: Option<String>,
    node_id: Option<u64>,
    peers: Option<Vec<String>>,
    join: Option<Vec<String>>,
    election_timeout: Option<String>,
    data_dir: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    peer_tls_ca: Option<PathBuf>,
    peer_tls_cert: Option<PathBuf>,
    peer_tls_key: Option<PathBuf>,
    peer_identity: Option<PeerIdentity>,
    api_keys: Option<PathBuf>,
    audit_log: Option<PathBuf>,
    insecure: Option<bool>,
    hosts: Option<Vec<String>>,
    probe_allow: Option<Vec<String>>,
    connections_per_address: Option<NonZeroUsize>,
    log_format: Option<LogFormat>,
    log: Option<String>,
    otlp_endpoint: Option<String>,
    otlp_ratio: Option<f64>,
}

const KEYS: [&str; 27] = [
    "listen",
    "peer_listen",
    "etcd_listen",
    "etcd_compaction",
    "advertise",
    "peer_advertise",
    "node_id",
    "peers",
    "join",
    "election_timeout",
    "data_dir",
    "tls_cert",
    "tls_key",
    "peer_tls_ca",
    "peer_tls_cert",
    "peer_tls_key",
    "peer_identity",
    "api_keys",
    "audit_log",
    "insecure",
    "hosts",
    "probe_allow",
    "connections_per_address",
    "log_format",
    "log",
    "otlp_endpoint",
    "otlp_ratio",
];

/// What a server runs by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    /// Empty: the port after that of `listen`.
    pub(crate) peer_listen: String,
    /// Empty: nowhere else than at `listen`.
    pub(crate) etcd_listen: String,
    pub(crate) etcd_compaction: String,
    /// Empty: as it listens.
    pub(crate) advertise: String,
    pub(crate) peer_advertise: String,
    /// 0: that of the data directory, or 1.
    pub(crate) node_id: u64,
    pub(crate) peers: Vec<String>,
    pub(crate) join: Vec<String>,
    pub(crate) election_timeout: String,
    /// None if nobody said, and there is no home to put it in.
    pub(crate) data_dir: Option<PathBuf>,
    /// None of these is needed on loopback; see `secure.rs`.
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) peer_tls_ca: Option<PathBuf>,
    pub(crate) peer_tls_cert: Option<PathBuf>,
    pub(crate) peer_tls_key: Option<PathBuf>,
    pub(crate) peer_identity: PeerIdentity,
    pub(crate) api_keys: Option<PathBuf>,
    pub(crate) audit_log: Option<PathBuf>,
    pub(crate) insecure: bool,
    pub(crate) hosts: Vec<String>,
    /// What the leader may probe.
    pub(crate) probe_allow: Vec<String>,
    pub(crate) connections_per_address: NonZeroUsize,
    pub(crate) log_format: LogFormat,
    pub(crate) log: String,
    /// Where traces go, if anywhere.
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) otlp_ratio: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7420)),
            peer_listen: String::new(),
            etcd_listen: String::new(),
            etcd_compaction: "off".into(),
            advertise: String::new(),
            peer_advertise: String::new(),
            node_id: 0,
            peers: Vec::new(),
            join: Vec::new(),
            election_timeout: "1s".into(),
            data_dir: default_directory(),
            tls_cert: None,
            tls_key: None,
            peer_tls_ca: None,
            peer_tls_cert: None,
            peer_tls_key: None,
            peer_identity: PeerIdentity::Auto,
            api_keys: None,
            audit_log: None,
            insecure: false,
            hosts: Vec::new(),
            probe_allow: Vec::new(),
            connections_per_address: PER_ADDRESS,
            log_format: LogFormat::Auto,
            log: log::FILTER_DEFAULT.into(),
            otlp_endpoint: None,
            otlp_ratio: 1.0,
        }
    }
}

/// One setting as it is, and who said so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Origin {
    pub(crate) key: &'static str,
    pub(crate) value: String,
    pub(crate) from: String,
}

/// Settings with their origins, in the order of the keys.
#[derive(Debug)]
pub(crate) struct Effective {
    pub(crate) settings: Settings,
    pub(crate) origins: Vec<Origin>,
}

impl Effective {
    /// Puts together what was said. The first that has something to say wins.
    pub(crate) fn of(serve: &Serve) -> Result<Self, Failure> {
        let (file, place) = match find(serve.said.config.as_deref()) {
            Some(path) => (File::read(&path)?, path.display().to_string()),
            None => (File::default(), String::new()),
        };
        let default = Settings::default();
        let mut origins = Vec::new();
        macro_rules! pick {
            ($key:ident, $default:expr, $show:expr) => {{
                let said = serve.said.$key.clone();
                let from = match (&said, &file.$key) {
                    (Some(_), _) if serve.is_by_environment(stringify!($key)) => {
                        format!("environment, TENURE_{}", stringify!($key).to_uppercase())
                    }
                    (Some(_), _) => "flag".into(),
                    (None, Some(_)) => place.clone(),
                    (None, None) => "default".into(),
                };
                let value = said.or_else(|| file.$key.clone()).unwrap_or($default);
                origins.push(Origin { key: stringify!($key), value: $show(&value), from });
                value
            }};
        }
        let path = |path: &PathBuf| path.display().to_string();
        let list = |items: &Vec<String>| items.join(",");
        let settings = Settings {
            listen: pick!(listen, default.listen, ToString::to_string),
            peer_listen: pick!(peer_listen, default.peer_listen, Clone::clone),
            etcd_listen: pick!(etcd_listen, default.etcd_listen, Clone::clone),
            etcd_compaction: pick!(etcd_compaction, default.etcd_compaction, Clone::clone),
            advertise: pick!(advertise, default.advertise, Clone::clone),
            peer_advertise: pick!(peer_advertise, default.peer_advertise, Clone::clone),
            node_id: pick!(node_id, default.node_id, ToString::to_string),
            peers: pick!(peers, default.peers, list),
            join: pick!(join, default.join, list),
            election_timeout: pick!(election_timeout, default.election_timeout, Clone::clone),
            data_dir: some(pick!(data_dir, default.data_dir.unwrap_or_default(), path)),
            tls_cert: some(pick!(tls_cert, PathBuf::new(), path)),
            tls_key: some(pick!(tls_key, PathBuf::new(), path)),
            peer_tls_ca: some(pick!(peer_tls_ca, PathBuf::new(), path)),
            peer_tls_cert: some(pick!(peer_tls_cert, PathBuf::new(), path)),
            peer_tls_key: some(pick!(peer_tls_key, PathBuf::new(), path)),
            peer_identity: pick!(peer_identity, default.peer_identity, |choice| format!("{choice:?}").to_lowercase()),
            api_keys: some(pick!(api_keys, PathBuf::new(), path)),
            audit_log: some(pick!(audit_log, PathBuf::new(), path)),
            insecure: pick!(insecure, default.insecure, ToString::to_string),
            hosts: pick!(hosts, default.hosts, list),
            probe_allow: pick!(probe_allow, default.probe_allow, list),
            connections_per_address: pick!(
                connections_per_address,
                default.connections_per_address,
                ToString::to_string
            ),
            log_format: pick!(log_format, default.log_format, |format| format!("{format:?}").to_lowercase()),
            log: pick!(log, default.log, Clone::clone),
            // An empty address is none.
            otlp_endpoint: Some(pick!(otlp_endpoint, String::new(), Clone::clone)).filter(|said| !said.is_empty()),
            otlp_ratio: pick!(otlp_ratio, default.otlp_ratio, ToString::to_string),
        };
        settings.check("cannot serve")?;
        Ok(Self { settings, origins })
    }
}

impl Settings {
    /// Refuses what no server can run by.
    fn check(&self, what: &str) -> Result<(), Failure> {
        secure::check(self, what)?;
        place::of(self, what)?;
        place::probe_allow(self, what)?;
        let is_host = |host: &String| {
            let fits = (1..=HOST_BYTES_MAX).contains(&host.len());
            fits && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        if let Some(host) = self.hosts.iter().find(|host| !is_host(host)) {
            let why = format!("{host:?} is no host name");
            return Err(Failure::usage(what, &why, "Say a name without a port, such as leases.local."));
        }
        if self.hosts.len() > HOSTS_MAX {
            let why = format!("there are {} host names, and {HOSTS_MAX} may be", self.hosts.len());
            return Err(Failure::usage(what, &why, "Name fewer."));
        }
        self.otlp_endpoint.as_deref().map_or(Ok(()), traces::check_endpoint)?;
        traces::check_ratio(self.otlp_ratio)?;
        log::filter(&self.log).map(drop)
    }
}

impl File {
    /// Reads a file, or says at which line and column it is wrong.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let what = format!("cannot use {}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| {
            let next = match error.kind() {
                ErrorKind::NotFound => "Make one with `tenure config init --write FILE`.",
                _ => "See who may read it.",
            };
            Failure::usage(&what, &error.to_string(), next)
        })?;
        Self::parse(&text).map_err(|(why, next)| Failure::usage(&what, &why, &next))
    }

    /// What is wrong with it, and what to do.
    fn parse(text: &str) -> Result<Self, (String, String)> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let before = &text[..at];
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            let why = format!("line {line}, column {column}: {}", error.message());
            let unknown = error.message().strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
            let next = match unknown.map(meant) {
                Some(Some(key)) => format!("Did you mean `{key}`?"),
                Some(None) => "See every key with `tenure config init`.".into(),
                None => "Correct it and try again.".into(),
            };
            (why, next)
        })
    }

    /// Refuses what no server can run by, flags and environment aside.
    pub(crate) fn check(self, path: &Path) -> Result<(), Failure> {
        let default = Settings::default();
        let settings = Settings {
            listen: self.listen.unwrap_or(default.listen),
            peer_listen: self.peer_listen.unwrap_or_default(),
            etcd_listen: self.etcd_listen.unwrap_or_default(),
            etcd_compaction: self.etcd_compaction.unwrap_or(default.etcd_compaction),
            advertise: self.advertise.unwrap_or_default(),
            peer_advertise: self.peer_advertise.unwrap_or_default(),
            node_id: self.node_id.unwrap_or_default(),
            peers: self.peers.unwrap_or_default(),
            join: self.join.unwrap_or_default(),
            election_timeout: self.election_timeout.unwrap_or(default.election_timeout),
            tls_cert: self.tls_cert.and_then(some),
            tls_key: self.tls_key.and_then(some),
            peer_tls_ca: self.peer_tls_ca.and_then(some),
            peer_tls_cert: self.peer_tls_cert.and_then(some),
            peer_tls_key: self.peer_tls_key.and_then(some),
            peer_identity: self.peer_identity.unwrap_or_default(),
            api_keys: self.api_keys.and_then(some),
            audit_log: self.audit_log.and_then(some),
            insecure: self.insecure.unwrap_or_default(),
            hosts: self.hosts.unwrap_or_default(),
            probe_allow: self.probe_allow.unwrap_or_default(),
            connections_per_address: self.connections_per_address.unwrap_or(default.connections_per_address),
            log: self.log.unwrap_or(default.log),
            otlp_endpoint: self.otlp_endpoint.filter(|said| !said.is_empty()),
            otlp_ratio: self.otlp_ratio.unwrap_or(default.otlp_ratio),
            ..Settings::default()
        };
        settings.check(&format!("cannot use {}", path.display()))
    }
}

/// The key that somebody meant.
fn meant(word: &str) -> Option<&'static str> {
    let likeness = |key: &&str| strsim::jaro_winkler(word, key);
    let nearest = KEYS.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    nearest.filter(|key| likeness(key) >= LIKENESS_MIN)
}

/// The file that was named, or the first that is there.
pub(crate) fn find(named: Option<&Path>) -> Option<PathBuf> {
    let home = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
    let places =
        [home, Some(PathBuf::from("/etc"))].into_iter().flatten().map(|place| place.join("tenure/tenure.toml"));
    named.map(Path::to_owned).or_else(|| places.into_iter().find(|place| place.exists()))
}

/// Where a server started here would keep its data: where it was said, else where a file says, else the default.
pub(crate) fn directory(said: Option<PathBuf>, config: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    if said.is_some() {
        return Ok(said);
    }
    let file = find(config).map(|path| File::read(&path)).transpose()?.unwrap_or_default();
    Ok(file.data_dir.or_else(default_directory))
}

/// The certificates that a server started here would use, by what they are for: where the environment says, else a file.
pub(crate) fn certificates(config: Option<&Path>) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let file = find(config).map(|path| File::read(&path)).transpose()?.unwrap_or_default();
    let named = [
        ("certificate for clients", "TENURE_TLS_CERT", file.tls_cert),
        ("certificate for peers", "TENURE_PEER_TLS_CERT", file.peer_tls_cert),
        ("authority of peers", "TENURE_PEER_TLS_CA", file.peer_tls_ca),
    ];
    let path = |(what, name, path): (_, &str, Option<PathBuf>)| Some((what, variable(name).or(path.and_then(some))?));
    Ok(named.into_iter().filter_map(path).collect())
}

fn default_directory() -> Option<PathBuf> {
    let state = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("tenure"))
}

/// An empty path is none.
fn some(path: PathBuf) -> Option<PathBuf> {
    Some(path).filter(|path| !path.as_os_str().is_empty())
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).and_then(some)
}

/// A file that says nothing but what the defaults are: every key, its default, and what it is for.
pub(crate) fn template() -> String {
    let settings = Settings::default();
    let file = File {
        listen: Some(settings.listen),
        peer_listen: Some(settings.peer_listen),
        etcd_listen: Some(settings.etcd_listen),
        etcd_compaction: Some(settings.etcd_compaction),
        advertise: Some(settings.advertise),
        peer_advertise: Some(settings.peer_advertise),
        node_id: Some(settings.node_id),
        peers: Some(settings.peers),
        join: Some(settings.join),
        election_timeout: Some(settings.election_timeout),
        data_dir: Some(settings.data_dir.unwrap_or_else(|| "/var/lib/tenure".into())),
        tls_cert: Some(PathBuf::new()),
        tls_key: Some(PathBuf::new()),
        peer_tls_ca: Some(PathBuf::new()),
        peer_tls_cert: Some(PathBuf::new()),
        peer_tls_key: Some(PathBuf::new()),
        peer_identity: Some(settings.peer_identity),
        api_keys: Some(PathBuf::new()),
        audit_log: Some(PathBuf::new()),
        insecure: Some(settings.insecure),
        hosts: Some(settings.hosts),
        probe_allow: Some(settings.probe_allow),
        connections_per_address: Some(settings.connections_per_address),
        log_format: Some(settings.log_format),
        log: Some(settings.log),
        otlp_endpoint: Some(settings.otlp_endpoint.unwrap_or_default()),
        otlp_ratio: Some(settings.otlp_ratio),
    };
    let values = toml::to_string(&file).expect("every setting can be written as TOML");
    let mut text = String::from(HEAD);
    for (line, why) in values.lines().zip(WHY) {
        text += "\n";
        why.iter().for_each(|why| text += &format!("# {why}\n"));
        text += &format!("#{line}\n");
    }
    text
}

const HEAD: &str = "\
# Settings of `tenure serve`. A flag beats the environment, which beats this file, which beats the defaults.
# What is here are the defaults: take the # away from a line to change it. `tenure config check` tells whether
# the file can be used, and `tenure config show` what is in force and why.
";

/// What each key is for, in the order of the keys.
const WHY: [&[&str]; KEYS.len()] = [
    &[
        "The address to listen on: --listen, TENURE_LISTEN. Beyond loopback it needs `tls_cert`,",
        "`tls_key` and `api_keys`, or `insecure`.",
    ],
    &[
        "The address to listen on for peers: --peer-listen, TENURE_PEER_LISTEN. Empty for the port after that of `listen`.",
    ],
    &[
        "One more address to listen on, such as 127.0.0.1:2379, where etcd's clients look: --etcd-listen,",
        "TENURE_ETCD_LISTEN. Empty for none; they are served at `listen` as well.",
    ],
    &[
        "What of the past of keys is kept: --etcd-compaction, TENURE_ETCD_COMPACTION. A number of revisions, an age such",
        "as `1h`, or `off` for as much as there is room for.",
    ],
    &["Where clients reach this node, as HOST:PORT: --advertise, TENURE_ADVERTISE. Empty for what `listen` says."],
    &[
        "Where peers reach this node, as HOST:PORT: --peer-advertise, TENURE_PEER_ADVERTISE. Empty for its entry in",
        "`peers`, or for what `peer_listen` says.",
    ],
    &["The number of this node in its cluster: --node-id, TENURE_NODE_ID. 0 for that of the data directory, or 1."],
    &[
        "The nodes that begin a cluster together, each as ID=HOST:PORT of its peer address: --peers, TENURE_PEERS. Only a",
        "new data directory looks at it.",
    ],
    &[
        "Peer addresses of a cluster that this node comes to: --join, TENURE_JOIN. Only a new data directory looks at it;",
        "`tenure cluster add` lets the node in.",
    ],
    &[
        "How long a node hears nothing from its leader before it stands for election: --election-timeout,",
        "TENURE_ELECTION_TIMEOUT. The same on all nodes.",
    ],
    &[
        "Where the data is kept: --data-dir, TENURE_DATA_DIR. A local disk that keeps its word on fdatasync; every",
        "answer to a write waits for it.",
    ],
    &[
        "The certificate that clients are shown, as PEM, with those between it and its root: --tls-cert, TENURE_TLS_CERT.",
        "With it, this server speaks TLS alone. All these files are read again at SIGHUP, and when they change.",
    ],
    &["The private key of that certificate: --tls-key, TENURE_TLS_KEY."],
    &[
        "The authority whose certificates peers show each other, and no other: --peer-tls-ca, TENURE_PEER_TLS_CA. `tenure",
        "cluster pki init` makes one, with a certificate for each node.",
    ],
    &["The certificate that this node shows its peers: --peer-tls-cert, TENURE_PEER_TLS_CERT."],
    &["The private key of that certificate: --peer-tls-key, TENURE_PEER_TLS_KEY."],
    &[
        "Peers whose certificate has no identity (`tenure cluster pki` makes certificates with one): `require` refuses them,",
        "`allow` accepts them with a warning. --peer-identity, TENURE_PEER_IDENTITY. `auto` is `require` where the data",
        "directory is new and this node's own certificate has an identity, and `allow` elsewhere.",
    ],
    &[
        "The API keys that are let in, one a line, as `tenure cluster keygen` prints it: --api-keys, TENURE_API_KEYS. With",
        "it, every call needs one. SIGHUP reads it again.",
    ],
    &[
        "A file to which a JSON line is written for each change that a client asks for: --audit-log, TENURE_AUDIT_LOG. Empty",
        "for none. SIGHUP opens it again.",
    ],
    &[
        "Listen beyond loopback although nothing is encrypted and nobody is asked who they are: --insecure,",
        "TENURE_INSECURE. Only where everybody on the network is trusted.",
    ],
    &[
        "Host names under which HTTP clients may ask for this server, beside loopback: --host, TENURE_HOSTS. Others",
        "are refused, so that no page in a browser reaches the server under a name of its own.",
    ],
    &[
        "Networks whose instances the leader may probe, such as [\"10.0.0.0/8\"]: --probe-allow, TENURE_PROBE_ALLOW. Whoever",
        "registers an instance has the server connect to it there. The same on all nodes.",
    ],
    &[
        "How many connections one address may have: --connections-per-address, TENURE_CONNECTIONS_PER_ADDRESS. More are",
        "closed at once. Loopback is not counted; of IPv6, the first 64 bits are one address.",
    ],
    &["How to log, on stderr: --log-format, TENURE_LOG_FORMAT. auto is text on a terminal and JSON elsewhere."],
    &["What to log: --log, TENURE_LOG. For more from Tenure itself: \"warn,tenure=debug,tenure_server=debug\"."],
    &[
        "Where to send traces by OTLP/gRPC: --otlp-endpoint, TENURE_OTLP_ENDPOINT. Such as \"http://127.0.0.1:4317\", in",
        "the clear; empty for none. A collector that is slow or away costs traces, never leases.",
    ],
    &[
        "The share of requests to trace, from 0 to 1: --otlp-ratio, TENURE_OTLP_RATIO. A client that sends a",
        "traceparent decides for its own.",
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_says_nothing_and_uncommented_it_says_the_defaults() {
        let template = template();
        assert_eq!(File::parse(&template).unwrap(), File::default());
        let is_setting = |line: &&str| KEYS.iter().any(|key| line.starts_with(&format!("#{key} = ")));
        let settings: Vec<&str> = template.lines().filter(is_setting).map(|line| &line[1..]).collect();
        assert_eq!(settings.len(), KEYS.len(), "every key once: {settings:?}");
        let file = File::parse(&settings.join("\n")).unwrap();
        let said = Settings {
            listen: file.listen.unwrap(),
            peer_listen: file.peer_listen.unwrap(),
            etcd_listen: file.etcd_listen.unwrap(),
            etcd_compaction: file.etcd_compaction.unwrap(),
            advertise: file.advertise.unwrap(),
            peer_advertise: file.peer_advertise.unwrap(),
            node_id: file.node_id.unwrap(),
            peers: file.peers.unwrap(),
            join: file.join.unwrap(),
            election_timeout: file.election_timeout.unwrap(),
            data_dir: file.data_dir,
            tls_cert: file.tls_cert.and_then(some),
            tls_key: file.tls_key.and_then(some),
            peer_tls_ca: file.peer_tls_ca.and_then(some),
            peer_tls_cert: file.peer_tls_cert.and_then(some),
            peer_tls_key: file.peer_tls_key.and_then(some),
            peer_identity: file.peer_identity.unwrap(),
            api_keys: file.api_keys.and_then(some),
            audit_log: file.audit_log.and_then(some),
            insecure: file.insecure.unwrap(),
            hosts: file.hosts.unwrap(),
            probe_allow: file.probe_allow.unwrap(),
            connections_per_address: file.connections_per_address.unwrap(),
            log_format: file.log_format.unwrap(),
            log: file.log.unwrap(),
            otlp_endpoint: file.otlp_endpoint.filter(|said| !said.is_empty()),
            otlp_ratio: file.otlp_ratio.unwrap(),
        };
        assert_eq!(said, Settings::default());
    }

    #[test]
    fn each_reason_stands_over_its_key() {
        let template = template();
        for (key, why) in KEYS.iter().zip(WHY) {
            assert!(template.contains(&format!("# {}\n#{key} = ", why.last().unwrap())), "{key}");
            assert!(why.join(" ").contains(&format!("TENURE_{}", key.to_uppercase())), "{key}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place_and_what_was_meant() {
        let wrong = |text| File::parse(text).unwrap_err();
        let (why, next) = wrong("log = \"info\"\n\n  lisen = \"127.0.0.1:1\"\n");
        assert!(why.starts_with("line 3, column 3: unknown field `lisen`"), "{why}");
        assert!(next.ends_with("Did you mean `listen`?"), "{next}");
        assert!(wrong("colour = 1").1.contains("tenure config init"));
        let (why, _) = wrong("listen = \"here\"");
        assert!(why.starts_with("line 1, column 10: "), "{why}");
        assert!(wrong("insecure = \"yes\"").0.contains("expected a boolean"));
    }
}
