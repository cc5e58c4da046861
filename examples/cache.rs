//! A cache that never serves what has been overwritten. Whoever keeps a copy holds a shared claim on it; whoever wants to
//! write asks for it alone, which tells every reader to drop its copy. A reader that is cut off loses its claim, and knows.
//!
//! ```sh
//! cargo run --example cache
//! ```
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::time::Duration;
use tenure::{Client, Error, Event, Hold};

const NAME: &str = "example/cache/price";
const TTL: Duration = Duration::from_secs(6);

/// A copy, and the right to rely on it.
struct Copy {
    value: Vec<u8>,
    right: Hold,
}

impl Copy {
    async fn fetch(client: &Client) -> Result<Self, Error> {
        let right = client.lease(NAME).shared().ttl(TTL).wait(Duration::from_secs(60)).acquire().await?;
        let value = client.keys().get(NAME).await?.map(|item| item.value).unwrap_or_default();
        Ok(Self { value, right })
    }

    /// The value, only while nobody can have written another one. It asks nobody.
    fn value(&self) -> Option<&[u8]> {
        self.right.ensure().is_ok().then_some(&self.value)
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::from_env().await?;
    write(&client, "10").await?;
    let copy = Copy::fetch(&client).await?;
    println!("read {}", text(copy.value()));
    let writer = tokio::spawn({
        let client = client.clone();
        async move { write(&client, "12").await }
    });
    // The copy is good until somebody waits for it, or until it is lost.
    let mut events = copy.right.events();
    while let Some(event) = events.next().await {
        if let Event::Waiting { .. } | Event::Lost(_) = event {
            println!("somebody wants to write: the copy is dropped");
            break;
        }
    }
    copy.right.release().await?;
    writer.await.map_err(|error| Error::Local(error.to_string()))??;
    println!("read {}", text(Copy::fetch(&client).await?.value()));
    client.close(Duration::from_secs(5)).await;
    Ok(())
}

/// Writes when no reader has a copy any longer.
async fn write(client: &Client, value: &'static str) -> Result<(), Error> {
    let written = client.lease(NAME).ttl(TTL).wait(Duration::from_secs(60));
    written.run(async |_| client.keys().put(NAME, value).await).await??;
    println!("wrote {value}");
    Ok(())
}

fn text(value: Option<&[u8]>) -> String {
    value.map_or_else(|| "nothing".into(), |value| String::from_utf8_lossy(value).into_owned())
}
