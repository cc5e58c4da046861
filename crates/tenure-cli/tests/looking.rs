//! Looking at things: bars and colours on a terminal, and looking again when something changes.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::terminal::Terminal;
use crate::support::{PATIENCE, Server, binary, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

/// The command line in a terminal, with a locale and colours.
fn in_a_terminal(server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).env("TENURE_ADDR", &server.addr).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    command.env_remove("NO_COLOR");
    command
}

#[test]
fn a_terminal_shows_bars_and_colours_and_a_pipe_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.tenure(&["acquire", "db", "--ttl", "1h", "--holder", "ann"]);
    for args in [["ls", ""], ["lease", "ls"], ["show", "db"], ["why", "db"]] {
        let args: Vec<&str> = args.into_iter().filter(|arg| !arg.is_empty()).collect();
        let piped = text(&server.tenure(&args).stdout);
        assert!(!piped.contains('\x1b') && !piped.contains('█'), "{piped}");
        let (shown, _) = Terminal::start(&mut in_a_terminal(&server, &args), 120, 24).ends();
        assert!(shown.contains("\x1b[32m██████████"), "{args:?}: {shown:?}");
        let (plain, _) = Terminal::start(in_a_terminal(&server, &args).env("NO_COLOR", "1"), 120, 24).ends();
        assert!(!plain.contains('\x1b') && plain.contains("██████████  "), "{args:?}: {plain:?}");
        let (ascii, _) = Terminal::start(in_a_terminal(&server, &args).env("LC_ALL", "C"), 120, 24).ends();
        assert!(ascii.contains("##########") && ascii.is_ascii(), "{args:?}: {ascii:?}");
    }
}

#[test]
fn suggested_commands_are_quoted_for_a_shell() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let name = "jobs/it's; echo pwned #";
    let quoted = r"'jobs/it'\''s; echo pwned #";
    server.tenure(&["acquire", name, "--ttl", "1h", "--lock-delay", "1h"]);
    let why = text(&server.tenure(&["why", name]).stdout);
    let typed = why.split_once("what to type next\n").unwrap().1;
    for line in [
        format!("  tenure acquire {quoted}' --wait 5m"),
        format!("  tenure break {quoted}@1' --delay 30s --reason TEXT"),
        format!("  tenure history {quoted}'"),
    ] {
        assert!(typed.lines().any(|typed| typed == line), "{line}: {typed}");
    }
    let taken = text(&server.tenure(&["acquire", name]).stderr);
    assert!(taken.contains(&format!("`tenure why {quoted}'`")), "{taken}");
    let broken = text(&server.tenure(&["break", name, "--reason", "x"]).stderr);
    assert!(broken.contains(&format!("tenure break {quoted}' --now")), "{broken}");
    // A shell reads the line as the one name that was meant.
    let line = broken.split_once("with: tenure ").unwrap().1.trim_end();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!(r#"printf '%s\n' {line}"#)]);
    assert_eq!(text(&shell.output().unwrap().stdout).lines().nth(1), Some(name), "{line}");
    let plain = text(&server.tenure(&["why", "db/a-b_c.d:e@f%g+h=i,j"]).stdout);
    assert!(plain.contains("tenure acquire db/a-b_c.d:e@f%g+h=i,j\n"), "{plain}");
}

/// A command that goes on, line by line.
struct Going {
    child: Child,
    lines: Receiver<String>,
}

impl Going {
    fn start(server: &Server, args: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.args(args).env("TENURE_ADDR", &server.addr).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = sync_channel(1024);
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    fn next(&self) -> Value {
        serde_json::from_str(&self.lines.recv_timeout(PATIENCE).expect("a line comes")).unwrap()
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn looking_again_prints_one_document_a_change() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let listed = Going::start(&server, &["ls", "--watch", "-o", "jsonl"]);
    let leases = Going::start(&server, &["lease", "ls", "--watch", "-o", "jsonl"]);
    let shown = Going::start(&server, &["show", "db", "--watch", "-o", "jsonl"]);
    let why = Going::start(&server, &["why", "db", "--watch", "-o", "json"]);
    assert_eq!(listed.next()["items"], Value::Array(Vec::new()));
    assert_eq!(leases.next()["items"], Value::Array(Vec::new()));
    assert_eq!((&shown.next()["state"], &why.next()["state"]), (&"free".into(), &"free".into()));
    server.tenure(&["acquire", "db", "--ttl", "1h", "--holder", "ann"]);
    assert_eq!(listed.next()["items"][0]["fence"], 1);
    assert_eq!(leases.next()["items"][0]["holds"][0], "db@1");
    assert_eq!((&shown.next()["holders"][0]["fence"], &why.next()["state"]), (&1.into(), &"held".into()));
    // Renewals change no more than times, so the next document is the next change.
    server.tenure(&["renew", "db@1"]);
    server.tenure(&["acquire", "elsewhere", "--ttl", "1h", "--holder", "ann"]);
    assert_eq!(listed.next()["items"][1]["name"], "elsewhere");
    server.tenure(&["release", "db@1"]);
    assert_eq!((&shown.next()["state"], &why.next()["state"]), (&"free".into(), &"free".into()));
}

#[test]
fn a_terminal_is_drawn_over_and_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.tenure(&["acquire", "db", "--ttl", "1h", "--holder", "ann"]);
    let mut watched = Terminal::start(&mut in_a_terminal(&server, &["ls", "--watch"]), 60, 5);
    let first = watched.until("the table", |seen| seen.contains("ann"));
    assert!(first.starts_with("\x1b[2J\x1b[H"), "{first:?}");
    watched.forget();
    server.tenure(&["acquire", "dc", "--ttl", "1h", "--holder", "bob"]);
    watched.until("the change", |seen| seen.contains("bob"));
    server.kill9();
    watched.until("the word that nobody answers", |seen| seen.contains("cannot list: "));
    watched.signal("INT");
    let (all, code) = watched.ends();
    assert_eq!(code, Some(0));
    let widest = all.split("\x1b[H").flat_map(|page| page.split("\r\n")).map(visible).max().unwrap();
    assert!(widest <= 60, "{widest} columns in a terminal of 60");
    assert!(all.split("\x1b[H").all(|page| page.split("\r\n").count() <= 5), "no more lines than there are");
}

#[test]
fn top_shows_the_leases_and_gives_the_terminal_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.tenure(&["acquire", "db", "--ttl", "1h", "--holder", "ann"]);
    let once = server.tenure(&["top", "--once"]);
    assert!(text(&once.stdout).contains("1 lease, 0 waiting"), "{}", text(&once.stdout));
    let piped = server.tenure(&["top"]);
    assert_eq!(piped.status.code(), Some(2));
    assert!(text(&piped.stderr).contains("tenure top --once"), "{}", text(&piped.stderr));
    let given_back = "\x1b[?1049l";
    for ends in ["q", "TERM"] {
        let mut top = Terminal::start(&mut in_a_terminal(&server, &["top"]), 100, 20);
        top.until("the lease", |seen| seen.contains("\x1b[?1049h") && seen.contains("db@1"));
        top.forget();
        top.types("/zz");
        // What has not changed is not drawn again, so each letter comes with the cursor behind it.
        top.until("the filter", |seen| seen.matches("z_").count() == 2);
        top.forget();
        top.types("\x1b");
        top.until("the end of the filter", |seen| seen.contains("sorted by left"));
        top.forget();
        top.resize(80, 10);
        top.until("the smaller frame", |seen| seen.contains("db@1"));
        if ends == "q" {
            top.types("q");
        } else {
            top.signal(ends);
        }
        let (seen, code) = top.ends();
        assert_eq!(code, Some(0), "{ends}: {seen:?}");
        assert!(seen.contains(given_back), "{ends}: {seen:?}");
    }
    let mut top = Terminal::start(&mut in_a_terminal(&server, &["top"]), 100, 20);
    top.until("the lease", |seen| seen.contains("db@1"));
    let address = server.addr.trim_start_matches("http://").to_owned();
    server.kill9();
    top.until("the word that nobody answers", |seen| seen.contains("trying again"));
    top.forget();
    let _again = Server::start_at(directory.path(), &address);
    top.until("the server that is back", |seen| seen.contains("leads"));
    top.types("q");
    assert_eq!(top.ends().1, Some(0));
}

/// How much room a line takes, without colours and what wipes the rest of it.
fn visible(line: &str) -> usize {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap().chars().count();
    first
        + parts
            .map(|part| part.split_once(['m', 'K', 'J', 'H']).map_or(0, |(_, rest)| rest.chars().count()))
            .sum::<usize>()
}
