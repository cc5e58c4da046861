//! One random sequence of calls on keys, transactions, leases, watches and compaction, for a real etcd and for the server
//! under test: every answer, every refusal and every watch stream is the same. `TENURE_CASES=20` runs twenty times as many
//! seeds, `TENURE_SEED=n` that one alone, and `TENURE_SHRINK=1` looks for fewer steps that differ too; with
//! `TENURE_SECOND_ETCD=path` the other server is an etcd as well.
//!
//! What may differ, and is not asked or not compared:
//! - the ids of cluster and member, the term, and the lease ids that a server picks: each has its own;
//! - leases shorter than two seconds: etcd raises what is asked to two, Tenure honours it;
//! - a transaction that writes a key twice in a way that etcd overlooks (see `Deletes`): etcd 3.5 may fall over it, and does
//!   not start again;
//! - the order of a lease's keys, and of watchers that hear one event: etcd has none;
//! - a second answer for a watcher that compaction ended and its client cancels: it says nothing new.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::differential::brief::brief;
use crate::differential::draw::Draw;
use crate::differential::side::{Answer, Side};
use crate::differential::step::Step;
use crate::support::etcd::{Peer, reference};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SEEDS: u64 = 5;
const STEPS: usize = 1000;

/// Steps before a difference that are shown with it.
const SHOWN: usize = 25;

/// How often each step was taken, and each refusal heard.
#[derive(Default, Debug)]
struct Tally {
    steps: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<String, u64>,
    watched: u64,
}

impl Tally {
    fn count(&mut self, step: &Step, answer: &Answer) {
        *self.steps.entry(step.name()).or_default() += 1;
        for line in answer {
            if let Some((_, refusal)) = line.split_once(": etcdserver: ") {
                *self.refusals.entry(refusal.to_owned()).or_default() += 1;
            }
            self.watched += u64::from(line.starts_with("stream "));
        }
    }
}

/// Two servers answered differently to the last of some steps.
#[derive(Debug)]
struct Difference {
    steps: Vec<Step>,
    lines: Vec<String>,
}

/// Plays a sequence against both. The second does not hear of the first put from the step `deaf` on that the other accepts.
async fn play(seed: u64, first: &Peer, second: &Peer, mut deaf: Option<usize>) -> Result<Tally, Difference> {
    let mut draw = Draw::new(seed);
    let (mut one, mut other) = tokio::join!(Side::connect(&first.endpoint), Side::connect(&second.endpoint));
    let mut past: Vec<Step> = Vec::new();
    let mut tally = Tally::default();
    for at in 0..STEPS {
        let step = next(&mut draw, &one, past.last(), at);
        past.push(step.clone());
        let (left, right) = if deaf.is_some_and(|deaf| at >= deaf) && matches!(step, Step::Put(_)) {
            let left = one.play(&step).await;
            let is_refused = left.iter().any(|line| line.contains("etcdserver: "));
            deaf = deaf.filter(|_| is_refused);
            (left.clone(), if is_refused { other.play(&step).await } else { left })
        } else {
            tokio::join!(one.play(&step), other.play(&step))
        };
        if left != right {
            return Err(difference(past, [(first.name, &left), (second.name, &right)]));
        }
        tally.count(&step, &left);
    }
    Ok(tally)
}

/// After a compaction the bell must ring, or watchers that begin in the past could not be waited for; at the end everything
/// is heard.
fn next(draw: &mut Draw, side: &Side, last: Option<&Step>, at: usize) -> Step {
    let drawn = draw.step(side);
    if matches!(last, Some(Step::Compact(_) | Step::Expire { .. })) || at + 1 == STEPS { Step::Settle } else { drawn }
}

fn difference(steps: Vec<Step>, answers: [(&str, &Answer); 2]) -> Difference {
    let mut lines: Vec<String> = steps.iter().enumerate().map(|(place, step)| format!("{place}: {step:?}")).collect();
    lines.drain(..lines.len().saturating_sub(SHOWN));
    let [(_, left), (_, right)] = answers;
    for (name, answer) in answers {
        let other = if std::ptr::eq(answer, left) { right } else { left };
        let only = answer.iter().filter(|line| !other.contains(line));
        lines.extend(only.map(|line| format!("only {name} answered {line}")));
    }
    if left.len() == right.len() && left.iter().all(|line| right.contains(line)) {
        lines.push(format!("the order differs: {left:#?} {right:#?}"));
    }
    let lines = lines.iter().map(|line| brief(line)).collect();
    Difference { steps, lines }
}

/// Plays steps that were drawn before against new servers.
async fn replay(etcd: PathBuf, steps: Vec<Step>) -> Option<Difference> {
    let (first, second) = (Peer::etcd(&etcd), Peer::under_test());
    let (mut one, mut other) = tokio::join!(Side::connect(&first.endpoint), Side::connect(&second.endpoint));
    for (at, step) in steps.iter().enumerate() {
        let (left, right) = tokio::join!(one.play(step), other.play(step));
        if left != right {
            return Some(difference(steps[..=at].to_vec(), [(first.name, &left), (second.name, &right)]));
        }
    }
    None
}

/// Leaves out steps as long as the servers still differ, many at first. What cannot be played any more does not count.
async fn shrink(etcd: &Path, mut found: Difference) -> Difference {
    let mut width = found.steps.len() / 2;
    while width > 0 {
        let mut start = 0;
        while start < found.steps.len() {
            let follows = |at: usize| at > 0 && matches!(found.steps[at - 1], Step::Compact(_));
            let is_out = |(at, _): &(usize, &Step)| {
                (start..start + width).contains(at) && at + 1 < found.steps.len() && !follows(*at)
            };
            let kept = found.steps.iter().enumerate().filter(|step| !is_out(step)).map(|(_, step)| step.clone());
            let kept: Vec<Step> = kept.collect();
            if kept.len() == found.steps.len() {
                start += width;
                continue;
            }
            match tokio::spawn(replay(etcd.to_owned(), kept)).await {
                Ok(Some(smaller)) => found = smaller,
                Ok(None) | Err(_) => start += width,
            }
        }
        width /= 2;
    }
    found
}

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match number("TENURE_SEED") {
        Some(seed) => vec![seed],
        None => (0..SEEDS * number("TENURE_CASES").unwrap_or(1)).collect(),
    }
}

#[tokio::test]
async fn every_answer_is_the_one_of_a_real_etcd() {
    let Some(etcd) = reference() else { return };
    let mut total = Tally::default();
    for seed in seeds() {
        let (first, second) = (Peer::etcd(&etcd), Peer::under_test());
        match play(seed, &first, &second, None).await {
            Ok(tally) => {
                tally.steps.into_iter().for_each(|(name, count)| *total.steps.entry(name).or_default() += count);
                tally.refusals.into_iter().for_each(|(text, count)| *total.refusals.entry(text).or_default() += count);
                total.watched += tally.watched;
            }
            Err(found) => {
                let at = found.steps.len() - 1;
                let is_long = std::env::var_os("TENURE_SHRINK").is_some();
                let found = if is_long { shrink(&etcd, found).await } else { found };
                panic!(
                    "seed {seed} differs at step {at}; TENURE_SEED={seed} repeats it, TENURE_SHRINK=1 shortens it\n{}",
                    found.lines.join("\n")
                )
            }
        }
    }
    println!("{total:#?}");
    if std::env::var_os("TENURE_SEED").is_some() {
        return;
    }
    assert!(total.steps.len() == 16 && total.watched > 0, "every step is taken: {total:?}");
    assert!(total.refusals.len() >= 8, "refusals are compared too: {total:?}");
}

#[tokio::test]
async fn a_call_that_one_server_did_not_hear_is_noticed() {
    let Some(etcd) = reference() else { return };
    let (first, second) = (Peer::etcd(&etcd), Peer::etcd(&etcd));
    let seed = 0;
    let deaf = 200;
    let found = play(seed, &first, &second, Some(deaf)).await.expect_err("the servers differ");
    println!("{}", found.lines.join("\n"));
    assert!(
        found.steps.len() > deaf + 1 && found.lines.last().is_some_and(|line| line.contains("answered")),
        "{found:?}"
    );
}
