//! The watchers of one stream, and what each of them is told. It reads the ledger and sends nothing.

use crate::access::WatchRoom;
use crate::bells::Hanging;
use crate::limits::{ETCD_MESSAGE_BYTES_MAX, WATCH_CHANGES_MAX, WATCH_PAGE_BYTES};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::watch_create_request::FilterType;
use tenure_api::etcd::mvccpb::Event;
use tenure_api::etcd::{header, write_change};
use tenure_core::{Change, Key, Keys, Ledger, Refusal};

/// What a page of changes tells the watchers.
#[derive(Default)]
pub(super) struct Told {
    pub(super) responses: Vec<pb::WatchResponse>,
    /// The last revision of the page.
    pub(super) upto: u64,
    /// Whether there is another page.
    pub(super) more: bool,
}

/// Where a watcher is woken, and its room among those of its key.
type Place = (Hanging, WatchRoom);

/// One watcher.
pub(super) struct Watcher {
    pub(super) id: i64,
    /// The first revision that it has not been told of.
    pub(super) next: u64,
    /// The revision that its client asked for; 0 for what was to come.
    start: u64,
    keys: Keys,
    puts: bool,
    deletes: bool,
    prev: bool,
    wants_progress: bool,
    fragment: bool,
    /// It asked for what is forgotten, was told so, and is told nothing more until its client takes it away.
    is_over: bool,
    _hanging: Hanging,
    _room: WatchRoom,
}

impl Watcher {
    pub(super) fn new(id: i64, keys: Keys, asked: &pb::WatchCreateRequest, (hanging, room): Place) -> Self {
        let without = |kind: FilterType| asked.filters.contains(&i32::from(kind));
        Self {
            id,
            next: 0,
            start: u64::try_from(asked.start_revision).unwrap_or_default(),
            keys,
            puts: !without(FilterType::Noput),
            deletes: !without(FilterType::Nodelete),
            prev: asked.prev_kv,
            wants_progress: asked.progress_notify,
            fragment: asked.fragment,
            is_over: false,
            _hanging: hanging,
            _room: room,
        }
    }

    /// The event that a change is to this watcher, if it is one.
    fn event(&self, change: &Change<'_>) -> Option<Event> {
        let wanted = if change.became.is_some() { self.puts } else { self.deletes };
        let is_new = !self.is_over && change.kv_revision >= self.next;
        (wanted && is_new && self.keys.cover(change.key.bytes())).then(|| write_change(change, self.prev))
    }

    /// What it is told at once: one response, or several if it takes them in pieces.
    fn responses(&self, kv_revision: u64, events: Vec<Event>, out: &mut Vec<pb::WatchResponse>) {
        let whole = pb::WatchResponse {
            header: Some(header(kv_revision)),
            watch_id: self.id,
            events,
            ..pb::WatchResponse::default()
        };
        if !self.fragment || whole.encoded_len() < ETCD_MESSAGE_BYTES_MAX {
            return out.push(whole);
        }
        let mut piece = pb::WatchResponse { events: Vec::new(), ..whole.clone() };
        let mut bytes = 0;
        for event in whole.events {
            let weight = event.encoded_len();
            if bytes > 0 && bytes + weight >= ETCD_MESSAGE_BYTES_MAX {
                let events = std::mem::take(&mut piece.events);
                out.push(pb::WatchResponse { events, fragment: true, ..piece.clone() });
                bytes = 0;
            }
            bytes += weight;
            piece.events.push(event);
        }
        out.push(piece);
    }

    /// It asked for what is forgotten.
    fn end(&mut self, compacted: u64, out: &mut Vec<pb::WatchResponse>) {
        self.is_over = true;
        out.push(pb::WatchResponse {
            header: Some(pb::ResponseHeader::default()),
            watch_id: self.id,
            canceled: true,
            compact_revision: i64::try_from(compacted).unwrap_or(i64::MAX),
            ..pb::WatchResponse::default()
        });
    }
}

/// The watchers of one stream, by their numbers.
#[derive(Default)]
pub(super) struct Watchers {
    all: BTreeMap<i64, Watcher>,
    of_one: HashMap<Key, BTreeSet<i64>>,
    of_several: BTreeSet<i64>,
    /// Bytes of what is watched.
    bytes: usize,
    next: i64,
}

impl Watchers {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Bytes of what is watched.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number that a client chose, or one for it. None: it has a watcher with that number.
    pub(super) fn number(&mut self, chosen: i64) -> Option<i64> {
        if chosen != 0 {
            return (!self.all.contains_key(&chosen)).then_some(chosen);
        }
        while self.all.contains_key(&self.next) {
            self.next += 1;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    pub(super) fn add(&mut self, watcher: Watcher) {
        match &watcher.keys {
            Keys::One(key) => drop(self.of_one.entry(key.clone()).or_default().insert(watcher.id)),
            _ => drop(self.of_several.insert(watcher.id)),
        }
        self.bytes += watcher.keys.bytes();
        self.all.insert(watcher.id, watcher);
    }

    pub(super) fn remove(&mut self, id: i64) -> bool {
        let Some(watcher) = self.all.remove(&id) else { return false };
        self.bytes -= watcher.keys.bytes();
        self.of_several.remove(&id);
        if let Keys::One(key) = &watcher.keys
            && let Some(of_key) = self.of_one.get_mut(key)
        {
            of_key.remove(&id);
            if of_key.is_empty() {
                self.of_one.remove(key);
            }
        }
        true
    }

    /// What one watcher has not been told yet, as one response for the whole page.
    pub(super) fn of_one(&mut self, ledger: &Ledger, id: i64) -> Option<Told> {
        let watcher = self.all.get_mut(&id)?;
        let mut told = Told::default();
        let changes = match ledger.changes_from(watcher.next) {
            Ok(changes) => changes,
            Err(refusal) => {
                watcher.end(compacted(&refusal), &mut told.responses);
                return Some(told);
            }
        };
        let mut page = Page::default();
        let mut events = Vec::new();
        for change in changes {
            if !page.takes(change.kv_revision) {
                told.more = true;
                break;
            }
            if let Some(event) = watcher.event(&change) {
                page.bytes += event.encoded_len();
                events.push(event);
            }
        }
        if !events.is_empty() {
            watcher.responses(ledger.kv_revision(), events, &mut told.responses);
        }
        let seen = if told.more { page.revision } else { ledger.kv_revision() };
        watcher.next = watcher.next.max(seen + 1);
        Some(told)
    }

    /// What all watchers are told of the changes from a revision on, one response for each watcher and revision.
    pub(super) fn of_all(&mut self, ledger: &Ledger, from: u64) -> Told {
        let mut told = Told { upto: ledger.kv_revision(), ..Told::default() };
        // Watchers that are behind what is compacted end; the others must not miss what came after it.
        let changes = loop {
            match ledger.changes_from(from.max(self.furthest_back())) {
                Ok(changes) => break changes,
                Err(refusal) => self.end_all(compacted(&refusal), &mut told.responses),
            }
        };
        let (mut page, mut of_revision, mut revision) = (Page::default(), BTreeMap::<i64, Vec<Event>>::new(), 0);
        for change in changes {
            if change.kv_revision != revision {
                self.flush(revision, &mut of_revision, &mut told.responses);
                revision = change.kv_revision;
            }
            if !page.takes(revision) {
                (told.more, told.upto) = (true, page.revision);
                break;
            }
            let of_key = self.of_one.get(change.key).into_iter().flatten();
            for id in of_key.chain(&self.of_several) {
                if let Some(event) = self.all[id].event(&change) {
                    page.bytes += event.encoded_len();
                    of_revision.entry(*id).or_default().push(event);
                }
            }
        }
        self.flush(revision, &mut of_revision, &mut told.responses);
        self.all.values_mut().for_each(|watcher| watcher.next = watcher.next.max(told.upto + 1));
        told
    }

    fn flush(&self, revision: u64, events: &mut BTreeMap<i64, Vec<Event>>, out: &mut Vec<pb::WatchResponse>) {
        for (id, events) in std::mem::take(events) {
            self.all[&id].responses(revision, events, out);
        }
    }

    fn end_all(&mut self, compacted: u64, out: &mut Vec<pb::WatchResponse>) {
        let behind = self.all.values_mut().filter(|watcher| !watcher.is_over && watcher.next < compacted);
        behind.for_each(|watcher| watcher.end(compacted, out));
    }

    /// The first revision that some watcher has not been told of.
    pub(super) fn furthest_back(&self) -> u64 {
        let next = self.all.values().filter(|watcher| !watcher.is_over).map(|watcher| watcher.next);
        next.min().unwrap_or(u64::MAX)
    }

    /// Whether all have been told of everything up to a revision, and there is somebody. As with etcd, whoever asked for a
    /// later start has not.
    pub(super) fn have_come_to(&self, revision: u64) -> bool {
        let is_there =
            |watcher: &Watcher| !watcher.is_over && watcher.next == revision + 1 && watcher.start <= revision;
        !self.all.is_empty() && self.all.values().all(is_there)
    }

    pub(super) fn who_want_progress(&self) -> Vec<i64> {
        let want = self.all.values().filter(|watcher| watcher.wants_progress && !watcher.is_over);
        want.map(|watcher| watcher.id).collect()
    }
}

fn compacted(refusal: &Refusal) -> u64 {
    if let Refusal::Compacted { compacted } = refusal { *compacted } else { 0 }
}

/// How much is looked at before the ledger is let go.
#[derive(Default)]
struct Page {
    changes: usize,
    bytes: usize,
    /// The last revision that was taken.
    revision: u64,
}

impl Page {
    /// Takes another change, unless the page is full. A revision is taken whole or not at all.
    fn takes(&mut self, revision: u64) -> bool {
        let is_full = self.changes >= WATCH_CHANGES_MAX || self.bytes >= WATCH_PAGE_BYTES;
        if is_full && revision != self.revision && self.revision != 0 {
            return false;
        }
        self.changes += 1;
        self.revision = revision;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bells::{Bell, Bells};
    use std::sync::Arc;
    use tenure_core::limits::RULES_MAX;
    use tenure_core::{Command, Compact, Entry, Hang, Leader, Moment, Put};

    fn apply(ledger: &mut Ledger, command: Command) {
        let (leader, now, rules) = (Leader { term: 1, node: 1 }, Moment::from_millis(1), RULES_MAX);
        let applied = ledger.apply(&Entry { leader, now, wall_ms: 1, rules, commands: vec![command] });
        assert!(applied.outcomes.iter().all(Result::is_ok));
    }

    fn write(ledger: &mut Ledger, key: &str) {
        let put = Put { key: Key::parse(key.as_bytes()).unwrap(), value: Some([][..].into()), lease: Hang::Free };
        apply(ledger, Command::Put(put));
    }

    fn watch(watchers: &mut Watchers, bells: &Arc<Bells>, key: &str, next: u64) {
        let keys = Keys::One(Key::parse(key.as_bytes()).unwrap());
        let hanging = bells.hang(keys.clone(), &Arc::new(Bell::default())).unwrap();
        let id = watchers.number(0).unwrap();
        let watcher = Watcher::new(id, keys, &pb::WatchCreateRequest::default(), (hanging, WatchRoom::default()));
        watchers.add(Watcher { next, ..watcher });
    }

    /// One watcher of a stream is behind what was compacted. The other one receives every change all the same.
    #[test]
    fn a_compacted_watcher_hides_no_change_from_others() {
        let (mut ledger, bells, mut watchers) = (Ledger::default(), Arc::new(Bells::new()), Watchers::default());
        (0..5).for_each(|_| write(&mut ledger, "a"));
        let seen = ledger.kv_revision();
        watch(&mut watchers, &bells, "a", 2);
        watch(&mut watchers, &bells, "b", seen + 1);
        write(&mut ledger, "b");
        apply(&mut ledger, Command::Compact(Compact { revision: i64::try_from(seen).unwrap() }));
        let told = watchers.of_all(&ledger, 2);
        let ends: Vec<_> =
            told.responses.iter().map(|told| (told.watch_id, told.canceled, told.events.len())).collect();
        assert_eq!(ends, [(0, true, 0), (1, false, 1)]);
        assert_eq!(told.upto, seen + 1);
    }
}
