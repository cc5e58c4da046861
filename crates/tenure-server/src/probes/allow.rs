//! Where probes may go. It decides by addresses alone, never by names: what a name means is looked up for each probe.

use crate::limits::PROBE_NETWORKS_MAX;
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// The networks that may be probed: none, unless an operator names some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Arc<[IpNet]>);

/// Why networks cannot be allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNetwork {
    /// It is no network.
    #[error("{0:?} is no network: an address and a length, such as 10.0.0.0/8 or fd00::/8")]
    NotOne(String),
    /// There are more than can be looked at for every probe.
    #[error("there are {0} networks, more than {PROBE_NETWORKS_MAX}")]
    TooMany(usize),
}

/// Why an address is not probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Forbidden {
    #[error("{0} is never probed: link-local, unspecified, multicast and broadcast addresses are not")]
    Never(IpAddr),
    #[error("{0} is in none of the networks that this server may probe: see --probe-allow")]
    NotAllowed(IpAddr),
}

impl Networks {
    /// Reads networks as `ADDRESS/LENGTH`.
    pub fn parse<S: AsRef<str>>(said: &[S]) -> Result<Self, BadNetwork> {
        if said.len() > PROBE_NETWORKS_MAX {
            return Err(BadNetwork::TooMany(said.len()));
        }
        let read = |said: &S| said.as_ref().parse().map_err(|_| BadNetwork::NotOne(said.as_ref().to_owned()));
        said.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an address may be probed. One of IPv4 that is written as IPv6 is the one of IPv4.
    pub(super) fn judge(&self, address: IpAddr) -> Result<(), Forbidden> {
        let address = address.to_canonical();
        let is_never = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.octets()[0] == 0 || v4.is_multicast() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast(),
        };
        match self.0.iter().any(|network| network.contains(&address)) {
            _ if is_never => Err(Forbidden::Never(address)),
            true => Ok(()),
            false => Err(Forbidden::NotAllowed(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(allowed: &[&str], address: &str) -> Result<(), Forbidden> {
        Networks::parse(allowed).unwrap().judge(address.parse().unwrap())
    }

    #[test]
    fn only_what_is_named_may_be_probed() {
        let allowed = ["10.0.0.0/8", "fd00::/8", "127.0.0.1/32"];
        for inside in ["10.0.0.0", "10.255.255.255", "fd00::1", "fdff::", "127.0.0.1", "::ffff:10.1.2.3"] {
            assert_eq!(judge(&allowed, inside), Ok(()), "{inside}");
        }
        for outside in ["9.255.255.255", "11.0.0.0", "fc00::1", "127.0.0.2", "::1", "::ffff:11.0.0.1", "8.8.8.8"] {
            let address: IpAddr = outside.parse().unwrap();
            assert_eq!(judge(&allowed, outside), Err(Forbidden::NotAllowed(address.to_canonical())), "{outside}");
        }
        assert!(judge(&[], "127.0.0.1").is_err());
    }

    #[test]
    fn some_addresses_are_never_probed_whatever_is_named() {
        let allowed = ["0.0.0.0/0", "::/0", "169.254.0.0/16", "169.254.169.254/32", "fe80::/10", "::ffff:0:0/96"];
        let never = [
            "169.254.169.254",
            "169.254.0.0",
            "::ffff:169.254.169.254",
            "fe80::1",
            "febf::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "224.0.0.1",
            "239.255.255.255",
            "::ffff:224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ];
        for never in never {
            let address: IpAddr = never.parse().unwrap();
            assert_eq!(judge(&allowed, never), Err(Forbidden::Never(address.to_canonical())), "{never}");
        }
        for beside in ["169.253.255.255", "169.255.0.0", "fec0::1", "223.255.255.255", "1.0.0.0", "255.255.255.254"] {
            assert_eq!(judge(&allowed, beside), Ok(()), "{beside}");
        }
    }

    #[test]
    fn networks_of_ipv6_do_not_let_in_those_of_ipv4() {
        assert!(judge(&["::/0"], "::ffff:10.0.0.1").is_err());
        assert!(judge(&["::/0"], "10.0.0.1").is_err());
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "fd00::/129", "localhost", "10.0.0/8", "10.0.0.0/8/8", " 10.0.0.0/8"]
        {
            assert_eq!(Networks::parse(&[bad]), Err(BadNetwork::NotOne(bad.into())));
        }
        let many = vec!["10.0.0.0/8"; PROBE_NETWORKS_MAX + 1];
        assert_eq!(Networks::parse(&many), Err(BadNetwork::TooMany(many.len())));
        assert!(Networks::parse(&many[1..]).is_ok());
    }
}
