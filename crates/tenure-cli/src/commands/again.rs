//! Looking once, or again and again: on a terminal in place, every second and on every change; else once a change.

use super::{Caller, stop_signal};
use crate::args::Output;
use crate::clock;
use crate::failure::Failure;
use crate::page::Page;
use crate::print::{self, Draw};
use crate::screen::{self, Screen};
use serde_json::Value;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tenure::{Client, v1};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often a terminal is drawn anew, so that times count down.
const REDRAW: Duration = Duration::from_secs(1);

/// How soon what has broken is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What counts by itself. Two looks that differ in nothing else are the same.
const COUNTING: [&str; 12] = [
    "remaining_ms",
    "renewed_wall_ms",
    "renewed_ago_ms",
    "held_ms",
    "waited_ms",
    "limit_left_ms",
    "next_in_ms",
    "breaks_in_ms",
    "valid_for_ms",
    "held_down_ms",
    "revoked_in_ms",
    "penalty",
];

/// Looks, and prints what was seen.
pub(super) async fn once<T: Draw>(
    caller: &Caller,
    what: &str,
    look: impl AsyncFn(&Client) -> Result<T, Failure>,
) -> Result<ExitCode, Failure> {
    let client = caller.connect(what).await?;
    print::draw(caller.output, &look(&client).await?);
    Ok(ExitCode::SUCCESS)
}

/// Looks again and again, until somebody stops it.
pub(super) async fn again<T: Draw>(
    caller: &Caller,
    what: &str,
    look: impl AsyncFn(&Client) -> Result<T, Failure>,
) -> Result<ExitCode, Failure> {
    let stopped =
        stop_signal().map_err(|error| Failure::before(what, &error.to_string(), "Try it without --watch."))?;
    let client = caller.connect(what).await?;
    let changes = Changes::of(client.clone());
    let looking = async {
        match caller.output {
            Output::Table if std::io::stdout().is_terminal() => in_place(&client, &changes, look).await,
            output => by_change(output, &client, &changes, look).await,
        }
    };
    tokio::select! {
        ended = looking => ended,
        () = stopped => Ok(ExitCode::SUCCESS),
    }
}

/// Draws over what was drawn before. A server that is away may come back.
async fn in_place<T: Draw>(
    client: &Client,
    changes: &Changes,
    look: impl AsyncFn(&Client) -> Result<T, Failure>,
) -> Result<ExitCode, Failure> {
    let mut ticks = interval(REDRAW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = String::new();
    print::text("\x1b[2J");
    loop {
        let head = match look(client).await {
            Ok(seen) => {
                let mut page = Page::new(Screen::of_stdout());
                seen.draw(&mut page);
                last = page.all();
                String::from("every second and on every change; Ctrl-C ends it")
            }
            Err(failure) => failure.first_line(),
        };
        let page = format!("{}  {head}\n\n{last}", clock::local(clock::wall_ms()));
        print::text(&screen::over(&page, screen::size()));
        tokio::select! {
            _ = ticks.tick() => {}
            () = changes.next() => {}
        }
    }
}

/// Prints what was seen whenever it is not what was seen before.
async fn by_change<T: Draw>(
    output: Output,
    client: &Client,
    changes: &Changes,
    look: impl AsyncFn(&Client) -> Result<T, Failure>,
) -> Result<ExitCode, Failure> {
    let mut last = None;
    loop {
        let seen = look(client).await?;
        let settled = settled(serde_json::to_value(&seen).expect("what is printed has only text keys"));
        if last.as_ref() != Some(&settled) {
            match output {
                Output::Jsonl => print::line(&print::json(&seen)),
                output => print::draw(output, &seen),
            }
            last = Some(settled);
        }
        changes.next().await;
    }
}

/// The same without what counts by itself.
fn settled(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(name, _)| !COUNTING.contains(&name.as_str()));
            Value::Object(kept.map(|(name, value)| (name, settled(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(settled).collect()),
        other => other,
    }
}

/// Says that something has changed at the server. Changes that nobody has looked at yet count as one.
struct Changes {
    noticed: Arc<Notify>,
    listener: tokio::task::JoinHandle<()>,
}

impl Changes {
    fn of(client: Client) -> Self {
        let noticed = Arc::new(Notify::new());
        let listener = tokio::spawn(listen(client, noticed.clone()));
        Self { noticed, listener }
    }

    async fn next(&self) {
        self.noticed.notified().await;
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// A watch that broke may have missed something, so its end counts as a change, and so does its beginning.
async fn listen(client: Client, noticed: Arc<Notify>) {
    loop {
        if let Ok(mut replies) = client.watch_stream(v1::WatchRequest::default()).await {
            noticed.notify_one();
            while let Ok(Some(_)) = replies.message().await {
                noticed.notify_one();
            }
        }
        noticed.notify_one();
        sleep(RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn time_that_passes_is_no_change() {
        let at = |remaining_ms: u64, fence: u64| {
            settled(json!({"items": [{"name": "db", "remaining_ms": remaining_ms, "ttl_ms": 5, "fence": fence}]}))
        };
        assert_eq!(at(10, 1), at(9, 1));
        assert_ne!(at(10, 1), at(10, 2));
        assert_eq!(at(10, 1), json!({"items": [{"name": "db", "ttl_ms": 5, "fence": 1}]}));
    }
}
