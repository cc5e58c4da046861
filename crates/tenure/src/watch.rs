//! Watching what happens, through every reconnect, without a gap and without a repetition.

use crate::client::Client;
use crate::error::Error;
use crate::v1;
use std::time::Duration;
use tonic::Streaming;

/// Pauses between attempts to connect again.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A watch that goes on where it stopped.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// let mut watch = client.watch("jobs/");
/// loop {
///     for event in watch.next().await?.events {
///         println!("{} {}", event.kind, event.resource);
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Watch {
    client: Client,
    request: v1::WatchRequest,
    stream: Option<Streaming<v1::WatchReply>>,
    pause: Duration,
}

impl Watch {
    pub(crate) fn new(client: Client, request: v1::WatchRequest) -> Self {
        Self { client, request, stream: None, pause: PAUSE_MIN }
    }

    /// Also what happens to resources whose names start so.
    #[must_use]
    pub fn or(mut self, prefix: impl Into<String>) -> Self {
        self.request.prefixes.push(prefix.into());
        self
    }

    /// From after this place on, instead of from the first `next` on.
    #[must_use]
    pub fn after(mut self, place: v1::Cursor) -> Self {
        self.request.after = Some(place);
        self
    }

    /// The place after which it would go on.
    pub fn place(&self) -> Option<v1::Cursor> {
        self.request.after
    }

    /// What happened next, and the place after it; sometimes only the place. It waits for a server for as long as it takes.
    /// It fails only for good, with [`tenure_api::Code::Compacted`] if it was away for too long.
    pub async fn next(&mut self) -> Result<v1::WatchReply, Error> {
        loop {
            match self.try_next().await {
                Ok(Some(reply)) => {
                    self.request.after = reply.cursor.or(self.request.after);
                    self.pause = PAUSE_MIN;
                    return Ok(reply);
                }
                Err(error) if !error.is_for_now() => return Err(error),
                Ok(None) | Err(_) => {
                    self.stream = None;
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn try_next(&mut self) -> Result<Option<v1::WatchReply>, Error> {
        if self.request.after.is_none() {
            // Where *now* is has to be known before the first connection breaks.
            let revision = self.client.status(v1::StatusRequest {}).await?.revision;
            self.request.after = Some(v1::Cursor { revision, n: u32::MAX });
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(self.client.watch_stream(self.request.clone()).await?),
        };
        Ok(stream.message().await?)
    }
}
