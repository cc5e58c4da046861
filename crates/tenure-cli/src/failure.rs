//! Errors as an interface: what failed, why, what is unchanged, what to type next, and an exit code that scripts know.

use std::process::ExitCode;
use tenure::Error;
use tenure_api::Code;

/// Somebody else holds it (sysexits' EX_TEMPFAIL).
const HELD: u8 = 75;
/// No server answers (EX_UNAVAILABLE).
const UNREACHABLE: u8 = 69;
/// What was typed cannot be right.
const USAGE: u8 = 2;
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
        Self { code: HELD, ..Self::new(what, why, "Nothing was changed. Try again later, or wait longer with --wait.") }
    }

    /// What a call came to, in words.
    pub(crate) fn of(what: &str, error: &Error) -> Self {
        let (next, code) = match error {
            Error::Unreachable { .. } => {
                ("Nothing was changed. Start one with `tenure serve`, or point --addr at one that runs.", UNREACHABLE)
            }
            Error::Broken(_) => ("Look with `tenure ls`.", UNREACHABLE),
            Error::Refused(_) => match error.code() {
                Some(Code::Taken) => ("Wait in line with --wait 5m, or see who holds it with `tenure ls`.", HELD),
                Some(Code::NotLeader | Code::Stopping | Code::Overloaded) => ("Try again in a moment.", UNREACHABLE),
                Some(Code::Unknown) => ("Look with `tenure ls`.", UNREACHABLE),
                Some(code) if code.http() == 400 => ("Correct it and try again.", USAGE),
                _ => ("See what is held with `tenure ls`.", FAILED),
            },
        };
        Self { code, ..Self::new(what, &error.to_string(), next) }
    }

    #[expect(clippy::print_stderr, reason = "words go to stderr")]
    pub(crate) fn report(self) -> ExitCode {
        eprintln!("tenure: {}", self.text);
        ExitCode::from(self.code)
    }
}
