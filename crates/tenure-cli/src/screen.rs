//! What the terminal can show. Bars and colours are for people, so what is piped has neither.

use std::io::IsTerminal;
use unicode_width::UnicodeWidthChar;

/// What remaining time is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bars {
    None,
    Ascii,
    Blocks,
}

/// How text for people may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    pub(crate) bars: Bars,
    pub(crate) colour: bool,
}

impl Screen {
    /// Nothing but text.
    pub(crate) const PLAIN: Self = Self { bars: Bars::None, colour: false };

    /// What stdout can show.
    pub(crate) fn of_stdout() -> Self {
        Self::of(std::io::stdout().is_terminal(), |name| std::env::var(name).ok())
    }

    /// The first of the three that is set names the locale; NO_COLOR counts unless it is empty.
    fn of(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let bars = match is_terminal {
            false => Bars::None,
            true if locale.contains("utf-8") || locale.contains("utf8") => Bars::Blocks,
            true => Bars::Ascii,
        };
        let is_dumb = set("TERM").is_none_or(|term| term == "dumb");
        Self { bars, colour: is_terminal && !is_dumb && set("NO_COLOR").is_none() }
    }
}

/// How many columns and lines the terminal has, or what terminals had at first if it does not say.
pub(crate) fn size() -> (u16, u16) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| (size.ws_col, size.ws_row));
    size.ok().filter(|(columns, lines)| *columns > 0 && *lines > 0).unwrap_or((80, 24))
}

/// A page that is drawn over another one from the top left corner: cut to the size of the terminal, and what was there
/// before is wiped out.
pub(crate) fn over(page: &str, (columns, lines): (u16, u16)) -> String {
    let cut: Vec<String> = page.lines().take(lines.into()).map(|line| cut(line, columns.into()) + "\x1b[K").collect();
    format!("\x1b[H{}\x1b[J", cut.join("\r\n"))
}

/// The start of a line that fits. Colours take no room, and none is left switched on.
fn cut(line: &str, columns: usize) -> String {
    let (mut kept, mut used, mut in_colour) = (String::new(), 0, false);
    for c in line.chars() {
        let width = match c {
            '\x1b' => {
                in_colour = true;
                0
            }
            'm' if in_colour => {
                in_colour = false;
                0
            }
            _ if in_colour => 0,
            c => c.width().unwrap_or_default(),
        };
        used += width;
        if used > columns {
            return kept + if line.contains('\x1b') { "\x1b[0m" } else { "" };
        }
        kept.push(c);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(is_terminal: bool, variables: &[(&str, &str)]) -> Screen {
        Screen::of(is_terminal, |name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn bars_and_colours_are_for_terminals() {
        let utf8 = [("LANG", "C.UTF-8"), ("TERM", "xterm")];
        assert_eq!(of(false, &utf8), Screen::PLAIN);
        assert_eq!(of(true, &utf8), Screen { bars: Bars::Blocks, colour: true });
        assert_eq!(of(true, &[("LC_ALL", "C"), ("LANG", "C.UTF-8"), ("TERM", "xterm")]).bars, Bars::Ascii);
        assert_eq!(of(true, &[("LC_ALL", ""), ("LANG", "de_DE.utf8")]).bars, Bars::Blocks);
        assert!(!of(true, &[("TERM", "xterm"), ("NO_COLOR", "1")]).colour);
        assert!(of(true, &[("TERM", "xterm"), ("NO_COLOR", "")]).colour, "an empty NO_COLOR says nothing");
        assert!(!of(true, &[("TERM", "dumb")]).colour && !of(true, &[]).colour);
    }

    #[test]
    fn what_is_drawn_over_fits_and_leaves_nothing_behind() {
        assert_eq!(over("one\ntwo\nthree\n", (3, 2)), "\x1b[Hone\x1b[K\r\ntwo\x1b[K\x1b[J");
        assert_eq!(cut("three", 3), "thr");
        assert_eq!(cut("漢字", 3), "漢");
        assert_eq!(cut("\x1b[32mgreen\x1b[0m", 5), "\x1b[32mgreen\x1b[0m");
        assert_eq!(cut("\x1b[32mgreen\x1b[0m", 3), "\x1b[32mgre\x1b[0m");
    }
}
