//! A job that several workers share: each shard is done once, by whoever gets it first, and a worker that dies leaves its
//! shard to the others. Start it in several terminals:
//!
//! ```sh
//! cargo run --example job -- 8
//! ```
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::time::Duration;
use tenure::{Client, Code, Error, Hold};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let shards: u32 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(8);
    let client = Client::from_env().await?;
    for shard in 0..shards {
        let name = format!("example/job/{shard}");
        let done = client.lease(&name).ttl(Duration::from_secs(10)).run(async |held| work(&client, held, shard).await);
        match done.await {
            Ok(outcome) => outcome?,
            // Somebody else is at it.
            Err(error) if error.code() == Some(Code::Taken) => {}
            // It was lost in the middle of the work: whoever has it now does it again.
            Err(Error::Lost(loss)) => println!("lost shard {shard}: {loss}"),
            Err(error) => return Err(error),
        }
    }
    client.close(Duration::from_secs(5)).await;
    Ok(())
}

/// Does a shard, unless it is done.
async fn work(client: &Client, held: &Hold, shard: u32) -> Result<(), Error> {
    let key = format!("example/job/{shard}/done");
    if client.keys().get(key.as_str()).await?.is_some() {
        return Ok(());
    }
    // Here is the work. Whatever it writes to is shown the fence.
    println!("did shard {shard} with fence {}", held.fence());
    client.keys().put(key.as_str(), held.fence().to_string()).await?;
    Ok(())
}
