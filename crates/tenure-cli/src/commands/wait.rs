//! Waiting for what is asked for, until it comes, is refused, or is given up. Whoever gives up leaves the line, or is told that
//! nobody knows.

use super::LAST_ANSWER;
use crate::print;
use tenure::{Ask, Client, Error, Hold};
use tokio::sync::watch;

/// What is said when nobody has heard that the line was left.
pub(super) const MAY_STAY: &str = "the server does not answer, and the claim may stay in line until its lease is over";

/// Why something was not got.
pub(super) enum NotGot<T> {
    /// It was refused, or did not come.
    Failed(Error),
    /// Somebody gave it up. Whether the claim has left the line may not be known.
    GivenUp { by: T, has_left: bool },
}

/// Gets what is asked for, unless somebody gives it up before.
pub(super) async fn get<T>(client: &Client, ask: Ask, gives_up: impl Future<Output = T>) -> Result<Hold, NotGot<T>> {
    let not_got = match wait(ask, gives_up).await {
        Ok(hold) => return Ok(hold),
        Err(not_got) => not_got,
    };
    if let NotGot::Failed(error) = &not_got
        && !matches!(error, Error::WaitedOut)
    {
        return Err(not_got);
    }
    // The line is left before the process ends.
    let has_left = client.close(LAST_ANSWER).await == 0;
    Err(match not_got {
        NotGot::GivenUp { by, .. } => NotGot::GivenUp { by, has_left },
        NotGot::Failed(_) if !has_left => NotGot::Failed(Error::Broken(MAY_STAY.into())),
        failed => failed,
    })
}

async fn wait<T>(ask: Ask, gives_up: impl Future<Output = T>) -> Result<Hold, NotGot<T>> {
    let (tell, mut place) = watch::channel(0);
    let getting = ask.tell_place(tell).acquire();
    tokio::pin!(getting, gives_up);
    loop {
        tokio::select! {
            biased;
            hold = &mut getting => return hold.map_err(NotGot::Failed),
            by = &mut gives_up => return Err(NotGot::GivenUp { by, has_left: false }),
            Ok(()) = place.changed() => print::say(&format!("waiting, place {} in line", *place.borrow_and_update())),
        }
    }
}
