//! What `tenure serve` can be told, by flags and by the environment. The file and the defaults are in `config.rs`.

use clap::builder::BoolishValueParser;
use clap::error::Error;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// What was said, and which of it the environment said.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) said: Said,
    environment: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Said {
    /// A file with settings; $XDG_CONFIG_HOME/tenure/tenure.toml or /etc/tenure/tenure.toml unless said.
    #[arg(long, env = "TENURE_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Apply the entry of the log once more at which this node died three times in a row.
    #[arg(long)]
    pub(crate) try_entry_again: bool,
    /// The address to listen on [default: 127.0.0.1:7420].
    #[arg(long, env = "TENURE_LISTEN", value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// The address to listen on for peers [default: the port after that of --listen].
    #[arg(long, env = "TENURE_PEER_LISTEN", value_name = "ADDR")]
    pub(crate) peer_listen: Option<String>,
    /// One more address to listen on, where etcd's clients look: 127.0.0.1:2379 [default: none].
    #[arg(long, env = "TENURE_ETCD_LISTEN", value_name = "ADDR")]
    pub(crate) etcd_listen: Option<String>,
    /// What of the past of keys is kept: off for all, a number of revisions, or an age such as 1h [default: off].
    #[arg(long, env = "TENURE_ETCD_COMPACTION", value_name = "KEEP")]
    pub(crate) etcd_compaction: Option<String>,
    /// Where clients reach this node, if not at --listen: HOST:PORT.
    #[arg(long, env = "TENURE_ADVERTISE", value_name = "ADDR")]
    pub(crate) advertise: Option<String>,
    /// Where peers reach this node, if not at --peer-listen: HOST:PORT.
    #[arg(long, env = "TENURE_PEER_ADVERTISE", value_name = "ADDR")]
    pub(crate) peer_advertise: Option<String>,
    /// The number of this node in its cluster [default: that of the data directory, or 1].
    #[arg(long, env = "TENURE_NODE_ID", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) node_id: Option<u64>,
    /// Begin a cluster of these nodes, by their numbers and peer addresses: 1=HOST:PORT,2=HOST:PORT,3=HOST:PORT.
    #[arg(long, env = "TENURE_PEERS", value_name = "ID=ADDR", value_delimiter = ',')]
    pub(crate) peers: Option<Vec<String>>,
    /// Come to the cluster that a node at one of these peer addresses belongs to; `tenure cluster add` lets it in.
    #[arg(long, env = "TENURE_JOIN", value_name = "ADDR", value_delimiter = ',')]
    pub(crate) join: Option<Vec<String>>,
    /// How long a node hears nothing from its leader before it stands for election [default: 1s].
    #[arg(long, env = "TENURE_ELECTION_TIMEOUT", value_name = "TIME")]
    pub(crate) election_timeout: Option<String>,
    /// Where the data is kept; $XDG_STATE_HOME/tenure unless said.
    #[arg(long, env = "TENURE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// A certificate for TLS, as PEM, with those between it and its root.
    #[arg(long, env = "TENURE_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, as PEM.
    #[arg(long, env = "TENURE_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The authority whose certificates peers show each other, as PEM; with --peer-tls-cert and --peer-tls-key.
    #[arg(long, env = "TENURE_PEER_TLS_CA", value_name = "FILE")]
    pub(crate) peer_tls_ca: Option<PathBuf>,
    /// The certificate of this node for its peers, as PEM.
    #[arg(long, env = "TENURE_PEER_TLS_CERT", value_name = "FILE")]
    pub(crate) peer_tls_cert: Option<PathBuf>,
    /// The private key of --peer-tls-cert, as PEM.
    #[arg(long, env = "TENURE_PEER_TLS_KEY", value_name = "FILE")]
    pub(crate) peer_tls_key: Option<PathBuf>,
    /// What is done with peers whose certificate has no identity; `tenure cluster pki` makes certificates with one [default: auto].
    #[arg(long, env = "TENURE_PEER_IDENTITY", value_enum, value_name = "WHAT")]
    pub(crate) peer_identity: Option<PeerIdentity>,
    /// A file with the API keys that are let in, hashed, one a line; `tenure cluster keygen` makes them.
    #[arg(long, env = "TENURE_API_KEYS", value_name = "FILE")]
    pub(crate) api_keys: Option<PathBuf>,
    /// A file to which a JSON line is written for each change that a client asks for; SIGHUP opens it again.
    #[arg(long, env = "TENURE_AUDIT_LOG", value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,
    /// Listen beyond loopback although nothing is encrypted and nobody is asked who they are.
    #[arg(long, env = "TENURE_INSECURE", num_args = 0, default_missing_value = "true",
          action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub(crate) insecure: Option<bool>,
    /// A host name under which HTTP clients may ask for this server, beside loopback; may be repeated.
    #[arg(long = "host", env = "TENURE_HOSTS", value_name = "NAME", value_delimiter = ',')]
    pub(crate) hosts: Option<Vec<String>>,
    /// A network whose instances the leader may probe, such as 10.0.0.0/8; may be repeated [default: none].
    #[arg(long, env = "TENURE_PROBE_ALLOW", value_name = "CIDR", value_delimiter = ',')]
    pub(crate) probe_allow: Option<Vec<String>>,
    /// How many connections one address may have, beside loopback; more are closed at once [default: 8192].
    #[arg(long, env = "TENURE_CONNECTIONS_PER_ADDRESS", value_name = "N")]
    pub(crate) connections_per_address: Option<NonZeroUsize>,
    /// How to log [default: auto].
    #[arg(long, env = "TENURE_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// What to log, such as `info` or `warn,tenure_server=debug`.
    #[arg(long, env = "TENURE_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Send traces by OTLP/gRPC to this collector, such as http://127.0.0.1:4317; none unless said.
    #[arg(long, env = "TENURE_OTLP_ENDPOINT", value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
    /// The share of requests to trace, unless their client decides it [default: 1].
    #[arg(long, env = "TENURE_OTLP_RATIO", value_name = "RATIO")]
    pub(crate) otlp_ratio: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Text if stderr is a terminal, JSON if not.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One JSON document a line.
    Json,
}

/// What is done with certificates of peers that have no identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PeerIdentity {
    /// Require it, if the data directory is new and this node's own certificate has one.
    #[default]
    Auto,
    /// Refuse them.
    Require,
    /// Accept them, with a warning for each peer.
    Allow,
}

impl Serve {
    /// Whether the environment said this, and not a flag.
    pub(crate) fn is_by_environment(&self, key: &str) -> bool {
        self.environment.iter().any(|id| id == key)
    }
}

impl FromArgMatches for Serve {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let said = Said::from_arg_matches(matches)?;
        let ids = matches.ids().map(|id| id.as_str().to_owned());
        let is_by_environment = |id: &String| {
            matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::EnvVariable)
        };
        Ok(Self { said, environment: ids.filter(is_by_environment).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Serve {
    fn augment_args(command: Command) -> Command {
        Said::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Said::augment_args_for_update(command)
    }
}
