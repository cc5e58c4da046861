//! What wrapper and guard say to each other: short lines through two pipes. What cannot be read ends the conversation.

use super::Limits;
use std::fmt;
use std::io;
use std::str::FromStr;
use tenure::clock::BootTime;
use tokio::net::unix::pipe::Receiver;

/// Longer than every line that is ever sent.
const LINE_BYTES_MAX: usize = 128;

/// What the guard is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// These are the newest limits.
    Until(Limits),
    /// The group was asked to stop, and is killed then.
    Stopping(BootTime),
    /// The group is gone.
    Home,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(limits) => writeln!(f, "until {} {}", limits.stop.nanos(), limits.kill.nanos()),
            Self::Stopping(kill) => writeln!(f, "stopping {}", kill.nanos()),
            Self::Home => writeln!(f, "home"),
        }
    }
}

impl FromStr for Order {
    type Err = Rubbish;

    fn from_str(line: &str) -> Result<Self, Rubbish> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["until", stop, kill] => Ok(Self::Until(Limits { stop: time(stop)?, kill: time(kill)? })),
            ["stopping", kill] => Ok(Self::Stopping(time(kill)?)),
            ["home"] => Ok(Self::Home),
            _ => Err(Rubbish),
        }
    }
}

/// What the guard says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It knows the group, and nothing but SIGKILL ends it.
    Armed,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Armed => writeln!(f, "armed"),
        }
    }
}

impl FromStr for Report {
    type Err = Rubbish;

    fn from_str(line: &str) -> Result<Self, Rubbish> {
        match line {
            "armed" => Ok(Self::Armed),
            _ => Err(Rubbish),
        }
    }
}

/// A line that nobody would send.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rubbish;

/// Times mean the same in every process of the machine.
fn time(text: &str) -> Result<BootTime, Rubbish> {
    text.parse().map(BootTime::from_nanos).map_err(|_| Rubbish)
}

/// The lines that come through a pipe.
#[derive(Debug)]
pub(super) struct Lines {
    pipe: Receiver,
    unread: Vec<u8>,
}

impl Lines {
    pub(super) fn of(pipe: Receiver) -> Self {
        Self { pipe, unread: Vec::new() }
    }

    /// The next line, or nothing if no line comes any more that can be read. It may be given up and asked again.
    pub(super) async fn next<T: FromStr>(&mut self) -> Option<T> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return std::str::from_utf8(&line[..end]).ok()?.parse().ok();
            }
            if self.unread.len() > LINE_BYTES_MAX {
                return None;
            }
            self.pipe.readable().await.ok()?;
            let mut bytes = [0; LINE_BYTES_MAX];
            match self.pipe.try_read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::unix::pipe;

    #[test]
    fn orders_and_reports_are_read_as_they_are_sent() {
        let limits = Limits { stop: BootTime::from_nanos(5), kill: BootTime::from_nanos(u64::MAX) };
        for order in [Order::Until(limits), Order::Stopping(BootTime::from_nanos(7)), Order::Home] {
            let line = order.to_string();
            assert!(line.len() <= LINE_BYTES_MAX, "{line}");
            assert_eq!(line.strip_suffix('\n').unwrap().parse(), Ok(order));
        }
        assert_eq!(Report::Armed.to_string().trim_end().parse(), Ok(Report::Armed));
        for line in ["", "until", "until 1", "until 1 x", "until 1 2 3", "until -1 2", "homes", "home ", "armed"] {
            assert_eq!(line.parse::<Order>(), Err(Rubbish), "{line:?}");
        }
    }

    async fn lines(bytes: &[u8]) -> (Option<Order>, Option<Order>) {
        let (sender, receiver) = pipe::pipe().unwrap();
        sender.writable().await.unwrap();
        sender.try_write(bytes).unwrap();
        drop(sender);
        let mut lines = Lines::of(receiver);
        (lines.next().await, lines.next().await)
    }

    #[tokio::test]
    async fn lines_end_with_the_pipe_or_with_rubbish() {
        let stopping = Some(Order::Stopping(BootTime::from_nanos(7)));
        assert_eq!(lines(b"stopping 7\nhome\n").await, (stopping, Some(Order::Home)));
        assert_eq!(lines(b"stopping 7\nhom").await, (stopping, None), "half a line is none");
        assert_eq!(lines(b"stopping 7\n\xff\n").await, (stopping, None));
        assert_eq!(lines(&[b'x'; 4096]).await, (None, None), "a line without end is not waited for");
        assert_eq!(lines(b"").await, (None, None));
    }
}
