//! `tenure run` in bad times: the wrapper is killed or stopped, its guard is killed, the server is away. Whatever
//! happens, nothing of the group runs when the next one is let in.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it is surprised, and real time is the subject"
)]

use crate::support::wrapped::{Wrapped, is_stopped, living, processes, signal, until};
use crate::support::{Server, binary, text};
use std::process::{Command, Stdio};
use std::time::Duration;
use tenure::clock::{BootTime, Clock};
use tenure::timing::Timing;

const TTL: Duration = Duration::from_secs(6);

/// So long it may take this test to look, on a machine that is busy.
const LOOK_MAX: Duration = Duration::from_secs(4);

fn start() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    (directory, server)
}

/// Stops when it is asked to, and says that it was.
const WILLING: &str = r#"
    trap 'echo x > "$OUT/asked"; exit 0' TERM
    sleep 1000 & note up x; wait
"#;

/// Does not stop when it is asked to, and neither does its child.
const UNWILLING: &str = r#"
    trap '' TERM
    sleep 1000 & note up x; wait
"#;

/// Ends when it is let, and writes down that it was asked to stop before.
const WAITING: &str = r#"
    trap 'echo x > "$OUT/asked"' TERM
    note up x; until_there end; exit 9
"#;

fn up(server: &Server, flags: &[&str], script: &str) -> Wrapped {
    let wrapped = Wrapped::start(server, &[&["db", "--ttl", "6s"], flags].concat(), script);
    wrapped.until("up", |text| !text.is_empty());
    wrapped
}

/// Waits until the group is gone, and says when it was seen to be.
fn gone(group: i32) -> BootTime {
    until("the end of the group", || living(group) == 0);
    Clock::system().now()
}

/// Whoever waits in line is let in only when nothing of the group runs.
fn next_is_let_in_after(server: &Server, group: i32) {
    let output = server.tenure(&["acquire", "db", "--wait", "1m", "--holder", "next"]);
    let left = living(group);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(left, 0, "the next one was let in before the group was gone");
}

/// After this, whatever was sent before `now` is no longer relied on.
fn safe_until(now: BootTime) -> BootTime {
    now + Timing::of(TTL).safe_until
}

/// Looks whether a group was gone in time, if nothing was sent for its lease after `now`.
fn in_time(gone: BootTime, now: BootTime) {
    let end = safe_until(now);
    assert!(gone <= end + LOOK_MAX, "{:?} too late", gone.since(end));
}

#[test]
fn a_wrapper_that_is_killed_takes_the_group_with_it() {
    let (_directory, server) = start();
    for (script, is_willing) in [(WILLING, true), (UNWILLING, false)] {
        let wrapped = up(&server, &[], script);
        let group = wrapped.group();
        let now = Clock::system().now();
        wrapped.signal("KILL");
        let gone = gone(group);
        in_time(gone, now);
        assert_eq!(!wrapped.read("asked").is_empty(), is_willing);
        if !is_willing {
            let budget = Timing::of(TTL).safe_until - Timing::of(TTL).stop;
            assert!(gone.since(now) > budget / 2, "it had its time to stop: {:?}", gone.since(now));
        }
        next_is_let_in_after(&server, group);
        assert!(server.tenure(&["break", "db", "--now", "--reason", "test"]).status.success());
    }
}

#[test]
fn the_group_of_a_killed_wrapper_is_stopped_at_once() {
    let (_directory, server) = start();
    for script in [WILLING, UNWILLING] {
        // Nothing else would stop it before this test is over.
        let flags = ["--ttl", "1h", "--stop-timeout", "400ms"];
        let name = format!("db/{}", script.len());
        let wrapped = Wrapped::start(&server, &[&[name.as_str()], &flags[..]].concat(), script);
        wrapped.until("up", |text| !text.is_empty());
        wrapped.signal("KILL");
        gone(wrapped.group());
    }
}

#[test]
fn a_wrapper_that_is_stopped_does_not_keep_the_group_alive() {
    let (_directory, server) = start();
    for (script, is_willing) in [(WILLING, true), (UNWILLING, false)] {
        let mut wrapped = up(&server, &[], script);
        let group = wrapped.group();
        wrapped.signal("STOP");
        let now = Clock::system().now();
        let gone = gone(group);
        in_time(gone, now);
        assert_eq!(!wrapped.read("asked").is_empty(), is_willing);
        next_is_let_in_after(&server, group);
        wrapped.signal("CONT");
        let (code, words) = wrapped.ends();
        assert_eq!(code, Some(79), "{words}");
        assert!(server.tenure(&["break", "db", "--now", "--reason", "test"]).status.success());
    }
}

#[test]
fn a_guard_that_is_killed_is_replaced() {
    let (_directory, server) = start();
    let wrapped = up(&server, &[], UNWILLING);
    let group = wrapped.group();
    let mut killed = Vec::new();
    for _ in 0..4 {
        let mut guard = None;
        until("a guard", || {
            guard = wrapped.guard().filter(|pid| !killed.contains(pid));
            guard.is_some()
        });
        // It is armed before it is replaced for the next time: guards that die before do not count for ever.
        until("a guard without signals", || is_deaf(guard.unwrap()));
        signal("KILL", &guard.unwrap().to_string());
        killed.extend(guard);
    }
    until("a guard", || wrapped.guard().is_some_and(|guard| !killed.contains(&guard) && is_deaf(guard)));
    assert!(living(group) == 2, "nothing was done to the group: {}", wrapped.read("words"));
    let now = Clock::system().now();
    wrapped.signal("KILL");
    let gone = gone(group);
    println!("{} guards killed", killed.len());
    in_time(gone, now);
    next_is_let_in_after(&server, group);
}

/// Whether a process takes no signal but SIGKILL and SIGSTOP, real-time ones aside.
fn is_deaf(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap_or_default();
    let all = 0x7fff_ffff & !(1 << (9 - 1)) & !(1 << (19 - 1));
    u64::from_str_radix(blocked.trim(), 16).is_ok_and(|blocked| blocked & all == all)
}

#[test]
fn a_guard_takes_no_signal_and_has_no_terminal() {
    let (_directory, server) = start();
    let mut wrapped = up(&server, &[], WAITING);
    let mut guard = None;
    until("a guard", || {
        guard = wrapped.guard().filter(|pid| is_deaf(*pid));
        guard.is_some()
    });
    let guard = guard.unwrap();
    for name in ["HUP", "INT", "QUIT", "TERM", "USR1", "PIPE", "ALRM", "TSTP"] {
        signal(name, &guard.to_string());
    }
    assert_eq!(std::fs::read_link(format!("/proc/{guard}/cwd")).unwrap(), std::path::Path::new("/"));
    assert_eq!(std::fs::read_link(format!("/proc/{guard}/fd/2")).unwrap(), std::path::Path::new("/dev/null"));
    let stat = std::fs::read_to_string(format!("/proc/{guard}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    assert_eq!(fields[3], guard.to_string(), "it leads a session of its own: {stat}");
    assert_eq!(wrapped.guard(), Some(guard), "it is still there");
    wrapped.let_end();
    assert_eq!(wrapped.ends().0, Some(9));
    assert!(processes().iter().all(|process| process.pid != guard), "it has gone home, and was asked for");
}

#[test]
fn a_wrapper_killed_at_any_moment_of_its_start_leaves_nothing_behind() {
    let (_directory, server) = start();
    let (mut before, mut after) = (0, 0);
    for round in 0..30_u32 {
        let mark = format!("{}{round:03}", std::process::id());
        let name = format!("db/{round}");
        let mut command = Command::new(binary());
        command.args(["run", &name, "--ttl", "10s", "--", "sleep", &mark]).env("TENURE_ADDR", &server.addr);
        let mut wrapper = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // From the first sight of its gate on, in steps that are shorter than a guard takes to be there, and now and then
        // when the command runs for certain.
        until("the gate", || is_running(&mark));
        std::thread::sleep(Duration::from_micros(500) * round);
        let has_started = || is_running_as(&mark, |line| line.starts_with("sleep\0"));
        if round % 5 == 4 {
            until("the command", has_started);
        }
        let has_started = has_started();
        wrapper.kill().unwrap();
        wrapper.wait().unwrap();
        match has_started {
            true => after += 1,
            false => before += 1,
        }
        until("the end of what was started", || !is_running(&mark));
    }
    println!("killed {before} times before the command ran, {after} times after");
}

/// Whether the gate of a command or the command itself runs.
fn is_running(mark: &str) -> bool {
    is_running_as(mark, |line| line.contains("exec-behind-gate") || line.starts_with("sleep\0"))
}

fn is_running_as(mark: &str, is_it: impl Fn(&str) -> bool) -> bool {
    processes().iter().filter(|process| process.is_living).any(|process| {
        let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.contains(mark) && is_it(&line)
    })
}

#[test]
fn a_server_that_is_away_for_too_long_costs_the_command_its_life() {
    for (script, flags, code) in
        [(WILLING, &[][..], 79), (UNWILLING, &["--lost-code", "3"][..], 3), (WILLING, &["--on-lost", "kill"][..], 79)]
    {
        let (_directory, server) = start();
        let mut wrapped = up(&server, flags, script);
        let group = wrapped.group();
        server.signal("STOP");
        let now = Clock::system().now();
        let gone = gone(group);
        in_time(gone, now);
        let (ended, words) = wrapped.ends();
        assert_eq!(ended, Some(code), "{flags:?}: {words}");
        let is_asked = script == WILLING && !flags.contains(&"kill");
        assert_eq!(!wrapped.read("asked").is_empty(), is_asked, "{flags:?}: {words}");
        assert!(words.contains("the lease is lost: the command was"), "{flags:?}: {words}");
        server.signal("CONT");
        next_is_let_in_after(&server, group);
    }
}

#[test]
fn nothing_is_done_to_a_command_that_ignores_it() {
    let (_directory, server) = start();
    let mut wrapped = up(&server, &["--on-lost", "ignore"], WAITING);
    assert_eq!(wrapped.guard(), None);
    server.signal("STOP");
    let clock = Clock::system();
    let over = safe_until(clock.now());
    until("the end of its time", || clock.now() > over);
    assert!(living(wrapped.group()) > 0);
    server.signal("CONT");
    wrapped.let_end();
    let (code, words) = wrapped.ends();
    assert_eq!(code, Some(9), "{words}");
    assert_eq!(wrapped.read("asked"), "");
}

#[test]
fn a_lease_that_somebody_breaks_stops_the_command() {
    let (_directory, server) = start();
    let mut wrapped = up(&server, &[], WILLING);
    let group = wrapped.group();
    assert!(server.tenure(&["break", "db", "--reason", "test"]).status.success());
    let (code, words) = wrapped.ends();
    assert_eq!(code, Some(79), "{words}");
    assert!(!wrapped.read("asked").is_empty(), "{words}");
    next_is_let_in_after(&server, group);
}

/// How much time the lease has, as the server sees it.
fn remaining_ms(server: &Server) -> u64 {
    let output = server.tenure(&["ls", "-o", "jsonl"]);
    let list = text(&output.stdout);
    let rest = list.split("\"remaining_ms\":").nth(1).unwrap_or_else(|| panic!("nothing is held: {list}"));
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn a_server_that_is_killed_and_comes_back_in_time_is_not_noticed() {
    let (directory, server) = start();
    let mut wrapped = Wrapped::start(&server, &["db", "--ttl", "9s"], WAITING);
    wrapped.until("up", |text| !text.is_empty());
    let address = server.addr.trim_start_matches("http://").to_owned();
    server.kill9();
    let server = Server::start_at(directory.path(), &address);
    let mut before = u64::MAX;
    until("a renewal", || {
        let now = remaining_ms(&server);
        now > std::mem::replace(&mut before, now)
    });
    wrapped.let_end();
    let (code, words) = wrapped.ends();
    assert_eq!(code, Some(9), "{words}");
    assert_eq!(wrapped.read("asked"), "", "{words}");
}

#[test]
fn a_command_may_be_paused_until_the_server_is_back() {
    let (_directory, server) = start();
    let flags = ["db", "--ttl", "12s", "--stop-timeout", "6s", "--on-jeopardy", "pause"];
    let mut wrapped = Wrapped::start(&server, &flags, WAITING);
    wrapped.until("up", |text| !text.is_empty());
    let group = wrapped.group();
    server.signal("STOP");
    until("the pause", || is_stopped(group));
    // The guard pauses it as well, a little later, and that is taken back, too.
    server.signal("CONT");
    until("the end of the pause", || !is_stopped(group));
    wrapped.let_end();
    let (code, words) = wrapped.ends();
    assert_eq!(code, Some(9), "{words}");
    assert_eq!(wrapped.read("asked"), "", "{words}");
    assert!(words.contains("is paused") && words.contains("renewed: the command goes on"), "{words}");
}

#[test]
fn a_pause_that_nobody_ends_ends_the_command() {
    let (_directory, server) = start();
    let mut wrapped = up(&server, &["--on-jeopardy", "pause"], WAITING);
    let group = wrapped.group();
    server.signal("STOP");
    let now = Clock::system().now();
    let gone = gone(group);
    in_time(gone, now);
    let (code, words) = wrapped.ends();
    assert_eq!(code, Some(79), "{words}");
    assert_eq!(wrapped.read("asked"), "", "{words}");
    server.signal("CONT");
    next_is_let_in_after(&server, group);
}
