//! One service with its agents, by the Rust client.

use crate::soon;
use tenure::registry::{RegisterAsk, View};
use tenure::{Client, v1};

pub const SERVICE: &str = "agents/planner";

/// A registration as that agent would make it.
pub fn ask(client: &Client, id: &str) -> RegisterAsk {
    client.register(SERVICE).id(id).endpoint("http://127.0.0.1:9")
}

/// An instance as it is now.
pub async fn shown(client: &Client, id: &str) -> v1::ShowInstanceReply {
    let request = v1::ShowInstanceRequest { service: SERVICE.into(), id: id.into(), stale: false };
    client.show_instance(request).await.unwrap()
}

/// Waits until a view looks so.
pub async fn until(view: &mut View, what: &str, is_so: impl Fn(&View) -> bool) {
    soon(what, async {
        while !is_so(view) {
            view.changed().await;
        }
    })
    .await;
}

/// The instances of a view.
pub fn ids(view: &View) -> Vec<String> {
    view.instances().iter().map(|found| found.instance.id.clone()).collect()
}
