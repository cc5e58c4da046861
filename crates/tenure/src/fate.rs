//! What becomes of one guard's lease or claims: told by the keeper, read by whoever holds the guard. Reading it never
//! waits for the keeper or the network.

use crate::clock::{BootTime, Clock};
use crate::v1;
use std::fmt;
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

/// Events that a slow listener may be behind before it misses some.
const EVENTS_MAX: usize = 64;

/// How a lease stands, as far as its holder knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It is ours, and renewals are answered.
    Held,
    /// It is still ours, but renewals are failing.
    Jeopardy,
    /// It is over. It never comes back.
    Lost(Loss),
}

/// How a lease was lost.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// No renewal was answered in time. By now somebody else may have it.
    Unanswered,
    /// Its time is over, and nothing was to renew it.
    TimeOver,
    /// Its holder made no progress for longer than it had allowed itself, so it was not renewed.
    NoProgress,
    /// The server ended it, or says that it has ended.
    Ended(Box<v1::End>),
    /// The server does not know it.
    Unheard,
    /// It was given back, by its own guard or with the lease that it hung on.
    GivenBack,
    /// The thread that kept it is gone.
    KeeperGone,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered => f.write_str("no renewal was answered in time"),
            Self::TimeOver => f.write_str("its time is over"),
            Self::NoProgress => f.write_str("its holder made no progress, so it was not renewed"),
            Self::Ended(end) if end.by.is_empty() => write!(f, "it was ended: {}", end.how.replace('_', " ")),
            Self::Ended(end) => write!(f, "it was {} by {}: {}", end.how, end.by, end.reason),
            Self::Unheard => f.write_str("the server does not know it"),
            Self::GivenBack => f.write_str("it was given back"),
            Self::KeeperGone => f.write_str("the thread that renewed it is gone"),
        }
    }
}

/// Something that a holder may want to act on.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Renewals are answered again.
    Held,
    /// Renewals are failing; it is still ours.
    Jeopardy,
    /// It is over.
    Lost(Loss),
    /// So many wait for what it holds, the longest of them for so long. Whoever can let go, may.
    Waiting {
        /// How many.
        count: u64,
        /// How long the longest has waited.
        longest: Duration,
    },
    /// Somebody has ordered that a claim be broken, so soon.
    Breaking {
        /// How soon.
        within: Duration,
    },
    /// Its longest lifetime is reached: no renewal moves its end further.
    Final,
    /// So many events were missed, because nobody took them.
    Missed(u64),
}

/// The events of a guard, from when they were asked for.
#[derive(Debug)]
pub struct Events {
    events: broadcast::Receiver<Event>,
}

impl Events {
    /// The next event; none when the guard is gone.
    pub async fn next(&mut self) -> Option<Event> {
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Event::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// What the keeper tells and the guard reads.
#[derive(Debug)]
pub(crate) struct Fate {
    clock: Clock,
    safe_until: watch::Sender<BootTime>,
    standing: watch::Sender<Standing>,
    lost: CancellationToken,
    events: broadcast::Sender<Event>,
}

impl Fate {
    pub(crate) fn new(clock: Clock, safe_until: BootTime) -> Self {
        Self {
            clock,
            safe_until: watch::Sender::new(safe_until),
            standing: watch::Sender::new(Standing::Held),
            lost: CancellationToken::new(),
            events: broadcast::Sender::new(EVENTS_MAX),
        }
    }

    /// It may be relied on until then, if not for longer already.
    pub(crate) fn extend(&self, safe_until: BootTime) {
        self.safe_until.send_if_modified(|until| {
            let is_later = safe_until > *until && !self.is_lost();
            if is_later {
                *until = safe_until;
            }
            is_later
        });
    }

    pub(crate) fn safe_until(&self) -> BootTime {
        *self.safe_until.borrow()
    }

    pub(crate) fn promises(&self) -> watch::Receiver<BootTime> {
        self.safe_until.subscribe()
    }

    /// Renewals are answered.
    pub(crate) fn hold(&self) {
        if self.change(Standing::Held) {
            self.tell(Event::Held);
        }
    }

    /// Renewals are failing.
    pub(crate) fn endanger(&self) {
        if self.change(Standing::Jeopardy) {
            self.tell(Event::Jeopardy);
        }
    }

    /// It is over, for good.
    pub(crate) fn lose(&self, loss: Loss) {
        if self.change(Standing::Lost(loss.clone())) {
            self.tell(Event::Lost(loss));
        }
    }

    pub(crate) fn tell(&self, event: Event) {
        // Nobody has to listen.
        let _ = self.events.send(event);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    pub(crate) fn token(&self) -> CancellationToken {
        self.lost.clone()
    }

    pub(crate) fn events(&self) -> Events {
        Events { events: self.events.subscribe() }
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.is_lost() { Duration::ZERO } else { self.safe_until().since(self.clock.now()) }
    }

    /// Whether it may be relied on at this moment, by our own clock alone.
    pub(crate) fn ensure(&self) -> Result<(), Loss> {
        match &*self.standing.borrow() {
            Standing::Lost(loss) => Err(loss.clone()),
            _ if self.remaining().is_zero() => Err(Loss::Unanswered),
            _ => Ok(()),
        }
    }

    pub(crate) async fn lost(&self) -> Loss {
        let mut standing = self.standing.subscribe();
        let lost = standing.wait_for(|standing| matches!(standing, Standing::Lost(_))).await;
        match lost.as_deref() {
            Ok(Standing::Lost(loss)) => loss.clone(),
            _ => Loss::KeeperGone,
        }
    }

    fn change(&self, to: Standing) -> bool {
        self.standing.send_if_modified(|standing| {
            let changes = !matches!(standing, Standing::Lost(_)) && *standing != to;
            if changes {
                // Before anybody hears of it, so that whoever was told by one way finds the other one told, too.
                if let Standing::Lost(_) = to {
                    self.lost.cancel();
                }
                *standing = to;
            }
            changes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_lost_stays_lost_and_everybody_is_told_once() {
        let (clock, mover) = Clock::movable();
        let fate = Fate::new(clock.clone(), clock.now() + Duration::from_secs(60));
        let (mut events, token) = (fate.events(), fate.token());
        assert!(fate.ensure().is_ok() && !fate.remaining().is_zero());
        fate.endanger();
        fate.endanger();
        fate.hold();
        fate.lose(Loss::Unheard);
        fate.hold();
        fate.lose(Loss::Unanswered);
        fate.extend(clock.now() + Duration::from_secs(600));
        assert_eq!(fate.ensure(), Err(Loss::Unheard));
        assert_eq!((fate.lost().await, fate.remaining()), (Loss::Unheard, Duration::ZERO));
        assert!(token.is_cancelled());
        mover.sleep(Duration::ZERO);
        drop(fate);
        let mut told = Vec::new();
        while let Some(event) = events.next().await {
            told.push(event);
        }
        assert_eq!(told, [Event::Jeopardy, Event::Held, Event::Lost(Loss::Unheard)]);
    }

    #[test]
    fn its_own_clock_is_enough_to_know_that_it_is_over() {
        let (clock, mover) = Clock::movable();
        let fate = Fate::new(clock.clone(), clock.now() + Duration::from_secs(60));
        assert!(fate.ensure().is_ok());
        mover.sleep(Duration::from_secs(60));
        assert_eq!((fate.ensure(), fate.remaining()), (Err(Loss::Unanswered), Duration::ZERO));
    }

    #[test]
    fn an_earlier_end_never_replaces_a_later_one() {
        let clock = Clock::system();
        let far = clock.now() + Duration::from_secs(60);
        let fate = Fate::new(clock.clone(), far);
        fate.extend(clock.now());
        assert_eq!(fate.safe_until(), far);
    }
}
