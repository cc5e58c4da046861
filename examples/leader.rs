//! One of several processes leads, and another one takes over when it dies. Start it in two terminals, and stop the one
//! that leads:
//!
//! ```sh
//! cargo run --example leader -- ann
//! cargo run --example leader -- bob
//! ```
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::time::Duration;
use tenure::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name = std::env::args().nth(1).unwrap_or_else(tenure::default_holder);
    let client = Client::from_env().await?;
    client
        .election("example/leader")
        .ttl(Duration::from_secs(5))
        .holder(&name)
        .lead(async |held| {
            println!("{name} leads with fence {}", held.fence());
            // The work of a leader. It is dropped here the moment the lead is lost, and begun again with the next one.
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                println!("{name} still leads, for {:?} at least", held.remaining());
            }
        })
        .await
}
