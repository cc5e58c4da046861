//! Which connections have proved that they are of use, and which goes first when there is no room for another: idle ones
//! without a key lock no client out.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use socket2::SockRef;
use tokio::net::TcpStream;

/// When a connection has proved itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// With its first request that was allowed, and that not every stranger may make.
    OnceAllowed,
    /// When it is open: secured, it has shown a certificate by then.
    OnceOpen,
}

/// The connections of one listener that have not proved themselves, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    strangers: Mutex<Strangers>,
}

#[derive(Debug, Default)]
struct Strangers {
    next: u64,
    by_number: BTreeMap<u64, Weak<TcpStream>>,
}

/// One connection's place among them, given up when it is closed.
#[derive(Debug)]
pub(crate) struct Guest {
    number: u64,
    guests: Arc<Guests>,
}

impl Guests {
    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has come, and is a stranger.
    pub(crate) fn welcome(self: &Arc<Self>, stream: &Arc<TcpStream>) -> Arc<Guest> {
        let mut strangers = self.strangers();
        let number = strangers.next;
        strangers.next += 1;
        strangers.by_number.insert(number, Arc::downgrade(stream));
        Arc::new(Guest { number, guests: self.clone() })
    }

    /// Closes the oldest stranger. False: there is none.
    pub(crate) fn close_oldest(&self) -> bool {
        loop {
            let Some((_, stream)) = self.strangers().by_number.pop_first() else { return false };
            // One that is gone by itself makes room by itself, but it may have done so before.
            if let Some(stream) = stream.upgrade() {
                let _ = SockRef::from(&*stream).shutdown(Shutdown::Both);
                return true;
            }
        }
    }
}

impl Guest {
    /// It is no stranger any longer.
    pub(crate) fn is_known(&self) {
        self.guests.strangers().by_number.remove(&self.number);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.is_known();
    }
}
