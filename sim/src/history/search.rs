//! The search for an order of operations. It is bounded: what it cannot decide within its budget it says.

use super::{Model, Operation, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// The most operations of one part of a history. A run of two minutes makes a few hundred.
pub const OPERATIONS_MAX: usize = 4_096;

/// The most steps of one search: about a second in a debug build. A history that can be explained takes about as many steps as
/// it has operations.
pub const STEPS_MAX: u64 = 100_000;

/// Looks for an order that explains a part of a history.
pub fn check<M: Model>(history: &[Operation<M::Act>]) -> Verdict {
    if history.len() > OPERATIONS_MAX {
        return Verdict::NotDecided;
    }
    match Search::<M>::new(history.iter().enumerate().collect()).run() {
        Found::Order => Verdict::Accepted,
        Found::OutOfSteps => Verdict::NotDecided,
        Found::Nothing { furthest } => {
            let writes = history.iter().enumerate().filter(|(_, operation)| !M::only_reads(&operation.act));
            let only_reads = matches!(Search::<M>::new(writes.collect()).run(), Found::Order);
            Verdict::Refused { operation: furthest, only_reads }
        }
    }
}

enum Found {
    Order,
    OutOfSteps,
    Nothing { furthest: usize },
}

/// A history, arranged for the search.
struct Search<'a, M: Model> {
    /// Operations that were answered, in the order of their answers, with their indexes in the history.
    answered: Vec<(usize, &'a Operation<M::Act>)>,
    /// Those that may be next when the first so many are done: they were called before the answer of the next one.
    concurrent: Vec<Vec<usize>>,
    /// Operations whose outcome is unknown, in the order of their calls.
    unknown: Vec<&'a Operation<M::Act>>,
    /// The unknown operation before it that is the same but for its time. The earlier one is used first.
    twin: Vec<Option<usize>>,
}

/// A point of the search: what took effect so far, and what it left behind.
struct Point<S> {
    place: Place<S>,
    /// Which unknown operations took effect.
    used: BTreeSet<usize>,
    /// How many of the operations that may be next were tried.
    tried: usize,
}

/// What decides which answers are possible from here.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place<S> {
    /// All operations before this one, in the order of their answers, took effect.
    next: usize,
    /// And these after it.
    ahead: Vec<usize>,
    state: S,
}

/// What is tried next.
#[derive(Clone, Copy)]
enum Choice {
    Answered(usize),
    Unknown(usize),
}

impl<'a, M: Model> Search<'a, M> {
    fn new(history: Vec<(usize, &'a Operation<M::Act>)>) -> Self {
        let (mut answered, unknown): (Vec<_>, Vec<_>) = history.into_iter().partition(|(_, it)| it.to.is_some());
        answered.sort_by_key(|(index, it)| (it.to, *index));
        let mut unknown: Vec<_> = unknown.into_iter().map(|(_, operation)| operation).collect();
        unknown.sort_by_key(|it| it.from);
        let twin = (0..unknown.len()).map(|at| (0..at).rev().find(|before| unknown[*before].act == unknown[at].act));
        let twin = twin.collect();
        let concurrent = Self::concurrent(&answered);
        Self { answered, concurrent, unknown, twin }
    }

    fn concurrent(answered: &[(usize, &Operation<M::Act>)]) -> Vec<Vec<usize>> {
        let mut by_call: Vec<usize> = (0..answered.len()).collect();
        by_call.sort_by_key(|at| answered[*at].1.from);
        let (mut called, mut open) = (by_call.into_iter().peekable(), BTreeSet::new());
        let each = answered.iter().enumerate().map(|(next, (_, operation))| {
            while let Some(at) = called.next_if(|at| Some(answered[*at].1.from) <= operation.to) {
                open.insert(at);
            }
            let concurrent = open.iter().copied().filter(|at| *at >= next).collect();
            open.remove(&next);
            concurrent
        });
        each.collect()
    }

    fn run(&self) -> Found {
        let place = Place { next: 0, ahead: Vec::new(), state: M::State::default() };
        let mut path = vec![Point { place, used: BTreeSet::new(), tried: 0 }];
        let mut seen: BTreeMap<Place<M::State>, Vec<BTreeSet<usize>>> = BTreeMap::new();
        let (mut steps, mut furthest) = (0, 0);
        while let Some(point) = path.last_mut() {
            let next = point.place.next;
            if next == self.answered.len() {
                return Found::Order;
            }
            furthest = furthest.max(next);
            let Some(choice) = self.choice(next, point.tried) else {
                path.pop();
                continue;
            };
            point.tried += 1;
            steps += 1;
            if steps > STEPS_MAX {
                return Found::OutOfSteps;
            }
            let Some((place, used)) = self.follow(point, choice) else { continue };
            // Whoever came here with fewer unknown operations has seen everything that can follow.
            let before = seen.entry(place.clone()).or_default();
            if !before.iter().any(|before| before.is_subset(&used)) {
                before.push(used.clone());
                path.push(Point { place, used, tried: 0 });
            }
        }
        Found::Nothing { furthest: self.answered[furthest].0 }
    }

    /// What is tried in turn: operations that were answered, then unknown ones, the newest first, since an operation that takes
    /// effect mostly does so soon.
    fn choice(&self, next: usize, tried: usize) -> Option<Choice> {
        let concurrent = &self.concurrent[next];
        if let Some(at) = concurrent.get(tried) {
            return Some(Choice::Answered(*at));
        }
        let called = self.unknown.partition_point(|it| Some(it.from) <= self.answered[next].1.to);
        let back = tried - concurrent.len() + 1;
        called.checked_sub(back).map(Choice::Unknown)
    }

    fn follow(&self, point: &Point<M::State>, choice: Choice) -> Option<(Place<M::State>, BTreeSet<usize>)> {
        let Place { next, ahead, state } = &point.place;
        match choice {
            Choice::Answered(at) => {
                let Err(gap) = ahead.binary_search(&at) else { return None };
                let state = M::step(state, &self.answered[at].1.act)?;
                let (mut next, mut ahead) = (*next, ahead.clone());
                ahead.insert(gap, at);
                let done = ahead.iter().zip(next..).take_while(|(ahead, at)| *ahead == at).count();
                ahead.drain(..done);
                next += done;
                Some((Place { next, ahead, state }, point.used.clone()))
            }
            Choice::Unknown(at) => {
                let twin_first = self.twin[at].is_some_and(|twin| !point.used.contains(&twin));
                if twin_first || point.used.contains(&at) {
                    return None;
                }
                let after = M::step(state, &self.unknown[at].act).filter(|after| after != state)?;
                let mut used = point.used.clone();
                used.insert(at);
                Some((Place { next: *next, ahead: ahead.clone(), state: after }, used))
            }
        }
    }
}
