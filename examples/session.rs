//! A session that lives for as long as somebody uses it. Every line that is typed is a use; without one it ends by itself,
//! and what hangs on it ends with it.
//!
//! ```sh
//! cargo run --example session -- 20
//! ```
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::time::Duration;
use tenure::{Client, Error};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let ttl = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(20);
    let client = Client::from_env().await?;
    let session = client.begin().class("session").ttl(Duration::from_secs(ttl)).holder("visitor").begin().await?;
    session.put("example/session/cart", "empty").await?;
    println!("the session lives for {ttl} s from each line that is typed");
    let mut lines = lines();
    loop {
        tokio::select! {
            loss = session.lost() => {
                println!("the session is over: {loss}");
                return Ok(());
            }
            Some(line) = lines.recv() => {
                session.touch();
                println!("used: {line}");
            }
        }
    }
}

/// What is typed, line by line.
fn lines() -> mpsc::Receiver<String> {
    let (typed, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if typed.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}
