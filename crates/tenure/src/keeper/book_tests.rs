//! The keeper's decisions, hour by hour, on no clock at all.

use super::*;
use crate::clock::Clock;

const LEASE: u64 = 7;

fn at(ms: u64) -> BootTime {
    BootTime::from_start(Duration::from_millis(ms))
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn answer(sent_ms: u64, ttl: Duration) -> Answer {
    Answer { sent: at(sent_ms), ttl }
}

/// A book with one lease of 15 s that was asked for at 1000 s, and its fate.
struct Desk {
    book: Book,
    fate: Arc<Fate>,
}

const START: u64 = 1_000_000;

fn desk_with(gate: Option<Gate>, handles: &[&str]) -> Desk {
    let mut book = Book::default();
    book.insert(LEASE, Entry::new(answer(START, secs(15)), gate));
    let fate = Arc::new(Fate::new(Clock::system(), BootTime::default()));
    let handles = handles.iter().map(ToString::to_string).collect();
    book.stake(LEASE, Stake::new(handles, fate.clone()));
    Desk { book, fate }
}

fn desk() -> Desk {
    desk_with(None, &[])
}

impl Desk {
    /// The leases that are renewed at that time.
    fn renewed_at(&mut self, ms: u64) -> Vec<u64> {
        let messages = self.book.renewals(at(ms), 0.0);
        messages.into_iter().flat_map(|message| message.leases).map(|(lease, _)| lease).collect()
    }

    fn standing(&self) -> crate::Standing {
        self.fate.standing().borrow().clone()
    }

    fn renewed(&mut self, answer: Answer) -> Vec<String> {
        self.book.renewed(LEASE, answer, RenewKind::Auto, None)
    }
}

#[test]
fn it_is_renewed_after_a_third_and_then_again_until_it_is_answered() {
    let mut desk = desk();
    assert_eq!(desk.book.due(), Some(at(START + 5_000)));
    assert!(desk.renewed_at(START + 4_999).is_empty());
    let times = [5_000, 6_000, 6_750, 7_500, 8_250];
    for time in times {
        assert_eq!(desk.book.due(), Some(at(START + time)), "{time}");
        assert_eq!(desk.renewed_at(START + time), [LEASE]);
    }
    assert_eq!(desk.standing(), crate::Standing::Jeopardy);
    desk.renewed(answer(START + 8_250, secs(15)));
    assert_eq!((desk.standing(), desk.book.due()), (crate::Standing::Held, Some(at(START + 13_250))));
}

#[test]
fn one_attempt_without_an_answer_is_no_jeopardy() {
    let mut desk = desk();
    desk.renewed_at(START + 5_000);
    assert_eq!(desk.standing(), crate::Standing::Held);
}

#[test]
fn repeated_attempts_come_apart_by_chance() {
    let mut desk = desk();
    for time in [5_000, 6_000] {
        desk.book.renewals(at(START + time), 1.0);
    }
    assert_eq!(desk.book.due(), Some(at(START + 6_000 + 750 + 375)));
}

#[test]
fn it_counts_from_when_the_answered_attempt_was_sent_however_late_the_answer_is() {
    let mut desk = desk();
    desk.renewed_at(START + 5_000);
    desk.renewed_at(START + 6_000);
    // The answer to the first attempt, whenever it comes.
    desk.renewed(answer(START + 5_000, secs(15)));
    assert_eq!(desk.fate.safe_until(), at(START + 5_000) + safe_for(secs(15)));
    // An older one that comes later takes nothing back.
    desk.renewed(answer(START + 1_000, secs(15)));
    assert_eq!(desk.fate.safe_until(), at(START + 5_000) + safe_for(secs(15)));
    assert_eq!(desk.book.due(), Some(at(START + 10_000)), "nor does it hurry the next renewal");
}

#[test]
fn it_is_lost_when_its_safe_time_is_over_and_nothing_brings_it_back() {
    let mut desk = desk();
    let end = at(START) + safe_for(secs(15));
    desk.renewed_at(START + 5_000);
    desk.book.lapse(BootTime::from_start(end.since_start() - Duration::from_nanos(1)));
    assert!(!desk.fate.is_lost());
    desk.book.lapse(end);
    assert_eq!(desk.standing(), crate::Standing::Lost(Loss::Unanswered));
    assert_eq!(desk.book.due(), None, "after that it is neither renewed nor given back");
    desk.renewed(answer(START + 5_000, secs(15)));
    assert!(desk.renewed_at(START + 60_000).is_empty() && desk.fate.is_lost());
}

#[test]
fn all_that_is_half_due_goes_into_one_message() {
    let mut desk = desk();
    let other = Entry::new(answer(START + 2_000, secs(15)), None);
    desk.book.insert(8, other);
    desk.book.insert(9, Entry::new(answer(START + 3_000, secs(15)), None));
    assert_eq!(desk.renewed_at(START + 5_000), [LEASE, 8], "9 is not half through its pace");
}

#[test]
fn a_hung_program_is_not_renewed_and_one_that_goes_on_is() {
    let gate = Gate::new(secs(2), at(START));
    let mut desk = desk_with(Some(gate.clone()), &[]);
    assert!(desk.renewed_at(START + 5_000).is_empty());
    assert_eq!(desk.standing(), crate::Standing::Jeopardy);
    gate.progressed(at(START + 5_000));
    assert_eq!(desk.renewed_at(START + 5_750), [LEASE]);
    desk.book.lapse(at(START + 60_000));
    assert_eq!(desk.standing(), crate::Standing::Lost(Loss::NoProgress));
}

#[test]
fn what_hangs_on_a_broken_claim_is_promised_nothing_by_a_renewal_of_the_lease() {
    let mut desk = desk_with(None, &["db@1"]);
    let other = Arc::new(Fate::new(Clock::system(), BootTime::default()));
    desk.book.stake(LEASE, Stake::new(vec!["log@2".into()], other.clone()));
    let before = desk.fate.safe_until();
    desk.renewed_at(START + 5_000);
    let notice = RenewNotice { lost: 1, ..RenewNotice::default() };
    let doubtful = desk.book.renewed(LEASE, answer(START + 5_000, secs(15)), RenewKind::Auto, Some(&notice));
    assert_eq!(doubtful, ["db@1", "log@2"]);
    assert_eq!((desk.fate.safe_until(), other.safe_until()), (before, before));
    desk.book.broken(LEASE, "db@1", &Loss::Unheard);
    desk.book.vouched(LEASE, "log@2", answer(START + 5_100, secs(15)));
    desk.book.settled(LEASE, 1);
    assert_eq!(desk.standing(), crate::Standing::Lost(Loss::Unheard));
    assert_eq!(other.safe_until(), at(START + 5_100) + safe_for(secs(15)));
    let again = desk.book.renewed(LEASE, answer(START + 9_000, secs(15)), RenewKind::Auto, Some(&notice));
    assert!(again.is_empty(), "it was asked about already");
    assert_eq!(other.safe_until(), at(START + 9_000) + safe_for(secs(15)));
}

#[test]
fn a_class_that_is_renewed_on_activity_is_renewed_when_it_was_used() {
    let mut desk = desk();
    desk.renewed_at(START + 5_000);
    desk.book.not_renewable(LEASE, RenewPolicy::Activity);
    assert!(desk.renewed_at(START + 10_000).is_empty());
    assert_eq!(desk.standing(), crate::Standing::Held, "that is how it is meant to be");
    desk.book.touch(LEASE, at(START + 10_000));
    let messages = desk.book.renewals(at(START + 10_000), 0.0);
    assert_eq!(messages, [Renewals { kind: RenewKind::Touch, leases: vec![(LEASE, 0)] }]);
    desk.book.renewed(LEASE, answer(START + 10_000, secs(15)), RenewKind::Touch, None);
    assert!(desk.renewed_at(START + 20_000).is_empty(), "and then not until it is used again");
    desk.book.lapse(at(START + 60_000));
    assert_eq!(desk.standing(), crate::Standing::Lost(Loss::TimeOver));
}

#[test]
fn who_decides_to_renew_is_obeyed_at_once() {
    let mut desk = desk();
    desk.book.not_renewable(LEASE, RenewPolicy::Explicit);
    desk.book.hurry(LEASE, at(START + 1_000), Some(60_000));
    let messages = desk.book.renewals(at(START + 1_000), 0.0);
    assert_eq!(messages, [Renewals { kind: RenewKind::Explicit, leases: vec![(LEASE, 60_000)] }]);
    desk.book.renewed(LEASE, answer(START + 1_000, secs(60)), RenewKind::Explicit, None);
    assert_eq!(desk.fate.safe_until(), at(START + 1_000) + safe_for(secs(60)));
    assert!(desk.renewed_at(START + 50_000).is_empty());
}

#[test]
fn a_connection_that_is_refused_is_tried_again_soon() {
    let mut desk = desk();
    desk.renewed_at(START + 5_000);
    desk.book.unanswered(&[(LEASE, 0)], at(START + 5_001), Duration::ZERO);
    assert_eq!(desk.standing(), crate::Standing::Jeopardy);
    assert_eq!(desk.book.due(), Some(at(START + 5_751)));
}

#[test]
fn a_lease_in_line_is_renewed_and_cannot_be_lost() {
    let mut book = Book::default();
    book.insert(LEASE, Entry::in_line(answer(START, secs(15)), None));
    book.lapse(at(START + 60_000));
    assert!(!book.is_over(LEASE));
    assert_eq!(book.renewals(at(START + 60_000), 0.0).len(), 1);
}

#[test]
fn the_last_of_a_lifetime_is_not_spent_in_a_storm_of_renewals() {
    let mut desk = desk();
    let notice = RenewNotice { is_final: true, ..RenewNotice::default() };
    desk.book.renewed(LEASE, answer(START + 5_000, Duration::from_millis(3)), RenewKind::Auto, Some(&notice));
    // Answers that move nothing do not hurry the next attempt.
    let mut now = START + 5_000;
    for _ in 0..5 {
        let next = desk.book.due().unwrap();
        assert!(next >= at(now + 700), "a twentieth of the TTL at least: {next:?} after {now}");
        now += 750;
        desk.renewed_at(now);
        desk.book.renewed(LEASE, answer(now, Duration::from_millis(3)), RenewKind::Auto, Some(&notice));
    }
    // The end stands still, so the answers grow shorter; the renewals do not come closer than a twentieth of the first TTL.
    for (sent, next) in [(14_000, 14_750), (14_750, 15_500)] {
        let left = Duration::from_millis(16_000 - sent);
        desk.book.renewed(LEASE, answer(START + sent, left), RenewKind::Auto, Some(&notice));
        assert_eq!(desk.book.due(), Some(at(START + next)));
    }
    desk.book.lapse(at(START + 60_000));
    assert_eq!(desk.standing(), crate::Standing::Lost(Loss::TimeOver));
}

#[test]
fn several_claims_of_one_guard_are_vouched_for_together() {
    let mut desk = desk_with(None, &["log@2", "queue@3"]);
    let before = desk.fate.safe_until();
    let notice = RenewNotice { lost: 1, ..RenewNotice::default() };
    desk.book.renewed(LEASE, answer(START + 5_000, secs(15)), RenewKind::Auto, Some(&notice));
    desk.book.vouched(LEASE, "log@2", answer(START + 5_100, secs(15)));
    assert_eq!(desk.fate.safe_until(), before, "of the other one nothing is known");
    // Not even a renewal that tells nothing new.
    desk.renewed(answer(START + 6_000, secs(15)));
    assert_eq!(desk.fate.safe_until(), before);
    desk.book.vouched(LEASE, "queue@3", answer(START + 5_050, secs(15)));
    assert_eq!(desk.fate.safe_until(), at(START + 5_050) + safe_for(secs(15)), "none longer than the others");
}

#[test]
fn an_answer_promises_what_it_says_and_not_what_a_later_one_said() {
    let mut desk = desk_with(None, &["db@1"]);
    let notice = RenewNotice { lost: 1, ..RenewNotice::default() };
    desk.book.renewed(LEASE, answer(START + 9_000, secs(15)), RenewKind::Auto, Some(&notice));
    desk.book.vouched(LEASE, "db@1", answer(START + 5_500, secs(15)));
    // Sent before the break, and answered last.
    desk.renewed(answer(START + 5_000, secs(15)));
    assert_eq!(desk.fate.safe_until(), at(START + 5_500) + safe_for(secs(15)));
}

#[test]
fn what_hangs_on_a_lease_that_is_given_back_is_lost_with_it() {
    let mut desk = desk_with(None, &["db@1"]);
    let other = Arc::new(Fate::new(Clock::system(), at(START)));
    desk.book.stake(LEASE, Stake::new(Vec::new(), other.clone()));
    desk.book.remove(LEASE);
    assert_eq!(desk.standing(), crate::Standing::Lost(Loss::GivenBack));
    assert!(other.is_lost());
}

#[test]
fn a_lease_that_is_left_is_not_renewed_and_runs_out() {
    let mut desk = desk();
    desk.book.leave(LEASE);
    assert!(desk.renewed_at(START + 10_000).is_empty() && !desk.fate.is_lost());
    desk.book.lapse(at(START + 60_000));
    assert_eq!(desk.standing(), crate::Standing::Lost(Loss::TimeOver));
    assert!(!desk.book.contains(LEASE));
}

#[test]
fn a_wish_that_cannot_be_does_not_stop_the_heartbeat() {
    let mut desk = desk();
    desk.book.hurry(LEASE, at(START + 1_000), Some(50));
    desk.book.renewals(at(START + 1_000), 0.0);
    desk.book.refused(LEASE);
    desk.book.unanswered(&[(LEASE, 50)], at(START + 1_010), Duration::ZERO);
    let messages = desk.book.renewals(at(START + 1_760), 0.0);
    assert_eq!(messages, [Renewals { kind: RenewKind::Auto, leases: vec![(LEASE, 0)] }]);
}
