//! What tests of the Rust client ask about holders and their leases.

use crate::soon;
use tenure::{Client, Error, Hold, v1};

/// A resource as it is now.
pub async fn show(client: &Client, resource: &str) -> v1::ShowReply {
    client.show(v1::ShowRequest { resource: resource.into(), stale: false }).await.unwrap()
}

/// What the server says of the first claim of a holder.
pub async fn verify(client: &Client, hold: &Hold) -> Result<v1::VerifyReply, Error> {
    client.verify(v1::VerifyRequest { handle: hold.claims()[0].handle() }).await
}

/// Waits until a resource looks so.
pub async fn until(client: &Client, resource: &str, is_so: impl Fn(&v1::ShowReply) -> bool) -> v1::ShowReply {
    soon("what is waited for", async {
        loop {
            let shown = show(client, resource).await;
            if is_so(&shown) {
                return shown;
            }
        }
    })
    .await
}

/// Reads a watch until so many events have come.
pub async fn events(client: &Client, after: Option<v1::Cursor>, count: usize) -> (Vec<v1::Event>, v1::Cursor) {
    let mut watch = client
        .watch_stream(v1::WatchRequest { prefix: String::new(), after, ..v1::WatchRequest::default() })
        .await
        .unwrap();
    let (mut events, mut cursor) = (Vec::new(), v1::Cursor::default());
    while events.len() < count {
        let reply = soon("an event", watch.message()).await.unwrap().unwrap();
        events.extend(reply.events);
        cursor = reply.cursor.unwrap();
    }
    (events, cursor)
}
