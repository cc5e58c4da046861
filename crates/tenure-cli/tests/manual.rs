//! Completions that bash takes, and manual pages that man takes without a word.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::{binary, have, text};
use std::path::Path;
use std::process::{Command, Output};

fn tenure(args: &[&str]) -> Output {
    let output = Command::new(binary()).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    output
}

#[test]
fn bash_completes_commands_and_their_options() {
    let script = r#"
        set -eu
        source <("$1" completions bash)
        complete -p tenure
        tried() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _tenure tenure "${@: -1}" "${@: -2:1}"; echo "${COMPREPLY[*]}"; }
        tried tenure acq
        tried tenure lease re
        tried tenure acquire --lock
        tried tenure ls -o j
    "#;
    let output = Command::new("bash").args(["-c", script, "bash", binary()]).output().unwrap();
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(lines[0].ends_with(" -F _tenure tenure"), "{said}");
    assert_eq!(lines[1..], ["acquire", "release revoke", "--lock-delay", "json jsonl"]);
}

#[test]
fn other_shells_get_their_scripts() {
    for (shell, sign) in [
        ("zsh", "#compdef tenure"),
        ("fish", "complete -c tenure"),
        ("elvish", "set edit:"),
        ("powershell", "Register-"),
    ] {
        assert!(text(&tenure(&["completions", shell]).stdout).contains(sign), "{shell}");
    }
}

/// What the formatter complains about.
fn complaints(page: &Path) -> String {
    let groff = Command::new("groff").args(["-man", "-ww", "-z", "-Tutf8"]).arg(page).output().unwrap();
    text(&groff.stderr)
}

#[test]
fn every_command_has_a_page_that_formats_without_complaint() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().to_str().unwrap();
    tenure(&["man", "--dir", dir]);
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    for name in ["tenure.1", "tenure-acquire.1", "tenure-lease-revoke.1", "tenure-top.1"] {
        assert!(names.iter().any(|other| other == name), "{name}: {names:?}");
    }
    let is_formatted = have("groff");
    for name in names.iter().filter(|_| is_formatted) {
        assert_eq!(complaints(&directory.path().join(name)), "", "{name}");
    }
    let page = text(&tenure(&["man"]).stdout);
    assert!(page.contains(".TH tenure 1") && page.contains("tenure\\-acquire(1)"), "{page}");
    let exit_codes = &page[page.find(".SH \"EXIT STATUS\"").unwrap()..];
    let written = std::fs::read_to_string(directory.path().join("tenure.1")).unwrap();
    assert!(written.ends_with(exit_codes), "{written}");
    let nowhere = Command::new(binary()).args(["man", "--dir", "/no/such/place"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("Make the directory"), "{}", text(&nowhere.stderr));
}

#[test]
fn the_manual_and_the_readme_have_the_same_exit_codes() {
    let readme = include_str!("../../../README.md");
    let (_, section) = readme.split_once("## Exit codes").unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let mut rows: Vec<String> = rows.take_while(|line| line.starts_with('|')).map(|row| row.replace('`', "")).collect();
    let page = text(&tenure(&["man"]).stdout).replace("\\-", "-");
    let (_, status) = page.split_once(".SH \"EXIT STATUS\"\n").unwrap();
    let mut told: Vec<String> = status
        .split(".TP\n")
        .skip(1)
        .map(|told| {
            let (code, means) = told.trim_end().split_once('\n').unwrap();
            format!("| {} | {means} |", code.trim_start_matches("\\fB").trim_end_matches("\\fR"))
        })
        .collect();
    rows.sort();
    told.sort();
    assert_eq!(told, rows);
    assert!(told.len() >= 6, "{told:?}");
}
