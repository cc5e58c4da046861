//! GPUs for an hour, in a fair line. A reservation is not renewed by a heartbeat: it is kept by decisions, and ends by
//! itself if nobody decides.
//!
//! ```sh
//! cargo run --example reservation -- 2
//! ```
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::time::Duration;
use tenure::{Client, Error};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let gpus: u64 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(2);
    let client = Client::from_env().await?;
    let reservation = client
        .lease("example/gpus")
        .units(gpus)
        .of_capacity(4)
        .class("reservation")
        .ttl(HOUR)
        .reason("training run 17")
        .wait(HOUR)
        .acquire()
        .await?;
    println!(
        "{gpus} of 4 GPUs are ours with fence {}, for {} s",
        reservation.fence(),
        reservation.remaining().as_secs()
    );
    // Half-way through somebody decides that it takes longer.
    let longer = reservation.renew_for(HOUR * 2).await?;
    println!("kept for {} s more", longer.as_secs());
    reservation.release().await?;
    println!("given back");
    Ok(())
}
