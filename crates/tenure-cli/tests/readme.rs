//! The README, typed: every line that begins with `$ ` goes into one bash session in a terminal, in order, and what is
//! printed has to be what the README prints. What differs from run to run is masked on both sides, by the list in `mask`
//! and by nothing else.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::terminal::Terminal;
use crate::support::{binary, have, reserved};
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../../README.md");

/// Ends what one line has printed. Lines that are still at work in the background may print after it.
const DONE: &str = "\u{1e}";

/// Reads lines and runs each in this same shell, with the exit code of the one before in `$?`.
const SESSION: &str = r#"
    last=0
    while IFS= read -r line; do
        (exit $last)
        eval "$line"
        last=$?
        printf '\036'
    done
"#;

/// A line that is typed, and what is printed then.
#[derive(Debug, PartialEq)]
struct Step {
    typed: String,
    printed: String,
}

/// What is typed and printed in the blocks that have a `$ ` line.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut is_in_block, mut is_typed) = (false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            (is_in_block, is_typed) = (!is_in_block, false);
        } else if let (true, Some(typed)) = (is_in_block, line.strip_prefix("$ ")) {
            steps.push(Step { typed: typed.into(), printed: String::new() });
            is_typed = true;
        } else if is_in_block && is_typed {
            let step = steps.last_mut().expect("something was typed");
            step.printed.push_str(line);
            step.printed.push('\n');
        }
    }
    steps
}

/// What is alike in every run: bars, times, process ids, host, lease ids, directories and the port are somebody's own.
fn mask(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n']).map(|word| {
        let (bare, end) = word.split_at(word.trim_end().len());
        let (bare, point) = bare.split_at(bare.trim_end_matches([',', '.', ';', ':', ')']).len());
        let (open, bare) = bare.split_at(bare.len() - bare.trim_start_matches('(').len());
        format!("{open}{}{point}{end}", mask_word(bare))
    });
    let masked: String = words.collect();
    // How long ago is told in one word or in two.
    let masked = masked.replace("just now", "TIME ago");
    let lines = masked.lines().map(|line| {
        // Columns are as wide as what stands in them.
        let indent = line.len() - line.trim_start().len();
        format!("{}{}\n", &line[..indent], line.split_whitespace().collect::<Vec<_>>().join(" "))
    });
    lines.collect()
}

/// Other programs, such as jq, draw in colours that a page does not show.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |plain, piece| plain + piece.split_once('m').map_or(piece, |(_, rest)| rest))
}

fn mask_word(word: &str) -> &str {
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let is_time = {
        let rest = word.trim_end_matches(|c: char| "smhd".contains(c));
        let number = rest.replace(['m', 'h', 'd', '.'], "");
        (rest.len() < word.len() && digits(&number)) || word.strip_suffix("ms").is_some_and(digits)
    };
    let is_date = word.len() == 10 && digits(&word.replace('-', "")) && word.matches('-').count() == 2;
    let is_clock = word.len() == 8 && digits(&word.replace(':', "")) && word.matches(':').count() == 2;
    let is_process =
        word.split_once('@').is_some_and(|(_, rest)| rest.rsplit_once(':').is_some_and(|(_, pid)| digits(pid)));
    let is_lease = word.len() == 16 && word.chars().all(|c| c.is_ascii_hexdigit());
    match word {
        _ if is_time => "TIME",
        _ if is_date || is_clock => "WHEN",
        _ if is_process => "user@host:pid",
        _ if is_lease => "LEASE",
        _ if word.starts_with("http://127.0.0.1:") => "http://ADDRESS",
        _ if word.starts_with('/') && word.ends_with("/tenure") => "DIRECTORY",
        _ if !word.is_empty() && word.chars().all(|c| "█░#-".contains(c)) && word.chars().count() == 10 => "BAR",
        word => word,
    }
}

/// A session with a home, a port and a server of its own. What it has started ends with it.
struct Session {
    terminal: Terminal,
    home: tempfile::TempDir,
}

impl Session {
    fn start(port: u16) -> Self {
        let home = tempfile::tempdir().unwrap();
        let bin = Path::new(binary()).parent().unwrap().display().to_string();
        let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
        let address = format!("127.0.0.1:{port}");
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "-c", SESSION]).current_dir(home.path());
        bash.env_clear().env("PATH", path).env("HOME", home.path()).env("USER", "ann").env("TERM", "xterm");
        bash.env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1").env("TENURE_LISTEN", &address).env("TENURE_ADDR", &address);
        Self { terminal: Terminal::start(&mut bash, 120, 40), home }
    }

    /// Types one line, and waits until what it prints is what was said.
    fn types(&mut self, step: &Step, port: u16) {
        let told = mask(&step.printed);
        self.terminal.forget();
        self.terminal.types(&format!("{}\n", step.typed.replace(":7420", &format!(":{port}"))));
        let is_there = |seen: &str| {
            let printed = without_colours(&seen.replace(DONE, ""));
            // Words come in pieces, and the last one is the end of the line.
            let is_whole = printed.is_empty() || printed.ends_with('\n');
            seen.contains(DONE) && is_whole && mask(&printed) == told
        };
        self.terminal.until(&format!("after `{}`\n{told}", step.typed), is_there);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let lock = self.home.path().join(".local/state/tenure/lock");
        let owner = std::fs::read_to_string(lock).unwrap_or_default();
        if let Some(pid) = owner.trim().strip_prefix("pid ") {
            // It is gone already if the tour came to its end.
            let _ = Command::new("kill").args(["-s", "KILL", pid]).stderr(std::process::Stdio::null()).status();
        }
    }
}

#[test]
fn what_the_readme_prints_is_what_is_printed() {
    let steps = steps(README);
    let typed = README.lines().filter(|line| line.trim_start().starts_with("$ ")).count();
    assert_eq!(steps.len(), typed, "every line that begins with a dollar is in a block, and typed");
    assert!(steps.len() > 20, "the tour is there");
    if !have("curl") || !have("jq") {
        return;
    }
    let port = reserved().port();
    let mut session = Session::start(port);
    steps.iter().for_each(|step| session.types(step, port));
    println!("{} lines typed", steps.len());
}

#[test]
fn blocks_are_read_and_only_what_is_somebodys_own_is_masked() {
    let page = "$ not typed\n```text\n$ echo a\na\nb\n$ true\n```\n```sh\nnot typed\n```\n";
    let step = |typed: &str, printed: &str| Step { typed: typed.into(), printed: printed.into() };
    assert_eq!(steps(page), [step("echo a", "a\nb\n"), step("true", "")]);
    let alike = [
        ("db  ann@vm:98  held  ██████░░░░  14.9s  0", "db ann@box:7     held ██████████  1m05s 0"),
        ("since  just now (2026-11-16 01:09:10)", "since  3s ago (2027-01-01 23:59:59)"),
        ("lease 00000000000000ff, 750ms", "lease 0123456789abcdef, 1ms"),
        ("at http://127.0.0.1:7420 in /home/ann/.local/state/tenure", "at http://127.0.0.1:1 in /tmp/x/tenure"),
    ];
    for (one, other) in alike {
        assert_eq!(mask(one), mask(other));
    }
    for (one, other) in [("jobs@1", "jobs@2"), ("fence 1", "fence 2"), ("  a", "a"), ("held", "free"), ("1s", "1")] {
        assert_ne!(mask(one), mask(other));
    }
}
