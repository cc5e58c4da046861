//! The numbers of requests about one lease, so that the server knows late copies of them.

use std::collections::BTreeSet;

/// Counts up, and knows which numbers have no answer yet.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    last: u64,
    open: BTreeSet<u64>,
}

impl Numbers {
    pub(super) fn draw(&mut self) -> u64 {
        self.last += 1;
        self.open.insert(self.last);
        self.last
    }

    /// Below this one all are answered.
    pub(super) fn answered_below(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.last + 1)
    }

    /// It was answered, or its cancel was: no copy of it is sent again.
    pub(super) fn settle(&mut self, number: u64) {
        self.open.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    #[test]
    fn answers_come_in_any_order() {
        let mut numbers = Numbers::default();
        assert_eq!([numbers.draw(), numbers.draw(), numbers.draw()], [1, 2, 3]);
        assert_eq!(numbers.answered_below(), 1);
        numbers.settle(2);
        assert_eq!(numbers.answered_below(), 1, "1 may still be answered");
        numbers.settle(1);
        assert_eq!(numbers.answered_below(), 3);
        numbers.settle(3);
        assert_eq!((numbers.answered_below(), numbers.draw()), (4, 4));
    }
}
