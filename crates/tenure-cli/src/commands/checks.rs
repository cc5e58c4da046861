//! The checks of `tenure register`: how they are typed, and those that run here.

use crate::args::duration;
use crate::print;
use crate::wrap::Checker;
use std::convert::Infallible;
use std::time::Duration;
use tenure::registry::{Registration, pushed};
use tenure::v1::{self, CheckKind, Health};

/// How often a check is made unless it says so.
const INTERVAL: Duration = Duration::from_secs(10);

/// As for the checks of the server.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// So many failures in a row are degraded and critical, so many successes in a row passing, as for the checks of the server.
const DEGRADED_AFTER: u32 = 1;
const CRITICAL_AFTER: u32 = 3;
const PASSING_AFTER: u32 = 2;

/// What was found here and could not be told is told again after so long.
const RETRY: Duration = Duration::from_secs(1);

/// A check as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckWanted {
    kind: Kind,
    interval: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Tcp,
    Http {
        path: String,
    },
    Grpc {
        service: String,
    },
    /// Runs here, never on the server.
    Command(String),
}

impl CheckWanted {
    pub(super) fn is_of_the_server(&self) -> bool {
        !matches!(self.kind, Kind::Command(_))
    }
}

/// Reads a check: `tcp@5s`, `http:/healthz@5s`, `grpc@5s`, `grpc:SERVICE@5s`, `cmd:'COMMAND'@5s`.
pub(crate) fn check_wanted(text: &str) -> Result<CheckWanted, String> {
    let help = || format!("{text:?} is not a check: write tcp@5s, http:/healthz@5s, grpc@5s or cmd:'COMMAND'@5s");
    let timed = text.rsplit_once('@').and_then(|(what, every)| Some((what, duration(every).ok()?)));
    // A command may have an @ of its own; nothing else may.
    let (what, interval) = match timed {
        None if text.contains('@') && !text.starts_with("cmd:") => return Err(help()),
        timed => timed.unwrap_or((text, INTERVAL)),
    };
    let kind = match what.split_once(':').unwrap_or((what, "")) {
        ("tcp", "") if !what.contains(':') => Kind::Tcp,
        ("http", path) if path.starts_with('/') => Kind::Http { path: path.into() },
        ("http", "") if !what.contains(':') => Kind::Http { path: "/".into() },
        ("grpc", service) if what == "grpc" || !service.is_empty() => Kind::Grpc { service: service.into() },
        ("cmd", command) if !command.trim().is_empty() => Kind::Command(command.into()),
        _ => return Err(help()),
    };
    if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return Err(format!("{text:?} is made too often or too seldom: from 1s to 1h apart"));
    }
    Ok(CheckWanted { kind, interval })
}

/// A check that runs here.
pub(super) struct Local {
    name: String,
    command: String,
    interval: Duration,
}

/// All checks as the server is told of them, each with a name of its own, and those that run here.
pub(super) fn all(wanted: &[CheckWanted]) -> (Vec<v1::Check>, Vec<Local>) {
    let (mut checks, mut locals): (Vec<v1::Check>, Vec<Local>) = (Vec::new(), Vec::new());
    for check in wanted {
        let (word, kind) = match &check.kind {
            Kind::Tcp => ("tcp", CheckKind::Tcp),
            Kind::Http { .. } => ("http", CheckKind::Http),
            Kind::Grpc { .. } => ("grpc", CheckKind::Grpc),
            Kind::Command(_) => ("cmd", CheckKind::Pushed),
        };
        let count = 1 + checks.iter().filter(|other| other.name.split('-').next() == Some(word)).count();
        let name = if count == 1 { word.to_owned() } else { format!("{word}-{count}") };
        let interval_ms = Some(super::millis(check.interval));
        let probed = v1::Check { name: name.clone(), kind: kind.into(), interval_ms, ..v1::Check::default() };
        checks.push(match &check.kind {
            Kind::Tcp => probed,
            Kind::Http { path } => v1::Check { path: path.clone(), ..probed },
            Kind::Grpc { service } => v1::Check { grpc_service: service.clone(), ..probed },
            Kind::Command(command) => {
                locals.push(Local { name: name.clone(), command: command.clone(), interval: check.interval });
                pushed(name)
            }
        });
    }
    (checks, locals)
}

/// What the runs of a check come to. The first one decides at once, so that nobody waits to be listed for longer than it takes.
#[derive(Debug, Default)]
struct Tally {
    health: Option<Health>,
    failures: u32,
    successes: u32,
}

impl Tally {
    fn add(&mut self, is_well: bool) -> Health {
        match is_well {
            true => (self.successes, self.failures) = (self.successes.saturating_add(1), 0),
            false => (self.successes, self.failures) = (0, self.failures.saturating_add(1)),
        }
        let health = match self.health {
            None if is_well => Health::Passing,
            None => Health::Critical,
            Some(_) if self.successes >= PASSING_AFTER => Health::Passing,
            Some(_) if self.failures >= CRITICAL_AFTER => Health::Critical,
            Some(Health::Passing) if self.failures >= DEGRADED_AFTER => Health::Degraded,
            Some(health) => health,
        };
        *self.health.insert(health)
    }
}

/// Runs a check here for as long as this is polled, and tells what it finds whenever that changes.
pub(super) async fn run(listed: &Registration, check: &Local) -> Infallible {
    let (mut tally, mut told) = (Tally::default(), None);
    loop {
        let mut checker = match Checker::start(&check.command, check.interval) {
            Ok(checker) => checker,
            Err(error) => {
                print::say(&format!("cannot start the check {}: {error}; it is tried again", check.name));
                tokio::time::sleep(check.interval).await;
                continue;
            }
        };
        while let Some(found) = checker.next().await {
            let health = tally.add(found.is_well);
            if told != Some(health) {
                tell(listed, check, health, &found.note).await;
                told = Some(health);
            }
        }
        tokio::time::sleep(check.interval).await;
    }
}

/// Tells what was found until it is heard, or refused for good. A status of a life that is over is told again by the next.
async fn tell(listed: &Registration, check: &Local, health: Health, note: &str) {
    let word = super::words::health(health);
    print::say(&format!("the check {} is {word}{}{note}", check.name, if note.is_empty() { "" } else { ": " }));
    while let Err(error) = listed.status(check.name.clone(), health, note).await {
        if !error.is_for_now() {
            return print::say(&format!("the server did not take what the check {} found: {error}", check.name));
        }
        tokio::time::sleep(RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_read_as_they_are_typed() {
        let read = |text: &str| check_wanted(text).unwrap();
        let seconds = Duration::from_secs;
        assert_eq!(read("tcp@5s"), CheckWanted { kind: Kind::Tcp, interval: seconds(5) });
        assert_eq!(read("tcp"), CheckWanted { kind: Kind::Tcp, interval: INTERVAL });
        let http = Kind::Http { path: "/a:b".into() };
        assert_eq!(read("http:/a:b@1m"), CheckWanted { kind: http, interval: seconds(60) });
        assert_eq!(read("grpc:my.Service@2s").kind, Kind::Grpc { service: "my.Service".into() });
        assert_eq!(
            read("cmd:mail a@b@5s"),
            CheckWanted { kind: Kind::Command("mail a@b".into()), interval: seconds(5) }
        );
        assert_eq!(read("cmd:mail a@b.c").kind, Kind::Command("mail a@b.c".into()));
        for bad in [
            "",
            "@5s",
            "tcp:80@5s",
            "http:healthz@5s",
            "icmp@5s",
            "cmd:@5s",
            "tcp@soon",
            "tcp@0s",
            "tcp@1d",
            "grpc:@5s",
        ] {
            assert!(check_wanted(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_check_has_a_name_of_its_own_and_commands_never_reach_the_server() {
        let wanted = ["cmd:a@1s", "tcp@1s", "cmd:b@2s"].map(|text| check_wanted(text).unwrap());
        let (checks, locals) = all(&wanted);
        assert_eq!(checks.iter().map(|check| check.name.as_str()).collect::<Vec<_>>(), ["cmd", "tcp", "cmd-2"]);
        assert_eq!(checks[0], pushed("cmd"));
        assert_eq!((locals.len(), locals[1].name.as_str(), locals[1].command.as_str()), (2, "cmd-2", "b"));
    }

    #[test]
    fn the_first_run_decides_and_then_it_takes_some() {
        let mut tally = Tally::default();
        let found = [true, false, false, false, true, false, true, true, false, true, true];
        let told: Vec<Health> = found.into_iter().map(|is_well| tally.add(is_well)).collect();
        let (passing, degraded, critical) = (Health::Passing, Health::Degraded, Health::Critical);
        let expected =
            [passing, degraded, degraded, critical, critical, critical, critical, passing, degraded, degraded, passing];
        assert_eq!(told, expected);
        assert_eq!(Tally::default().add(false), Health::Critical, "nobody is sent to one that never worked");
    }
}
