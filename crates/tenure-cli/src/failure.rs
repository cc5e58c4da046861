//! Errors as an interface: what failed, why, what is unchanged, what to type next, and an exit code that scripts know.

use std::process::ExitCode;
use tenure::{Error, v1};
use tenure_api::Code;

/// Somebody else holds it (sysexits' EX_TEMPFAIL).
const HELD: u8 = 75;
/// No server answers (EX_UNAVAILABLE).
const UNREACHABLE: u8 = 69;
/// What was typed cannot be right.
const USAGE: u8 = 2;
/// Stopped from the keyboard, as shells say it.
const INTERRUPTED: u8 = 130;
/// Everything else.
const FAILED: u8 = 1;

/// What a person is told, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    pub(crate) fn new(what: &str, why: &str, next: &str) -> Self {
        let next = if next.is_empty() { String::new() } else { format!("\n        {next}") };
        Self { text: format!("{what}: {why}{next}"), code: FAILED }
    }

    pub(crate) fn usage(what: &str, why: &str, next: &str) -> Self {
        Self { code: USAGE, ..Self::new(what, why, next) }
    }

    /// A claim that was not made in the time that was given for it.
    pub(crate) fn held(what: &str, why: &str) -> Self {
        Self {
            code: HELD,
            ..Self::new(what, why, "It has left the line. Try again later, or wait longer with --wait.")
        }
    }

    /// A claim that was given up from the keyboard.
    pub(crate) fn interrupted(what: &str, why: &str) -> Self {
        Self { code: INTERRUPTED, ..Self::new(what, why, "It has left the line.") }
    }

    /// A server that was there and is no longer.
    pub(crate) fn unreachable(what: &str, why: &str, next: &str) -> Self {
        Self { code: UNREACHABLE, ..Self::new(what, why, next) }
    }

    /// A server that answers something else than was asked.
    pub(crate) fn puzzled(what: &str) -> Self {
        Self::new(what, "the server answered something else", "Is it a newer one than this program?")
    }

    /// What a call came to, in words.
    pub(crate) fn of(what: &str, error: &Error) -> Self {
        let (next, code) = match error {
            Error::Unreachable { .. } => (
                "Nothing was changed. Start one with `tenure serve`, or point --addr at one that runs.".into(),
                UNREACHABLE,
            ),
            Error::Broken(_) => ("Look with `tenure ls`.".into(), UNREACHABLE),
            Error::Refused(failure) => refused(failure, error.code()),
        };
        Self { code, ..Self::new(what, &error.to_string(), &next) }
    }

    /// What failed and why, without what to do.
    pub(crate) fn first_line(&self) -> String {
        self.text.lines().next().unwrap_or_default().into()
    }

    #[expect(clippy::print_stderr, reason = "words go to stderr")]
    pub(crate) fn report(self) -> ExitCode {
        eprintln!("tenure: {}", self.text);
        ExitCode::from(self.code)
    }
}

/// What to type next, and the exit code.
fn refused(failure: &v1::Failure, code: Option<Code>) -> (String, u8) {
    let resource = &failure.resource;
    let next = match code {
        Some(Code::Taken) => {
            return (format!("Wait in line with --wait 5m, or ask `tenure why {resource}`."), HELD);
        }
        Some(Code::NotLeader | Code::Stopping | Code::Overloaded) => {
            return ("Try again in a moment.".into(), UNREACHABLE);
        }
        Some(Code::Unknown) => return ("Look with `tenure ls`.".into(), UNREACHABLE),
        Some(Code::NoClass | Code::TtlOfClass) => "See the classes with `tenure class ls`.".into(),
        Some(Code::NotRenewable) => match failure.policy() {
            v1::RenewPolicy::Activity => format!("Use it, or type `tenure touch {:016x}`.", failure.lease),
            v1::RenewPolicy::Explicit => "Type `tenure renew` with its handle or its id.".into(),
            _ => "It ends by itself. Acquire anew.".into(),
        },
        Some(Code::WouldDeadlock) => "Release what this lease holds, and acquire all of it at once.".into(),
        Some(Code::OtherCapacity) => format!("Say --slots N/{}, or leave the capacity out.", failure.capacity),
        Some(Code::TooBig) => format!("Ask for less, or type `tenure resource define {resource} --capacity N`."),
        Some(Code::OlderEpoch) => format!("Count on from there: --epoch {}.", failure.epoch.saturating_add(1)),
        Some(Code::NoKey) => "See the keys with `tenure key ls`.".into(),
        Some(Code::NoLease | Code::Lapsed | Code::Exists) => "See the leases with `tenure lease ls`.".into(),
        Some(Code::Compacted) => format!("Go on with --after {}, or look with `tenure ls`.", failure.oldest),
        Some(code) if code.http() == 400 => "Correct it and try again.".into(),
        _ if !resource.is_empty() => format!("See how it stands with `tenure show {resource}`."),
        _ => "See what is held with `tenure ls`.".into(),
    };
    let bad_input = code.is_some_and(|code| code.http() == 400);
    (next, if bad_input { USAGE } else { FAILED })
}
