//! How scripts show what the ledger answered and what happened. One reply is one line (a renewal that worked is none,
//! unless there is something to tell), one revision is one line.

use super::cast::{Cast, counted, key, list, span, text, units};
use super::phrases::{self, other};
use tenure_core::{
    Acquire, Break, Command, Define, Delete, End, Event, Grant, Handle, Hang, Happening, InstanceKey, Lease, LeaseId,
    Ledger, Name, On, OpDone, Outcome, Put, Ranged, Register, Registered, Renewed, Reply, Revision, Span, Ttl, TxnDone,
    Units, Which,
};

/// What one entry did, on its way to being shown.
pub(crate) struct Story<'a> {
    pub(crate) cast: &'a Cast,
    pub(crate) before: &'a Ledger,
    pub(crate) after: &'a Ledger,
    /// All that happened.
    pub(crate) events: &'a [Event],
    /// The events that no reply has told yet, by revision.
    pub(crate) untold: Vec<Vec<Event>>,
}

impl Story<'_> {
    /// The lines that answer one command. What a reply tells is not told again as an event.
    pub(crate) fn answer(&mut self, command: &Command, outcome: &Outcome) -> Vec<String> {
        let reply = match outcome {
            Ok(reply) => reply,
            Err(refusal) => return vec![phrases::refusal(self.cast, refusal)],
        };
        let line = match (command.plain(), reply) {
            (Command::Renew(renew), Reply::Renewed(answers)) => {
                assert_eq!(renew.leases.len(), answers.len(), "each lease has its own answer");
                let each = renew.leases.iter().zip(answers);
                return each.filter_map(|(asked, answer)| self.renewal(asked.lease, asked.ttl, answer)).collect();
            }
            (Command::RenewHandle(renew), Reply::HandleRenewed(renewed)) => {
                return self.renewed(renew.ttl, renewed).into_iter().collect();
            }
            (Command::Grant(grant), Reply::Granted { lease, ttl_ms, revision }) => {
                assert_eq!(*lease, grant.lease, "a reply names its lease");
                self.granted(grant, *ttl_ms, *revision)
            }
            (Command::Acquire(acquire), Reply::Seated(_) | Reply::Waiting(_)) => self.acquired(acquire, reply),
            (Command::Release(release), Reply::Released { free_in_ms }) => {
                self.released(*free_in_ms, |what| vacated(what, &release.handle))
            }
            (Command::ReleaseLease(release), Reply::Released { .. } | Reply::AlreadyReleased) => {
                let lease = release.lease;
                let free_in_ms = if let Reply::Released { free_in_ms } = reply { *free_in_ms } else { 0 };
                self.released(free_in_ms, |what| matches!(what, Happening::Ended { .. }) && what.lease() == Some(lease))
            }
            (Command::Cancel(_), Reply::Cancelled) => "cancelled".into(),
            (Command::Revoke(revoke), Reply::Revoked { count, next }) => {
                revoked(&revoke.which, *count, next.as_deref())
            }
            (Command::Break(order), Reply::Broken { claims, free_in_ms }) => broken(order, *claims, *free_in_ms),
            (Command::Transfer(transfer), Reply::Seated(_) | Reply::Waiting(_)) => {
                self.transferred(&transfer.handle.resource, transfer.to, reply)
            }
            (Command::Define(define), Reply::Defined { capacity }) => self.defined(define, *capacity),
            (Command::SetClass(class), Reply::ClassSet) => {
                let told = Happening::ClassSet { class: class.name.clone() };
                format!("set{}", self.as_before(|what| *what == told))
            }
            (Command::Put(put), Reply::Put { kv_revision, version }) => self.put(put, *kv_revision, *version),
            (Command::Delete(delete), Reply::Deleted { count, kv_revision }) => {
                self.deleted(delete, *count, *kv_revision)
            }
            (Command::Txn(_), Reply::Txn(done)) => format!("txn {}", txn(done, &format!(", kv {}", done.kv_revision))),
            (Command::Compact(_), Reply::Compacted { kv_revision }) => format!("compacted, kv {kv_revision}"),
            (Command::Register(register), Reply::Registered(reply)) => self.registered(register, reply),
            (Command::UpdateInstance(update), Reply::Updated { .. }) => {
                let told =
                    |what: &Happening| is_of(what, &update.instance) && matches!(what, Happening::Updated { .. });
                format!("updated{}", self.as_before(told))
            }
            (Command::Drain(drain), Reply::Drained { .. }) => {
                let told = |what: &Happening| {
                    let is_it = matches!(what, Happening::Drained { .. } | Happening::Undrained { .. });
                    is_it && is_of(what, &drain.instance)
                };
                let verb = if drain.on { "drained" } else { "undrained" };
                format!("{verb}{}", self.as_before(told))
            }
            (Command::Deregister(order), Reply::Deregistered { .. }) => {
                let gone = |event: &Event| {
                    is_of(&event.what, &order.instance) && matches!(event.what, Happening::Deregistered { .. })
                };
                let as_before = if self.events.iter().any(gone) { "" } else { ", as before" };
                format!("deregistered{as_before}")
            }
            (Command::SetHealth(set), Reply::HealthSet { overall, held_ms, .. }) => {
                let told = |what: &Happening| {
                    is_of(what, &set.instance) && matches!(what, Happening::HealthChanged { check: Some(_), .. })
                };
                let held = held_ms.map_or(String::new(), |ms| format!(", held down for {}", span(ms)));
                format!("overall {overall}{held}{}", self.as_before(told))
            }
            (command, reply) => panic!("{command:?} was answered by {reply:?}"),
        };
        vec![line]
    }

    fn defined(&mut self, define: &Define, capacity: Units) -> String {
        let resource = define.resource.clone();
        let told = Happening::Defined { resource: resource.clone(), capacity: define.capacity };
        let as_before = self.as_before(|what| *what == told);
        format!("{resource} has {}{as_before}", units(capacity))
    }

    /// The lines for the events that no reply told.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.untold.iter().map(|change| self.change(change)).collect()
    }

    fn renewal(
        &self,
        asked: LeaseId,
        ttl: Option<Ttl>,
        answer: &Result<Renewed, tenure_core::Refusal>,
    ) -> Option<String> {
        match answer {
            Ok(renewed) => {
                assert_eq!(asked, renewed.lease, "the answers come in the order asked");
                self.renewed(ttl, renewed)
            }
            Err(refusal) => Some(phrases::refusal(self.cast, refusal)),
        }
    }

    /// What a renewal tells beyond that it worked.
    fn renewed(&self, asked: Option<Ttl>, renewed: &Renewed) -> Option<String> {
        let had = self.before.lease(renewed.lease).map(Lease::ttl);
        let mut told = other(asked.or(had), renewed.ttl_ms);
        if renewed.is_final {
            told += ", final";
        }
        if renewed.waiting > 0 {
            told += &format!(", {} waiting, longest {}", renewed.waiting, span(renewed.longest_wait_ms));
        }
        if let Some(ms) = renewed.breaks_in_ms {
            told += &format!(", breaks in {}", span(ms));
        }
        if renewed.lost > 0 {
            told += &format!(", {} lost", renewed.lost);
        }
        (!told.is_empty()).then(|| format!("renewed {}{told}", self.cast.label(renewed.lease)))
    }

    fn granted(&mut self, grant: &Grant, ttl_ms: u64, revision: Revision) -> String {
        let told = begun(grant, ttl_ms);
        let as_before = self.tell(revision, |change| *change == [&told]);
        let who = self.cast.who(grant.lease, &grant.holder);
        format!("granted lease {who}{}{as_before}", other(grant.ttl, ttl_ms))
    }

    fn acquired(&mut self, acquire: &Acquire, reply: &Reply) -> String {
        let lease = acquire.lease();
        let living = self.after.lease(lease).or_else(|| self.before.lease(lease));
        let (holder, expected) = match &acquire.on {
            On::New(grant) => (grant.holder.clone(), grant.ttl),
            On::Given(_) => {
                let living = living.expect("a claim hangs on a living lease");
                (living.holder().clone(), Some(living.ttl()))
            }
        };
        let (line, ttl_ms, revision, claims): (_, _, _, &[Handle]) = match reply {
            Reply::Seated(seat) => {
                let told = handles(&seat.claims);
                let line = format!("granted {} to {}{}", told.0, self.cast.who(lease, &holder), told.1);
                (line, seat.ttl_ms, seat.revision, &seat.claims)
            }
            Reply::Waiting(place) => (format!("waiting, place {}", place.place), place.ttl_ms, place.revision, &[]),
            reply => panic!("an acquire was answered by {reply:?}"),
        };
        let staked = acquire.wants.iter().enumerate().map(|(n, want)| {
            let (resource, holder, mode) = (want.resource.clone(), holder.clone(), want.mode);
            match claims.get(n) {
                None => Happening::Queued { resource, lease, holder, mode },
                Some(handle) => Happening::Seated { resource, lease, holder, fence: handle.fence, mode, ttl_ms },
            }
        });
        let staked: Vec<_> = staked.collect();
        let as_before = self.tell(revision, |change| match (&acquire.on, change) {
            (On::New(grant), [first @ Happening::Granted { ttl_ms, .. }, rest @ ..]) => {
                **first == begun(grant, *ttl_ms) && rest.iter().copied().eq(&staked)
            }
            (On::New(_), _) => false,
            (On::Given(_), change) => change.iter().copied().eq(&staked),
        });
        format!("{line}{}{as_before}", other(expected, ttl_ms))
    }

    /// What was replaced is told by events.
    fn registered(&mut self, register: &Register, reply: &Registered) -> String {
        let lease = register.lease();
        assert_eq!(reply.lease, lease, "a reply names its lease");
        let expected = match &register.on {
            On::New(grant) => grant.ttl,
            On::Given(_) => self.before.lease(lease).map(Lease::ttl),
        };
        let as_before = self.tell(reply.revision, |change| {
            let is_new = |what: &&&Happening| matches!(what, Happening::Granted { .. } | Happening::Registered { .. });
            let is_same = matches!(change, [Happening::Updated { .. }]);
            is_same || change.iter().filter(is_new).count() == change.len()
        });
        let replaced = self.events.iter().any(|event| {
            let replaced = matches!(event.what, Happening::Deregistered { how: End::Superseded, .. });
            replaced && event.revision == reply.revision && is_of(&event.what, &register.instance)
        });
        let as_before = if replaced { "" } else { as_before };
        let held = reply.held_ms.map_or(String::new(), |ms| format!(", held down for {}", span(ms)));
        let class = match &register.on {
            On::New(grant) if grant.class.is_none() && grant.ttl.is_none() => String::new(),
            _ => other(expected, reply.ttl_ms),
        };
        format!("registered {}{class}, {}{held}{as_before}", register.instance, reply.overall)
    }

    /// A transfer's reply tells who has the claim now, or stands first in line. What was given up is told by events.
    fn transferred(&mut self, resource: &Name, to: LeaseId, reply: &Reply) -> String {
        let revision = match reply {
            Reply::Seated(seat) => seat.revision,
            Reply::Waiting(place) => place.revision,
            reply => panic!("a transfer was answered by {reply:?}"),
        };
        let is_told = |event: &Event| {
            let staked = matches!(event.what, Happening::Seated { .. } | Happening::Queued { .. });
            staked && event.revision == revision && event.what.lease() == Some(to)
        };
        for change in &mut self.untold {
            change.retain(|event| !is_told(event));
        }
        self.untold.retain(|change| !change.is_empty());
        let told = self.events.iter().find(|event| is_told(event)).map(|event| &event.what);
        match (reply, told) {
            (Reply::Seated(seat), Some(Happening::Seated { fence, ttl_ms, holder, .. })) => {
                let said = (seat.lease, seat.claims.clone(), seat.ttl_ms);
                let claim = Handle { resource: resource.clone(), fence: *fence };
                assert_eq!(said, (to, vec![claim], *ttl_ms), "a transfer answers what it did");
                let expected = self.after.lease(to).or_else(|| self.before.lease(to)).map(Lease::ttl);
                format!("granted {resource} to {} fence {fence}{}", self.cast.who(to, holder), other(expected, *ttl_ms))
            }
            (Reply::Waiting(place), Some(Happening::Queued { holder, .. })) => {
                let who = self.cast.who(to, holder);
                let expected = self.after.lease(to).map(Lease::ttl);
                format!("waiting, place {} for {who}{}", place.place, other(expected, place.ttl_ms))
            }
            (reply, told) => panic!("a transfer that did {told:?} was answered by {reply:?}"),
        }
    }

    fn released(&self, free_in_ms: u64, is_it: impl Fn(&Happening) -> bool) -> String {
        let happened = self.events.iter().any(|event| is_it(&event.what));
        match (happened, free_in_ms) {
            (false, _) => "released, as before".into(),
            (true, 0) => "released".into(),
            (true, ms) => format!("released, free in {}", span(ms)),
        }
    }

    fn put(&mut self, put: &Put, kv_revision: u64, version: u64) -> String {
        let at = |what: &Happening| match what {
            Happening::Put { lease, kv_revision: at, .. } if *at == kv_revision => Some(*lease),
            _ => None,
        };
        let lease = self.events.iter().find_map(|event| at(&event.what)).flatten();
        let told = Happening::Put { key: put.key.clone(), lease, kv_revision, version };
        let as_before = self.as_before(|what| *what == told);
        let on = match (put.lease, lease) {
            (Hang::Free, None) => String::new(),
            (Hang::On(asked), Some(lease)) if asked == lease => String::new(),
            (_, Some(lease)) => format!(" on {}", self.cast.label(lease)),
            (_, None) => " on no lease".into(),
        };
        format!("put {}{on}, version {version}, kv {kv_revision}{as_before}", key(&put.key))
    }

    fn deleted(&mut self, delete: &Delete, count: u64, kv_revision: u64) -> String {
        if count == 0 {
            return format!("deleted nothing, kv {kv_revision}");
        }
        let of = |event: &Event| match &event.what {
            Happening::Deleted { key, kv_revision: at, .. } if *at == kv_revision => Some(text(key.bytes())),
            _ => None,
        };
        let keys: Vec<_> = self.events.iter().filter_map(of).collect();
        assert_eq!(keys.len() as u64, count, "a delete counts what it deleted: {delete:?}");
        self.untold.retain(|change| change.iter().any(|event| of(event).is_none()));
        format!("deleted {}, kv {kv_revision}", list(&keys))
    }

    /// Takes a change out of the untold ones, if it is what is expected at its revision; else nothing was changed.
    fn tell(&mut self, revision: Revision, is_it: impl Fn(&[&Happening]) -> bool) -> &'static str {
        let same = |change: &Vec<Event>| {
            let what: Vec<_> = change.iter().map(|event| &event.what).collect();
            change[0].revision == revision && is_it(&what)
        };
        match self.untold.iter().position(same) {
            Some(at) => {
                self.untold.remove(at);
                ""
            }
            None => ", as before",
        }
    }

    /// The same for a change of one event, whatever its revision.
    fn as_before(&mut self, is_it: impl Fn(&Happening) -> bool) -> &'static str {
        let same = |change: &&Vec<Event>| change.len() == 1 && is_it(&change[0].what);
        match self.untold.iter().find(same).map(|change| change[0].revision) {
            Some(revision) => self.tell(revision, |_| true),
            None => ", as before",
        }
    }

    /// One revision. The end of a lease comes last in the stream and first in its part of the sentence.
    fn change(&self, change: &[Event]) -> String {
        let ended = |lease: LeaseId| {
            change.iter().find_map(|event| match &event.what {
                Happening::Ended { lease: ended, how, .. } if *ended == lease => Some(how),
                _ => None,
            })
        };
        let (mut parts, mut deleted): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for (n, event) in change.iter().enumerate() {
            match &event.what {
                Happening::Deleted { key: gone, kv_revision, .. } => {
                    deleted.push(key(gone));
                    let next = change.get(n + 1).map(|event| &event.what);
                    if !matches!(next, Some(Happening::Deleted { .. })) {
                        parts.push(format!("deleted {}, kv {kv_revision}", list(&std::mem::take(&mut deleted))));
                    }
                }
                what @ Happening::Ended { lease, how, .. } => {
                    let hung = change.iter().map(|event| &event.what).filter(|other| hung_on(other, *lease));
                    let phrases = std::iter::once(what).chain(hung).map(|what| self.happening(what, Some(how)));
                    parts.push(phrases.collect::<Vec<_>>().join(", "));
                }
                what if what.lease().is_some_and(|lease| ended(lease).is_some() && hung_on(what, lease)) => {}
                what => parts.push(self.happening(what, None)),
            }
        }
        parts.join("; ")
    }

    fn happening(&self, what: &Happening, with: Option<&End>) -> String {
        phrases::happening(self.cast, what, with, |lease| self.after.lease(lease).map(Lease::ttl))
    }
}

fn begun(grant: &Grant, ttl_ms: u64) -> Happening {
    let (lease, holder) = (grant.lease, grant.holder.clone());
    Happening::Granted { lease, holder, ttl_ms, parent: grant.parent, class: grant.class.clone() }
}

fn vacated(what: &Happening, handle: &Handle) -> bool {
    matches!(what, Happening::Vacated { resource, fence, .. } if *resource == handle.resource && *fence == handle.fence)
}

/// Whether this is the end of a claim or of an instance of a lease.
fn hung_on(what: &Happening, lease: LeaseId) -> bool {
    let is_end = matches!(what, Happening::Vacated { .. } | Happening::Left { .. } | Happening::Deregistered { .. });
    is_end && what.lease() == Some(lease)
}

fn is_of(what: &Happening, instance: &InstanceKey) -> bool {
    what.instance() == Some(instance)
}

/// `db` and ` fence 1`, or `a@1 and b@2` and nothing.
fn handles(claims: &[Handle]) -> (String, String) {
    match claims {
        [only] => (only.resource.to_string(), format!(" fence {}", only.fence)),
        several => (list(&several.iter().map(ToString::to_string).collect::<Vec<_>>()), String::new()),
    }
}

fn revoked(which: &Which, count: u64, next: Option<&str>) -> String {
    let more = next.map_or(String::new(), |next| format!(", to be gone on from {next}"));
    match which {
        Which::Lease(_) if count == 0 => format!("revoked, as before{more}"),
        Which::Lease(_) if count == 1 => format!("revoked{more}"),
        _ => format!("revoked {}{more}", counted(count, "lease")),
    }
}

fn broken(order: &Break, claims: u64, free_in_ms: u64) -> String {
    let verb = if order.delay == Span::ZERO { "broke" } else { "breaking" };
    let free = if free_in_ms == 0 { "at once".into() } else { format!("in {}", span(free_in_ms)) };
    format!("{verb} {}, free {free}", counted(claims, "claim"))
}

/// What a transaction did, one phrase an operation, and when, if that is not said already.
fn txn(done: &TxnDone, when: &str) -> String {
    let ops = done.ops.iter().map(|op| match op {
        OpDone::Range { ranged: found, .. } => format!("got {}", ranged(found)),
        OpDone::Put { .. } => "put".into(),
        OpDone::Deleted { count, .. } => format!("deleted {count}"),
        OpDone::Txn(within) => format!("[ {} ]", txn(within, "")),
    });
    let ops: Vec<_> = ops.collect();
    let held = if done.held { "held" } else { "did not hold" };
    if ops.is_empty() { format!("{held}{when}") } else { format!("{held}{when}: {}", ops.join(", ")) }
}

/// The keys that were found, and how many there are if that is more.
pub(crate) fn ranged(found: &Ranged) -> String {
    let items: Vec<_> = found.items.iter().map(|(of, it)| format!("{} = {}", key(of), text(&it.value))).collect();
    let items = if items.is_empty() { "nothing".into() } else { list(&items) };
    let count = if found.count == found.items.len() as u64 { String::new() } else { format!(" of {}", found.count) };
    format!("{items}{count}{}", if found.more { ", more" } else { "" })
}
