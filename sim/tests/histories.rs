//! The checker of histories earns trust by what it refuses: each bad history, and not the good one that differs from it by a line.

use std::path::PathBuf;
use std::time::Duration;
use tenure_sim::history::keys::{Act, Keys};
use tenure_sim::history::text::{Case, read};
use tenure_sim::history::{At, OPERATIONS_MAX, Operation, Verdict, check};

fn cases() -> Vec<Case> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/histories");
    let entries = std::fs::read_dir(&folder).expect("the histories are there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    files.sort();
    let read_file = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).expect("it can be read");
        read(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()))
    };
    files.iter().flat_map(read_file).collect()
}

#[test]
fn bad_histories_are_refused_and_good_ones_accepted() {
    let cases = cases();
    assert!(cases.len() >= 50, "there are {} cases", cases.len());
    let wrong = cases.iter().filter_map(|case| {
        let (good, bad) = (case.good.check(), case.bad.check());
        let is_right = good == Verdict::Accepted && matches!(bad, Verdict::Refused { .. });
        (!is_right).then(|| format!("{}: good is {good:?}, bad is {bad:?}", case.title))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a failed run prints can be added to these files.
#[test]
fn a_printed_history_is_read_back() {
    for case in cases() {
        for history in [&case.good, &case.bad] {
            let kind = if matches!(history, tenure_sim::history::text::History::Keys(_)) { "keys" } else { "lock" };
            let text = format!("{kind}: {}\n{history}", case.title);
            let back = read(&text).expect("it is read back");
            assert_eq!(back[0].good, *history, "{text}");
        }
    }
}

fn put(ms: u64, to: Option<u64>, value: u64, version: Option<u64>) -> Operation<Act> {
    let at = |ms| At::time(Duration::from_millis(ms));
    Operation { from: at(ms), to: to.map(at), act: Act::Put { key: "x".into(), value, lease: None, version } }
}

#[test]
fn long_histories_and_long_searches_are_not_decided() {
    let long: Vec<_> = (0..=OPERATIONS_MAX as u64).map(|n| put(10 * n, Some(10 * n + 5), n, Some(n + 1))).collect();
    assert_eq!(check::<Keys>(&long), Verdict::NotDecided);
    assert_eq!(check::<Keys>(&long[1..]), Verdict::Refused { operation: 0, only_reads: false });
    assert_eq!(check::<Keys>(&long[..OPERATIONS_MAX]), Verdict::Accepted);
    // Thirty writes at once, of which one cannot be: each subset of the others is tried.
    let mut wide: Vec<_> = (1..=30).map(|n| put(0, Some(100), n, None)).collect();
    wide.push(put(200, Some(300), 31, Some(40)));
    assert_eq!(check::<Keys>(&wide), Verdict::NotDecided);
}

/// Most unknown operations never show. They must not make a search long.
#[test]
fn many_unknown_outcomes_are_decided() {
    let unseen = (0..200).map(|n| put(n * 7, None, 10_000 + n, None));
    let seen = (0..400).map(|n| put(n * 10, Some(n * 10 + 5), n, Some(n + 1 + n / 100)));
    let history: Vec<_> = unseen.chain(seen).collect();
    let [(_, part)] = &tenure_sim::history::keys::parts(&history)[..] else { panic!("it is one key") };
    assert_eq!(check::<Keys>(part), Verdict::Accepted);
}
