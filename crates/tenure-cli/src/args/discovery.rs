//! What can be typed about agents that come and go.

use super::value::{Label, duration, label};
use crate::commands::CheckWanted;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tenure::v1;

#[derive(Debug, Args)]
pub(crate) struct Register {
    /// The service, for example agents/planner.
    pub(crate) service: String,
    /// Where it can be reached, as http://10.0.0.7:8080; may be given several times, and the first is the one that most
    /// use.
    #[arg(long = "endpoint", value_name = "URL", required = true)]
    pub(crate) endpoints: Vec<String>,
    /// What it is called within the service; HOST-PID and something drawn unless said.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Something that it can do; may be given several times.
    #[arg(long = "cap", value_name = "WORD")]
    pub(crate) capabilities: Vec<String>,
    /// Something else to find it by; may be given several times.
    #[arg(long = "label", value_parser = label, value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<Label>,
    /// Where it is. Those in one zone are likely to fall silent together.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) zone: String,
    /// How much it can take, beside the others; 0 takes nothing.
    #[arg(long, default_value_t = 1)]
    pub(crate) weight: u32,
    /// Which version it is.
    #[arg(long, value_name = "WORD", default_value = "", hide_default_value = true)]
    pub(crate) version_tag: String,
    /// How it is checked, and how often: http:/healthz@5s, tcp@5s or grpc@5s by the server, cmd:'COMMAND'@5s here; may be
    /// given several times.
    #[arg(long = "check", value_parser = crate::commands::check_wanted, value_name = "CHECK")]
    pub(crate) checks: Vec<CheckWanted>,
    /// What becomes of it when a check is critical: mark (no new work), observe (nothing), or revoke-after=DURATION (its
    /// lease ends).
    #[arg(long, value_parser = on_critical, default_value = "mark")]
    pub(crate) on_critical: OnCritical,
    /// How long it stays listed after its last sign of life.
    #[arg(long, value_parser = duration, default_value = "15s", value_name = "DURATION")]
    pub(crate) ttl: Duration,
    /// Who it is listed for; user@host:pid unless said.
    #[arg(long)]
    pub(crate) holder: Option<String>,
    /// How often it has started: it takes the place of one with the same id and a lower epoch.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epoch: Option<u64>,
    /// How long it drains after a signal, before it is taken out, or before a command is sent that signal: 5s, with a command
    /// 0s, unless said.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) drain_for: Option<Duration>,
    /// A command, listed for as long as it runs. Without one it is listed until a signal comes.
    #[arg(last = true)]
    pub(crate) command: Vec<OsString>,
}

/// What becomes of an instance that is critical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCritical {
    Mark,
    Observe,
    RevokeAfter(Duration),
}

fn on_critical(text: &str) -> Result<OnCritical, String> {
    match (text, text.strip_prefix("revoke-after=")) {
        ("mark", _) => Ok(OnCritical::Mark),
        ("observe", _) => Ok(OnCritical::Observe),
        (_, Some(after)) => duration(after).map(OnCritical::RevokeAfter),
        _ => Err(format!("{text:?} is none of mark, observe and revoke-after=30s")),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Discover {
    /// The service, for example agents/planner; with a / at the end all services below it.
    pub(crate) service: String,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Print or write it again on every change, until a signal comes.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Write to this file, all or nothing, instead of printing.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Run this in a shell after the file was written, for example 'nginx -s reload'.
    #[arg(long, value_name = "COMMAND", requires = "file")]
    pub(crate) exec: Option<String>,
    /// Also write the file when nobody is left; else it keeps those that were there last.
    #[arg(long, requires = "file")]
    pub(crate) empty_ok: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Only with these capabilities, for example 'gpu & (cuda12 | rocm) & !preview'; a comma is an &.
    #[arg(long = "cap", value_name = "EXPRESSION", default_value = "", hide_default_value = true)]
    pub(crate) capabilities: String,
    /// Only with this label; may be given several times.
    #[arg(long = "label", value_parser = label, value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<Label>,
    /// Only in this zone.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) zone: String,
    /// Also those that new work is not for: critical, unknown, draining.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Deregister {
    /// The instance, as `discover` prints it.
    #[arg(value_name = "SERVICE/ID")]
    pub(crate) instance: String,
    /// Somebody else than the instance decides so: then it was revoked, and `tenure register` does not bring it back. An agent
    /// of another kind may register again; `tenure service drain` keeps work from it.
    #[arg(long)]
    pub(crate) force: bool,
    /// Why, for the history.
    #[arg(long, requires = "force", default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Service {
    /// List the services, with how many of their instances are how well.
    Ls {
        /// Only names that start so.
        prefix: Option<String>,
    },
    /// Show all instances of a service, also those that new work is not for.
    Show {
        /// The service.
        service: String,
    },
    /// Keep new work from an instance.
    Drain(Drain),
    /// Let an instance have new work again.
    Undrain(Drain),
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// The instance, as `discover` prints it.
    #[arg(value_name = "SERVICE/ID")]
    pub(crate) instance: String,
    /// Why, for whoever asks.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub(crate) reason: String,
}

impl OnCritical {
    /// In the words of the treaty.
    pub(crate) fn said(self) -> (v1::OnCritical, i64) {
        match self {
            Self::Mark => (v1::OnCritical::Mark, 0),
            Self::Observe => (v1::OnCritical::Observe, 0),
            Self::RevokeAfter(after) => (v1::OnCritical::Revoke, i64::try_from(after.as_millis()).unwrap_or(i64::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_critical_one_comes_to_is_read() {
        assert_eq!(on_critical("mark"), Ok(OnCritical::Mark));
        assert_eq!(on_critical("revoke-after=30s"), Ok(OnCritical::RevokeAfter(Duration::from_secs(30))));
        for bad in ["", "revoke", "revoke-after=", "revoke-after=soon", "Mark"] {
            assert!(on_critical(bad).is_err(), "{bad}");
        }
    }
}
