//! The engine inside the process: the same rules, the same data, no port.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::{Server, soon};
use std::time::Duration;
use tenure::{Client, Code, v1};
use tenure_server::{embedded, embedded_in_memory};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_engine_in_the_process_leaves_data_that_a_server_goes_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let engine = embedded(directory.path()).await.unwrap();
    let second = embedded(directory.path()).await.unwrap_err();
    assert!(second.to_string().contains("in use"), "{second}");
    let client = Client::builder().dial(engine.dial()).connect().await.unwrap();
    let hold = client.lease("db").ttl(LONG).holder("ann").acquire().await.unwrap();
    assert_eq!(client.lease("db").acquire().await.unwrap_err().code(), Some(Code::Taken));
    let handle = hold.claims()[0].handle();
    hold.leave();
    drop(client);
    engine.stop().await;
    // Whoever still writes keeps others off.
    let server = soon("the directory", async {
        loop {
            match tenure_server::Lock::take(directory.path()) {
                Ok(lock) => {
                    drop(lock);
                    return Server::start(directory.path());
                }
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert_eq!(server.client().await.verify(v1::VerifyRequest { handle }).await.unwrap().holder, "ann");
}

#[test]
fn a_program_that_is_busy_for_three_ttls_keeps_what_it_holds_in_its_own_engine() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ttl = Duration::from_secs(5);
    let (engine, hold) = runtime.block_on(async {
        let engine = embedded_in_memory().await.unwrap();
        let client = Client::builder().dial(engine.dial()).connect().await.unwrap();
        (engine, client.lease("db").ttl(ttl).acquire().await.unwrap())
    });
    std::thread::sleep(ttl * 3);
    assert!(hold.ensure().is_ok());
    drop(engine);
    let loss = runtime.block_on(soon("the loss", hold.lost()));
    assert_eq!(loss, tenure::Loss::Unanswered, "an engine that is gone renews nothing");
}
