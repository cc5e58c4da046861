//! Orders about keys: what is drawn of puts, deletes, ranges, transactions and compactions, and the commands that it
//! becomes. Revisions are counted back from the present one, so that most of them can be looked at.

use super::draw::living;
use super::{KEYS, Pick, a_key};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::strategy::BoxedStrategy;
use proptest::{collection, option};
use std::sync::Arc;
use tenure_core::{
    Command, Compact, Compare, Delete, Hang, Keys, Ledger, Op, Part, Put, Range, Relation, Sort, SortBy, Subject, Txn,
    Way, Within,
};

#[derive(Clone, Debug)]
pub(super) enum Keyed {
    Put(Writing),
    Delete(Which),
    Txn(Trying),
    Compact(Rev),
}

/// Which keys.
#[derive(Clone, Debug)]
pub(super) enum Which {
    One(usize),
    /// So many bytes of the one with the most.
    Prefix(usize),
    From(usize, Option<usize>),
}

/// A revision of the keyspace.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rev {
    Back(u64),
    /// So many after the oldest that can be looked at, or before it.
    Oldest(i64),
    Ahead(u64),
    Exactly(i64),
}

#[derive(Clone, Debug)]
pub(super) struct Writing {
    key: usize,
    value: Option<u8>,
    lease: Hanging,
}

#[derive(Clone, Debug)]
enum Hanging {
    Free,
    Keep,
    On(Pick),
}

#[derive(Clone, Debug)]
pub(crate) struct Looking {
    which: Which,
    revision: Option<Rev>,
    limit: Option<usize>,
    sort: Option<Sort>,
    modified: (Option<Rev>, Option<Rev>),
    created: (Option<Rev>, Option<Rev>),
    part: Part,
}

#[derive(Clone, Debug)]
pub(super) struct Trying {
    compares: Vec<Comparing>,
    then: Vec<Doing>,
    otherwise: Vec<Doing>,
}

#[derive(Clone, Debug)]
enum Doing {
    Look(Looking),
    Put(Writing, bool),
    Delete(Which, bool),
    Try(Trying),
}

#[derive(Clone, Debug)]
struct Comparing {
    which: Which,
    what: What,
    /// Beside what the first of the keys has.
    beside: i64,
    relation: Relation,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Version,
    Created,
    Modified,
    Value,
    Lease,
}

impl Keyed {
    pub(super) fn command(&self, ledger: &Ledger) -> Command {
        match self {
            Self::Put(writing) => Command::Put(writing.put(ledger)),
            Self::Delete(which) => Command::Delete(Delete { keys: which.keys() }),
            Self::Txn(trying) => Command::Txn(trying.txn(ledger)),
            Self::Compact(revision) => Command::Compact(Compact { revision: revision.number(ledger) }),
        }
    }
}

impl Which {
    fn keys(&self) -> Keys {
        let bytes = |key: usize| Arc::from(KEYS[key].as_bytes());
        match self {
            Self::One(key) => Keys::One(a_key(*key)),
            Self::Prefix(length) => Keys::Prefix(Arc::from(&KEYS[2].as_bytes()[..*length])),
            Self::From(first, end) => Keys::From { first: bytes(*first), end: end.map(bytes) },
        }
    }
}

impl Rev {
    fn number(self, ledger: &Ledger) -> i64 {
        let number = |revision: u64| i64::try_from(revision).expect("a history is short");
        let now = number(ledger.kv_revision());
        match self {
            Self::Back(count) => (now - number(count)).max(0),
            Self::Oldest(beside) => number(ledger.kv_compacted().unwrap_or(0)) + beside,
            Self::Ahead(count) => now + number(count),
            Self::Exactly(revision) => revision,
        }
    }
}

impl Writing {
    fn put(&self, ledger: &Ledger) -> Put {
        let lease = match self.lease {
            Hanging::Free => Hang::Free,
            Hanging::Keep => Hang::Keep,
            Hanging::On(lease) => Hang::On(lease.id(ledger)),
        };
        Put { key: a_key(self.key), value: self.value.map(|byte| Arc::from([byte])), lease }
    }
}

impl Looking {
    pub(crate) fn range(&self, ledger: &Ledger) -> Range {
        let number = |revision: Option<Rev>| revision.map_or(0, |revision| revision.number(ledger));
        let within = |(min, max)| Within { min: number(min), max: number(max) };
        Range {
            keys: self.which.keys(),
            revision: self.revision.map(|revision| revision.number(ledger)),
            limit: self.limit,
            sort: self.sort,
            modified: within(self.modified),
            created: within(self.created),
            part: self.part,
        }
    }
}

impl Trying {
    /// The transaction. It may write a key twice, which no door lets in.
    fn txn(&self, ledger: &Ledger) -> Txn {
        let ops = |doings: &[Doing]| doings.iter().map(|doing| doing.op(ledger)).collect();
        let compares = self.compares.iter().map(|it| it.compare(ledger)).collect();
        Txn { compares, then: ops(&self.then), otherwise: ops(&self.otherwise) }
    }
}

impl Doing {
    fn op(&self, ledger: &Ledger) -> Op {
        match self {
            Self::Look(looking) => Op::Range(looking.range(ledger)),
            Self::Put(writing, prev) => Op::Put { put: writing.put(ledger), prev: *prev },
            Self::Delete(which, prev) => Op::Delete { keys: which.keys(), prev: *prev },
            Self::Try(trying) => Op::Txn(trying.txn(ledger)),
        }
    }
}

impl Comparing {
    fn compare(&self, ledger: &Ledger) -> Compare {
        let keys = self.which.keys();
        let has = ledger.keys_from(keys.first()).next().map(|(_, it)| it).filter(|_| self.beside < 2);
        let number = |number: Option<u64>| i64::try_from(number.unwrap_or(0)).expect("a history is short");
        let number = |of: Option<u64>| number(of) + self.beside;
        let subject = match self.what {
            What::Version => Subject::Version(number(has.map(|it| it.version))),
            What::Created => Subject::Created(number(has.map(|it| it.create_revision))),
            What::Modified => Subject::Modified(number(has.map(|it| it.mod_revision))),
            What::Lease => Subject::Lease(number(has.and_then(|it| it.lease).map(|lease| lease.number()))),
            What::Value => {
                let byte = has.and_then(|it| it.value.first().copied()).unwrap_or(0);
                Subject::Value(Arc::from([byte.wrapping_add_signed(self.beside as i8)]))
            }
        };
        Compare { keys, subject, relation: self.relation }
    }
}

pub(super) fn keyed() -> impl Strategy<Value = Keyed> {
    prop_oneof![
        6 => writing().prop_map(Keyed::Put),
        3 => which().prop_map(Keyed::Delete),
        8 => trying(2).prop_map(Keyed::Txn),
        2 => prop_oneof![4 => back(), 1 => rev()].prop_map(Keyed::Compact),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    let from = (0..KEYS.len(), option::weighted(0.7, 0..KEYS.len()));
    prop_oneof![
        3 => (0..KEYS.len()).prop_map(Which::One),
        1 => (0..3_usize).prop_map(Which::Prefix),
        2 => from.prop_map(|(first, end)| Which::From(first, end)),
    ]
}

fn back() -> impl Strategy<Value = Rev> {
    (0..8_u64).prop_map(Rev::Back)
}

fn rev() -> impl Strategy<Value = Rev> {
    prop_oneof![
        12 => back(),
        4 => (-1..3_i64).prop_map(Rev::Oldest),
        1 => (1..3_u64).prop_map(Rev::Ahead),
        1 => (-2..3_i64).prop_map(Rev::Exactly),
    ]
}

fn writing() -> impl Strategy<Value = Writing> {
    let lease = prop_oneof![Just(Hanging::Free), Just(Hanging::Keep), living().prop_map(Hanging::On)];
    let parts = (0..KEYS.len(), option::weighted(0.8, 0..4_u8), lease);
    parts.prop_map(|(key, value, lease)| Writing { key, value, lease })
}

/// A look at keys.
pub(crate) fn looking() -> impl Strategy<Value = Looking> {
    let by = prop_oneof![
        Just(SortBy::Key),
        Just(SortBy::Version),
        Just(SortBy::Created),
        Just(SortBy::Modified),
        Just(SortBy::Value)
    ];
    let way = prop_oneof![Just(None), Just(Some(Way::Up)), Just(Some(Way::Down))];
    let sort = option::weighted(0.6, (by, way).prop_map(|(by, way)| Sort { by, way }));
    let within = || (option::weighted(0.15, back()), option::weighted(0.15, back()));
    let part = prop_oneof![4 => Just(Part::Whole), 1 => Just(Part::KeysOnly), 1 => Just(Part::CountOnly)];
    let parts = (which(), option::weighted(0.6, rev()), option::weighted(0.5, 1..4_usize), sort);
    (parts, (within(), within(), part)).prop_map(|((which, revision, limit, sort), (modified, created, part))| {
        Looking { which, revision, limit, sort, modified, created, part }
    })
}

fn comparing() -> impl Strategy<Value = Comparing> {
    let what = prop_oneof![
        Just(What::Version),
        Just(What::Created),
        Just(What::Modified),
        Just(What::Value),
        Just(What::Lease)
    ];
    let relation = prop_oneof![
        3 => Just(Relation::Equal),
        1 => Just(Relation::Greater),
        1 => Just(Relation::Less),
        1 => Just(Relation::NotEqual),
    ];
    let beside = prop_oneof![6 => Just(0), 2 => -1..3_i64];
    let parts = (which(), what, beside, relation);
    parts.prop_map(|(which, what, beside, relation)| Comparing { which, what, beside, relation })
}

/// A transaction with others within, down to a depth.
fn trying(depth: u32) -> BoxedStrategy<Trying> {
    let doing = || {
        let look = looking().prop_map(Doing::Look);
        let put = (writing(), any::<bool>()).prop_map(|(writing, prev)| Doing::Put(writing, prev));
        let delete = (which(), any::<bool>()).prop_map(|(which, prev)| Doing::Delete(which, prev));
        match depth {
            0 => prop_oneof![3 => look, 4 => put, 2 => delete].boxed(),
            _ => prop_oneof![3 => look, 4 => put, 2 => delete, 2 => trying(depth - 1).prop_map(Doing::Try)].boxed(),
        }
    };
    let parts = (collection::vec(comparing(), 0..3), collection::vec(doing(), 0..4), collection::vec(doing(), 0..4));
    parts.prop_map(|(compares, then, otherwise)| Trying { compares, then, otherwise }).boxed()
}
