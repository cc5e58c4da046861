//! The promises of the ledger, held against random histories, and at every point at which it could be restarted.
//! `TENURE_CASES=10` runs ten times as many cases.

use crate::support::history::{instance_plans, plans};
use crate::support::witness::{Seen, Witness};
use crate::support::{acquire, acquire_on, cancel, entry, grant, renew, restored, revoke, runner, tick};
use proptest::prelude::{Strategy, prop_oneof};
use std::cell::Cell;
use tenure_core::{Applied, Entry, Ledger, Wait, limits};

/// S1, S3, S5, S7, S8, S9, S14 and first come first served: the witness looks after every entry.
#[test]
fn random_histories_keep_every_promise() {
    let seen = Cell::new(Seen::default());
    let histories = prop_oneof![2 => plans(40).boxed(), 1 => instance_plans(40).boxed()];
    let result = runner(1500, file!()).run(&histories, |plans| {
        let mut witness = Witness::default();
        for plan in &plans {
            let entry = plan.entry(witness.ledger());
            witness.apply(&entry);
        }
        let mut all = seen.get();
        all.add(witness.seen());
        seen.set(all);
        Ok(())
    });
    result.unwrap();
    println!("{:?}", seen.get());
    seen.get().assert_everything_was_seen();
}

/// A ledger and every replica that was restored from it on the way.
#[derive(Default)]
struct Replicas {
    ledger: Ledger,
    restored: Vec<Ledger>,
}

impl Replicas {
    /// Applies an entry to all of them, which must not be told apart, and restores one more from a snapshot.
    fn apply(&mut self, entry: &Entry) -> Applied {
        let applied = self.ledger.apply(entry);
        let hash = self.ledger.state_hash();
        for (index, replica) in self.restored.iter_mut().enumerate() {
            // One in two is a follower: it answers no client.
            let follows = index % 2 == 1;
            let same = if follows { replica.replay(entry) } else { replica.apply(entry) };
            if !follows {
                assert_eq!(applied.outcomes, same.outcomes, "restored after entry {index}");
            }
            assert_eq!(applied.steps, same.steps, "restored after entry {index}");
            assert_eq!(applied.events, same.events, "restored after entry {index}");
            assert_eq!(applied.unfinished, same.unfinished, "restored after entry {index}");
            assert_eq!(hash, replica.state_hash(), "restored after entry {index}");
        }
        self.restored.push(restored(&self.ledger));
        applied
    }
}

/// S7: a snapshot and the entries after it make what all entries make, wherever the snapshot was taken.
#[test]
fn a_replica_restored_at_any_entry_goes_on_alike() {
    let histories = prop_oneof![2 => plans(40).boxed(), 1 => instance_plans(40).boxed()];
    let result = runner(200, file!()).run(&histories, |plans| {
        let mut replicas = Replicas::default();
        for plan in &plans {
            let entry = plan.entry(&replicas.ledger);
            replicas.apply(&entry);
        }
        Ok(())
    });
    result.unwrap();
}

/// The same in the middle of a mass expiry that takes several entries, with lines, renewed leases and commands between.
#[test]
fn a_replica_restored_within_a_mass_expiry_goes_on_alike() {
    let (mut replicas, mut witness) = (Replicas::default(), Witness::default());
    let mut apply = |entry: &Entry| {
        witness.apply(entry);
        replicas.apply(entry)
    };
    let holders = limits::SWEEP_MAX as u64 + 300;
    let resource = |n: u64| format!("r/{}", n % holders);
    apply(&entry(0, (0..holders).map(|n| acquire(1 + n, &resource(n), 1000 + n % 7)).collect()));
    // One line in two has a waiter that dies in the same expiry, and one in three one that lives.
    let dying = (0..holders).step_by(2).map(|n| acquire(20_000 + n, &resource(n), 1500));
    let living = (0..holders).step_by(3).map(|n| acquire(40_000 + n, &resource(n), 60_000));
    apply(&entry(10, dying.chain(living).collect()));
    // Every fifth holder renews, so that it is armed earlier than it is due; some of them twice.
    apply(&entry(400, vec![renew((0..holders).step_by(5).map(|n| 1 + n))]));
    apply(&entry(700, vec![renew((0..holders).step_by(10).map(|n| 1 + n)), acquire_on(1, "r/1", Wait::IN_LINE)]));

    let mut applied = apply(&tick(1800));
    let mut cuts = 0;
    while applied.unfinished {
        cuts += 1;
        let (late, next) = (holders - cuts, 20_002 + 2 * cuts);
        let commands = vec![
            renew([late, late - 100, 1]),
            cancel(next, &resource(next - 20_000)),
            revoke(40_000 + 3 * cuts),
            acquire(60_000 + cuts, &resource(cuts), 500),
            grant(70_000 + cuts, 100),
        ];
        applied = apply(&entry(1800, commands));
    }
    println!("{cuts} cuts, {} replicas", replicas.restored.len());
    assert!(cuts >= 2, "the expiry takes several entries: {cuts}");
    let mut at_ms = 1800;
    while replicas.ledger.lease_count() > 0 {
        at_ms += 30_000;
        let applied = replicas.apply(&tick(at_ms));
        assert_eq!(applied.outcomes.len(), 0);
    }
}
