//! Shares of what clients compete for: whatever a client takes, it has no more then than is left for the others. So none of them
//! has more than half of it all, and there is always something left for the next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who takes: the name of an API key, or an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client(Arc<str>);

impl Client {
    pub(crate) fn named(name: &str) -> Self {
        Self(name.into())
    }
}

/// So many places, and who has them.
#[derive(Debug)]
pub(crate) struct Shares {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_client: HashMap<Client, usize>,
}

/// What a client has taken. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    client: Client,
    places: usize,
}

impl Shares {
    pub(crate) fn of(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// So many places for a client, if it has no more with them than are left.
    pub(crate) fn take(self: &Arc<Self>, client: &Client, places: usize) -> Option<Share> {
        let mut taken = self.taken();
        let own = taken.by_client.get(client).copied().unwrap_or_default() + places;
        let left = self.max.checked_sub(taken.all + places)?;
        if own > left {
            return None;
        }
        taken.all += places;
        taken.by_client.insert(client.clone(), own);
        drop(taken);
        Some(Share { shares: self.clone(), client: client.clone(), places })
    }

    #[cfg(test)]
    pub(crate) fn taken_by_all(&self) -> usize {
        self.taken().all
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken();
        taken.all -= self.places;
        if let Some(own) = taken.by_client.get_mut(&self.client) {
            *own -= self.places;
            if *own == 0 {
                taken.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(shares: &Arc<Shares>, client: &Client) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(client, 1)).collect()
    }

    #[test]
    fn one_client_takes_half_and_leaves_the_next_some() {
        let shares = Shares::of(1000);
        let clients = ["ann", "bob", "cat"].map(Client::named);
        let taken = clients.each_ref().map(|client| take_all(&shares, client));
        assert_eq!(taken.each_ref().map(Vec::len), [500, 250, 125]);
        let [of_ann, of_bob, _of_cat] = taken;
        drop(of_ann);
        assert_eq!(take_all(&shares, &clients[1]).len(), 187, "what was given back is shared again");
        drop(of_bob);
        assert!(shares.take(&Client::named("dan"), 100).is_some());
        assert_eq!(shares.taken().by_client.len(), 1, "who has nothing is forgotten");
    }
}
