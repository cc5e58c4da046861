//! `tenure once`: a command that is begun at most once in a while, wherever it is typed. The mark is a claim that nobody
//! gives back: it is there before the command starts, and stays for as long as was said.

use super::Caller;
use super::keeping::{Rules, give_back};
use super::run::{catch, given_up};
use super::wait::{self, NotGot};
use crate::args::Once;
use crate::failure::Failure;
use crate::print;
use crate::wrap::{Because, Ended, Program, Status};
use std::process::ExitCode;
use tenure::timing::TTL_DEFAULT;
use tenure::{Code, Error, Hold, v1};

pub(crate) async fn once(caller: &Caller, args: Once) -> Result<ExitCode, Failure> {
    let what = format!("cannot do {} once", args.key);
    let program = Program::find(args.command.clone())?;
    if args.keeping.ttl.is_some() && !args.retry_failed {
        let why = "without --retry-failed the mark lives for --keep, and there is no other TTL";
        return Err(Failure::usage(&what, why, "Leave out --ttl, or say --retry-failed."));
    }
    // Else the mark is there from the first moment for as long as it is to stay, whatever becomes of this process.
    let ttl = if args.retry_failed { TTL_DEFAULT } else { args.keep };
    let rules = Rules::check(&what, &args.keeping, &program, ttl)?;
    let mut signals = catch(&what)?;
    let client = caller.connect(&what).await?;
    let ask = rules.asking(client.lease(&args.key));
    let hold = match wait::get(&client, ask, signals.given_up()).await {
        Ok(hold) => hold,
        Err(NotGot::GivenUp { by, has_left }) => return Ok(given_up(by, has_left)),
        Err(NotGot::Failed(Error::Refused(failure))) if tenure_api::code_of(&failure) == Some(Code::Taken) => {
            print::say(&done_already(&args.key, &failure));
            return Ok(ExitCode::from(args.done_code));
        }
        Err(NotGot::Failed(error)) => return Err(Failure::of(&what, &error)),
    };
    let ended = rules.run(&hold, program, signals).await;
    mark(&args, hold, ended.as_ref().ok()).await;
    Ok(rules.exit_code(ended?))
}

/// Keeps the mark, or takes it away.
async fn mark(args: &Once, hold: Hold, ended: Option<&Ended>) {
    let is_done = ended.is_some_and(|ended| ended.status == Status::Code(0) && ended.because != Because::Lost);
    match (args.retry_failed, is_done) {
        (false, _) => hold.leave(),
        (true, false) => give_back(hold).await,
        (true, true) => {
            if let Err(error) = hold.renew_for(args.keep).await {
                print::say(&format!("it is done, but the mark could not be kept: {error}. It may be done again"));
            }
            hold.leave();
        }
    }
}

fn done_already(key: &str, failure: &v1::Failure) -> String {
    let left = print::span_ms(failure.remaining_ms);
    let since = crate::clock::wall_ms().saturating_sub(failure.since_wall_ms);
    let since = if failure.since_wall_ms == 0 { String::new() } else { format!(" {}", print::ago_ms(since)) };
    format!("{key} was begun by {}{since}; it is not begun again for {left} at least", failure.holder)
}
