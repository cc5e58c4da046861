//! What is done to a group, and when, by the limits that were told. It reads no clock and sends no signal, so that every
//! hour can be tested. Wrapper and guard go by the same rules.

use super::{Limits, OnJeopardy, OnLost, Told, Ways};
use std::time::Duration;
use tenure::clock::BootTime;

/// A timer wakes late and never early, so what has to be done by a time is done so long before it.
const KILL_EARLY: Duration = Duration::from_millis(20);

/// What is done to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// It is asked to stop, and woken up to hear it.
    Ask,
    Pause,
    Continue,
    Kill,
}

/// How far it has come with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    Paused,
    /// It was asked to stop. Nothing takes that back.
    Stopping {
        kill: BootTime,
    },
    Killing,
}

#[derive(Debug)]
pub(super) struct Course {
    ways: Ways,
    limits: Limits,
    stage: Stage,
    is_lost: bool,
}

impl Course {
    pub(super) fn new(ways: Ways, limits: Limits) -> Self {
        Self { ways, limits, stage: Stage::Running, is_lost: false }
    }

    pub(super) fn ways(&self) -> Ways {
        self.ways
    }

    /// The newest limits that were told.
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether the group was stopped because its lease was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(super) fn is_running(&self) -> bool {
        self.stage == Stage::Running
    }

    pub(super) fn is_paused(&self) -> bool {
        self.stage == Stage::Paused
    }

    pub(super) fn is_killing(&self) -> bool {
        self.stage == Stage::Killing
    }

    /// When a group that was asked to stop is killed.
    pub(super) fn stopping(&self) -> Option<BootTime> {
        match self.stage {
            Stage::Stopping { kill } => Some(kill),
            _ => None,
        }
    }

    /// When something is due next.
    pub(super) fn next(&self) -> Option<BootTime> {
        match self.stage {
            _ if self.ways.on_lost == OnLost::Ignore => None,
            Stage::Running if self.has_stop() => Some(self.limits.stop.min(early(self.limits.kill))),
            Stage::Running | Stage::Paused => Some(early(self.limits.kill)),
            Stage::Stopping { kill } => Some(early(kill)),
            Stage::Killing => None,
        }
    }

    /// What is due.
    pub(super) fn due(&mut self, now: BootTime) -> Option<Act> {
        if self.next().is_none_or(|next| now < next) {
            return None;
        }
        if let Stage::Stopping { .. } = self.stage {
            return Some(self.kill());
        }
        if now >= early(self.limits.kill) {
            self.is_lost = true;
            return Some(self.kill());
        }
        match self.ways.on_jeopardy {
            OnJeopardy::Pause => {
                self.stage = Stage::Paused;
                Some(Act::Pause)
            }
            OnJeopardy::None => {
                self.is_lost = true;
                Some(self.ask(self.limits.kill))
            }
        }
    }

    /// What follows from what was told, after what was due before it.
    pub(super) fn told(&mut self, told: Told, now: BootTime) -> Option<Act> {
        let due = self.due(now);
        let follows = match told {
            Told::Until(limits) => self.renewed(limits, now),
            Told::EndedBySomebody(limits) => self.ended(limits, now),
        };
        follows.or(due)
    }

    /// The command has ended, and others of its group live on.
    pub(super) fn left_over(&mut self, now: BootTime) -> Option<Act> {
        let is_in_time = matches!(self.stage, Stage::Running | Stage::Paused);
        let kill = self.limits.kill.min(now + self.ways.budget);
        (is_in_time && self.ways.on_lost != OnLost::Ignore).then(|| self.ask(kill))
    }

    /// Somebody else has asked the group to stop, by whatever limits.
    pub(super) fn was_asked(&mut self, kill: BootTime) {
        if matches!(self.stage, Stage::Running | Stage::Paused) {
            self.stage = Stage::Stopping { kill };
        }
    }

    fn renewed(&mut self, limits: Limits, now: BootTime) -> Option<Act> {
        match self.stage {
            Stage::Running => self.limits = limits,
            Stage::Paused if now < limits.stop => {
                self.limits = limits;
                self.stage = Stage::Running;
                return Some(Act::Continue);
            }
            Stage::Paused => self.limits = limits,
            Stage::Stopping { .. } | Stage::Killing => {}
        }
        None
    }

    fn ended(&mut self, limits: Limits, now: BootTime) -> Option<Act> {
        let kill = limits.kill.min(now + self.ways.budget);
        match (self.stage, self.ways.on_lost) {
            (_, OnLost::Ignore) | (Stage::Killing, _) => None,
            (Stage::Stopping { kill: before }, _) => {
                self.stage = Stage::Stopping { kill: before.min(kill) };
                None
            }
            (_, OnLost::Term) => {
                self.is_lost = true;
                Some(self.ask(kill))
            }
            // Whoever is not asked has no use for the time to stop.
            (_, OnLost::Kill) => {
                self.is_lost = true;
                Some(self.kill())
            }
        }
    }

    /// Whether anything is done before the group is killed.
    fn has_stop(&self) -> bool {
        self.ways.on_lost == OnLost::Term || self.ways.on_jeopardy == OnJeopardy::Pause
    }

    fn ask(&mut self, kill: BootTime) -> Act {
        self.stage = Stage::Stopping { kill };
        Act::Ask
    }

    fn kill(&mut self) -> Act {
        self.stage = Stage::Killing;
        Act::Kill
    }
}

fn early(kill: BootTime) -> BootTime {
    BootTime::from_start(kill.since_start().saturating_sub(KILL_EARLY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::from_start(Duration::from_millis(ms))
    }

    fn limits(stop: u64, kill: u64) -> Limits {
        Limits { stop: at(stop), kill: at(kill) }
    }

    fn course(on_lost: OnLost, on_jeopardy: OnJeopardy) -> Course {
        Course::new(Ways { budget: Duration::from_millis(300), on_lost, on_jeopardy }, limits(1_000, 1_500))
    }

    /// What is due at these times, one after the other.
    fn dues(course: &mut Course, times: &[u64]) -> Vec<Option<Act>> {
        times.iter().map(|ms| course.due(at(*ms))).collect()
    }

    const DUE: [u64; 7] = [0, 999, 1_000, 1_001, 1_479, 1_480, 9_000];

    #[test]
    fn a_group_is_asked_to_stop_and_then_killed_each_once_and_in_time() {
        let mut course = course(OnLost::Term, OnJeopardy::None);
        assert_eq!(course.next(), Some(at(1_000)));
        assert_eq!(dues(&mut course, &DUE), [None, None, Some(Act::Ask), None, None, Some(Act::Kill), None]);
        assert!(course.is_lost() && course.next().is_none());
    }

    #[test]
    fn a_group_may_be_killed_without_being_asked() {
        let mut course = course(OnLost::Kill, OnJeopardy::None);
        assert_eq!(course.next(), Some(at(1_480)));
        assert_eq!(dues(&mut course, &DUE), [None, None, None, None, None, Some(Act::Kill), None]);
    }

    #[test]
    fn nothing_is_ever_done_to_a_group_that_ignores_it() {
        let mut course = course(OnLost::Ignore, OnJeopardy::None);
        assert_eq!(dues(&mut course, &DUE), [None; 7]);
        assert_eq!(course.told(Told::EndedBySomebody(limits(1_000, 1_500)), at(10)), None);
        assert_eq!(course.left_over(at(10)), None);
        assert!(course.next().is_none() && !course.is_lost());
    }

    #[test]
    fn a_renewal_moves_the_limits_until_the_group_was_asked() {
        let mut course = course(OnLost::Term, OnJeopardy::None);
        assert_eq!(course.told(Told::Until(limits(2_000, 2_500)), at(900)), None);
        assert_eq!(course.due(at(1_999)), None);
        assert_eq!(course.told(Told::Until(limits(3_000, 3_500)), at(2_000)), Some(Act::Ask), "it was due before");
        assert_eq!(course.told(Told::Until(limits(4_000, 4_500)), at(2_100)), None);
        assert_eq!(course.due(at(2_480)), Some(Act::Kill), "by the limits by which it was asked");
    }

    #[test]
    fn a_renewal_undoes_a_pause() {
        let mut course = course(OnLost::Term, OnJeopardy::Pause);
        assert_eq!(dues(&mut course, &[999, 1_000, 1_001]), [None, Some(Act::Pause), None]);
        assert_eq!(course.told(Told::Until(limits(1_050, 1_900)), at(1_100)), None, "it is too old to go on by");
        assert_eq!(course.told(Told::Until(limits(2_000, 2_500)), at(1_200)), Some(Act::Continue));
        assert!(course.is_running() && !course.is_lost());
        assert_eq!(dues(&mut course, &[1_999, 2_000, 2_480]), [None, Some(Act::Pause), Some(Act::Kill)]);
        assert!(course.is_lost());
    }

    #[test]
    fn a_lease_that_somebody_ended_stops_the_group_at_once() {
        for (now, kill) in [(100, 400), (1_300, 1_500)] {
            let mut course = course(OnLost::Term, OnJeopardy::Pause);
            course.due(at(now));
            assert_eq!(course.told(Told::EndedBySomebody(limits(1_000, 1_500)), at(now)), Some(Act::Ask));
            assert_eq!(course.stopping(), Some(at(kill)), "after its budget, and never after the limit");
            assert!(course.is_lost());
        }
        let mut course = course(OnLost::Kill, OnJeopardy::None);
        assert_eq!(course.told(Told::EndedBySomebody(limits(1_000, 1_500)), at(100)), Some(Act::Kill));
    }

    #[test]
    fn what_is_left_over_has_its_budget_and_is_no_loss() {
        let mut early = course(OnLost::Kill, OnJeopardy::None);
        assert_eq!(early.left_over(at(100)), Some(Act::Ask));
        assert_eq!(dues(&mut early, &[379, 380]), [None, Some(Act::Kill)]);
        assert!(!early.is_lost());
        let mut late = course(OnLost::Kill, OnJeopardy::None);
        assert_eq!(late.left_over(at(1_400)), Some(Act::Ask));
        assert_eq!(late.stopping(), Some(at(1_500)), "never after the limit");
    }

    #[test]
    fn a_group_that_was_asked_is_not_asked_again() {
        let mut course = course(OnLost::Term, OnJeopardy::None);
        course.was_asked(at(1_200));
        assert_eq!(dues(&mut course, &[1_000, 1_179, 1_180]), [None, None, Some(Act::Kill)]);
    }
}
