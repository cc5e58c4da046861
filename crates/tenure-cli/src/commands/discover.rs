//! `tenure discover`: where the instances of a service are, printed, or kept in a file for another program.

use super::instances::Instance;
use super::{Caller, feed, stop_signal};
use crate::args::{Discover, Form, Output};
use crate::beside::{Beside, PRIVATE, PUBLIC};
use crate::failure::Failure;
use crate::page::{List, Page};
use crate::print::{self, Draw};
use crate::screen::Screen;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use tenure::clock::Clock;
use tenure::registry::{Discovery, Found};
use tenure::{Client, registry};

/// Of one that died it is heard a little after its time is over; if nothing is for so long, there is no server.
const ALONE_AFTER: Duration = Duration::from_secs(5);

/// Changes within so long are taken together.
const TOGETHER: Duration = Duration::from_millis(100);

pub(crate) async fn discover(caller: &Caller, args: Discover, form: Form) -> Result<ExitCode, Failure> {
    let what = format!("cannot discover {}", args.service);
    let client = caller.connect(&what).await?;
    let discovery = asked(&client, &args);
    let services = feed::named(&args.service);
    let clock = Clock::system();
    let mut keeper = Keeper { args, form, output: caller.output, clock, services, last: None, is_alone: false };
    if !keeper.args.watch {
        let found = discovery.list().await.map_err(|error| Failure::of(&what, &error))?;
        keeper.tell(&found).await?;
        if found.is_empty() && !keeper.args.filter.all {
            hint(&client, &keeper.args.service).await;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let stopped =
        stop_signal().map_err(|error| Failure::before(&what, &error.to_string(), "Try it without --watch."))?;
    tokio::pin!(stopped);
    let view = tokio::select! {
        view = discovery.view() => view.map_err(|error| Failure::of(&what, &error))?,
        () = &mut stopped => return Ok(ExitCode::SUCCESS),
    };
    tokio::select! {
        never = keeper.keep(view) => match never {},
        () = stopped => Ok(ExitCode::SUCCESS),
    }
}

/// Says where those are that were not found, if there are some.
async fn hint(client: &Client, service: &str) {
    let (there, look) = (named(client, service).all().list().await, if service.ends_with('/') { "ls" } else { "show" });
    if let Ok(there) = there
        && !there.is_empty()
    {
        let service = print::quoted(service);
        let there = print::count(there.len() as u64, "instance is", "instances are");
        print::say(&format!(
            "{there} registered, but not for new work or not as asked for: tenure service {look} {service}"
        ));
    }
}

/// Of one service, or of all whose names start so.
fn named(client: &Client, service: &str) -> Discovery {
    if service.ends_with('/') { client.discover_under(service) } else { client.discover(service) }
}

fn asked(client: &Client, args: &Discover) -> Discovery {
    let discovery = named(client, &args.service);
    let discovery = discovery.capabilities(&args.filter.capabilities).zone(&args.filter.zone);
    let discovery = args.filter.labels.iter().fold(discovery, |it, label| it.label(&label.key, &label.value));
    if args.filter.all { discovery.all() } else { discovery }
}

struct Keeper {
    args: Discover,
    form: Form,
    output: Output,
    clock: Clock,
    /// The services that are told, also if nobody is there: the one that was asked for, or those that were seen.
    services: BTreeSet<String>,
    /// What was written last.
    last: Option<String>,
    /// It was said that no server is heard.
    is_alone: bool,
}

impl Keeper {
    /// Tells every change. What fails is said, and tried again at the next change.
    async fn keep(&mut self, mut view: registry::View) -> std::convert::Infallible {
        loop {
            // While no server is heard nobody knows who is there: a file keeps them all, rather than the one that was heard
            // of last, who would get everything.
            let found = if self.args.file.is_some() { view.told() } else { view.instances() };
            let is_over = view.instances().len() < found.len();
            if !is_over && std::mem::take(&mut self.is_alone) {
                print::say("a server is heard again");
            }
            if let Err(failure) = self.tell(&found).await {
                print::say(&failure.first_line());
            }
            tokio::select! {
                () = view.changed() => {}
                () = tokio::time::sleep(ALONE_AFTER), if is_over && !self.is_alone => self.say_alone(found.len()),
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// Says once that no server is heard.
    fn say_alone(&mut self, told: usize) {
        self.is_alone = true;
        let kept = print::count(told as u64, "instance that was there last", "instances that were there last");
        print::say(&format!("no server is heard: the file keeps the {kept}"));
    }

    async fn tell(&mut self, found: &[Found]) -> Result<(), Failure> {
        let now = self.clock.now();
        let valid_for_ms = |found: &Found| u64::try_from(found.until.since(now).as_millis()).unwrap_or(u64::MAX);
        let rows: Vec<Instance> =
            found.iter().map(|found| Instance::new(&found.instance, valid_for_ms(found))).collect();
        let is_empty = rows.is_empty();
        self.services.extend(rows.iter().map(|row| row.service.clone()));
        let Some(file) = self.args.file.clone() else {
            self.print(rows);
            return Ok(());
        };
        if is_empty && !self.args.empty_ok {
            let kept = if file.exists() { "keeps those that were there last" } else { "is not written" };
            print::say(&format!("nobody is there: {} {kept}; --empty-ok writes it", file.display()));
            return Ok(());
        }
        let text = self.text(rows);
        if self.last.as_ref() == Some(&text) {
            return Ok(());
        }
        write(&file, &text).map_err(|error| cannot_write(&file, &error))?;
        self.last = Some(text);
        match self.args.exec.clone() {
            Some(command) => self.execute(command, file).await,
            None => Ok(()),
        }
    }

    fn print(&self, rows: Vec<Instance>) {
        match self.form.output() {
            Some(_) => print::draw(self.output, &List(rows)),
            None => print::text(&feed::text(self.form, &self.services, &rows)),
        }
    }

    fn text(&self, rows: Vec<Instance>) -> String {
        let ended = |lines: Vec<String>| lines.into_iter().map(|line| line + "\n").collect();
        match self.form {
            Form::Json => ended(vec![print::json(&List(rows))]),
            Form::Jsonl => ended(List(rows).documents()),
            Form::Name => ended(List(rows).names()),
            Form::Table => {
                let mut page = Page::new(Screen::PLAIN);
                List(rows).draw(&mut page);
                page.all()
            }
            form => feed::text(form, &self.services, &rows),
        }
    }

    /// Runs what is to be run after the file was written. If it fails, the next change writes and runs it again.
    async fn execute(&mut self, command: String, file: PathBuf) -> Result<(), Failure> {
        let what = format!("cannot run {command}");
        let next = "The file is written. Correct the command; with --watch it is run again at the next change.";
        let run = move || {
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(command).env("TENURE_FILE", file).stdin(Stdio::null()).status()
        };
        let status = tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let why = match status {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        self.last = None;
        Err(Failure::new(&what, &why, next))
    }
}

fn cannot_write(file: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot write {}", file.display());
    Failure::before(&what, &error.to_string(), "Make its directory, or say another file with -f.")
}

/// All or nothing, whenever the machine stops; with the permissions that it has.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let old = std::fs::metadata(path).ok();
    let mut new = Beside::create(path, if old.is_some() { PRIVATE } else { PUBLIC })?;
    if let Some(old) = old {
        new.file().set_permissions(old.permissions())?;
    }
    new.file().write_all(text.as_bytes())?;
    new.rename(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("upstreams.conf");
        write(&path, "one\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let before = File::open(&path).unwrap();
        write(&path, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(io::read_to_string(before).unwrap(), "one\n", "whoever reads the old one reads all of it");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
        assert!(write(&directory.path().join("none/file"), "x").is_err());
    }

    #[test]
    fn planted_symlink_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, victim) = (directory.path().join("hosts"), directory.path().join("victim"));
        std::fs::write(&victim, "kept\n").unwrap();
        std::os::unix::fs::symlink(&victim, directory.path().join(".hosts.tenure-new")).unwrap();
        write(&path, "one\n").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
    }
}
