//! Another cluster at the address of the first one: whoever waits or watches is refused in words, and nothing is done there.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::{PATIENCE, Server, binary, reserved, soon, text};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tenure::{Client, Code};
use tenure_testkit::holds::until;

/// A command that is under way; one that never ends fails.
fn begins(server: &Server, args: &[&str]) -> Child {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(binary()).args(args).env("TENURE_ADDR", &server.addr);
    command.env("USER", "bob").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_client_is_refused_by_another_cluster() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let address = reserved().to_string();
    let first = Server::start_at(one.path(), &address);
    assert!(first.tenure(&["acquire", "db", "--ttl", "1h"]).status.success());
    let client = first.client().await;
    let waits = [
        begins(&first, &["acquire", "db", "--wait", "30m"]),
        begins(&first, &["run", "db", "--wait", "30m", "--", "true"]),
        begins(&first, &["elect", "db", "--", "true"]),
    ];
    let waiter = tokio::spawn(client.lease("db").wait_for_ever().acquire());
    until(&client, "db", |shown| shown.waiting == 4).await;
    let watcher = tokio::spawn({
        // From the beginning, so that the first events tell that it has begun.
        let mut watch = client.watch("db").after(tenure::v1::Cursor::default());
        soon("the first events", watch.next()).await.unwrap();
        async move {
            loop {
                if let Err(error) = watch.next().await {
                    return error;
                }
            }
        }
    });
    first.kill9();
    let second = Server::start_at(other.path(), &address);
    for refused in [soon("the waiter", waiter).await.unwrap().unwrap_err(), soon("the watch", watcher).await.unwrap()] {
        assert_eq!(refused.code(), Some(Code::OtherCluster), "{refused}");
        assert!(refused.is_other_cluster() && !refused.is_for_now());
    }
    for wait in waits {
        let output = wait.wait_with_output().unwrap();
        let words = text(&output.stderr);
        assert!(output.status.code().is_some_and(|code| code != 0 && code != 124), "{output:?}");
        assert!(
            words.contains("this server belongs to cluster ") && words.contains("has been using cluster "),
            "{words}"
        );
    }
    let history = text(&second.tenure(&["history"]).stdout);
    assert!(!history.contains("db"), "nothing was done there: {history}");
    // A new client uses the cluster that is there.
    let anew = Client::connect(&second.addr).await.unwrap();
    let hold = anew.lease("db").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    hold.release().await.unwrap();
}
