//! A client whose keeper its caller runs: for the simulator, where time and the network are simulated. It is no part of the
//! stable interface of this crate.

pub use crate::chance::Chance;
pub use crate::endpoint::Endpoint;
pub use crate::keeper::{Keeper, LinkId, News, OrderQueue, Ordered, Output};

use crate::client::Client;
use crate::clock::Clock;

/// A client of the servers at these addresses, comma-separated, and its keeper, which nothing runs yet. Only what goes through the keeper works with
/// it: leases and claims.
pub fn client(addrs: &str, holder: &str, clock: Clock, chance: Chance) -> (Client, Keeper, OrderQueue) {
    Client::with_keeper(addrs, holder, clock, chance)
}
