//! Clients that press on whatever happens, and what is owed to them: everything that was acknowledged.

use super::{acquire, claim, resources, soon};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tenure::Client;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// Acknowledged claims, by name: the lease and the fence.
type Acknowledged = Arc<Mutex<BTreeMap<String, (u64, u64)>>>;

/// Claims one resource after the other, through whoever answers, and notes what was acknowledged.
pub struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Acknowledged,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn start(addrs: &str, clients: u64) -> Self {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Acknowledged::default());
        let next = Arc::new(AtomicU64::new(1));
        let work = |_| {
            let (addrs, stop, next) = (addrs.to_owned(), stop.clone(), next.clone());
            tokio::spawn(press(addrs, stop, next, acknowledged.clone()))
        };
        let tasks = (0..clients).map(work).collect();
        Self { stop, acknowledged, tasks }
    }

    /// Waits until so many more were acknowledged.
    pub async fn more(&self, count: usize) {
        let before = self.acknowledged.lock().await.len();
        let came = async {
            while self.acknowledged.lock().await.len() < before + count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon("more claims", came).await;
    }

    /// What was acknowledged so far.
    pub async fn so_far(&self) -> usize {
        self.acknowledged.lock().await.len()
    }

    pub async fn end(self) -> BTreeMap<String, (u64, u64)> {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.acknowledged.lock().await.clone()
    }
}

async fn press(addrs: String, stop: Arc<AtomicBool>, next: Arc<AtomicU64>, acknowledged: Acknowledged) {
    let mut client = None;
    while !stop.load(Ordering::SeqCst) {
        if client.is_none() {
            client = Client::connect(&addrs).await.ok();
            continue;
        }
        let number = next.fetch_add(1, Ordering::SeqCst);
        let (name, lease) = (format!("load/{number:06}"), 1_000_000 + number);
        let asked = acquire(client.as_ref().unwrap(), claim(&name, lease, "load", 600_000));
        match tokio::time::timeout(Duration::from_secs(10), asked).await {
            Ok(Ok(fence)) => drop(acknowledged.lock().await.insert(name, (lease, fence))),
            // Whether it was done is not known, so nothing is said of it.
            Ok(Err(_)) | Err(_) => client = None,
        }
    }
}

/// Everything that was acknowledged is there, with its fence, and no fence was given twice.
pub async fn all_there(client: &Client, acknowledged: &BTreeMap<String, (u64, u64)>) {
    let found: BTreeMap<String, (u64, u64)> =
        resources(client).await.into_iter().map(|it| (it.name, (it.lease, it.fence))).collect();
    for (name, claim) in acknowledged {
        assert_eq!(found.get(name), Some(claim), "{name} was acknowledged and is lost");
    }
    let mut fences: Vec<u64> = found.values().map(|(_, fence)| *fence).collect();
    fences.sort_unstable();
    let count = fences.len();
    fences.dedup();
    assert_eq!(fences.len(), count, "a fence was given twice");
}
