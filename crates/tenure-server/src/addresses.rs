//! How many connections each address has: one address leaves room for the others. Loopback is not counted: a proxy on the same
//! machine has the connections of all its clients.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of each address.
#[derive(Debug)]
pub(crate) struct Addresses {
    max: usize,
    counts_loopback: bool,
    open: Mutex<HashMap<IpAddr, Open>>,
}

/// What is known of one address.
#[derive(Debug, Default)]
struct Open {
    count: usize,
    /// Whether the log says that it has too many. Once is enough while it has any.
    is_told: bool,
}

/// One connection of an address. Dropping it gives its place back.
#[derive(Debug)]
pub(crate) struct Place {
    addresses: Arc<Addresses>,
    ip: Option<IpAddr>,
}

impl Addresses {
    pub(crate) fn at_most(max: usize) -> Arc<Self> {
        Arc::new(Self { max, counts_loopback: false, open: Mutex::default() })
    }

    /// The same, for tests, which have no other addresses than loopback.
    #[cfg(test)]
    pub(crate) fn with_loopback(max: usize) -> Arc<Self> {
        Arc::new(Self { max, counts_loopback: true, open: Mutex::default() })
    }

    /// A place for one more connection, unless its address has as many as it may.
    pub(crate) fn enter(self: &Arc<Self>, ip: IpAddr) -> Option<Place> {
        let ip = ip.to_canonical();
        if ip.is_loopback() && !self.counts_loopback {
            return Some(Place { addresses: self.clone(), ip: None });
        }
        let ip = counted_as(ip);
        let mut open = self.open();
        let of_ip = open.entry(ip).or_default();
        if of_ip.count >= self.max {
            if !std::mem::replace(&mut of_ip.is_told, true) {
                tracing::warn!(%ip, max = self.max, "an address has as many connections as it may: more are closed at once");
            }
            return None;
        }
        of_ip.count += 1;
        drop(open);
        Some(Place { addresses: self.clone(), ip: Some(ip) })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(ip) = self.ip else { return };
        if let Entry::Occupied(mut open) = self.addresses.open().entry(ip) {
            open.get_mut().count -= 1;
            if open.get().count == 0 {
                open.remove();
            }
        }
    }
}

/// A client with one address of IPv6 has the other 2^64 of its network as well.
fn counted_as(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) & !u128::from(u64::MAX)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_so_many_connections() {
        let addresses = Addresses::at_most(2);
        let one = addresses.enter(ip("10.0.0.1")).unwrap();
        let _mapped = addresses.enter(ip("::ffff:10.0.0.1")).unwrap();
        assert!(addresses.enter(ip("10.0.0.1")).is_none());
        let _other = addresses.enter(ip("10.0.0.2")).unwrap();
        drop(one);
        assert!(addresses.enter(ip("10.0.0.1")).is_some());
        let _network = [ip("fd00::1"), ip("fd00::2")].map(|ip| addresses.enter(ip).unwrap());
        assert!(addresses.enter(ip("fd00::3")).is_none(), "one network of IPv6");
        assert!(addresses.enter(ip("fd00:0:0:1::1")).is_some());
        let local: Vec<_> = (0..10).map(|_| addresses.enter(ip("127.0.0.1"))).collect();
        assert!(local.iter().all(Option::is_some), "loopback is not counted");
        assert_eq!(addresses.open().len(), 3);
    }
}
