//! The script language: reads a script, applies it, and writes the script that would have been right. The lines that
//! begin with `->` are what is compared; see `tests/scripts/README.md` for the words.

use super::cast::{Cast, read_span};
use super::entry;
use super::print::Story;
use super::witness::Witness;
use super::{show, words};
use tenure_core::{Command, Event};

/// A line of a script that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) line: usize,
    pub(crate) why: String,
}

/// Runs a script and returns it with the `->` lines that the ledger gives.
pub(crate) fn run(text: &str) -> Result<String, Unreadable> {
    let mut stage = Stage::default();
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("->")).peekable();
    while let Some((index, line)) = lines.next() {
        let unreadable = |why: String| Unreadable { line: index + 1, why };
        stage.written.push(line.to_string());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(what) = line.strip_prefix("show ") {
            let shown = show::shown(stage.witness.ledger(), &mut stage.cast, what).map_err(unreadable)?;
            stage.written.push(format!("  -> {shown}"));
            continue;
        }
        let (at_ms, asked) = read_at(line).map_err(unreadable)?;
        if asked != "together:" {
            let commands = match asked {
                "tick" => Vec::new(),
                asked => vec![words::command(&mut stage.cast, asked).map_err(unreadable)?],
            };
            stage.alone(at_ms, commands);
            continue;
        }
        let mut commands = Vec::new();
        while let Some((index, line)) = lines.next_if(|(_, line)| line.starts_with("  ")) {
            let unreadable = |why| Unreadable { line: index + 1, why };
            let command = words::command(&mut stage.cast, line.trim()).map_err(unreadable)?;
            commands.push((line.to_string(), command));
        }
        stage.together(at_ms, commands);
    }
    Ok(stage.written.join("\n") + "\n")
}

#[derive(Default)]
struct Stage {
    cast: Cast,
    witness: Witness,
    written: Vec<String>,
}

impl Stage {
    fn alone(&mut self, at_ms: u64, commands: Vec<Command>) {
        for reply in self.apply(at_ms, commands).concat() {
            self.written.push(format!("  -> {reply}"));
        }
    }

    /// Several commands in one entry: each reply stands below its command, the events of the entry below them all.
    fn together(&mut self, at_ms: u64, commands: Vec<(String, Command)>) {
        let (lines, commands): (Vec<_>, Vec<_>) = commands.into_iter().unzip();
        let mut answers = self.apply(at_ms, commands);
        let events = answers.pop().expect("the events come last");
        for (line, replies) in lines.into_iter().zip(answers) {
            self.written.push(line);
            self.written.extend(replies.into_iter().map(|reply| format!("    -> {reply}")));
        }
        self.written.extend(events.into_iter().map(|event| format!("  -> {event}")));
    }

    /// The lines for each command, and last those for what else happened.
    fn apply(&mut self, at_ms: u64, commands: Vec<Command>) -> Vec<Vec<String>> {
        let before = self.witness.ledger().clone();
        let entry = entry(at_ms, commands);
        let applied = self.witness.apply(&entry);
        let events = &applied.events;
        let untold = events.chunk_by(|a, b| a.revision == b.revision).map(<[Event]>::to_vec).collect();
        let mut story = Story { cast: &self.cast, before: &before, after: self.witness.ledger(), events, untold };
        let each = entry.commands.iter().zip(&applied.outcomes);
        let mut answers: Vec<_> = each.map(|(command, outcome)| story.answer(command, outcome)).collect();
        answers.push(story.rest());
        answers
    }
}

/// Splits `at TIME COMMAND`.
fn read_at(line: &str) -> Result<(u64, &str), String> {
    let rest = line.strip_prefix("at ").ok_or("a line starts with `at`, `show`, `->` or `#`")?;
    let (time, asked) = rest.split_once(' ').ok_or("nothing is asked")?;
    Ok((read_span(time)?, asked))
}
