//! S9: a lease tree ends as one, keys first, children before their parents. And no circle of leases ever waits.

use super::books::{Books, Staked};
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{End, Event, Happening, LeaseId, Name};

/// Leases up to which circles are looked for.
const CIRCLES_MAX: usize = 100;

/// Checks the order of what ends in one change, and returns the first of the tree, if one ends.
pub(super) fn check(books: &Books, change: &[Event]) -> Option<LeaseId> {
    // What takes the place of an instance comes at the same revision, after the end of that one.
    let comes = |event: &Event| matches!(event.what, Happening::Granted { .. } | Happening::Registered { .. });
    let ends = change.iter().rposition(|event| !comes(event)).map_or(0, |last| last + 1);
    let change = &change[..ends];
    let ends = change.iter().filter_map(|event| match &event.what {
        Happening::Ended { lease, how, .. } => Some((*lease, how)),
        _ => None,
    });
    let ends: Vec<_> = ends.collect();
    let (root, how) = *ends.last()?;
    let keys: Vec<_> = change.iter().filter_map(|event| event.what.key()).collect();
    assert!(keys.is_sorted(), "keys are deleted in their order");
    let last = &change.last().expect("an end is an event").what;
    assert!(matches!(last, Happening::Ended { .. }), "the end of a lease comes last");
    assert!(!matches!(how, End::ParentEnded { .. }), "the first of a tree ends by itself");
    for (_, how) in &ends[..ends.len() - 1] {
        assert_eq!(**how, End::ParentEnded { parent: root }, "what hangs on a lease ends with it");
    }
    let mut order = Vec::new();
    add_tree(books, root, &mut order);
    assert!(ends.iter().map(|(lease, _)| *lease).eq(order), "S9: a whole tree ends, children first, by id");
    in_order(root, change);
    Some(root)
}

fn add_tree(books: &Books, lease: LeaseId, order: &mut Vec<LeaseId>) {
    for child in books.children.get(&lease).into_iter().flatten() {
        add_tree(books, *child, order);
    }
    order.push(lease);
}

/// What a descendant had ends just before it, in order of name.
fn in_order(root: LeaseId, change: &[Event]) {
    let mut claims: Vec<(LeaseId, &Name)> = Vec::new();
    let ends = |lease: LeaseId| {
        let is_end = |event: &Event| matches!(event.what, Happening::Ended { .. }) && event.what.lease() == Some(lease);
        change.iter().any(is_end)
    };
    for event in change {
        match &event.what {
            Happening::Vacated { resource, lease, .. } | Happening::Left { resource, lease, .. }
                // Who gets a claim by a transfer leaves its line, and lives on.
                if *lease != root && ends(*lease) =>
            {
                claims.push((*lease, resource));
            }
            Happening::Ended { lease, .. } if *lease != root => {
                let own = claims.iter().all(|(owner, _)| owner == lease);
                assert!(own && claims.is_sorted(), "the claims of {lease} end just before it, by name");
                claims.clear();
            }
            _ => {}
        }
    }
}

/// Nobody waits for itself, over any number of leases.
pub(super) fn no_circle(books: &Books) {
    let waiting: BTreeSet<LeaseId> = books.groups.values().map(|group| group.lease).collect();
    if waiting.len() > CIRCLES_MAX {
        return;
    }
    let blockers: BTreeMap<LeaseId, BTreeSet<LeaseId>> =
        waiting.iter().map(|lease| (*lease, waits_for(books, *lease))).collect();
    for lease in &waiting {
        let (mut seen, mut open) = (BTreeSet::new(), vec![*lease]);
        while let Some(next) = open.pop() {
            for blocker in blockers.get(&next).into_iter().flatten() {
                assert_ne!(blocker, lease, "lease {lease} waits for itself");
                if seen.insert(*blocker) {
                    open.push(*blocker);
                }
            }
        }
    }
}

fn waits_for(books: &Books, lease: LeaseId) -> BTreeSet<LeaseId> {
    let mut blockers = BTreeSet::new();
    for (name, staked) in &books.alive[&lease].stakes {
        let Staked::Waiting(arrival) = staked else { continue };
        let (place, key) = (&books.places[name], books.groups[arrival].key);
        blockers.extend(place.held.values().map(|seat| seat.lease));
        blockers.extend(place.line.range(..key).map(|(_, arrival)| books.groups[arrival].lease));
    }
    blockers
}
