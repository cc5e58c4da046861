//! A page for people: lines, facts and straight columns, with bars for the time that is left. It prints nothing until it
//! is told to.

use crate::print::{self, Draw};
use crate::screen::{Bars, Screen};
use serde::{Serialize, Serializer};
use unicode_width::UnicodeWidthStr;

/// How wide a bar is.
const BAR_WIDTH: u64 = 10;

/// Between two columns.
const GAP: usize = 2;

/// What is going to be printed: data, and words about it.
#[derive(Debug)]
pub(crate) struct Page {
    screen: Screen,
    text: String,
    words: Vec<String>,
}

impl Page {
    pub(crate) fn new(screen: Screen) -> Self {
        Self { screen, text: String::new(), words: Vec::new() }
    }

    /// A line of data.
    pub(crate) fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A sentence that is no data.
    pub(crate) fn say(&mut self, words: &str) {
        self.words.push(words.into());
    }

    /// Facts about one thing, each with its name before it.
    pub(crate) fn facts(&mut self, facts: &[(&str, String)]) {
        let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        for (name, value) in facts {
            self.line(&format!("{name:width$}  {value}"));
        }
    }

    /// Rows under their headings, so far from the left.
    pub(crate) fn table<T: Row>(&mut self, indent: usize, rows: &[T]) {
        let headings = T::HEADINGS.iter().map(|heading| Drawn::plain((*heading).into())).collect();
        let mut drawn: Vec<Vec<Drawn>> = vec![headings];
        drawn.extend(rows.iter().map(|row| row.cells().iter().map(|cell| cell.draw(self.screen)).collect()));
        let width = |column: usize| drawn.iter().filter_map(|row| row.get(column)).map(|cell| cell.width).max();
        let widths: Vec<usize> = (0..T::HEADINGS.len()).map(|column| width(column).unwrap_or_default()).collect();
        for row in &drawn {
            let mut line = " ".repeat(indent);
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&cell.text);
                line.extend(std::iter::repeat_n(' ', width - cell.width + GAP));
            }
            self.line(&line);
        }
    }

    /// The bar for what is left of a time, with a gap behind it; nothing where bars are not drawn.
    pub(crate) fn bar(&self, left: Left) -> String {
        let bar = left.bar(self.screen.bars);
        if bar.is_empty() { bar } else { format!("{}  ", left.coloured(&bar, self.screen)) }
    }

    /// All of it: the data, and then the words.
    pub(crate) fn all(&self) -> String {
        let words: String = self.words.iter().map(|words| format!("tenure: {words}\n")).collect();
        format!("{}{words}", self.text)
    }

    /// Data to stdout, words to stderr.
    pub(crate) fn print(&self) {
        print::text(&self.text);
        self.words.iter().for_each(|words| print::say(words));
    }
}

/// A row of a list.
pub(crate) trait Row: Serialize {
    const HEADINGS: &'static [&'static str];
    /// What is said if there are none.
    const EMPTY: &'static str;
    fn cells(&self) -> Vec<Cell>;
    fn name(&self) -> String;
}

/// What stands in one column of a row.
#[derive(Debug)]
pub(crate) enum Cell {
    Text(String),
    Left(Left),
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// What a cell comes to on a screen, and how many columns of it that takes.
struct Drawn {
    text: String,
    width: usize,
}

impl Drawn {
    fn plain(text: String) -> Self {
        Self { width: text.width(), text }
    }
}

impl Cell {
    fn draw(&self, screen: Screen) -> Drawn {
        match self {
            Self::Text(text) => Drawn::plain(text.clone()),
            Self::Left(left) => {
                let bar = left.bar(screen.bars);
                let gap = if bar.is_empty() { "" } else { "  " };
                let drawn = Drawn::plain(format!("{bar}{gap}{}", print::span_ms(left.remaining_ms)));
                Drawn { text: left.coloured(&drawn.text, screen), ..drawn }
            }
        }
    }
}

/// What is left of a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) remaining_ms: u64,
    pub(crate) of_ms: u64,
}

impl Left {
    /// The filled cells are rounded up, so that only what is over looks empty.
    pub(crate) fn bar(self, bars: Bars) -> String {
        let (full, empty) = match bars {
            Bars::None => return String::new(),
            Bars::Ascii => ("#", "-"),
            Bars::Blocks => ("█", "░"),
        };
        let filled = self.share(BAR_WIDTH).min(BAR_WIDTH);
        let cells = |cell: &str, count: u64| cell.repeat(usize::try_from(count).unwrap_or_default());
        cells(full, filled) + &cells(empty, BAR_WIDTH - filled)
    }

    /// How many of so many parts are left, rounded up.
    fn share(self, parts: u64) -> u64 {
        self.remaining_ms.saturating_mul(parts).div_ceil(self.of_ms.max(1))
    }

    /// A holder that renews by itself stays above two thirds. Below a half it has missed a renewal, below a fifth it is
    /// about to lose what it holds.
    pub(crate) fn health(self) -> Health {
        match self.share(100) {
            0..=20 => Health::Bad,
            21..=50 => Health::Poor,
            _ => Health::Good,
        }
    }

    fn coloured(self, text: &str, screen: Screen) -> String {
        let code = match self.health() {
            _ if !screen.colour => return text.into(),
            Health::Good => 32,
            Health::Poor => 33,
            Health::Bad => 31,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// How a lease stands: green, yellow, red.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    Poor,
    Bad,
}

/// A list as it is printed.
pub(crate) struct List<T>(pub(crate) Vec<T>);

#[derive(Serialize)]
struct Items<'a, T> {
    items: &'a [T],
}

impl<T: Row> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Items { items: &self.0 }.serialize(serializer)
    }
}

impl<T: Row> Draw for List<T> {
    fn draw(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.say(T::EMPTY);
        } else {
            page.table(0, &self.0);
        }
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(Row::name).collect()
    }

    fn documents(&self) -> Vec<String> {
        self.0.iter().map(print::json).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Thing(&'static str, u64);

    impl Row for Thing {
        const HEADINGS: &'static [&'static str] = &["NAME", "LEFT", "MORE"];
        const EMPTY: &'static str = "nothing";

        fn cells(&self) -> Vec<Cell> {
            vec![self.0.into(), Cell::Left(Left { remaining_ms: self.1, of_ms: 10_000 }), "x".into()]
        }

        fn name(&self) -> String {
            self.0.into()
        }
    }

    fn drawn(screen: Screen, rows: &[Thing]) -> String {
        let mut page = Page::new(screen);
        page.table(2, rows);
        page.all()
    }

    #[test]
    fn columns_are_straight_whatever_is_in_them() {
        let rows = [Thing("grün", 10_000), Thing("漢", 0)];
        let blocks = Screen { bars: Bars::Blocks, colour: false };
        assert_eq!(
            drawn(blocks, &rows),
            "  NAME  LEFT               MORE\n  grün  ██████████  10.0s  x\n  漢    ░░░░░░░░░░  0.0s   x\n"
        );
        assert_eq!(drawn(Screen::PLAIN, &rows), "  NAME  LEFT   MORE\n  grün  10.0s  x\n  漢    0.0s   x\n");
    }

    #[test]
    fn bars_say_what_is_left_and_only_what_is_over_looks_empty() {
        let bar = |remaining_ms| Left { remaining_ms, of_ms: 10_000 }.bar(Bars::Ascii);
        let bars = [0, 1, 5_000, 5_001, 9_999, 10_000, 60_000].map(bar);
        let told = ["----------", "#---------", "#####-----", "######----", "##########", "##########", "##########"];
        assert_eq!(bars, told);
        assert_eq!(
            Left { remaining_ms: 5, of_ms: 0 }.bar(Bars::Ascii),
            "##########",
            "a TTL of nothing divides nothing"
        );
    }

    #[test]
    fn colours_go_by_what_is_left_and_take_no_room() {
        let coloured = Screen { bars: Bars::Ascii, colour: true };
        let rows = [Thing("a", 9_000), Thing("b", 5_000), Thing("c", 2_000)];
        let table = drawn(coloured, &rows);
        assert!(table.contains("\x1b[32m#########-  9.0s\x1b[0m  x"), "{table:?}");
        assert!(table.contains("\x1b[33m#####-----  5.0s\x1b[0m  x"), "{table:?}");
        assert!(table.contains("\x1b[31m##--------  2.0s\x1b[0m  x"), "{table:?}");
    }
}
