//! `tenure doctor`: looks at the machine, the data directory and the server, and says what to do. It changes nothing.

mod certificates;
mod data;
mod machine;
mod server;

use super::Caller;
use crate::args::Doctor;
use crate::config;
use crate::failure::Failure;
use crate::page::{Cell, List, Row};
use crate::print;
use serde::Serialize;
use std::process::ExitCode;

/// How something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do about it; nothing, if it is as it should be.
    #[serde(skip_serializing_if = "str::is_empty")]
    todo: &'static str,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), todo: "" }
    }

    fn warn(check: &'static str, found: impl Into<String>, todo: &'static str) -> Self {
        Self { check, verdict: Verdict::Warn, found: found.into(), todo }
    }

    fn bad(check: &'static str, found: impl Into<String>, todo: &'static str) -> Self {
        Self { check, verdict: Verdict::Bad, found: found.into(), todo }
    }
}

impl Row for Finding {
    const HEADINGS: &'static [&'static str] = &["", "CHECK", "FOUND"];
    const EMPTY: &'static str = "nothing was looked at";

    fn cells(&self) -> Vec<Cell> {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Bad => "bad",
        };
        let found = if self.todo.is_empty() { self.found.clone() } else { format!("{}. {}", self.found, self.todo) };
        vec![verdict.into(), self.check.into(), found.into()]
    }

    fn name(&self) -> String {
        self.check.into()
    }
}

/// Exit 0 if nothing is bad.
pub(crate) async fn doctor(caller: &Caller, args: Doctor) -> Result<ExitCode, Failure> {
    let directory = config::directory(args.data_dir, args.config.as_deref())?.ok_or_else(|| {
        let why = "neither $XDG_STATE_HOME nor $HOME is set";
        Failure::usage("cannot look at the data", why, "Say where it is with --data-dir DIR.")
    })?;
    let mut findings = vec![machine::clock_source(), machine::open_files()];
    findings.extend(data::look(&directory));
    findings.extend(certificates::look(&config::certificates(args.config.as_deref())?));
    findings.extend(server::look(&caller.addr).await);
    let is_bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    print::draw(caller.output, &List(findings));
    Ok(if is_bad { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
