//! A command under a lease: what is held is turned into limits for its process group, and given back when that is gone.

use super::LAST_ANSWER;
use crate::args::Keeping;
use crate::failure::Failure;
use crate::print;
use crate::wrap::{self, Because, Ended, Limits, OnJeopardy, OnLost, Plan, Program, Signals, Told, Ways};
use std::process::ExitCode;
use std::time::Duration;
use tenure::clock::Clock;
use tenure::timing::{KILL_MARGIN, Timing, WRAPPED_TTL_GOOD, WRAPPED_TTL_MIN};
use tenure::{Ask, Hold, Loss, Standing};
use tokio::sync::watch;

/// The rules that were typed, found to fit together.
pub(super) struct Rules {
    ways: Ways,
    lost_code: u8,
    ttl: Duration,
    reason: String,
    holder: String,
}

impl Rules {
    /// Whether the times fit together, so that a command can be stopped in time. Nothing was asked for yet.
    pub(super) fn check(what: &str, keeping: &Keeping, program: &Program, ttl: Duration) -> Result<Self, Failure> {
        let refuse = |why: &str, next: &str| Err(Failure::usage(what, why, next));
        let ttl = keeping.ttl.unwrap_or(ttl);
        if ttl < WRAPPED_TTL_MIN {
            return refuse("with a TTL below 1s there is no time to stop a command", "Say a longer one: --ttl 15s");
        }
        if keeping.on_lost == OnLost::Ignore && keeping.on_jeopardy == OnJeopardy::Pause {
            let next = "Leave out --on-lost ignore or --on-jeopardy pause.";
            return refuse("a command to which nothing is done cannot be paused", next);
        }
        let timing = match keeping.stop_timeout {
            Some(budget) => Timing::with_stop_budget(ttl, budget),
            None => Timing::of(ttl),
        };
        let budget = timing.safe_until.saturating_sub(timing.stop);
        if budget <= KILL_MARGIN {
            let why = format!("a stop timeout of {} leaves no time to stop", print::span(budget));
            return refuse(&why, "Say a longer one: --stop-timeout 1s");
        }
        if timing.stop <= timing.renew + timing.first_retry {
            let (budget, ttl) = (print::span(budget), print::span(ttl));
            let why = format!(
                "a stop timeout of {budget} does not fit a TTL of {ttl}: one renewal without an answer would end the command"
            );
            return refuse(&why, "Say a longer --ttl or a shorter --stop-timeout; `tenure explain` shows the times.");
        }
        Ok(Self {
            ways: Ways { budget, on_lost: keeping.on_lost, on_jeopardy: keeping.on_jeopardy },
            lost_code: keeping.lost_code,
            ttl,
            reason: keeping.reason.clone().unwrap_or_else(|| program.name()),
            holder: keeping.holder.clone().unwrap_or_else(tenure::default_holder),
        })
    }

    /// Says so if small hiccups will stop the command.
    pub(super) fn warn(&self) {
        if self.ttl < WRAPPED_TTL_GOOD {
            print::say("with a TTL below 10s small hiccups stop the command; see `tenure explain --ttl 15s`");
        }
    }

    /// Asks for it on these terms.
    pub(super) fn asking(&self, ask: Ask) -> Ask {
        ask.ttl(self.ttl).holder(&self.holder).reason(&self.reason)
    }

    /// Runs a command under what is held, until its group is gone.
    pub(super) async fn run(&self, hold: &Hold, program: Program, signals: Signals) -> Result<Ended, Failure> {
        let claim = hold.claims().first().cloned();
        let (resource, fence) = claim.map_or_else(Default::default, |claim| (claim.resource, claim.fence));
        let env = [
            ("TENURE_RESOURCE", resource),
            ("TENURE_FENCE", fence.to_string()),
            ("TENURE_HOLDER", self.holder.clone()),
            ("TENURE_TTL", self.ttl.as_millis().to_string()),
        ];
        let env = env.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let (tell, told) = watch::channel(Told::Until(self.limits(hold)));
        let running = wrap::supervise(Plan { program, env, ways: self.ways }, told, signals, Clock::system());
        tokio::select! {
            biased;
            ended = running => ended,
            never = self.feed(hold, &tell) => match never {},
        }
    }

    /// The exit code of what ran under these rules.
    pub(super) fn exit_code(&self, ended: Ended) -> ExitCode {
        ExitCode::from(match ended.because {
            Because::Lost => self.lost_code,
            Because::Itself | Because::Forwarded(_) => ended.status.exit_code(),
        })
    }

    /// Tells every new limit, and an end that came before its time.
    async fn feed(&self, hold: &Hold, tell: &watch::Sender<Told>) -> std::convert::Infallible {
        let (mut promises, mut standing) = (hold.promises(), hold.standing());
        // What has changed since the first limits were told is told as well.
        promises.mark_changed();
        if *standing.borrow() != Standing::Held {
            standing.mark_changed();
        }
        loop {
            tokio::select! {
                biased;
                _ = standing.changed() => self.tell_standing(hold, &standing.borrow_and_update().clone(), tell),
                _ = promises.changed() => {
                    promises.borrow_and_update();
                    if !matches!(*standing.borrow(), Standing::Lost(_)) {
                        tell.send_replace(Told::Until(self.limits(hold)));
                    }
                }
            }
        }
    }

    fn tell_standing(&self, hold: &Hold, standing: &Standing, tell: &watch::Sender<Told>) {
        match standing {
            Standing::Held => print::say("the server answers again"),
            Standing::Jeopardy => {
                let left = print::span(hold.remaining().saturating_sub(self.ways.budget));
                print::say(&format!("the server does not answer; the command is safe for {left} more"));
            }
            Standing::Lost(loss) if self.ways.on_lost == OnLost::Ignore => {
                print::say(&format!("the lease is lost: {loss}; the command goes on, and only the fence is left"));
            }
            // Its limits are over by now, and were told.
            Standing::Lost(Loss::Unanswered | Loss::TimeOver | Loss::NoProgress) => {}
            Standing::Lost(loss) => {
                print::say(&format!("the lease is lost: {loss}"));
                tell.send_replace(Told::EndedBySomebody(self.limits(hold)));
            }
        }
    }

    fn limits(&self, hold: &Hold) -> Limits {
        let until = hold.safe_until();
        Limits { stop: until - self.ways.budget, kill: until - KILL_MARGIN }
    }
}

/// Gives back what was held, now that nothing runs under it.
pub(super) async fn give_back(hold: Hold) {
    let was_lost = hold.ensure().is_err();
    if tokio::time::timeout(LAST_ANSWER, hold.release()).await.is_err() && !was_lost {
        print::say("the server does not answer: the lease was not given back, and ends by itself");
    }
}
