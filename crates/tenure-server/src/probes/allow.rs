//! Where probes may go. It decides by addresses alone, never by names: what a name means is looked up for each probe.

use crate::limits::PROBE_NETWORKS_MAX;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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

/// Why an address is not probed. It does not say which one it is: a name may have another one each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Forbidden {
    #[error(
        "its address is never probed: link-local, unspecified, multicast, broadcast and metadata addresses are not"
    )]
    Never,
    #[error("its address is in none of the networks that this server may probe: see --probe-allow")]
    NotAllowed,
}

/// Where clouds answer every machine with its secrets, beside the link-local addresses.
const METADATA: [IpAddr; 4] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

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

    /// Whether an address may be probed. One of IPv4 that is written as IPv6 is the one of IPv4; behind one that is
    /// translated there are two, and both must be allowed.
    pub(super) fn judge(&self, address: IpAddr) -> Result<(), Forbidden> {
        let address = address.to_canonical();
        let behind = match address {
            IpAddr::V6(v6) => translated(v6).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        let all = || [Some(address), behind].into_iter().flatten();
        if all().any(is_never) {
            return Err(Forbidden::Never);
        }
        let is_allowed = |address: IpAddr| self.0.iter().any(|network| network.contains(&address));
        if all().all(is_allowed) { Ok(()) } else { Err(Forbidden::NotAllowed) }
    }
}

fn is_never(address: IpAddr) -> bool {
    METADATA.contains(&address)
        || match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.octets()[0] == 0 || v4.is_multicast() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast(),
        }
}

/// The address of IPv4 to which a gateway on the way may take one of IPv6: NAT64 (RFC 6052 and 8215), 6to4, and the
/// deprecated compatible ones.
fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..]
        | [0, 0, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        _ => None,
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
            assert_eq!(judge(&allowed, outside), Err(Forbidden::NotAllowed), "{outside}");
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
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "::169.254.169.254",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
            "::ffff:168.63.129.16",
        ];
        for never in never {
            assert_eq!(judge(&allowed, never), Err(Forbidden::Never), "{never}");
        }
        for beside in ["169.253.255.255", "169.255.0.0", "fec0::1", "223.255.255.255", "1.0.0.0", "255.255.255.254"] {
            assert_eq!(judge(&allowed, beside), Ok(()), "{beside}");
        }
    }

    #[test]
    fn networks_of_ipv6_do_not_let_in_those_of_ipv4() {
        assert!(judge(&["::/0"], "::ffff:10.0.0.1").is_err());
        assert!(judge(&["::/0"], "10.0.0.1").is_err());
        for translated in ["64:ff9b::10.0.0.1", "2002:a00:1::", "::10.0.0.1"] {
            assert!(judge(&["::/0"], translated).is_err(), "{translated}");
            assert_eq!(judge(&["::/0", "10.0.0.0/8"], translated), Ok(()), "{translated}");
        }
        assert_eq!(judge(&["::1/128"], "::1"), Ok(()));
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
