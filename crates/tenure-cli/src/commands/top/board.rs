//! What `tenure top` shows: the leases, how they are sorted and filtered, and how fast things happen. It asks nobody and
//! draws nothing.

use crate::page::Left;
use ratatui::crossterm::event::KeyCode;
use std::collections::HashMap;
use tenure::v1;

/// Characters of a filter; no name is looked for by more.
const FILTER_MAX: usize = 100;

/// What is known after one look at the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) status: v1::StatusReply,
    pub(super) leases: Vec<v1::Lease>,
    /// Events that were seen since the start.
    pub(super) granted: u64,
    pub(super) ended: u64,
}

/// How often things happened in a second of service time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    pub(super) granted: f64,
    /// Leases that were seen renewed: a lease counts once a look, however often it was renewed.
    pub(super) renewed: f64,
    pub(super) ended: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Left,
    Name,
    Holder,
    Waits,
}

impl Sort {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Name => "name",
            Self::Holder => "holder",
            Self::Waits => "waits",
        }
    }
}

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressed {
    Stay,
    Quit,
}

#[derive(Debug)]
pub(super) struct Board {
    pub(super) addr: String,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) first: usize,
    pub(super) rates: Option<Rates>,
    /// Why the last look failed, if it did.
    pub(super) trouble: Option<String>,
    pub(super) look: Look,
}

impl Board {
    pub(super) fn new(addr: &str, filter: String) -> Self {
        Self {
            addr: addr.into(),
            sort: Sort::Left,
            filter,
            is_typing: false,
            first: 0,
            rates: None,
            trouble: None,
            look: Look::default(),
        }
    }

    /// Takes what was seen. Rates need a look before.
    pub(super) fn take(&mut self, look: Look) {
        let (before, after) = (&self.look, &look);
        let is_first = before.status.version.is_empty();
        let seconds = after.status.now_ms.saturating_sub(before.status.now_ms) as f64 / 1000.0;
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        self.rates = (!is_first).then(|| Rates {
            granted: rate(after.granted.saturating_sub(before.granted)),
            renewed: rate(renewed(&before.leases, &after.leases)),
            ended: rate(after.ended.saturating_sub(before.ended)),
        });
        self.trouble = None;
        self.look = look;
    }

    /// The leases that are shown, in order.
    pub(super) fn rows(&self) -> Vec<&v1::Lease> {
        let mut rows: Vec<&v1::Lease> = self.look.leases.iter().filter(|lease| self.is_asked_for(lease)).collect();
        match self.sort {
            Sort::Left => rows.sort_by_key(|lease| (lease.remaining_ms, lease.lease)),
            Sort::Name => rows.sort_by(|a, b| names(a).cmp(&names(b)).then(a.lease.cmp(&b.lease))),
            Sort::Holder => rows.sort_by(|a, b| a.holder.cmp(&b.holder).then(a.lease.cmp(&b.lease))),
            Sort::Waits => rows.sort_by_key(|lease| (lease.waits.is_empty(), lease.remaining_ms, lease.lease)),
        }
        rows
    }

    fn is_asked_for(&self, lease: &v1::Lease) -> bool {
        let starts = |name: &String| name.starts_with(&self.filter);
        self.filter.is_empty() || lease.holds.iter().chain(&lease.waits).any(starts) || starts(&lease.holder)
    }

    pub(super) fn press(&mut self, key: KeyCode) -> Pressed {
        if self.is_typing {
            self.type_filter(key);
            return Pressed::Stay;
        }
        match key {
            KeyCode::Char('q') => return Pressed::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => {
                self.filter.clear();
                self.is_typing = true;
            }
            KeyCode::Char('l') => self.sort = Sort::Left,
            KeyCode::Char('n') => self.sort = Sort::Name,
            KeyCode::Char('h') => self.sort = Sort::Holder,
            KeyCode::Char('w') => self.sort = Sort::Waits,
            KeyCode::Down => self.scroll(1),
            KeyCode::PageDown => self.scroll(20),
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::PageUp => self.first = self.first.saturating_sub(20),
            KeyCode::Home => self.first = 0,
            _ => {}
        }
        Pressed::Stay
    }

    fn scroll(&mut self, by: usize) {
        self.first = (self.first + by).min(self.rows().len().saturating_sub(1));
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if self.filter.chars().count() < FILTER_MAX => self.filter.push(c),
            _ => {}
        }
        self.first = 0;
    }
}

fn names(lease: &v1::Lease) -> (&[String], &[String]) {
    (&lease.holds, &lease.waits)
}

/// Leases that were there before and were renewed since.
fn renewed(before: &[v1::Lease], after: &[v1::Lease]) -> u64 {
    let then: HashMap<u64, u64> = before.iter().map(|lease| (lease.lease, lease.renewed_wall_ms)).collect();
    let is_renewed = |lease: &&v1::Lease| then.get(&lease.lease).is_some_and(|at| *at != lease.renewed_wall_ms);
    after.iter().filter(is_renewed).count() as u64
}

pub(super) fn left(lease: &v1::Lease) -> Left {
    Left { remaining_ms: lease.remaining_ms, of_ms: lease.ttl_ms }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn lease(lease: u64, holder: &str, holds: &[&str], waits: &[&str]) -> v1::Lease {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        v1::Lease {
            lease,
            holder: holder.into(),
            holds: owned(holds),
            waits: owned(waits),
            ttl_ms: 10_000,
            remaining_ms: 10_000 - lease * 1_000,
            state: "held".into(),
            ..v1::Lease::default()
        }
    }

    pub(in super::super) fn look(now_ms: u64, leases: Vec<v1::Lease>) -> Look {
        let count = leases.len() as u64;
        let status = v1::StatusReply {
            version: "0.1.0".into(),
            node: 1,
            leads: true,
            leases: count,
            now_ms,
            ..v1::StatusReply::default()
        };
        Look { status, leases, granted: 0, ended: 0 }
    }

    fn board() -> Board {
        let mut board = Board::new("here", String::new());
        let leases = vec![
            lease(1, "cat", &["jobs/a@1"], &[]),
            lease(2, "bob", &[], &["jobs/a"]),
            lease(3, "ann", &["db@2"], &[]),
        ];
        board.take(look(1_000, leases));
        board
    }

    fn shown(board: &Board) -> Vec<u64> {
        board.rows().iter().map(|lease| lease.lease).collect()
    }

    #[test]
    fn keys_sort_and_filter_and_quit() {
        let mut board = board();
        assert_eq!(shown(&board), [3, 2, 1], "who has the least left comes first");
        for (key, order) in [('n', [2, 3, 1]), ('h', [3, 2, 1]), ('w', [2, 3, 1]), ('l', [3, 2, 1])] {
            assert_eq!(board.press(KeyCode::Char(key)), Pressed::Stay);
            assert_eq!(shown(&board), order, "{key}");
        }
        for key in "/jobs/aq".chars().map(KeyCode::Char).chain([KeyCode::Backspace, KeyCode::Enter]) {
            assert_eq!(board.press(key), Pressed::Stay, "what is typed into the filter is no order");
        }
        assert_eq!((board.filter.as_str(), shown(&board)), ("jobs/a", vec![2, 1]));
        assert_eq!(board.press(KeyCode::Esc), Pressed::Stay, "a filter that is kept can be cleared");
        assert_eq!(shown(&board).len(), 3);
        for key in "/jobs/a".chars().map(KeyCode::Char).chain([KeyCode::Enter, KeyCode::Char('/')]) {
            board.press(key);
        }
        assert_eq!(board.filter, "", "a new filter begins anew");
        board.press(KeyCode::Esc);
        assert_eq!(shown(&board).len(), 3);
        assert_eq!(board.press(KeyCode::Char('q')), Pressed::Quit);
    }

    #[test]
    fn scrolling_stays_on_the_list() {
        let mut board = board();
        board.press(KeyCode::PageDown);
        assert_eq!(board.first, 2);
        board.press(KeyCode::Up);
        board.press(KeyCode::PageUp);
        board.press(KeyCode::PageUp);
        assert_eq!(board.first, 0);
    }

    #[test]
    fn rates_are_counted_in_service_time() {
        let mut board = board();
        assert_eq!(board.rates, None, "one look is no rate");
        let mut next = look(3_000, board.look.leases.clone());
        next.leases[0].renewed_wall_ms = 7;
        next.leases.push(lease(4, "dan", &[], &[]));
        (next.granted, next.ended) = (6, 1);
        board.take(next);
        assert_eq!(board.rates, Some(Rates { granted: 3.0, renewed: 0.5, ended: 0.5 }));
    }
}
