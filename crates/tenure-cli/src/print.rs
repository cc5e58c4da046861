//! Printing: data on stdout, words on stderr.

use crate::args::Output;
use crate::page::Page;
use crate::screen::Screen;
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write;
use std::time::Duration;

/// What can be printed in every form: for people as a page, for programs as JSON, and by its names alone.
pub(crate) trait Draw: Serialize {
    fn draw(&self, page: &mut Page);
    fn names(&self) -> Vec<String>;
    /// One JSON document a line.
    fn documents(&self) -> Vec<String> {
        vec![json(self)]
    }
}

/// Prints it in the form that was asked for.
pub(crate) fn draw(output: Output, seen: &impl Draw) {
    match output {
        Output::Json => line(&json(seen)),
        Output::Jsonl => lines(&seen.documents()),
        Output::Name => lines(&seen.names()),
        Output::Table => {
            let mut page = Page::new(Screen::of_stdout());
            seen.draw(&mut page);
            page.print();
        }
    }
}

fn lines(lines: &[String]) {
    if !lines.is_empty() {
        line(&lines.join("\n"));
    }
}

/// One thing: its line for people and scripts, or all of it as JSON.
pub(crate) fn one(output: Output, words: &str, all: &impl Serialize) {
    match output {
        Output::Json | Output::Jsonl => line(&json(all)),
        Output::Table | Output::Name => line(words),
    }
}

/// A line of data.
pub(crate) fn line(words: &str) {
    bytes(words.as_bytes());
}

/// Data as it is, and the end of the line.
pub(crate) fn bytes(data: &[u8]) {
    raw(data, b"\n");
}

/// Text that has its own ends of lines.
pub(crate) fn text(text: &str) {
    raw(text.as_bytes(), b"");
}

fn raw(data: &[u8], end: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(data).and_then(|()| stdout.write_all(end)).and_then(|()| stdout.flush());
    if written.is_err() {
        // Whoever read this has gone, as `head` does: there is nobody left to tell.
        std::process::exit(141);
    }
}

/// A word of a command that people copy: quoted for a POSIX shell if a shell would read it as anything else.
pub(crate) fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")).into(),
    }
}

/// Words for people. That nobody reads them stops nothing: a command may run on whose stderr is closed.
pub(crate) fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "tenure: {words}");
}

pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("what is printed has only text keys")
}

/// A span as people say it: 12.3s, 4m05s, 2h03m, 3d04h.
pub(crate) fn span(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        0..60 => format!("{}.{}s", s, time.subsec_millis() / 100),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3600),
    }
}

pub(crate) fn span_ms(ms: u64) -> String {
    span(Duration::from_millis(ms))
}

/// How long ago something was: 12s ago, 3m ago, 5h ago, 2d ago.
pub(crate) fn ago_ms(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => "just now".into(),
        1..60 => format!("{s}s ago"),
        60..3600 => format!("{}m ago", s / 60),
        3600..172_800 => format!("{}h ago", s / 3600),
        _ => format!("{}d ago", s / 86_400),
    }
}

/// So many of a thing: 1 lease, 2 leases.
pub(crate) fn count(number: u64, one: &str, several: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {several}") }
}

/// Something, or a dash for nothing.
pub(crate) fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_people_say_them() {
        let spans = [(0, "0.0s"), (12_345, "12.3s"), (245_000, "4m05s"), (7_380_000, "2h03m"), (273_600_000, "3d04h")];
        for (ms, text) in spans {
            assert_eq!(span_ms(ms), text);
        }
        let agos =
            [(0, "just now"), (12_345, "12s ago"), (245_000, "4m ago"), (7_380_000, "2h ago"), (273_600_000, "3d ago")];
        for (ms, text) in agos {
            assert_eq!(ago_ms(ms), text);
        }
    }
}
