//! Draws the board of `tenure top`. What it draws depends on the board and on the size alone.

use super::board::{Board, left};
use crate::commands::words;
use crate::page::Health;
use crate::print;
use crate::screen::Bars;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget, Wrap};
use tenure::v1;

/// The board, with bars that the terminal can show.
pub(super) struct View<'a> {
    pub(super) board: &'a Board,
    pub(super) bars: Bars,
    pub(super) colour: bool,
}

impl Widget for &View<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let [head, counts, table, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(2),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(area);
        self.head().render(head, buffer);
        self.counts().render(counts, buffer);
        self.table(table.height).render(table, buffer);
        self.foot().render(foot, buffer);
    }
}

impl View<'_> {
    fn style(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn head(&self) -> Paragraph<'static> {
        let Board { addr, trouble, look, .. } = self.board;
        match trouble {
            Some(trouble) => Paragraph::new(format!("{trouble}; trying again")).style(self.style(Color::Red)),
            None => {
                let leads = if look.status.leads { "leads" } else { "does not lead" };
                Paragraph::new(format!("tenure {} at {addr}, node {} {leads}", look.status.version, look.status.node))
            }
        }
    }

    fn counts(&self) -> Paragraph<'static> {
        let look = &self.board.look;
        let waiting = look.leases.iter().filter(|lease| !lease.waits.is_empty()).count();
        let mut text = format!("{}, {waiting} waiting", print::count(look.status.leases, "lease", "leases"));
        if look.status.leases > look.leases.len() as u64 {
            text += &format!(" (the first {} are shown)", look.leases.len());
        }
        if look.status.dropped_ms > 0 {
            text += &format!("; {} of service time dropped in stalls", print::span_ms(look.status.dropped_ms));
        }
        if let Some(rates) = self.board.rates {
            text += &format!(
                "; a second: {:.1} granted, {:.1} renewed, {:.1} ended",
                rates.granted, rates.renewed, rates.ended
            );
        }
        Paragraph::new(text).wrap(Wrap { trim: true })
    }

    fn table(&self, height: u16) -> Table<'static> {
        let rows = self.board.rows();
        let shown = rows.iter().skip(self.board.first).take(height.into()).map(|lease| self.row(lease));
        let widths = [
            Constraint::Fill(3),
            Constraint::Fill(2),
            Constraint::Length(8),
            Constraint::Length(7),
            Constraint::Length(19),
            Constraint::Fill(2),
        ];
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let headings = Row::new(["HOLDS", "HOLDER", "STATE", "TTL", "LEFT", "WAITS FOR"]).style(bold);
        Table::new(shown, widths).header(headings).column_spacing(2)
    }

    fn row(&self, lease: &v1::Lease) -> Row<'static> {
        let left = left(lease);
        let colour = match left.health() {
            Health::Good => Color::Green,
            Health::Poor => Color::Yellow,
            Health::Bad => Color::Red,
        };
        let bar = format!("{}  {}", left.bar(self.bars), print::span_ms(left.remaining_ms));
        let names = |names: &[String]| Cell::new(print::or_dash(&names.join(" ")));
        Row::new([
            names(&lease.holds),
            Cell::new(lease.holder.clone()),
            Cell::new(words::state(lease).to_owned()),
            Cell::new(print::span_ms(lease.ttl_ms)),
            Cell::new(bar.trim_start().to_owned()).style(self.style(colour)),
            names(&lease.waits),
        ])
    }

    fn foot(&self) -> Line<'static> {
        let Board { filter, sort, is_typing, .. } = self.board;
        let dim = Style::new().add_modifier(Modifier::DIM);
        match (is_typing, filter.is_empty()) {
            (true, _) => Line::from(format!("names that start with: {filter}_   Enter keeps it, Esc clears it")),
            (false, true) => Line::from(format!("sorted by {}: l n h w   / filters   q quits", sort.text())).style(dim),
            (false, false) => {
                let text = format!("only {filter}   sorted by {}: l n h w   / filters   q quits", sort.text());
                Line::from(text).style(dim)
            }
        }
    }
}

/// One frame as text.
pub(super) fn text(view: &View<'_>, (columns, lines): (u16, u16)) -> String {
    let area = Rect::new(0, 0, columns, lines);
    let mut buffer = Buffer::empty(area);
    view.render(area, &mut buffer);
    let line = |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
    let lines = buffer.content().chunks(columns.max(1).into()).map(|row| line(row).trim_end().to_owned() + "\n");
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::super::board::tests::{lease, look};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn board() -> Board {
        let mut board = Board::new("http://127.0.0.1:7420", String::new());
        let leases = vec![
            lease(1, "ann", &["jobs/nightly@1"], &[]),
            lease(2, "cat", &[], &["jobs/nightly"]),
            lease(6, "bob", &["db@2"], &["jobs/nightly"]),
        ];
        board.take(look(1_000, leases));
        board
    }

    #[test]
    fn a_frame_is_what_people_see() {
        let board = board();
        let view = View { board: &board, bars: Bars::Blocks, colour: true };
        let mut terminal = Terminal::new(TestBackend::new(90, 9)).unwrap();
        terminal.draw(|frame| frame.render_widget(&view, frame.area())).unwrap();
        let frame = text(&view, (90, 9));
        let told = "\
tenure 0.1.0 at http://127.0.0.1:7420, node 1 leads
3 leases, 2 waiting

HOLDS                 HOLDER         STATE     TTL      LEFT                 WAITS FOR
db@2                  bob            held      10.0s    ████░░░░░░  4.0s     jobs/nightly
-                     cat            waiting   10.0s    ████████░░  8.0s     jobs/nightly
jobs/nightly@1        ann            held      10.0s    █████████░  9.0s     -

sorted by left: l n h w   / filters   q quits
";
        assert_eq!(frame, told);
        let drawn: String = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
        assert_eq!(drawn.split_whitespace().collect::<Vec<_>>(), told.split_whitespace().collect::<Vec<_>>());
        let bar = terminal.backend().buffer().content().iter().find(|cell| cell.symbol() == "█").unwrap();
        assert_eq!(bar.fg, Color::Yellow, "less than a half is left");
    }

    #[test]
    fn small_terminals_and_trouble_are_borne() {
        let mut board = board();
        board.trouble = Some("no server answers".into());
        board.filter = "db".into();
        for size in [(1, 1), (10, 3), (0, 0), (200, 2)] {
            let view = View { board: &board, bars: Bars::Ascii, colour: false };
            text(&view, size);
        }
        let view = View { board: &board, bars: Bars::Ascii, colour: false };
        let frame = text(&view, (90, 8));
        assert!(frame.starts_with("no server answers; trying again\n"), "{frame}");
        assert!(frame.contains("####------") && !frame.contains("ann") && frame.contains("only db"), "{frame}");
    }
}
