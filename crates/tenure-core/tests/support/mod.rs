//! What the tests share: short words for the ledger's values, a witness of its promises, the script language and random
//! histories. No test lives here.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub(crate) mod cast;
pub(crate) mod history;
pub(crate) mod model;
pub(crate) mod phrases;
pub(crate) mod print;
pub(crate) mod samples;
pub(crate) mod script;
pub(crate) mod show;
pub(crate) mod tally;
pub(crate) mod witness;
pub(crate) mod words;

use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use std::collections::VecDeque;
use tenure_core::{
    Acquire, Cancel, Command, Entry, Force, Free, Grant, Handle, Hang, Holder, Key, Kind, Leader, LeaseId, Ledger,
    Mode, Moment, Name, Note, On, Outcome, Proof, Put, Refusal, Release, Renew, Renewal, Revoke, Span, Ttl, Units,
    Wait, Want, Which, limits,
};

/// The wall clock at the ledger's beginning. It runs along with service time in the tests.
pub(crate) const WALL_START_MS: u64 = 1_700_000_000_000;

pub(crate) fn entry(at_ms: u64, commands: Vec<Command>) -> Entry {
    Entry {
        leader: Leader { term: 1, node: 1 },
        now: Moment::from_millis(at_ms),
        wall_ms: WALL_START_MS + at_ms,
        rules: limits::RULES_MAX,
        commands,
    }
}

pub(crate) fn tick(at_ms: u64) -> Entry {
    entry(at_ms, Vec::new())
}

/// Applies one command alone at a moment.
pub(crate) fn order(ledger: &mut Ledger, at_ms: u64, command: Command) -> Outcome {
    let applied = ledger.apply(&entry(at_ms, vec![command]));
    applied.outcomes.into_iter().next().expect("every command is answered")
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).expect("the tests use good names")
}

pub(crate) fn holder(text: &str) -> Holder {
    Holder::parse(text).expect("the tests use good holders")
}

pub(crate) fn id(number: u64) -> LeaseId {
    LeaseId::from_number(number).expect("the tests use good ids")
}

pub(crate) fn ttl(ms: u64) -> Ttl {
    Ttl::from_millis(ms).expect("the tests use good TTLs")
}

pub(crate) fn handle(text: &str) -> Handle {
    Handle::parse(text).expect("the tests use good handles")
}

pub(crate) fn span(ms: u64) -> Span {
    Span::at_most(ms, u64::MAX).expect("there is no longer span")
}

pub(crate) fn key(text: &str) -> Key {
    Key::parse(text.as_bytes()).expect("the tests use good keys")
}

pub(crate) fn units(number: u64) -> Mode {
    Mode::Units(Units::from_number(number).expect("the tests use good numbers of units"))
}

pub(crate) fn a_grant(lease: u64, ttl_ms: u64) -> Grant {
    Grant::plain(id(lease), holder(&format!("h{lease}")), ttl(ttl_ms), 1)
}

pub(crate) fn grant(lease: u64, ttl_ms: u64) -> Command {
    Command::Grant(a_grant(lease, ttl_ms))
}

/// A grant under another lease.
pub(crate) fn grant_under(parent: u64, lease: u64, ttl_ms: u64) -> Command {
    Command::Grant(Grant { parent: Some(id(parent)), ..a_grant(lease, ttl_ms) })
}

/// An acquire on a new lease that waits in line.
pub(crate) fn acquire(lease: u64, resource: &str, ttl_ms: u64) -> Command {
    Command::Acquire(Acquire::exclusive(On::New(a_grant(lease, ttl_ms)), name(resource), Wait::IN_LINE))
}

pub(crate) fn acquire_on(lease: u64, resource: &str, wait: Wait) -> Command {
    Command::Acquire(Acquire::exclusive(On::Given(id(lease)), name(resource), wait))
}

/// An acquire of several resources, or in another mode than exclusive, on a new lease that waits in line.
pub(crate) fn acquire_all(lease: u64, resources: &[&str], mode: Mode, ttl_ms: u64) -> Command {
    let one = Acquire::exclusive(On::New(a_grant(lease, ttl_ms)), name(resources[0]), Wait::IN_LINE);
    let wants = resources.iter().map(|resource| Want { resource: name(resource), mode, capacity: None });
    Command::Acquire(Acquire { wants: wants.collect(), ..one })
}

pub(crate) fn renew(leases: impl IntoIterator<Item = u64>) -> Command {
    let leases = leases.into_iter().map(|lease| Renewal { lease: id(lease), ttl: None });
    Command::Renew(Renew { leases: leases.collect(), kind: Kind::Auto })
}

pub(crate) fn release(text: &str) -> Command {
    Command::Release(Release { handle: handle(text), proof: Proof::Handle })
}

pub(crate) fn cancel(lease: u64, resource: &str) -> Command {
    let (resources, proof) = (vec![name(resource)], Proof::Handle);
    Command::Cancel(Cancel { lease: id(lease), resources, request: None, proof })
}

pub(crate) fn force(free: Free) -> Force {
    Force { by: holder("ops"), reason: Note::parse("because").expect("the tests use good notes"), free }
}

/// A revoke that frees at once what the lease held.
pub(crate) fn revoke(lease: u64) -> Command {
    Command::Revoke(Revoke { which: Which::Lease(id(lease)), force: force(Free::Now) })
}

pub(crate) fn put(text: &str, lease: Hang) -> Command {
    Command::Put(Put { key: key(text), value: Some(b"value"[..].into()), lease })
}

pub(crate) fn snapshot(ledger: &Ledger) -> Vec<u8> {
    let mut bytes = Vec::new();
    ledger.write_snapshot(|piece| bytes.extend_from_slice(piece));
    bytes
}

/// The ledger after a detour through its snapshot.
pub(crate) fn restored(ledger: &Ledger) -> Ledger {
    Ledger::read_snapshot(&snapshot(ledger)).expect("a ledger's own snapshot is read back")
}

/// `TENURE_CASES=10` runs ten times the usual number of random cases, `TENURE_CASES=0.1` a tenth.
fn cases_factor() -> f64 {
    std::env::var("TENURE_CASES").map_or(1.0, |text| text.parse().expect("TENURE_CASES is a number"))
}

/// Whether so few random cases are run that not everything can be expected to happen in them.
pub(crate) fn few_cases() -> bool {
    cases_factor() < 1.0
}

/// Runs random cases for a test in `file`, where a failing seed is kept as well: commit it with the fix.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of cases is small and positive")]
pub(crate) fn runner(usual_cases: u32, file: &'static str) -> TestRunner {
    TestRunner::new(Config {
        cases: (f64::from(usual_cases) * cases_factor()).ceil() as u32,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        source_file: Some(file),
        ..Config::default()
    })
}

/// The refusal of a command that must change nothing.
pub(crate) fn refusal(ledger: &mut Ledger, command: Command) -> Refusal {
    let (now_ms, before) = (ledger.now().millis(), ledger.state_hash());
    let refusal = order(ledger, now_ms, command).expect_err("this command goes over a limit");
    assert_eq!(before, ledger.state_hash(), "a refusal changes nothing: {refusal:?}");
    refusal
}

/// Applies commands at one moment, many an entry, and expects a yes to each. Those that find no room in an entry go into the next.
pub(crate) fn all_accepted(ledger: &mut Ledger, at_ms: u64, commands: impl IntoIterator<Item = Command>) {
    let apply = |entry: &Entry| ledger.apply(entry).outcomes;
    accepted_by(apply, at_ms, commands);
}

/// The same with another way to apply an entry.
pub(crate) fn accepted_by(
    mut apply: impl FnMut(&Entry) -> Vec<Outcome>,
    at_ms: u64,
    commands: impl IntoIterator<Item = Command>,
) {
    let mut waiting: VecDeque<Command> = commands.into_iter().collect();
    while !waiting.is_empty() {
        let entry = entry(at_ms, waiting.drain(..waiting.len().min(limits::COMMANDS_MAX)).collect());
        let outcomes = apply(&entry);
        for (command, outcome) in entry.commands.into_iter().zip(outcomes).rev() {
            match outcome {
                Ok(_) => {}
                Err(Refusal::Overloaded { .. }) => waiting.push_front(command),
                Err(refusal) => panic!("within the limits everything is accepted: {refusal:?}"),
            }
        }
    }
}
