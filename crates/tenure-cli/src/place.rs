//! Where a server is among others: what the settings say of it, checked and put together.

use crate::args::{NodeAt, duration, is_address};
use crate::config::Settings;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tenure_server::{Begin, Compaction, Networks, PEERS_MAX};

/// Shorter ones make elections out of every hiccup; longer ones leave a cluster without a leader for no reason.
const ELECTION_TIMEOUTS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

/// A shorter past is not worth the work of forgetting it.
const AGE_MIN: Duration = Duration::from_secs(10);

/// What a server does for and with its peers.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) node: Option<u64>,
    pub(crate) begin: Begin,
    pub(crate) peer_listen: SocketAddr,
    /// As it listens, unless said.
    pub(crate) peer_advertise: Option<String>,
    pub(crate) advertise: Option<String>,
    pub(crate) election_timeout: Duration,
}

/// What the settings say, or why no server can be like that.
pub(crate) fn of(settings: &Settings, what: &str) -> Result<Plan, Failure> {
    let usage = |why: &str, next: &str| Failure::usage(what, why, next);
    let node = Some(settings.node_id).filter(|node| *node != 0);
    let peers =
        settings.peers.iter().map(|peer| peer.parse::<NodeAt>().map_err(|_| peer)).collect::<Result<Vec<_>, _>>();
    let peers = peers.map_err(|peer| {
        usage(&format!("{peer:?} is no peer"), "Say a number and an address each, such as 1=10.0.0.1:7421.")
    })?;
    let by_number: BTreeMap<u64, String> =
        peers.iter().cloned().map(|NodeAt { node, address }| (node, address)).collect();
    if by_number.len() < peers.len() || by_number.len() > PEERS_MAX {
        return Err(usage("the peers have a number twice, or are too many", "Give each of them a number of its own."));
    }
    if !peers.is_empty() && !settings.join.is_empty() {
        let next = "Begin a new cluster with --peers, or come to one that is there with --join.";
        return Err(usage("it cannot both begin a cluster and come to one", next));
    }
    if !peers.is_empty() && !node.is_some_and(|node| by_number.contains_key(&node)) {
        return Err(usage("--node-id is none of the --peers", "Say which of them this node is with --node-id N."));
    }
    if node.is_none() && !settings.join.is_empty() {
        return Err(usage("--join needs a number for this node", "Say one that no other node has with --node-id N."));
    }
    let addresses = [&settings.advertise, &settings.peer_advertise].into_iter().filter(|said| !said.is_empty());
    if let Some(address) = addresses.chain(&settings.join).find(|address| !is_address(address)) {
        return Err(usage(&format!("{address:?} is no address"), "Say a host and a port, such as 10.0.0.1:7421."));
    }
    let own = node.and_then(|node| by_number.get(&node)).cloned();
    let peer_listen = match (settings.peer_listen.as_str(), &own) {
        ("", Some(own)) if own.parse::<SocketAddr>().is_ok() => own.parse().expect("it was just parsed"),
        ("", _) => beside(settings.listen),
        (said, _) => said.parse().map_err(|_| {
            usage(&format!("{said:?} is no address to listen on"), "Say an IP address and a port: 10.0.0.1:7421.")
        })?,
    };
    let is_anywhere = |listen: SocketAddr| listen.ip().is_unspecified();
    let is_among_others = !peers.is_empty() || !settings.join.is_empty();
    let says_nowhere = is_anywhere(settings.listen) && settings.advertise.is_empty()
        || is_anywhere(peer_listen) && settings.peer_advertise.is_empty() && own.is_none();
    if is_among_others && says_nowhere {
        let next = "Say where others reach this node with --advertise and --peer-advertise HOST:PORT.";
        return Err(usage("an address that means every interface tells others nothing", next));
    }
    let election_timeout = duration(&settings.election_timeout).ok().filter(|t| ELECTION_TIMEOUTS.contains(t));
    let election_timeout = election_timeout.ok_or_else(|| {
        usage(&format!("{:?} is no election timeout", settings.election_timeout), "Say one from 100ms to 60s.")
    })?;
    let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    Ok(Plan {
        node,
        begin: match (peers.is_empty(), settings.join.is_empty()) {
            (true, true) => Begin::Alone,
            (false, _) => Begin::With(by_number),
            (true, false) => Begin::Join(settings.join.clone()),
        },
        peer_listen,
        peer_advertise: said(&settings.peer_advertise).or(own),
        advertise: said(&settings.advertise),
        election_timeout,
    })
}

/// One more address for etcd's clients, if one is said.
pub(crate) fn etcd_listen(settings: &Settings, what: &str) -> Result<Option<SocketAddr>, Failure> {
    match settings.etcd_listen.as_str() {
        "" => Ok(None),
        said => said.parse().map(Some).map_err(|_| {
            let why = format!("{said:?} is no address to listen on");
            Failure::usage(what, &why, "Say an IP address and a port: 127.0.0.1:2379.")
        }),
    }
}

/// What of the past of keys is kept.
pub(crate) fn compaction(settings: &Settings, what: &str) -> Result<Compaction, Failure> {
    let said = settings.etcd_compaction.as_str();
    let age = || duration(said).ok().filter(|age| *age >= AGE_MIN).map(Compaction::Age);
    match said.parse() {
        _ if said == "off" => Some(Compaction::Off),
        Ok(0) => None,
        Ok(count) => Some(Compaction::Revisions(count)),
        Err(_) => age(),
    }
    .ok_or_else(|| {
        let why = format!("{said:?} does not say what of the past of keys is kept");
        Failure::usage(what, &why, "Say off, a number of revisions, or an age from 10s on.")
    })
}

/// Which networks may be probed.
pub(crate) fn probe_allow(settings: &Settings, what: &str) -> Result<Networks, Failure> {
    Networks::parse(&settings.probe_allow).map_err(|bad| {
        Failure::usage(what, &bad.to_string(), "Say which networks may be probed with --probe-allow CIDR.")
    })
}

/// The port after that of the clients; any, if that is any.
fn beside(listen: SocketAddr) -> SocketAddr {
    let port = if listen.port() == 0 { 0 } else { listen.port().wrapping_add(1) };
    SocketAddr::new(listen.ip(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(change: impl FnOnce(&mut Settings)) -> Result<Plan, Failure> {
        let mut settings = Settings::default();
        change(&mut settings);
        of(&settings, "cannot serve")
    }

    fn peers(said: &[&str]) -> Vec<String> {
        said.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn alone_it_listens_for_peers_on_the_next_port() {
        let plan = plan(|_| {}).unwrap();
        assert_eq!((plan.peer_listen.to_string().as_str(), plan.begin), ("127.0.0.1:7421", Begin::Alone));
        let any = of(&Settings { listen: "127.0.0.1:0".parse().unwrap(), ..Settings::default() }, "").unwrap();
        assert_eq!(any.peer_listen.port(), 0);
    }

    #[test]
    fn one_of_several_listens_where_the_others_look_for_it() {
        let said = peers(&["1=127.0.0.1:7421", "2=127.0.0.1:7431"]);
        let plan = plan(|settings| (settings.node_id, settings.peers) = (2, said)).unwrap();
        assert_eq!(plan.peer_listen.to_string(), "127.0.0.1:7431");
        assert_eq!(plan.peer_advertise.as_deref(), Some("127.0.0.1:7431"));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: &dyn Fn(&mut Settings)| plan(change).is_err();
        for bad in ["", "1", "1=", "0=a:1", "x=a:1", "1=a", "1=a:0", "1=a:99999", "1=a b:1"] {
            assert!(refused(&|settings| (settings.node_id, settings.peers) = (1, peers(&[bad]))), "{bad:?}");
        }
        assert!(refused(&|settings| (settings.node_id, settings.peers) = (1, peers(&["1=a:1", "1=b:1"]))));
        assert!(refused(&|settings| (settings.node_id, settings.peers) = (3, peers(&["1=a:1", "2=b:1"]))));
        assert!(refused(&|settings| settings.peers = peers(&["1=127.0.0.1:1"])), "no number");
        assert!(refused(&|settings| settings.join = peers(&["a:1"])), "no number");
        assert!(refused(&|settings| settings.election_timeout = "10ms".into()));
        assert!(refused(&|settings| settings.advertise = "http://a:1".into()));
    }
}
