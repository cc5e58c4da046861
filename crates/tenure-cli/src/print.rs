//! Printing: data on stdout, words on stderr.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is the one place that prints")]

use crate::args::Output;
use comfy_table::{Table, presets};
use serde::Serialize;
use std::time::Duration;

/// A row of a list: for people as cells, for programs as JSON, and its name alone.
pub(crate) trait Row: Serialize {
    const HEADINGS: &'static [&'static str];
    fn cells(&self) -> Vec<String>;
    fn name(&self) -> String;
}

#[derive(Serialize)]
struct Items<'a, T> {
    items: &'a [T],
}

pub(crate) fn list<T: Row>(output: Output, rows: &[T]) {
    match output {
        Output::Json => println!("{}", json(&Items { items: rows })),
        Output::Jsonl => rows.iter().for_each(|row| println!("{}", json(row))),
        Output::Name => rows.iter().for_each(|row| println!("{}", row.name())),
        Output::Table if rows.is_empty() => say("nothing is held"),
        Output::Table => {
            let mut table = Table::new();
            table.load_style(presets::NOTHING).set_header(T::HEADINGS);
            table.add_rows(rows.iter().map(Row::cells));
            for line in table.lines() {
                println!("{}", line.trim());
            }
        }
    }
}

/// One thing: its line for people and scripts, or all of it as JSON.
pub(crate) fn one(output: Output, line: &str, all: &impl Serialize) {
    match output {
        Output::Json | Output::Jsonl => println!("{}", json(all)),
        Output::Table | Output::Name => println!("{line}"),
    }
}

pub(crate) fn say(words: &str) {
    eprintln!("tenure: {words}");
}

fn json(value: &impl Serialize) -> String {
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
