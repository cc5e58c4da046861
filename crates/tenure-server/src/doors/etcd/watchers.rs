//! The watchers of one stream, and what each of them receives. The ledger is read page by page; the answers to each watcher are
//! made afterwards, one answer after the other. Keys and values are shared with the ledger, not copied.

use crate::access::WatchRoom;
use crate::bells::Hanging;
use crate::limits::{ETCD_MESSAGE_BYTES_MAX, WATCH_CHANGES_MAX, WATCH_PAGE_BYTES};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::watch_create_request::FilterType;
use tenure_api::etcd::mvccpb::Event;
use tenure_api::etcd::{header, write_change};
use tenure_core::{Change, Key, KeyValue, Keys, Ledger, Refusal};

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
    fn event(&self, changed: &Changed) -> Option<Event> {
        let wanted = if changed.is_put { self.puts } else { self.deletes };
        let is_new = !self.is_over && changed.kv_revision >= self.next;
        if !wanted || !is_new || !self.keys.cover(changed.key.bytes()) {
            return None;
        }
        let Event { r#type, kv, prev_kv } = &changed.event;
        Some(Event { r#type: *r#type, kv: kv.clone(), prev_kv: prev_kv.clone().filter(|_| self.prev) })
    }

    /// What it is told at once: one response, or several if it takes them in pieces.
    fn responses(&self, kv_revision: u64, events: Vec<Event>) -> Vec<pb::WatchResponse> {
        if events.is_empty() {
            return Vec::new();
        }
        let whole = pb::WatchResponse {
            header: Some(header(kv_revision)),
            watch_id: self.id,
            events,
            ..pb::WatchResponse::default()
        };
        if !self.fragment || whole.encoded_len() < ETCD_MESSAGE_BYTES_MAX {
            return vec![whole];
        }
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        let mut piece = pb::WatchResponse { events: Vec::new(), ..whole.clone() };
        for event in whole.events {
            let weight = event.encoded_len();
            if bytes > 0 && bytes + weight >= ETCD_MESSAGE_BYTES_MAX {
                let events = std::mem::take(&mut piece.events);
                pieces.push(pb::WatchResponse { events, fragment: true, ..piece.clone() });
                bytes = 0;
            }
            bytes += weight;
            piece.events.push(event);
        }
        pieces.push(piece);
        pieces
    }

    /// It asked for what is forgotten.
    fn end(&mut self, compacted: u64) -> pb::WatchResponse {
        self.is_over = true;
        pb::WatchResponse {
            header: Some(pb::ResponseHeader::default()),
            watch_id: self.id,
            canceled: true,
            compact_revision: i64::try_from(compacted).unwrap_or(i64::MAX),
            ..pb::WatchResponse::default()
        }
    }
}

/// A change of a key as it was read from the ledger, with which it shares everything.
struct Found {
    kv_revision: u64,
    key: Key,
    became: Option<KeyValue>,
    before: Option<KeyValue>,
}

impl Found {
    fn of(change: &Change<'_>) -> Self {
        let Change { kv_revision, key, became, before } = *change;
        Self { kv_revision, key: key.clone(), became: became.cloned(), before: before.cloned() }
    }

    /// How many bytes of keys and values it keeps from being forgotten.
    fn bytes(&self) -> usize {
        let value = |value: &Option<KeyValue>| value.as_ref().map_or(0, |value| value.value.len());
        self.key.bytes().len() + value(&self.became) + value(&self.before)
    }
}

/// A change of a key, and the message about it.
struct Changed {
    kv_revision: u64,
    key: Key,
    is_put: bool,
    /// With what the key was before.
    event: Event,
}

impl From<Found> for Changed {
    fn from(found: Found) -> Self {
        let Found { kv_revision, key, became, before } = found;
        let change = Change { kv_revision, key: &key, became: became.as_ref(), before: before.as_ref() };
        let event = write_change(&change, true);
        Self { kv_revision, is_put: became.is_some(), event, key }
    }
}

/// Some changes as they were read from the ledger, in order, each revision whole.
#[derive(Default)]
pub(super) struct Excerpt {
    found: Vec<Found>,
    /// The keyspace's revision when it was read.
    now: u64,
    /// The last revision that it covers.
    upto: u64,
    /// Whether there are more.
    more: bool,
}

impl Excerpt {
    /// Reads the changes from a revision on of keys that are of interest. What takes longer than to read is left to `page`, when
    /// the ledger is free again.
    fn read(ledger: &Ledger, from: u64, is_of_interest: impl Fn(&Key) -> bool) -> Result<Self, u64> {
        let now = ledger.kv_revision();
        let mut excerpt = Self { now, upto: now, ..Self::default() };
        let (mut looked, mut bytes, mut revision) = (0, 0, 0);
        for change in ledger.changes_from(from).map_err(|refusal| compacted(&refusal))? {
            // A revision is taken whole or not at all.
            let is_full = looked >= WATCH_CHANGES_MAX || bytes >= WATCH_PAGE_BYTES;
            if is_full && change.kv_revision != revision {
                (excerpt.more, excerpt.upto) = (true, revision);
                break;
            }
            (looked, revision) = (looked + 1, change.kv_revision);
            if is_of_interest(change.key) {
                let found = Found::of(&change);
                bytes += found.bytes();
                excerpt.found.push(found);
            }
        }
        Ok(excerpt)
    }

    /// The same with a message for each change.
    pub(super) fn page(self) -> Page {
        let Self { found, now, upto, more } = self;
        Page { changes: found.into_iter().map(Changed::from).collect(), now, upto, more }
    }
}

/// Some changes with their messages, which all watchers of a stream share.
pub(super) struct Page {
    changes: Vec<Changed>,
    now: u64,
    pub(super) upto: u64,
    pub(super) more: bool,
}

impl Page {
    fn revisions(&self) -> impl Iterator<Item = &[Changed]> {
        self.changes.chunk_by(|a, b| a.kv_revision == b.kv_revision)
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

    /// The next page for one watcher, if it is there; or the revision that was compacted, if it asked for an older one.
    pub(super) fn read_for_one(&self, ledger: &Ledger, id: i64) -> Option<Result<Excerpt, u64>> {
        let watcher = self.all.get(&id)?;
        Some(Excerpt::read(ledger, watcher.next, |key| watcher.keys.cover(key.bytes())))
    }

    /// What one watcher receives of a page: one response for all of it.
    pub(super) fn told_of_one(&mut self, id: i64, page: &Page) -> Vec<pb::WatchResponse> {
        let Some(watcher) = self.all.get_mut(&id) else { return Vec::new() };
        let events = page.changes.iter().filter_map(|changed| watcher.event(changed)).collect();
        let responses = watcher.responses(page.now, events);
        watcher.next = watcher.next.max(page.upto + 1);
        responses
    }

    /// The next page for all watchers, of changes from a revision on; or the revision that was compacted, if one of them is
    /// older.
    pub(super) fn read_for_all(&self, ledger: &Ledger, from: u64) -> Result<Excerpt, u64> {
        let is_watched = |key: &Key| !self.of_several.is_empty() || self.of_one.contains_key(key);
        Excerpt::read(ledger, from.max(self.furthest_back()), is_watched)
    }

    /// What each watcher receives of each revision of a page, made when it is asked for: nothing, one response, or several
    /// pieces.
    pub(super) fn told_of_all<'a>(&'a self, page: &'a Page) -> impl Iterator<Item = Vec<pb::WatchResponse>> + 'a {
        page.revisions().flat_map(|changes| self.told_of_revision(changes))
    }

    fn told_of_revision<'a>(&'a self, changes: &'a [Changed]) -> impl Iterator<Item = Vec<pb::WatchResponse>> + 'a {
        let mut of_one = BTreeMap::<i64, Vec<&Changed>>::new();
        for changed in changes {
            for id in self.of_one.get(&changed.key).into_iter().flatten() {
                of_one.entry(*id).or_default().push(changed);
            }
        }
        let ids: BTreeSet<i64> = self.of_several.iter().chain(of_one.keys()).copied().collect();
        ids.into_iter().map(move |id| {
            let watcher = &self.all[&id];
            let events: Vec<Event> = match of_one.get(&id) {
                Some(of_key) => of_key.iter().filter_map(|changed| watcher.event(changed)).collect(),
                None => changes.iter().filter_map(|changed| watcher.event(changed)).collect(),
            };
            watcher.responses(changes.first().map_or(0, |first| first.kv_revision), events)
        })
    }

    /// All have been told of everything up to a revision.
    pub(super) fn have_seen(&mut self, upto: u64) {
        self.all.values_mut().for_each(|watcher| watcher.next = watcher.next.max(upto + 1));
    }

    /// Ends one watcher, which asked for what is forgotten.
    pub(super) fn end_one(&mut self, id: i64, compacted: u64) -> Option<pb::WatchResponse> {
        self.all.get_mut(&id).map(|watcher| watcher.end(compacted))
    }

    /// Ends all watchers that are behind what is compacted. The others must not miss what came after it.
    pub(super) fn end_all(&mut self, compacted: u64) -> Vec<pb::WatchResponse> {
        let behind = self.all.values_mut().filter(|watcher| !watcher.is_over && watcher.next < compacted);
        behind.map(|watcher| watcher.end(compacted)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bells::{Bell, Bells};
    use crate::shares::Client;
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
        let hanging = bells.hang(keys.clone(), &Arc::new(Bell::default()), &Client::default()).unwrap();
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
        let compacted = watchers.read_for_all(&ledger, 2).err().unwrap();
        let ended = watchers.end_all(compacted);
        let page = watchers.read_for_all(&ledger, 2).ok().unwrap().page();
        let told = watchers.told_of_all(&page);
        let told: Vec<_> = ended
            .into_iter()
            .chain(told.flatten())
            .map(|told| (told.watch_id, told.canceled, told.events.len()))
            .collect();
        assert_eq!(told, [(0, true, 0), (1, false, 1)]);
        assert_eq!((page.upto, page.more), (seen + 1, false));
    }

    /// A value with many watchers is in memory once: each of them receives the ledger's own bytes.
    #[test]
    fn a_watched_value_is_shared_by_all_watchers() {
        let (mut ledger, bells, mut watchers) = (Ledger::default(), Arc::new(Bells::new()), Watchers::default());
        (0..100).for_each(|_| watch(&mut watchers, &bells, "a", 2));
        let value: Arc<[u8]> = [7; 10_000][..].into();
        let key = Key::parse(b"a").unwrap();
        apply(&mut ledger, Command::Put(Put { key, value: Some(value), lease: Hang::Free }));
        let place = ledger.key(b"a").unwrap().value.as_ptr();
        let page = watchers.read_for_all(&ledger, 2).ok().unwrap().page();
        let told: Vec<pb::WatchResponse> = watchers.told_of_all(&page).flatten().collect();
        assert_eq!(told.len(), 100);
        for told in &told {
            assert_eq!(told.events[0].kv.as_ref().unwrap().value.as_ptr(), place, "watcher {}", told.watch_id);
        }
    }
}
