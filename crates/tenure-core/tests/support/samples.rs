//! Samples of outcomes: each variant of replies and refusals, and of what is in them, with drawn facts. The list of the
//! variants of an enum is checked by the compiler, so that a new variant is in the samples or a test fails.

use super::holder;
use std::borrow::Cow;
use std::collections::BTreeSet;
use tenure_core::{
    ApiKeyName, BadCheck, BadDetails, End, Fence, Handle, Health, Holder, InstanceKey, Key, KeyValue, LeaseId, Mode,
    Moment, Name, Note, Occupied, OpDone, Outcome, Place, Policy, Ranged, Refusal, Registered, Renewed, Reply,
    Revision, Seat, TxnDone, Units, Word, limits,
};

/// An enum whose variants have names.
pub(crate) trait Variants {
    /// The names of all variants.
    const ALL: &[&str];

    /// The name of this one.
    fn variant(&self) -> &'static str;
}

macro_rules! variants {
    ($($kind:ident: $($variant:ident)*;)*) => {$(
        impl Variants for $kind {
            const ALL: &[&str] = &[$(stringify!($variant)),*];

            fn variant(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)*
                }
            }
        }
    )*};
}

variants! {
    Reply: Granted Seated Waiting Renewed HandleRenewed Released AlreadyReleased Cancelled Revoked Broken Defined ClassSet
        Put Deleted Txn Compacted Registered Updated Drained Deregistered HealthSet;
    Refusal: Exists NoLease Lapsed OwnParent NoClass TtlOfClass NotRenewable Taken Stale NoClaim Answered OtherMode Claimed
        OtherCapacity TooBig WouldDeadlock WaitTooLong OlderEpoch NotHeld NoKey Compacted NotYet NoInstance InstanceExists
        OlderInstance OtherLease NoCheck BadInstance Full Denied TooManyLeases Overloaded;
    End: Released Expired Revoked ParentEnded Superseded MaxLifetime WaitedOut Unhealthy Transferred;
    BadDetails: NoEndpoint TooMany Twice Check RevokeAfter Weight TooLong;
    BadCheck: NoEndpoint Interval Timeout Thresholds Pushed Path Statuses Service;
    OpDone: Range Put Deleted Txn;
    Occupied: Held Vacating InLine;
    Mode: Exclusive Shared Units;
    Policy: Auto Activity Explicit Never;
    Health: Passing Degraded Unknown Critical;
}

/// Samples with each variant of their enum.
fn complete<T: Variants>(samples: Vec<T>) -> Vec<T> {
    let seen: BTreeSet<_> = samples.iter().map(T::variant).collect();
    let all: BTreeSet<_> = T::ALL.iter().copied().collect();
    assert_eq!(seen, all, "each variant is in the samples");
    samples
}

/// Draws facts. Equal seeds draw equal ones.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Each reply and each refusal, with each variant of what is in it.
    pub(crate) fn outcomes(&mut self) -> Vec<Outcome> {
        let replies = complete(self.replies());
        let refusals = complete(self.refusals());
        replies.into_iter().map(Ok).chain(refusals.into_iter().map(Err)).collect()
    }

    fn replies(&mut self) -> Vec<Reply> {
        let renewals = self.refusals().into_iter().map(Err).chain([Ok(self.renewed()), Ok(self.renewed())]);
        let seat = Seat {
            lease: self.lease(),
            claims: self.list(limits::RESOURCES_MAX, Self::handle),
            ttl_ms: self.number(),
            revision: self.revision(),
        };
        let place =
            Place { lease: self.lease(), place: self.number(), ttl_ms: self.number(), revision: self.revision() };
        let mut replies = vec![
            Reply::Granted { lease: self.lease(), ttl_ms: self.number(), revision: self.revision() },
            Reply::Seated(seat),
            Reply::Waiting(place),
            Reply::Renewed(renewals.collect()),
            Reply::Renewed(vec![]),
            Reply::HandleRenewed(self.renewed()),
            Reply::Released { free_in_ms: self.number() },
            Reply::AlreadyReleased,
            Reply::Cancelled,
            Reply::Revoked { count: self.number(), next: self.option(|draw| draw.name().to_string()) },
            Reply::Broken { claims: self.number(), free_in_ms: self.number() },
            Reply::Defined { capacity: self.units() },
            Reply::ClassSet,
            Reply::Put { kv_revision: self.number(), version: self.number() },
            Reply::Deleted { count: self.number(), kv_revision: self.number() },
            Reply::Txn(self.done(limits::TXN_DEPTH_MAX)),
            Reply::Compacted { kv_revision: self.number() },
            Reply::Updated { revision: self.revision() },
            Reply::Drained { revision: self.revision() },
            Reply::Deregistered { revision: self.revision() },
        ];
        for overall in all_health() {
            let (held_ms, revision) = (self.option(Self::number), self.revision());
            replies.push(Reply::HealthSet { overall, held_ms, revision });
            let (lease, ttl_ms) = (self.lease(), self.number());
            replies.push(Reply::Registered(Registered { lease, ttl_ms, overall, held_ms, revision }));
        }
        replies
    }

    fn refusals(&mut self) -> Vec<Refusal> {
        let mut refusals = self.refusals_of_leases();
        refusals.extend(self.refusals_of_claims());
        refusals.extend(self.refusals_of_instances());
        refusals.extend([
            Refusal::NoKey { key: self.key() },
            Refusal::Compacted { compacted: self.number() },
            Refusal::NotYet { kv_revision: self.number() },
            Refusal::Full { what: self.what(), max: self.size() },
            Refusal::Overloaded { what: self.what(), max: self.size() },
            Refusal::Denied { key: self.api_key(), what: self.what() },
            Refusal::TooManyLeases { key: self.api_key(), max: self.small() },
        ]);
        refusals
    }

    fn refusals_of_leases(&mut self) -> Vec<Refusal> {
        let mut refusals = vec![
            Refusal::Exists { lease: self.lease(), holder: self.holder() },
            Refusal::NoLease { lease: self.lease() },
            Refusal::OwnParent { lease: self.lease() },
            Refusal::NoClass { class: self.name() },
            Refusal::TtlOfClass {
                class: self.name(),
                ttl_ms: self.number(),
                min_ms: self.number(),
                max_ms: self.number(),
            },
            Refusal::Answered { lease: self.lease(), number: self.number() },
        ];
        for how in self.ends() {
            let (lease, when, wall_ms) = (self.lease(), self.moment(), self.number());
            refusals.push(Refusal::Lapsed { lease, how, when, wall_ms });
        }
        for policy in complete(vec![Policy::Auto, Policy::Activity, Policy::Explicit, Policy::Never]) {
            refusals.push(Refusal::NotRenewable { lease: self.lease(), class: self.name(), policy });
        }
        refusals
    }

    fn refusals_of_claims(&mut self) -> Vec<Refusal> {
        let mut refusals = vec![
            Refusal::NoClaim { lease: self.lease(), resource: self.name() },
            Refusal::Claimed { lease: self.lease(), resource: self.name() },
            Refusal::OtherCapacity { resource: self.name(), capacity: self.units(), expected: self.units() },
            Refusal::TooBig { resource: self.name(), capacity: self.units(), asked: self.units() },
            Refusal::WouldDeadlock { resource: self.name(), circle: self.list(limits::CHAIN_SHOWN_MAX, Self::holder) },
            Refusal::WaitTooLong { asked_ms: self.number(), max_ms: self.number() },
            Refusal::OlderEpoch {
                holder: self.holder(),
                resource: self.name(),
                asked: self.number(),
                current: self.number(),
            },
            Refusal::NotHeld { resource: self.name() },
        ];
        for state in complete(vec![Occupied::Held, Occupied::Vacating, Occupied::InLine]) {
            refusals.push(Refusal::Taken {
                resource: self.name(),
                holder: self.holder(),
                state,
                fence: self.option(Self::fence),
                since_wall_ms: self.option(Self::number),
                remaining_ms: self.number(),
                waiting: self.number(),
            });
        }
        for _ in 0..3 {
            let current = self.option(|draw| (draw.holder(), draw.fence()));
            refusals.push(Refusal::Stale { handle: self.handle(), current, ended: self.option(Self::ended) });
        }
        for (has, asked) in self.modes().into_iter().zip(self.modes().into_iter().rev()) {
            refusals.push(Refusal::OtherMode { lease: self.lease(), resource: self.name(), has, asked });
        }
        refusals
    }

    fn refusals_of_instances(&mut self) -> Vec<Refusal> {
        let mut refusals = vec![
            Refusal::NoInstance { instance: self.instance(), ended: Some(self.ended()) },
            Refusal::NoInstance { instance: self.instance(), ended: None },
            Refusal::InstanceExists {
                instance: self.instance(),
                holder: self.holder(),
                epoch: self.option(Self::number),
                remaining_ms: self.number(),
            },
            Refusal::OlderInstance { instance: self.instance(), asked: self.number(), current: self.number() },
            Refusal::OtherLease { instance: self.instance(), lease: self.lease(), holder: self.holder() },
            Refusal::NoCheck { instance: self.instance(), check: self.word() },
        ];
        for why in self.bad_details() {
            refusals.push(Refusal::BadInstance { instance: self.instance(), why });
        }
        refusals
    }

    fn bad_details(&mut self) -> Vec<BadDetails> {
        let mut bad = vec![
            BadDetails::NoEndpoint,
            BadDetails::TooMany { what: self.what(), count: self.size(), max: self.size() },
            BadDetails::Twice { what: self.what() },
            BadDetails::RevokeAfter { ms: self.number() },
            BadDetails::Weight { weight: self.small() },
            BadDetails::TooLong { bytes: self.size() },
        ];
        let checks = vec![
            BadCheck::NoEndpoint { endpoint: self.size(), endpoints: self.size() },
            BadCheck::Interval { ms: self.number() },
            BadCheck::Timeout { ms: self.number(), max_ms: self.number() },
            BadCheck::Thresholds,
            BadCheck::Pushed { ms: self.number() },
            BadCheck::Path,
            BadCheck::Statuses,
            BadCheck::Service,
        ];
        bad.extend(complete(checks).into_iter().map(|bad| BadDetails::Check { name: self.word(), bad }));
        complete(bad)
    }

    /// What a transaction did, so many levels deep.
    pub(crate) fn done(&mut self, levels: usize) -> TxnDone {
        let ranged = Ranged { items: self.list(4, Self::item), more: self.coin(), count: self.number() };
        let mut ops = vec![
            OpDone::Range { kv_revision: self.number(), ranged },
            OpDone::Put { kv_revision: self.number(), prev: self.option(Self::item) },
            OpDone::Deleted { kv_revision: self.number(), count: self.number(), prev: self.list(4, Self::item) },
        ];
        if levels > 1 {
            ops.push(OpDone::Txn(self.done(levels - 1)));
            ops = complete(ops);
        }
        TxnDone { kv_revision: self.number(), held: self.coin(), ops }
    }

    fn renewed(&mut self) -> Renewed {
        Renewed {
            lease: self.lease(),
            ttl_ms: self.number(),
            is_final: self.coin(),
            waiting: self.number(),
            longest_wait_ms: self.number(),
            breaks_in_ms: self.option(Self::number),
            lost: self.number(),
        }
    }

    fn ends(&mut self) -> Vec<End> {
        complete(vec![
            End::Released,
            End::Expired,
            End::Revoked { by: self.holder(), reason: self.note() },
            End::ParentEnded { parent: self.lease() },
            End::Superseded,
            End::MaxLifetime,
            End::WaitedOut,
            End::Unhealthy,
            End::Transferred { to: self.holder() },
        ])
    }

    fn ended(&mut self) -> (End, Moment, u64) {
        let mut ends = self.ends();
        let at = self.below(ends.len());
        (ends.swap_remove(at), self.moment(), self.number())
    }

    fn modes(&mut self) -> Vec<Mode> {
        complete(vec![Mode::Exclusive, Mode::Shared, Mode::Units(self.units())])
    }

    fn item(&mut self) -> (Key, KeyValue) {
        let value = KeyValue {
            value: self.bytes(300).into(),
            create_revision: self.number(),
            mod_revision: self.number(),
            n: self.small(),
            version: self.number(),
            lease: self.option(Self::lease),
        };
        (self.key(), value)
    }
}

fn all_health() -> Vec<Health> {
    complete(vec![Health::Passing, Health::Degraded, Health::Unknown, Health::Critical])
}

/// Values of one kind. Short and long ones, and those at the ends of their range.
impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn coin(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("it is below a size")
    }

    fn number(&mut self) -> u64 {
        match self.next() % 6 {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => self.next() % 1000,
            _ => self.next(),
        }
    }

    fn small(&mut self) -> u32 {
        u32::try_from(self.number() >> 32).expect("it is half of a number")
    }

    fn size(&mut self) -> usize {
        usize::try_from(self.number()).unwrap_or(usize::MAX)
    }

    /// From 1 to a largest number, and often one of the two.
    fn up_to(&mut self, max: u64) -> u64 {
        match self.next() % 4 {
            0 => 1,
            1 => max,
            _ => 1 + self.next() % max,
        }
    }

    fn option<T>(&mut self, some: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.coin() { Some(some(self)) } else { None }
    }

    fn list<T>(&mut self, max: usize, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.below(max + 1);
        (0..count).map(|_| item(self)).collect()
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        self.list(max, |draw| draw.next().to_le_bytes()[0])
    }

    /// A text of at least one letter, now and then as long as it may be.
    fn text(&mut self, max: usize, letters: &[char]) -> String {
        let bytes = if self.below(8) == 0 { max } else { 1 + self.below(max.min(20)) };
        let mut text = String::new();
        while text.len() < bytes {
            let letter = letters[self.below(letters.len())];
            text.push(if text.len() + letter.len_utf8() > bytes { 'z' } else { letter });
        }
        text
    }

    fn name(&mut self) -> Name {
        let text = self.text(limits::NAME_BYTES_MAX, &['a', 'b', ' ', '@', 'é', '本']);
        let path = if self.coin() && text.len() < limits::NAME_BYTES_MAX - 2 { format!("n/{text}") } else { text };
        Name::parse(&path).expect("it is a name")
    }

    fn holder(&mut self) -> Holder {
        holder(&self.text(limits::HOLDER_BYTES_MAX, &['a', '@', ':', '/', 'é', '7']))
    }

    fn note(&mut self) -> Note {
        let text = self.option(|draw| draw.text(limits::NOTE_BYTES_MAX, &['a', ' ', 'é', '.']));
        Note::parse(&text.unwrap_or_default()).expect("it is a note")
    }

    fn word(&mut self) -> Word {
        Word::parse(&self.text(limits::WORD_BYTES_MAX, &['a', 'B', '0', '9'])).expect("it is a word")
    }

    fn instance(&mut self) -> InstanceKey {
        let id = self.text(limits::WORD_BYTES_MAX, &['a', '1']);
        InstanceKey::parse(&format!("{}/{id}", self.name())).expect("it is an instance")
    }

    fn api_key(&mut self) -> ApiKeyName {
        let text = self.text(limits::API_KEY_NAME_BYTES_MAX, &['a', '-', '.', '_']);
        ApiKeyName::parse(&text).expect("it is the name of a key")
    }

    fn key(&mut self) -> Key {
        let bytes: Vec<u8> = [7].into_iter().chain(self.bytes(40)).collect();
        Key::parse(&bytes).expect("it is a key")
    }

    fn what(&mut self) -> Cow<'static, str> {
        match self.below(3) {
            0 => "bytes of all keys".into(),
            1 => "".into(),
            _ => self.text(limits::WHAT_BYTES_MAX, &['a', ' ', 'é']).into(),
        }
    }

    fn handle(&mut self) -> Handle {
        Handle { resource: self.name(), fence: self.fence() }
    }

    fn lease(&mut self) -> LeaseId {
        LeaseId::from_number(self.up_to(i64::MAX.unsigned_abs())).expect("it is an id")
    }

    fn fence(&mut self) -> Fence {
        Fence::from_number(self.up_to(limits::FENCE_MAX)).expect("it is a fence")
    }

    fn units(&mut self) -> Units {
        Units::from_number(self.up_to(limits::CAPACITY_MAX)).expect("it is a number of units")
    }

    fn moment(&mut self) -> Moment {
        Moment::from_millis(self.number())
    }

    fn revision(&mut self) -> Revision {
        Revision(self.number())
    }
}
