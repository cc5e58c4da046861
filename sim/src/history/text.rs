//! Histories as text: what tests are written in, and what a failed run prints.
//!
//! A file holds cases. Each is a good history and a bad one that differ in a line or two: lines that begin with `+` belong to
//! the good one, with `-` to the bad one, all others to both.
//!
//! ```text
//! keys: a read misses a write that was acknowledged before it
//!   0..5 put x=1 -> 1
//! - 6..9 get x -> none
//! + 4..9 get x -> none
//! ```
//!
//! A line is `FROM..TO ACT -> ANSWER`, with times in milliseconds. `FROM.. ACT` has an unknown outcome.

use super::keys::{self, Cell, Condition, Done, Keys, Part};
use super::lock::{self, Acquired, Lock};
use super::{At, Operation, Verdict, check};
use std::fmt;
use std::time::Duration;

/// Two histories that differ a little.
#[derive(Clone, Debug)]
pub struct Case {
    /// What the bad one does.
    pub title: String,
    /// Can be explained.
    pub good: History,
    /// Cannot.
    pub bad: History,
}

/// A history of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum History {
    /// Of keys.
    Keys(Vec<Operation<keys::Act>>),
    /// Of a lock.
    Lock(Vec<Operation<lock::Act>>),
}

impl History {
    /// Checks it; if it is of keys, each part.
    pub fn check(&self) -> Verdict {
        match self {
            Self::Lock(history) => check::<Lock>(&lock::without_noise(history.clone())),
            Self::Keys(history) => {
                let verdicts = keys::parts(history).into_iter().map(|(_, part)| check::<Keys>(&part));
                verdicts.into_iter().find(|verdict| *verdict != Verdict::Accepted).unwrap_or(Verdict::Accepted)
            }
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys(history) => history.iter().try_for_each(|it| writeln!(f, "  {it}")),
            Self::Lock(history) => history.iter().try_for_each(|it| writeln!(f, "  {it}")),
        }
    }
}

/// Reads the cases of a file, or says which line is wrong.
pub fn read(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        read_line(line, &mut cases).map_err(|why| format!("line {number}: {why}: {line}"))?;
    }
    Ok(cases)
}

fn read_line(line: &str, cases: &mut Vec<Case>) -> Result<(), String> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    let begun = [("keys: ", History::Keys(Vec::new())), ("lock: ", History::Lock(Vec::new()))];
    if let Some((title, history)) = begun.into_iter().find_map(|(kind, it)| Some((line.strip_prefix(kind)?, it))) {
        cases.push(Case { title: title.into(), good: history.clone(), bad: history });
        return Ok(());
    }
    let case = cases.last_mut().ok_or("it belongs to no case")?;
    let (mark, rest) = line.split_at_checked(2).ok_or("it is too short")?;
    match mark {
        "+ " => case.good.add(rest),
        "- " => case.bad.add(rest),
        "  " => case.good.add(rest).and_then(|()| case.bad.add(rest)),
        _ => Err("a line begins with two blanks, `+ ` or `- `".into()),
    }
}

impl History {
    fn add(&mut self, line: &str) -> Result<(), String> {
        let (times, rest) = line.trim().split_once(' ').ok_or("there is no operation")?;
        let (from, to) = times.split_once("..").ok_or("there are no times")?;
        let at = |ms: &str| number(ms).map(|ms| At::time(Duration::from_millis(ms)));
        let (from, to) = (at(from)?, if to.is_empty() { None } else { Some(at(to)?) });
        let (act, answer) = match rest.split_once(" -> ") {
            Some((act, answer)) => (act, Some(answer)),
            None => (rest, None),
        };
        let words: Vec<&str> = act.split(' ').collect();
        match self {
            Self::Keys(history) => history.push(Operation { from, to, act: keys_act(&words, answer)? }),
            Self::Lock(history) => history.push(Operation { from, to, act: lock_act(&words, answer)? }),
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn keys_act(words: &[&str], answer: Option<&str>) -> Result<keys::Act, String> {
    match *words {
        ["put", pair] => put(pair, None, answer),
        ["put", pair, "on", lease] => put(pair, Some(number(lease)?), answer),
        ["get", key] => {
            Ok(keys::Act::Get { key: key.into(), found: cell(answer.ok_or("a get without an answer says nothing")?)? })
        }
        ["delete", key] => Ok(keys::Act::Delete { key: key.into(), count: answer.map(number).transpose()? }),
        ["txn", conditions, "then", then, "else", otherwise] => Ok(keys::Act::Txn {
            conditions: list(conditions, condition)?,
            then: list(then, part)?,
            otherwise: list(otherwise, part)?,
            done: answer.map(done).transpose()?,
        }),
        ["end", lease] => Ok(keys::Act::End { lease: number(lease)? }),
        _ => Err("it is no operation on keys".into()),
    }
}

fn put(pair: &str, lease: Option<u64>, answer: Option<&str>) -> Result<keys::Act, String> {
    let (key, value) = pair.split_once('=').ok_or("a put reads KEY=VALUE")?;
    let version = answer.map(number).transpose()?;
    Ok(keys::Act::Put { key: key.into(), value: number(value)?, lease, version })
}

fn cell(text: &str) -> Result<Option<Cell>, String> {
    if text == "none" {
        return Ok(None);
    }
    let (value, version) = text.split_once('v').ok_or("a value reads 7v1: the value, and its version")?;
    Ok(Some(Cell { value: number(value)?, version: number(version)? }))
}

/// Items between commas; `-` if there are none.
fn list<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    if text == "-" { Ok(Vec::new()) } else { text.split(',').map(read).collect() }
}

fn condition(text: &str) -> Result<Condition, String> {
    let (key, value) = text.split_once('=').ok_or("a condition reads KEY=VALUE or KEY=none")?;
    Ok(Condition { key: key.into(), value: if value == "none" { None } else { Some(number(value)?) } })
}

fn part(text: &str) -> Result<Part, String> {
    match (text.split_once('='), text.strip_prefix('!'), text.strip_suffix('?')) {
        (Some((key, value)), _, _) => Ok(Part::Put(key.into(), number(value)?)),
        (_, Some(key), _) => Ok(Part::Delete(key.into())),
        (_, _, Some(key)) => Ok(Part::Get(key.into())),
        _ => Err("a step reads KEY=VALUE, !KEY or KEY?".into()),
    }
}

fn done(text: &str) -> Result<Done, String> {
    let (held, found) = text.split_once(' ').unwrap_or((text, "-"));
    match held {
        "yes" | "no" => Ok(Done { held: held == "yes", found: list(found, cell)? }),
        _ => Err("a transaction answers yes or no".into()),
    }
}

fn lock_act(words: &[&str], answer: Option<&str>) -> Result<lock::Act, String> {
    Ok(match (words, answer) {
        (["acquire", who], Some(answer)) => {
            let (lease, claim) = claimed(who)?;
            lock::Act::Acquire { lease, claim, answer: acquired(answer)? }
        }
        (["grant", who], None) => {
            let (lease, claim) = claimed(who)?;
            lock::Act::Grant { lease, claim, fence: None }
        }
        (["release", handle], answer) => {
            let (lease, fence) = handle_of(handle)?;
            lock::Act::Release { lease, fence, done: yes_or_no(answer)? }
        }
        (["cancel", lease], answer) => lock::Act::Cancel { lease: number(lease)?, done: yes_or_no(answer)? },
        (["transfer", handle, "to", to], answer) => {
            let (lease, fence) = handle_of(handle)?;
            let answer = match answer {
                Some("stale") => Some(None),
                Some(fence) => Some(Some(number(fence)?)),
                None => None,
            };
            lock::Act::Transfer { lease, fence, to: number(to)?, answer }
        }
        (["verify", fence], Some(answer)) => {
            lock::Act::Verify { fence: number(fence)?, holds: yes_or_no(Some(answer))?.unwrap_or_default() }
        }
        (["look"], Some("free")) => lock::Act::Look { holder: None },
        (["look"], Some(handle)) => lock::Act::Look { holder: Some(handle_of(handle)?) },
        (["renew", lease], Some(answer)) => {
            lock::Act::Renew { lease: number(lease)?, lives: yes_or_no(Some(answer))?.unwrap_or_default() }
        }
        (["end", lease], None) => lock::Act::End { lease: number(lease)? },
        (["break"], None) => lock::Act::Break,
        _ => return Err("it is no operation on a lock".into()),
    })
}

/// `7`, or `7#2` for the second claim of lease 7.
fn claimed(text: &str) -> Result<(u64, u64), String> {
    let (lease, claim) = text.split_once('#').unwrap_or((text, text));
    Ok((number(lease)?, number(claim)?))
}

/// `7@3`: lease 7 with fence 3.
fn handle_of(text: &str) -> Result<(u64, u64), String> {
    let (lease, fence) = text.split_once('@').ok_or("a handle reads LEASE@FENCE")?;
    Ok((number(lease)?, number(fence)?))
}

fn acquired(text: &str) -> Result<Acquired, String> {
    match text.split_once(' ') {
        Some(("granted", fence)) => Ok(Acquired::Granted(number(fence)?)),
        Some(("taken", fence)) => Ok(Acquired::Taken(number(fence)?)),
        None if text == "waiting" => Ok(Acquired::Waiting),
        _ => Err("an acquire answers `granted FENCE`, `taken FENCE` or `waiting`".into()),
    }
}

fn yes_or_no(text: Option<&str>) -> Result<Option<bool>, String> {
    match text {
        None => Ok(None),
        Some("yes") => Ok(Some(true)),
        Some("no") => Ok(Some(false)),
        Some(_) => Err("it answers yes or no".into()),
    }
}

impl<A: fmt::Display> fmt::Display for Operation<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |at: At| at.time.as_millis();
        write!(f, "{}..", ms(self.from))?;
        self.to.map_or(Ok(()), |to| write!(f, "{}", ms(to)))?;
        write!(f, " {}", self.act)
    }
}

/// What was answered, if that is known.
struct Answer<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |answer| write!(f, " -> {answer}"))
    }
}

fn show_yes(done: Option<bool>) -> Answer<&'static str> {
    Answer(done.map(|done| if done { "yes" } else { "no" }))
}

fn show_cell(cell: Option<Cell>) -> String {
    cell.map_or("none".into(), |cell| format!("{}v{}", cell.value, cell.version))
}

fn show_list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    let shown: Vec<_> = items.iter().map(show).collect();
    if shown.is_empty() { "-".into() } else { shown.join(",") }
}

fn show_part(part: &Part) -> String {
    match part {
        Part::Put(key, value) => format!("{key}={value}"),
        Part::Delete(key) => format!("!{key}"),
        Part::Get(key) => format!("{key}?"),
    }
}

impl fmt::Display for keys::Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { key, value, lease, version } => {
                write!(f, "put {key}={value}")?;
                lease.map_or(Ok(()), |lease| write!(f, " on {lease}"))?;
                write!(f, "{}", Answer(*version))
            }
            Self::Get { key, found } => write!(f, "get {key} -> {}", show_cell(*found)),
            Self::Delete { key, count } => write!(f, "delete {key}{}", Answer(*count)),
            Self::Txn { conditions, then, otherwise, done } => {
                let value = |it: &Condition| it.value.map_or("none".into(), |value| value.to_string());
                let conditions = show_list(conditions, |it| format!("{}={}", it.key, value(it)));
                let (then, otherwise) = (show_list(then, show_part), show_list(otherwise, show_part));
                write!(f, "txn {conditions} then {then} else {otherwise}")?;
                let Some(Done { held, found }) = done else { return Ok(()) };
                write!(f, " -> {}", if *held { "yes" } else { "no" })?;
                if found.is_empty() { Ok(()) } else { write!(f, " {}", show_list(found, |it| show_cell(*it))) }
            }
            Self::End { lease } => write!(f, "end {lease}"),
        }
    }
}

impl fmt::Display for lock::Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Acquire { lease, claim, answer } => {
                write!(f, "acquire {lease}#{claim} -> ")?;
                match answer {
                    Acquired::Granted(fence) => write!(f, "granted {fence}"),
                    Acquired::Taken(fence) => write!(f, "taken {fence}"),
                    Acquired::Waiting => f.write_str("waiting"),
                }
            }
            Self::Grant { lease, claim, .. } => write!(f, "grant {lease}#{claim}"),
            Self::Release { lease, fence, done } => write!(f, "release {lease}@{fence}{}", show_yes(done)),
            Self::Cancel { lease, done } => write!(f, "cancel {lease}{}", show_yes(done)),
            Self::Transfer { lease, fence, to, answer } => {
                let answer = answer.map(|fence| fence.map_or("stale".into(), |fence| fence.to_string()));
                write!(f, "transfer {lease}@{fence} to {to}{}", Answer(answer))
            }
            Self::Verify { fence, holds } => write!(f, "verify {fence}{}", show_yes(Some(holds))),
            Self::Look { holder: None } => f.write_str("look -> free"),
            Self::Look { holder: Some((lease, fence)) } => write!(f, "look -> {lease}@{fence}"),
            Self::Renew { lease, lives } => write!(f, "renew {lease}{}", show_yes(Some(lives))),
            Self::End { lease } => write!(f, "end {lease}"),
            Self::Break => f.write_str("break"),
        }
    }
}
