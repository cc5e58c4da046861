//! Errors as an interface: what failed, why, what is unchanged, what to type next, and an exit code that scripts know.

use crate::print;
use std::process::ExitCode;
use tenure::{Error, v1};
use tenure_api::Code;

/// Somebody else holds it (sysexits' EX_TEMPFAIL).
const HELD: u8 = 75;
/// The lease was lost, and what ran under it was stopped.
const LOST: u8 = 79;
/// An entry of the log cannot be applied, however often the server is started (EX_SOFTWARE).
const STUCK: u8 = 70;
/// The API key is missing, unknown, or may not do this (EX_NOPERM).
const DENIED: u8 = 77;
/// No server answers (EX_UNAVAILABLE).
const UNREACHABLE: u8 = 69;
/// What was typed cannot be right.
const USAGE: u8 = 2;
/// A command that is there and cannot be run, as shells say it.
const CANNOT_EXECUTE: u8 = 126;
/// A command that is not there, as shells say it.
const NOT_FOUND: u8 = 127;
/// Stopped from the keyboard, as shells say it.
const INTERRUPTED: u8 = 130;
/// Everything else.
const FAILED: u8 = 1;

/// What is said of the state of things after a failure.
const UNCHANGED: &str = "nothing was changed";
const NOT_KNOWN: &str = "whether it was done is not known";

/// Every exit code and what it means, for whoever describes them.
pub(crate) const EXIT_CODES: &[(u8, &str)] = &[
    (0, "done; for verify: the handle is valid"),
    (FAILED, "the answer is no, or something failed; for verify: the handle is not valid"),
    (USAGE, "what was typed cannot be right: a flag, a name, a TTL, a handle, a lease id, an address"),
    (UNREACHABLE, "no server answers, it cannot answer now, or whether it was done is not known"),
    (
        STUCK,
        "serve or cluster recover came to an entry of the log that cannot be applied; starting it again does not help",
    ),
    (HELD, "somebody else holds it or is registered so, or it did not become free within --wait"),
    (DENIED, "the server wants an API key, does not know the one that it was shown, or does not let it do this"),
    (
        LOST,
        "the lease was lost, and the command of run, elect or once was stopped, or register is no longer listed; or what --lost-code says",
    ),
    (CANNOT_EXECUTE, "the command of run, elect, once or register cannot be executed"),
    (
        NOT_FOUND,
        "the command of run, elect, once or register was not found; else its own exit code, 128 + N for signal N",
    ),
    (INTERRUPTED, "a wait was given up with Ctrl-C"),
];

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

    /// A failure before anything was asked for, or an answer that says so: nothing was changed.
    pub(crate) fn before(what: &str, why: &str, next: &str) -> Self {
        Self::new(what, &unchanged(why), next)
    }

    pub(crate) fn usage(what: &str, why: &str, next: &str) -> Self {
        Self { code: USAGE, ..Self::before(what, why, next) }
    }

    /// What was typed cannot be read, in the words of whoever tried.
    pub(crate) fn typed(words: &str) -> Self {
        let words = words.strip_prefix("error: ").unwrap_or(words).trim_end();
        let (first, rest) = words.split_once('\n').unwrap_or((words, ""));
        let rest = rest.lines().map(|line| format!("\n{}{line}", if line.is_empty() { "" } else { "        " }));
        // A list may follow.
        let (first, colon) = first.strip_suffix(':').map_or((first, ""), |first| (first, ":"));
        Self { text: format!("{first}; nothing was changed{colon}{}", rest.collect::<String>()), code: USAGE }
    }

    /// Reports, and ends the process.
    pub(crate) fn exit(self) -> ! {
        let code = self.code;
        self.report();
        std::process::exit(code.into())
    }

    /// A claim that was not made in the time that was given for it.
    pub(crate) fn held(what: &str, why: &str) -> Self {
        Self {
            code: HELD,
            ..Self::before(what, why, "It has left the line. Try again later, or wait longer with --wait.")
        }
    }

    /// A claim that was given up from the keyboard.
    pub(crate) fn interrupted(what: &str, why: &str) -> Self {
        Self { code: INTERRUPTED, ..Self::before(what, why, "Wait again with `tenure acquire --wait`.") }
    }

    /// A command that is there and cannot be run.
    pub(crate) fn cannot_execute(what: &str, why: &str, next: &str) -> Self {
        Self { code: CANNOT_EXECUTE, ..Self::new(what, why, next) }
    }

    /// A command that is not there.
    pub(crate) fn command_not_found(what: &str, why: &str, next: &str) -> Self {
        Self { code: NOT_FOUND, ..Self::new(what, why, next) }
    }

    /// What was kept by a lease is lost.
    pub(crate) fn lost(what: &str, why: &str, next: &str) -> Self {
        Self { code: LOST, ..Self::new(what, why, next) }
    }

    /// An entry of the log stops every start.
    pub(crate) fn stuck(what: &str, why: &str, next: &str) -> Self {
        Self { code: STUCK, ..Self::before(what, why, next) }
    }

    /// A server that was there and is no longer.
    pub(crate) fn unreachable(what: &str, why: &str, next: &str) -> Self {
        Self { code: UNREACHABLE, ..Self::new(what, why, next) }
    }

    /// A server that answers something else than was asked.
    pub(crate) fn puzzled(what: &str) -> Self {
        let why = "the server answered something else; whether it was done is not known";
        Self::new(what, why, "It may be newer than this program: compare with `tenure doctor`.")
    }

    /// What a call came to, in words.
    pub(crate) fn of(what: &str, error: &Error) -> Self {
        let (next, code) = match error {
            Error::Unreachable { .. } => {
                ("Start one with `tenure serve`, or point --addr at one that runs.".into(), UNREACHABLE)
            }
            Error::Handshake { .. } => {
                ("Correct the address, or the certificate; `tenure doctor` looks again.".into(), UNREACHABLE)
            }
            Error::KeyInTheClear { .. } => {
                ("Write https:// in --addr, or reach the server by a tunnel that listens on 127.0.0.1.".into(), USAGE)
            }
            Error::Broken(_) => ("Look with `tenure ls`.".into(), UNREACHABLE),
            Error::WaitedOut => ("Try again later, or wait longer.".into(), HELD),
            Error::Lost(_) => ("Ask `tenure why` and `tenure history` what became of it.".into(), LOST),
            Error::Local(_) => (String::new(), FAILED),
            Error::Refused(failure) => refused(failure, error.code()),
        };
        let failure = match error.code() {
            Some(Code::Unknown) => Self::new(what, &error.to_string(), &next),
            _ => Self::before(what, &error.to_string(), &next),
        };
        Self { code, ..failure }
    }

    /// What failed and why, without what to do.
    pub(crate) fn first_line(&self) -> String {
        self.text.lines().next().unwrap_or_default().into()
    }

    /// The same as `report`, for whoever reads a log and not a terminal.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn log(self) -> ExitCode {
        tracing::error!("{}", self.text);
        ExitCode::from(self.code)
    }

    #[expect(clippy::print_stderr, reason = "words go to stderr")]
    pub(crate) fn report(self) -> ExitCode {
        // What was typed may be quoted in it, and must not move the terminal.
        let shown = |c: char| if c.is_control() && c != '\n' { c.escape_default().to_string() } else { c.to_string() };
        eprintln!("tenure: {}", self.text.chars().map(shown).collect::<String>());
        ExitCode::from(self.code)
    }
}

/// The same with the word that nothing was changed, unless it is said already, or nobody knows.
fn unchanged(why: &str) -> String {
    let is_said = [UNCHANGED, NOT_KNOWN].iter().any(|words| why.contains(words));
    if is_said { why.into() } else { format!("{why}; {UNCHANGED}") }
}

/// What to type next, and the exit code.
fn refused(failure: &v1::Failure, code: Option<Code>) -> (String, u8) {
    let (resource, instance) = (print::quoted(&failure.resource), print::quoted(&failure.instance));
    let next = match code {
        Some(Code::InstanceExists) => {
            let next = format!("Say another --id, a higher --epoch, or ask `tenure why {instance}`.");
            return (next, HELD);
        }
        Some(Code::NoInstance | Code::OtherLease | Code::NoCheck) => {
            "See what is registered with `tenure service ls` and `tenure service show SERVICE`.".into()
        }
        Some(Code::Taken) => {
            return (format!("Wait in line with --wait 5m, or ask `tenure why {resource}`."), HELD);
        }
        Some(Code::Unauthenticated) => {
            return (
                "Name the file that has yours: TENURE_API_KEY_FILE=FILE; `tenure cluster keygen` draws one.".into(),
                DENIED,
            );
        }
        Some(Code::Denied) => return ("Use an API key that may; `tenure cluster keygen` draws one.".into(), DENIED),
        Some(Code::OtherCluster) => {
            "Point --addr at the cluster that it was begun with, or type the command again to use this one.".into()
        }
        Some(Code::NotLeader | Code::Stopping | Code::Overloaded) => {
            return ("Try again in a moment; `tenure ping` says whether it is ready.".into(), UNREACHABLE);
        }
        Some(Code::Unknown) if !failure.message.contains(NOT_KNOWN) => {
            return (format!("Look with `tenure ls`: {NOT_KNOWN}."), UNREACHABLE);
        }
        Some(Code::Unknown) => return ("Look with `tenure ls`.".into(), UNREACHABLE),
        Some(Code::NoClass | Code::TtlOfClass) => "See the classes with `tenure class ls`.".into(),
        Some(Code::NotRenewable) => match failure.policy() {
            v1::RenewPolicy::Activity => format!("Use it, or type `tenure touch {:016x}`.", failure.lease),
            v1::RenewPolicy::Explicit => "Type `tenure renew` with its handle or its id.".into(),
            _ => "It ends by itself: take a new one with `tenure acquire`.".into(),
        },
        Some(Code::WouldDeadlock) => {
            "Release what this lease holds, and take all of it at once: `tenure acquire A B`.".into()
        }
        Some(Code::OtherCapacity) => format!("Say --slots N/{}, or leave the capacity out.", failure.capacity),
        Some(Code::TooBig) => format!("Ask for less, or type `tenure resource define {resource} --capacity N`."),
        Some(Code::OlderEpoch) => format!("Count on from there: --epoch {}.", failure.epoch.saturating_add(1)),
        Some(Code::NoKey) => "See the keys with `tenure key ls`.".into(),
        Some(Code::NoLease | Code::Lapsed | Code::Exists) => "See the leases with `tenure lease ls`.".into(),
        Some(Code::Compacted) => format!("Go on with --after {}, or look with `tenure ls`.", failure.oldest),
        Some(code) if code.http() == 400 => "Correct it and try again; `tenure help` says what can be typed.".into(),
        _ if !failure.resource.is_empty() => format!("See how it stands with `tenure show {resource}`."),
        _ => "See what is held with `tenure ls`.".into(),
    };
    let bad_input = code.is_some_and(|code| code.http() == 400);
    (next, if bad_input { USAGE } else { FAILED })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_whole(text: &str) -> bool {
        let (first, next) = text.split_once("\n        ").unwrap_or_default();
        let is_told = first.starts_with("cannot do it: ") && first.contains("the reason");
        let is_sure = first.contains(UNCHANGED) != text.contains(NOT_KNOWN);
        is_told && is_sure && (next.contains("`tenure ") || next.contains("--"))
    }

    #[test]
    fn every_code_says_what_failed_why_what_is_unchanged_and_what_to_type() {
        for code in Code::ALL {
            for resource in ["", "db"] {
                for message in ["the reason", "the reason; nothing was changed"] {
                    let message = if *code == Code::Unknown { "the reason" } else { message };
                    let failure = v1::Failure {
                        code: code.text().into(),
                        message: message.into(),
                        resource: resource.into(),
                        ..v1::Failure::default()
                    };
                    let told = Failure::of("cannot do it", &failure.into());
                    assert!(is_whole(&told.text), "{code:?}: {}", told.text);
                    assert!(told.text.matches(UNCHANGED).count() < 2, "{}", told.text);
                    assert!(*code != Code::Unknown || told.text.contains(NOT_KNOWN), "{}", told.text);
                }
            }
        }
    }

    #[test]
    fn servers_that_do_not_answer_are_told_the_same_way() {
        let away = Error::Unreachable { addr: "here".into(), why: "the reason".into() };
        let handshake = Error::Handshake { addr: "here".into(), why: "the reason".into() };
        let handshake = Failure::of("cannot do it", &handshake);
        assert!(is_whole(&handshake.text) && handshake.text.contains(UNCHANGED), "{}", handshake.text);
        let broken = Error::Broken("the reason".into());
        let (away, broken) = (Failure::of("cannot do it", &away), Failure::of("cannot do it", &broken));
        assert!(is_whole(&away.text) && away.text.contains(UNCHANGED), "{}", away.text);
        assert!(is_whole(&broken.text) && broken.text.contains(NOT_KNOWN), "{}", broken.text);
        assert!(Failure::puzzled("cannot do it").text.contains(NOT_KNOWN));
    }
}
