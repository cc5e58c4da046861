//! The registry over HTTP.

use crate::http::{Line, Listens, get};
use serde_json::{Value, json};

/// An instance as it is now.
pub fn show(server: &impl Listens, instance: &str) -> Value {
    get(server, &format!("/v1/instances/{instance}")).yes()
}

/// The instances that a query finds.
pub fn found(server: &impl Listens, query: &str) -> Vec<String> {
    let reply = get(server, &format!("/v1/instances?{query}")).yes();
    let id = |item: &Value| format!("{}/{}", item["service"].as_str().unwrap(), item["id"].as_str().unwrap());
    reply["items"].as_array().unwrap().iter().map(id).collect()
}

/// The next message of a watch that is more than a sign of life.
pub fn told(line: &mut Line) -> (Option<String>, Value) {
    loop {
        let (id, data) = line.message().expect("the stream goes on");
        let data = data.expect("every message of this watch has data");
        let is_fresh = data["snapshot"] == false && data["put"] == json!([]) && data["removed"] == json!([]);
        if !is_fresh {
            return (id, data);
        }
    }
}

/// Watches instances.
pub fn watch(server: &impl Listens, query: &str) -> Line {
    let mut line = Line::open(server);
    line.ask("GET", &format!("/v1/watch/instances?{query}"), &[], b"");
    let head = line.head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    line
}
