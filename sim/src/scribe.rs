//! A scribe: a client that writes, reads and compares a few keys. What it sees is judged at the end, by the history of all.

use crate::client::Client;
use crate::dice::Dice;
use crate::ground::true_time;
use crate::mix::{Mix, choose, locks};
use std::collections::BTreeMap;
use std::time::Duration;
use tenure_core::{
    Command, Compare, Delete, Grant, Hang, Holder, Key, Keys, Kind, LeaseId, Op, OpDone, Put, Range, Relation,
    ReleaseLease, Renew, Renewal, Reply, Subject, Ttl, Txn,
};
use tokio::time::{Instant, sleep};

/// Keys that are written alone, and those that transactions write together.
const ALONE: [&str; 2] = ["k/a", "k/b"];
const TOGETHER: [&str; 2] = ["t/a", "t/b"];

const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Scribe {
    pub(crate) number: u64,
    pub(crate) client: Client,
    pub(crate) dice: Dice,
    pub(crate) mix: Mix,
    pub(crate) origin: Instant,
    pub(crate) until: Duration,
}

#[derive(Clone, Copy)]
enum Does {
    Put,
    PutOnLease,
    Get,
    Look,
    Delete,
    Swap,
    Renew,
    Release,
}

/// What a scribe remembers.
#[derive(Default)]
struct Memory {
    written: u64,
    /// What it saw last of keys.
    seen: BTreeMap<Key, Option<Vec<u8>>>,
    lease: Option<LeaseId>,
}

impl Scribe {
    pub(crate) async fn live(self) {
        let mut memory = Memory::default();
        let leased = if self.mix.leased > 0 { 1 } else { 0 };
        let does = [
            (5, Does::Put),
            (2 * self.mix.leased, Does::PutOnLease),
            (8, Does::Get),
            (4, Does::Look),
            (2, Does::Delete),
            (5, Does::Swap),
            (leased, Does::Renew),
            (leased, Does::Release),
        ];
        while true_time(self.origin) < self.until {
            sleep(self.dice.ms(20, 2_400 / (1 + self.mix.keys))).await;
            match choose(&self.dice, &does) {
                Does::Put => self.put(&mut memory, Hang::Free).await,
                Does::PutOnLease => self.put_on_lease(&mut memory).await,
                Does::Get => self.get(&mut memory).await,
                Does::Look => self.look().await,
                Does::Delete => self.delete().await,
                Does::Swap => self.swap(&mut memory).await,
                Does::Renew => self.renew(&memory).await,
                Does::Release => self.release(&mut memory).await,
            }
        }
    }

    fn key(&self) -> Key {
        let all = [ALONE, TOGETHER].concat();
        key(all[self.dice.between(0, all.len() as u64 - 1) as usize])
    }

    /// A value unlike all others.
    fn value(&self, memory: &mut Memory) -> Vec<u8> {
        memory.written += 1;
        (self.number * 1_000_000 + memory.written).to_string().into_bytes()
    }

    async fn put(&self, memory: &mut Memory, lease: Hang) {
        let put = Put { key: self.key(), value: Some(self.value(memory)[..].into()), lease };
        self.client.ask(Command::Put(put), PATIENCE).await;
    }

    async fn put_on_lease(&self, memory: &mut Memory) {
        if memory.lease.is_none() || self.dice.one_in(4) {
            let lease =
                LeaseId::from_number((self.dice.next() >> 1).max(1)).expect("a positive 63-bit number is an id");
            let holder = Holder::parse(&format!("scribe-{}", self.number)).expect("this is a name");
            let ttl = Ttl::from_millis(self.dice.between(500, 5_000)).expect("in range");
            let grant = Command::Grant(Grant::plain(lease, holder, ttl, 1));
            let granted = matches!(self.client.ask(grant, PATIENCE).await, Some(Ok(Reply::Granted { .. })));
            memory.lease = granted.then_some(lease);
        }
        if let Some(lease) = memory.lease {
            self.put(memory, Hang::On(lease)).await;
        }
    }

    async fn renew(&self, memory: &Memory) {
        if let Some(lease) = memory.lease {
            let leases = vec![Renewal { lease, ttl: None }];
            self.client.ask(Command::Renew(Renew { leases, kind: Kind::Auto }), PATIENCE).await;
        }
    }

    async fn release(&self, memory: &mut Memory) {
        if let Some(lease) = memory.lease.take() {
            self.client.ask(Command::ReleaseLease(ReleaseLease::plain(lease)), PATIENCE).await;
        }
    }

    async fn get(&self, memory: &mut Memory) {
        let key = self.key();
        if let Some(found) = self.client.get(&key).await {
            memory.seen.insert(key, found.map(|found| found.value.to_vec()));
        }
    }

    /// Reads who holds a lock.
    async fn look(&self) {
        let locks = locks();
        self.client.look(&locks[self.dice.between(0, locks.len() as u64 - 1) as usize]).await;
    }

    async fn delete(&self) {
        self.client.ask(Command::Delete(Delete { keys: Keys::One(self.key()) }), PATIENCE).await;
    }

    /// Writes two keys if the first is as it was last seen, and else looks at both.
    async fn swap(&self, memory: &mut Memory) {
        let keys = TOGETHER.map(key);
        let subject = match memory.seen.get(&keys[0]).cloned().flatten() {
            Some(value) => Subject::Value(value[..].into()),
            None => Subject::Version(0),
        };
        let compares = vec![Compare { keys: Keys::One(keys[0].clone()), subject, relation: Relation::Equal }];
        let values = [self.value(memory), self.value(memory)];
        let put = |(key, value): (&Key, &Vec<u8>)| Op::Put {
            put: Put { key: key.clone(), value: Some(value[..].into()), lease: Hang::Free },
            prev: false,
        };
        let then = keys.iter().zip(&values).map(put).collect();
        let otherwise = keys.iter().map(|key| Op::Range(Range::of(Keys::One(key.clone())))).collect();
        let answer = self.client.ask(Command::Txn(Txn { compares, then, otherwise }), PATIENCE).await;
        let Some(Ok(Reply::Txn(done))) = answer else { return };
        if done.held {
            memory.seen.extend(keys.into_iter().zip(values.map(Some)));
            return;
        }
        for (key, op) in keys.into_iter().zip(done.ops) {
            if let OpDone::Range { ranged, .. } = op {
                memory.seen.insert(key, ranged.items.first().map(|(_, found)| found.value.to_vec()));
            }
        }
    }
}

fn key(text: &str) -> Key {
    Key::parse(text.as_bytes()).expect("this is a key")
}
